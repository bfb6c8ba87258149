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

from txlog.local.local_errors import CannotRun
from txlog.local.state_folder import SupervisorEndpoint
from txlog.local.supervisor import Supervisor
from txlog.local.worker_scaler import WorkerScaling
from txlog.model.errors import BadInput, NotFound, TxLogError, Unauthorized

ControlHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve_control_api(
    supervisor: Supervisor, stop: asyncio.Event, altering: WorkerScaling | None = None
) -> AsyncIterator[str]:
    """Serves until the context ends; yields the URL. Meanwhile ``control.json`` contains the URL and the token. Without
    ``altering`` no worker can be added or removed."""
    token = secrets.token_hex(24)

    @web.middleware
    async def guard(request: web.Request, handler: ControlHandler) -> web.StreamResponse:
        try:
            if not hmac.compare_digest(request.headers.get("Authorization", ""), f"Bearer {token}"):
                raise Unauthorized("the token of control.json is needed")
            return await handler(request)
        except TxLogError as error:
            return web.json_response({"error": error.name, "message": str(error)}, status=error.status)
        except (ValueError, KeyError, TypeError) as error:
            return web.json_response({"error": "BadInput", "message": f"not understood: {error}"}, status=400)

    async def status(_: web.Request) -> web.Response:
        return web.json_response(supervisor.describe())

    async def down(_: web.Request) -> web.Response:
        stop.set()
        return web.json_response({})

    async def links(_: web.Request) -> web.Response:
        return web.json_response(await _list_links(supervisor))

    async def change(request: web.Request) -> web.Response:
        order = await request.json()
        count = await supervisor.change_links(lambda table: _change_link(table, order))
        return web.json_response({"directions": count})

    async def workers(request: web.Request) -> web.Response:
        if altering is None:
            raise CannotRun("the plan of this supervisor does not change")
        order = await request.json()
        if order["action"] == "add":
            added = await altering.add(order["name"], order["dataCenter"])
            return web.json_response({"url": added.url, "engine": added.engine})
        if order["action"] == "serve":
            await altering.serve(order["name"])
        elif order["action"] == "remove":
            await altering.remove(order["name"], purge=bool(order.get("purge", False)))
        else:
            raise BadInput("action is add, serve or remove")
        return web.json_response({})

    async def act(request: web.Request) -> web.Response:
        actions = {"start": supervisor.start, "stop": supervisor.stop, "kill": supervisor.kill}
        action = actions.get(request.match_info["action"])
        if action is None:
            raise NotFound(f"no such action; there are {', '.join(actions)}")
        await action(request.match_info["name"])
        return web.json_response({})

    app = web.Application(middlewares=[guard])
    app.add_routes(
        [
            web.get("/status", status),
            web.post("/down", down),
            web.get("/links", links),
            web.post("/links", change),
            web.post("/workers", workers),
            web.post("/processes/{name}/{action}", act),
        ]
    )
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


def _change_link(table: Any, order: dict[str, Any]) -> int:
    action = order.get("action")
    count: int
    if action == "delay":
        count = table.delay(order["a"], order["b"], float(order["delayMs"]))
    elif action == "cut":
        count = table.cut(order["a"], order["b"], bool(order.get("oneWay", False)))
    elif action == "heal":
        count = table.heal(order.get("a"), order.get("b"), delays=bool(order.get("delays", False)))
    else:
        raise BadInput("action is delay, cut or heal")
    return count


async def _list_links(supervisor: Supervisor) -> list[dict[str, Any]]:
    carried = {(row["from"], row["to"]): row["connections"] for row in await supervisor.push_link_faults()}
    return [
        {
            "from": a,
            "to": b,
            "delayMs": supervisor.links.fault(a, b).delay_ms,
            "cut": supervisor.links.fault(a, b).cut,
            "connections": carried.get((a, b), 0),
        }
        for a, b in supervisor.links.directions
    ]
