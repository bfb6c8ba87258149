"""``explain``: how a worker evaluates a query, as RDF4J's server gives it from version 5.2 on.

Only that engine tells a plan over HTTP. What it tells is about the query that the worker gets, which hides TxLog's
graphs. An older server ignores the parameter and answers the query, so the answer is looked at before it is passed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from aiohttp import ClientError, ClientResponse

from txlog.config.units import server_of_engine
from txlog.http.router import Request, Response, bytes_response
from txlog.model.errors import BadInput, Unavailable
from txlog.server.frontdoor.read_router import RETRY_S, ReadRouter, WorkerQuery
from txlog.workers.adapter import Unreachable, WorkerRequest

LEVELS: Final = ("Unoptimized", "Optimized", "Executed", "Timed")
ENGINE: Final = "rdf4j"
PLAN_BYTES_MAX: Final = 4 << 20
"""A longer answer is no plan."""
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_NODE: Final = re.compile(rb"[A-Z][A-Za-z]+[ (\r\n]")
"""What a plan in text begins with; no result of a query in that media type does."""


def parse_level(values: Mapping[str, str]) -> str:
    """The level that a request asks for, "" without one. :class:`BadInput` for another one than :data:`LEVELS`."""
    level = values.get("explain", "")
    if "explain" in values and level not in LEVELS:
        raise BadInput(f"Invalid explanation level: {level[:40]}; there are {', '.join(LEVELS)}")
    return level


async def explain_query(
    router: ReadRouter, request: Request, query: WorkerQuery, level: str, seconds: float | None
) -> Response:
    """The plan of the first worker that tells one. ``query.accept`` chooses between JSON and text.

    :class:`BadInput` if no worker here has an engine that tells plans; :class:`Unavailable` if none can be reached."""
    media = _JSON if _JSON in query.accept.lower() else _TEXT
    stores = [
        store for store in await router.choose(request, seconds) if server_of_engine(store.adapter.engine) == ENGINE
    ]
    if not stores:
        raise BadInput(
            "explain: its engine's plan is not available, because no worker of this data centre has an engine that "
            "tells it (RDF4J 5.2 or newer); send the query without explain, or ask the engine itself"
        )
    for store in stores:
        try:
            asked = _with_level(await router.build_request(store, query), level, media)
            async with router.open_response(store, asked, seconds) as answer:
                if answer.status in (502, 503, 504):
                    continue
                body = await _read_plan(answer)
                if answer.status == 200 and _is_plan(body, media):
                    return bytes_response(body, media)
                if answer.status == 400:
                    raise BadInput(f"MALFORMED QUERY: {body[:2000].decode('utf-8', 'replace').strip()}")
                raise BadInput(
                    f"explain: the engine of {store.worker.name} answers {answer.status} without a plan; RDF4J tells "
                    "plans from version 5.2 on"
                )
        except (TimeoutError, Unreachable, ClientError):
            continue
    raise Unavailable("NoWorker", "no worker of this data centre that tells plans can be reached; ask again", RETRY_S)


def _with_level(asked: WorkerRequest, level: str, media: str) -> WorkerRequest:
    path = f"{asked.path}{'&' if '?' in asked.path else '?'}{urlencode({'explain': level})}"
    return replace(asked, path=path, headers={**asked.headers, "Accept": media})


async def _read_plan(answer: ClientResponse) -> bytes:
    """The body, b"" if it is longer than a plan may be."""
    found = bytearray()
    async for piece in answer.content.iter_any():
        found += piece
        if len(found) > PLAN_BYTES_MAX:
            return b""
    return bytes(found)


def _is_plan(body: bytes, media: str) -> bool:
    if media == _TEXT:
        return _NODE.match(body) is not None
    try:
        found = json.loads(body)
    except ValueError:
        return False
    return isinstance(found, dict) and isinstance(found.get("type"), str)
