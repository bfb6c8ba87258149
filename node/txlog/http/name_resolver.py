"""Addresses of peers and workers. Each name is looked up in a thread of its own.

The loop looks up all names in one pool of four threads. A name server that a split has cut off takes many seconds to
fail, and a master connects to its silent peers again and again. Their names would hold the whole pool, and reads would
fail although their worker runs: its name would wait behind those of the other data centre.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

Addresses = list[tuple[socket.AddressFamily, str]]

_lock: Final = Lock()
_pending: Final[dict[str, Future[Addresses]]] = {}
"""Look-ups under way, by name. Names come from the configuration, so there are few."""


async def resolve_name(host: str) -> Addresses:
    """The addresses of this name, at least one, each once, in the order of preference. All that ask for a name that is
    being looked up share the look-up, so a name holds one thread at most, also when askers give up.

    ``OSError`` if the name cannot be resolved."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        lookup = _shared_lookup(host)
        await _ended(lookup)
        return lookup.result()
    return [(socket.AF_INET if address.version == 4 else socket.AF_INET6, host)]


async def _ended(lookup: Future[Addresses]) -> None:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def on_ended(_: Future[Addresses]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(wake)

    lookup.add_done_callback(on_ended)
    await waiter


def _shared_lookup(host: str) -> Future[Addresses]:
    with _lock:
        lookup = _pending.get(host)
        if lookup is None:
            lookup = Future()
            # A process that ends does not wait for a name server: the thread is a daemon.
            thread = Thread(target=_look_up, args=(host, lookup), name=f"look-up of {host}", daemon=True)
            try:
                thread.start()
            except RuntimeError as refused:  # the process may have no more threads
                raise OSError(f"{host[:80]} was not looked up: {refused}") from None
            _pending[host] = lookup
    return lookup


def _look_up(host: str, lookup: Future[Addresses]) -> None:
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found: Addresses = list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in rows))
    except (OSError, ValueError) as failed:
        error = failed if isinstance(failed, OSError) else socket.gaierror(f"{host[:80]!r} is no name: {failed}")
        _forget(host)
        lookup.set_exception(error)
    else:
        _forget(host)
        lookup.set_result(found)


def _forget(host: str) -> None:
    with _lock:
        del _pending[host]


class NameResolver(AbstractResolver):
    """:func:`resolve_name` for sessions of aiohttp."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of this name that are of this family."""
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in await resolve_name(host)
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Nothing is open."""
