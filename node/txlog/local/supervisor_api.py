"""The HTTP API of a supervisor for the command line: on loopback, with a token from the state folder.

=======  ===========================  ==================================================================
method   path                         meaning
=======  ===========================  ==================================================================
GET      /status                      the supervisor, its processes, the faults of links
POST     /down                        end everything; answers at once
GET      /links                       every direction: delay, cut, connections that its source opened
POST     /links                       ``{"action": "delay"|"cut"|"heal", "a", "b", "delayMs", "oneWay", "delays"}``
POST     /workers                     ``{"action": "add"|"serve"|"remove", "name", "dataCenter", "purge"}``
POST     /processes/NAME/ACTION       ``start``, ``stop`` (stays down), ``kill`` (SIGKILL, starts again)
=======  ===========================  ==================================================================

Errors are ``{"error": name, "message": text}``. (Loopback with a token rather than a Unix socket, since the path of
a socket may have only about 100 characters.)
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from txlog.local.link_faults import LinkFaultTable
from txlog.local.local_errors import CannotRun
from txlog.local.state_folder import SupervisorEndpoint
from txlog.local.supervisor import Supervisor
from txlog.local.worker_scaler import WorkerScaling
from txlog.model.errors import BadInput, NotFound, TxLogError, Unauthorized

ControlHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ControlApi:
    """The handlers. ``token``: what a client must show. ``stop`` ends the supervisor. Without ``scaling`` no worker can
    be added or removed."""

    def __init__(
        self, supervisor: Supervisor, stop: asyncio.Event, token: str, scaling: WorkerScaling | None = None
    ) -> None:
        self._supervisor = supervisor
        self._stop = stop
        self._token = token
        self._scaling = scaling

    def application(self) -> web.Application:
        """All routes, behind the check of the token."""
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/status", self.get_status),
                web.post("/down", self.stop_supervisor),
                web.get("/links", self.list_links),
                web.post("/links", self.change_links),
                web.post("/workers", self.change_workers),
                web.post("/processes/{name}/{action}", self.control_process),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: ControlHandler) -> web.StreamResponse:
        try:
            if not hmac.compare_digest(request.headers.get("Authorization", ""), f"Bearer {self._token}"):
                raise Unauthorized("the token of control.json is needed")
            return await handler(request)
        except TxLogError as error:
            return web.json_response({"error": error.name, "message": str(error)}, status=error.status)
        except (ValueError, KeyError, TypeError) as error:
            return web.json_response({"error": "BadInput", "message": f"not understood: {error}"}, status=400)
        except OSError as error:  # such as a full disk
            return web.json_response({"error": "CannotRun", "message": f"not carried out: {error}"}, status=500)

    async def get_status(self, _: web.Request) -> web.Response:
        """The supervisor, its processes, the faults of links."""
        return web.json_response(self._supervisor.describe())

    async def stop_supervisor(self, _: web.Request) -> web.Response:
        """Ends everything; answers at once."""
        self._stop.set()
        return web.json_response({})

    async def list_links(self, _: web.Request) -> web.Response:
        """Every direction with its delay, cut, and the connections that its source opened."""
        supervisor = self._supervisor
        carried = {(row["from"], row["to"]): row["connections"] for row in await supervisor.push_link_faults()}
        faults = [(a, b, supervisor.links.fault(a, b)) for a, b in supervisor.links.directions]
        return web.json_response(
            [
                {"from": a, "to": b, "delayMs": fault.delay_ms, "cut": fault.cut, "connections": carried.get((a, b), 0)}
                for a, b, fault in faults
            ]
        )

    async def change_links(self, request: web.Request) -> web.Response:
        """Delays, cuts or heals links."""
        wanted = await request.json()
        count = await self._supervisor.change_links(lambda table: _change_link(table, wanted))
        return web.json_response({"directions": count})

    async def change_workers(self, request: web.Request) -> web.Response:
        """Adds a store, makes it a worker, or removes it."""
        if self._scaling is None:
            raise CannotRun("the plan of this supervisor does not change")
        wanted = await request.json()
        match wanted["action"]:
            case "add":
                added = await self._scaling.add(wanted["name"], wanted["dataCenter"])
                return web.json_response({"url": added.url, "engine": added.engine})
            case "serve":
                await self._scaling.serve(wanted["name"])
            case "remove":
                await self._scaling.remove(wanted["name"], purge=bool(wanted.get("purge", False)))
            case _:
                raise BadInput("action is add, serve or remove")
        return web.json_response({})

    async def control_process(self, request: web.Request) -> web.Response:
        """Starts, stops or kills a process."""
        supervisor = self._supervisor
        actions = {"start": supervisor.start, "stop": supervisor.stop, "kill": supervisor.kill}
        action = actions.get(request.match_info["action"])
        if action is None:
            raise NotFound(f"no such action; there are {', '.join(actions)}")
        await action(request.match_info["name"])
        return web.json_response({})


@asynccontextmanager
async def serve_control_api(
    supervisor: Supervisor, stop: asyncio.Event, scaling: WorkerScaling | None = None
) -> AsyncIterator[str]:
    """Serves until the context ends; yields the URL. Meanwhile ``control.json`` contains the URL and the token. Without
    ``scaling`` no worker can be added or removed."""
    token = secrets.token_hex(24)
    app = ControlApi(supervisor, stop, token, scaling).application()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        supervisor.state.write("control.json", SupervisorEndpoint(url=url, token=token, pid=os.getpid()).model_dump())
        yield url
    finally:
        await runner.cleanup()
        (supervisor.state.root / "control.json").unlink(missing_ok=True)


def _change_link(table: LinkFaultTable, wanted: dict[str, Any]) -> int:
    match wanted.get("action"):
        case "delay":
            return table.delay(wanted["a"], wanted["b"], float(wanted["delayMs"]))
        case "cut":
            return table.cut(wanted["a"], wanted["b"], bool(wanted.get("oneWay", False)))
        case "heal":
            return table.heal(wanted.get("a"), wanted.get("b"), delays=bool(wanted.get("delays", False)))
        case _:
            raise BadInput("action is delay, cut or heal")
