"""The supervisor of a state folder, from outside. Its API is described in :mod:`txlog.local.supervisor_api`."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

from txlog.local.local_errors import CannotRun, NotRunning
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput, NotFound


class SupervisorClient:
    """The supervisor of a state folder, from outside; blocking. Every call raises :class:`NotRunning` without one."""

    def __init__(self, state: StateFolder, timeout_s: float = 60.0) -> None:
        self._state = state
        self._timeout_s = timeout_s

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._request("GET", "/status")
        return found

    def down(self) -> None:
        self._request("POST", "/down")

    def links(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._request("GET", "/links")
        return found

    def delay(self, a: str, b: str, delay_ms: float) -> int:
        """Each way. Returns how many directions were changed, as do the next two."""
        return self._change_links(action="delay", a=a, b=b, delayMs=delay_ms)

    def cut(self, a: str, b: str, one_way: bool = False) -> int:
        return self._change_links(action="cut", a=a, b=b, oneWay=one_way)

    def heal(self, a: str | None = None, b: str | None = None, *, delays: bool = False) -> int:
        return self._change_links(action="heal", a=a, b=b, delays=delays)

    def start(self, name: str) -> None:
        self._request("POST", f"/processes/{quote(name)}/start")

    def stop(self, name: str) -> None:
        """SIGTERM, and it stays down."""
        self._request("POST", f"/processes/{quote(name)}/stop")

    def kill(self, name: str) -> None:
        """SIGKILL, as a crash; the supervisor starts it again."""
        self._request("POST", f"/processes/{quote(name)}/kill")

    def add_worker(self, name: str, data_center: str) -> tuple[str, str]:
        """An empty store, which nobody knows yet; its URL and its engine."""
        told = self._request("POST", "/workers", {"action": "add", "name": name, "dataCenter": data_center})
        return told["url"], told["engine"]

    def serve_worker(self, name: str) -> None:
        """The masters and the pipeline know it from now on."""
        self._request("POST", "/workers", {"action": "serve", "name": name})

    def remove_worker(self, name: str, *, purge: bool = False) -> None:
        """Returns when the reads that were under way there are over and its process has ended."""
        self._request("POST", "/workers", {"action": "remove", "name": name, "purge": purge})

    def _change_links(self, **order: Any) -> int:
        count: int = self._request("POST", "/links", order)["directions"]
        return count

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        place = self._state.control()
        connection = http.client.HTTPConnection(urlsplit(place.url).netloc, timeout=self._timeout_s)
        try:
            connection.request(
                method, path, json.dumps(body) if body is not None else None, {"Authorization": f"Bearer {place.token}"}
            )
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            raise NotRunning(self._state.root) from None
        finally:
            connection.close()
        if answer.status >= 400:
            kinds = {400: BadInput, 404: NotFound}
            raise kinds.get(answer.status, CannotRun)(said["message"])
        return said
