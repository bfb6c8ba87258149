"""Fetches the sources of ``LOAD`` once, at the master that accepts the update. Only addresses that its configuration
allows are fetched (docs/reference/http-api.md#load). The content goes into the log as quads.

A name is resolved once, all its addresses are checked, and the connection goes to one of the checked addresses. A name
that resolves differently a moment later thus leads to no other address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from posixpath import splitext
from typing import Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from txlog.config.process_config import LoadConfig
from txlog.model.errors import BadInput, TooLarge, TxLogError, Unavailable
from txlog.sparql import LoadedDocument, LoadRequest

REDIRECTS_MAX: Final = 5
CONCURRENT_FETCHES_MAX: Final = 4
RETRY_S: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_ACCEPT: Final = (
    "application/n-quads, application/n-triples, text/turtle, application/trig, application/rdf+xml;q=0.8, "
    "application/ld+json;q=0.5"
)
_MEDIA_TYPE_BY_SUFFIX: Final = {
    ".nq": "application/n-quads",
    ".nt": "application/n-triples",
    ".ttl": "text/turtle",
    ".trig": "application/trig",
    ".rdf": "application/rdf+xml",
    ".owl": "application/rdf+xml",
    ".jsonld": "application/ld+json",
}
_GENERIC_MEDIA_TYPES: Final = ("", "text/plain", "application/octet-stream", "binary/octet-stream")
"""Types that servers give to unknown files: the file name is more precise."""
_NAT64_PREFIX: Final = ipaddress.ip_network("64:ff9b::/96")
"""Addresses that represent IPv4 addresses (NAT64)."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class _AddressNotAllowed(OSError):
    """A name resolves to an address that is not allowed."""


class _AllowlistResolver(AbstractResolver):
    """Resolves a name, and returns its addresses only if all of them are allowed."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        addresses = [(kind, str(address[0])) for kind, _, _, _, address in found]
        if not addresses or not all(is_address_allowed(address, self._networks) for _, address in addresses):
            raise _AddressNotAllowed(host)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in addresses
        ]

    async def close(self) -> None:
        pass


def is_address_allowed(address: str, networks: Sequence[Network]) -> bool:
    """Whether a fetch may connect to this address: a public one, or one in these networks."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if any(found in network for network in networks if network.version == found.version):
        return True
    if isinstance(found, ipaddress.IPv6Address) and (found.sixtofour or found.teredo or found in _NAT64_PREFIX):
        return False  # it represents another address
    return found.is_global and not found.is_multicast


def match_allowed_source(url: str, sources: Sequence[str]) -> SplitResult | None:
    """The parts of a URL that one of the sources allows; None for any other. A source that ends in a slash allows every
    URL below it, any other source only itself."""
    try:
        parts = urlsplit(url)
        place = _origin_of(parts)
        segments = [unquote(segment) for segment in parts.path.split("/")]
        # Servers differ in what they take for a step upwards, so such paths are never allowed.
        odd = any(segment in (".", "..") or "/" in segment or "\\" in segment for segment in segments)
        if place is None or parts.username is not None or parts.password is not None or odd or not url.isascii():
            return None
        for source in sources:
            allowed = urlsplit(source)
            below = allowed.path.endswith("/") and parts.path.startswith(allowed.path)
            if _origin_of(allowed) == place and (below or (parts.path, parts.query) == (allowed.path, allowed.query)):
                return parts
    except ValueError:
        pass
    return None


def _origin_of(parts: SplitResult) -> tuple[str, str, int] | None:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


class LoadFetcher:
    """Fetches documents for ``LOAD``. ``config``: the allowed sources."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._networks = [ipaddress.ip_network(each) for each in config.networks]
        self._fetch_slots = asyncio.Semaphore(CONCURRENT_FETCHES_MAX)

    async def fetch_all(self, asked: Sequence[LoadRequest], seconds: float) -> dict[str, LoadedDocument]:
        """The documents by URL. Unavailable documents of a ``LOAD SILENT`` are missing; a URL that is not allowed is
        refused in any case. :class:`BadInput` names the URL and the error. :class:`TooLarge`: a document is too large.
        :class:`Unavailable`: a document did not arrive in time."""
        for each in asked:
            if match_allowed_source(each.url, self._config.sources) is None:
                raise _source_not_allowed(each.url)
        loud = {each.url for each in asked if not each.silent}
        found: dict[str, LoadedDocument] = {}
        seconds = min(seconds, self._config.timeout_ms / 1000)
        try:
            async with asyncio.timeout(seconds):
                for url in dict.fromkeys(each.url for each in asked):
                    try:
                        async with self._fetch_slots:
                            found[url] = await self._fetch(url)
                    except _SourceNotAllowed:
                        raise
                    except TxLogError:
                        if url in loud:
                            raise
        except TimeoutError:
            raise Unavailable("LoadTimeout", f"LOAD: not all of it came within {seconds:g} s", RETRY_S) from None
        return found

    async def _fetch(self, url: str) -> LoadedDocument:
        connector = TCPConnector(resolver=_AllowlistResolver(self._networks), use_dns_cache=False, force_close=True)
        # The request carries no proxy, cookie or password of this machine. A compressed body could grow without bound.
        async with ClientSession(
            connector=connector,
            trust_env=False,
            auto_decompress=False,
            headers={"Accept": _ACCEPT, "Accept-Encoding": "identity", "User-Agent": "txlog"},
            timeout=ClientTimeout(total=None),
        ) as session:
            at = url
            for _ in range(REDIRECTS_MAX + 1):
                if match_allowed_source(at, self._config.sources) is None:
                    raise _source_not_allowed(url, redirected=True)
                try:
                    asked = URL(at.partition("#")[0], encoded=True)
                    async with session.get(asked, allow_redirects=False) as answer:
                        target = answer.headers.get("Location")
                        if answer.status in _REDIRECTS and target is not None:
                            at = urljoin(at, target)
                            continue
                        return await self._read_document(url, at, answer)
                except _AddressNotAllowed:
                    raise _source_not_allowed(url) from None
                except (ClientError, OSError, ValueError) as lost:
                    if isinstance(lost.__cause__, _AddressNotAllowed):
                        raise _source_not_allowed(url) from None
                    raise BadInput(f"LOAD <{url[:200]}>: it cannot be fetched: {type(lost).__name__}") from None
        raise BadInput(f"LOAD <{url[:200]}>: more than {REDIRECTS_MAX} redirects")

    async def _read_document(self, url: str, at: str, answer: ClientResponse) -> LoadedDocument:
        if answer.status != 200:
            raise BadInput(f"LOAD <{url[:200]}>: it answered {answer.status}")
        if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            raise BadInput(f"LOAD <{url[:200]}>: it came packed although identity was asked for")
        most = self._config.bytes_max
        body = bytearray()
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > most:
                raise TooLarge(f"LOAD <{url[:200]}>: above {most} bytes; send it in parts as uploads")
        media = answer.headers.get("Content-Type", "")
        if media.partition(";")[0].strip().lower() in _GENERIC_MEDIA_TYPES:
            media = _MEDIA_TYPE_BY_SUFFIX.get(splitext(urlsplit(at).path)[1].lower(), media)
        return LoadedDocument(bytes(body), media, at)


class _SourceNotAllowed(BadInput):
    pass


def _source_not_allowed(url: str, *, redirected: bool = False) -> _SourceNotAllowed:
    """The message reveals nothing about the target: that could be what an attacker wants to know."""
    why = "it leads to an address that is not allowed" if redirected else "this address is not allowed"
    return _SourceNotAllowed(f"LOAD <{url[:200]}>: {why} (spec.load); send the document as an upload")
