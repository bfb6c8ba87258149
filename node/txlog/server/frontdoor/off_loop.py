"""Long work of one request, in a thread: while the event loop computes, no other request is answered, and the other
masters receive nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from txlog.model.errors import BadInput

T = TypeVar("T")

OFF_LOOP_BYTES: Final = 256 << 10
"""A larger RDF body is parsed in a thread. It takes more than a few milliseconds."""
OFF_LOOP_SPARQL: Final = 8 << 10
"""The same for a text in SPARQL, in characters. Each one costs some 2 µs, thirty times what one of RDF costs."""
OFF_LOOP_TERMS: Final = 64 << 10
"""The same for a payload whose terms are checked, in bytes."""
FORM_FIELDS_MAX: Final = 10_000
"""Fields of one form. A field costs 1 µs and 200 bytes, so that the shortest ones would fill the memory."""
_SPARQL_THREADS: Final = 2
"""Such work is Python's, which one thread executes at a time: more threads would only delay the loop."""

_update_pool = ThreadPoolExecutor(_SPARQL_THREADS, "sparql-updates")
_query_pool = ThreadPoolExecutor(_SPARQL_THREADS, "sparql-queries")
"""One of its own, so that readers cannot keep writers waiting."""


async def run_off_loop(size: int, work: Callable[[], T], least: int = OFF_LOOP_BYTES) -> T:
    """What ``work`` returns. It runs in a thread if ``size`` is at least ``least``, so it must not use what the loop
    changes."""
    if size < least:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def run_sparql_off_loop(size: int, work: Callable[[], T], *, is_query: bool = False) -> T:
    """The same for work on a text in SPARQL of ``size`` characters: an update, or a query."""
    if size < OFF_LOOP_SPARQL:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_query_pool if is_query else _update_pool, work)


async def parse_form(text: str, *, is_query: bool = False) -> list[tuple[str, str]]:
    """The fields of a form with an update or a query, in order. :class:`BadInput` for more than
    :data:`FORM_FIELDS_MAX`."""

    def parse() -> list[tuple[str, str]]:
        try:
            return parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
        except ValueError:
            raise BadInput(f"a form may have {FORM_FIELDS_MAX} fields") from None

    return await run_sparql_off_loop(len(text), parse, is_query=is_query)
