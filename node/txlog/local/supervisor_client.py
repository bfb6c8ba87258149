"""A client of the supervisor of a state folder. :mod:`txlog.local.supervisor_api` describes the API."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

from txlog.local.local_errors import CannotRun, NotRunning
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput, NotFound


class SupervisorClient:
    """A blocking client of the supervisor of a state folder. Every call raises :class:`NotRunning` without one."""

    def __init__(self, state: StateFolder, timeout_s: float = 60.0) -> None:
        self._state = state
        self._timeout_s = timeout_s

    def status(self) -> dict[str, Any]:
        """The supervisor, its processes, and the faults of links."""
        found: dict[str, Any] = self._request("GET", "/status")
        return found

    def down(self) -> None:
        """Ends everything; returns at once."""
        self._request("POST", "/down")

    def links(self) -> list[dict[str, Any]]:
        """Every direction with its delay, cut and connections."""
        found: list[dict[str, Any]] = self._request("GET", "/links")
        return found

    def delay(self, a: str, b: str, delay_ms: float) -> int:
        """Delays both directions. Returns the number of changed directions, as the next two do."""
        return self._change_links(action="delay", a=a, b=b, delayMs=delay_ms)

    def cut(self, a: str, b: str, one_way: bool = False) -> int:
        """Cuts both directions, or only that from ``a`` to ``b`` (``one_way``)."""
        return self._change_links(action="cut", a=a, b=b, oneWay=one_way)

    def heal(self, a: str | None = None, b: str | None = None, *, delays: bool = False) -> int:
        """Removes cuts (and ``delays``)."""
        return self._change_links(action="heal", a=a, b=b, delays=delays)

    def start(self, name: str) -> None:
        """Starts a process that is stopped or failed."""
        self._request("POST", f"/processes/{quote(name)}/start")

    def stop(self, name: str) -> None:
        """Sends SIGTERM; the process stays down."""
        self._request("POST", f"/processes/{quote(name)}/stop")

    def kill(self, name: str) -> None:
        """Sends SIGKILL, as in a crash; the supervisor restarts the process."""
        self._request("POST", f"/processes/{quote(name)}/kill")

    def add_worker(self, name: str, data_center: str) -> tuple[str, str]:
        """Starts an empty store that no master uses yet; returns its URL and its engine."""
        added = self._request("POST", "/workers", {"action": "add", "name": name, "dataCenter": data_center})
        return added["url"], added["engine"]

    def serve_worker(self, name: str) -> None:
        """From now on the masters and the pipeline use the worker."""
        self._request("POST", "/workers", {"action": "serve", "name": name})

    def remove_worker(self, name: str, *, purge: bool = False) -> None:
        """Returns when the worker's reads in progress have finished and its process has ended."""
        self._request("POST", "/workers", {"action": "remove", "name": name, "purge": purge})

    def _change_links(self, **wanted: Any) -> int:
        count: int = self._request("POST", "/links", wanted)["directions"]
        return count

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        supervisor = self._state.control()
        connection = http.client.HTTPConnection(urlsplit(supervisor.url).netloc, timeout=self._timeout_s)
        try:
            headers = {"Authorization": f"Bearer {supervisor.token}"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            raise NotRunning(self._state.root) from None
        finally:
            connection.close()
        if answer.status >= 400:
            kinds = {400: BadInput, 404: NotFound}
            raise kinds.get(answer.status, CannotRun)(found["message"])
        return found
