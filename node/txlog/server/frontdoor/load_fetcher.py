"""What ``LOAD`` names, fetched once, by the master that takes the update: from addresses that its configuration allows,
and from no others (docs/reference/http-api.md#load). What came goes into the log as quads.

A name is looked up once, every address that it has is judged, and the connection goes to one of those that were judged:
a name that means something else a moment later leads nowhere else.
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
"""Types that servers give to files that they do not know: the name says more."""
_NAT64_PREFIX: Final = ipaddress.ip_network("64:ff9b::/96")
"""Addresses that stand for those of the older kind (NAT64)."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class _AddressNotAllowed(OSError):
    """A name leads to an address that is not allowed."""


class _AllowlistResolver(AbstractResolver):
    """Looks a name up, and gives it to whoever connects only if every address that it has is allowed."""

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
    """Whether a name may lead there: into the world, or into one of these networks."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if any(found in network for network in networks if network.version == found.version):
        return True
    if isinstance(found, ipaddress.IPv6Address) and (found.sixtofour or found.teredo or found in _NAT64_PREFIX):
        return False  # it stands for another address
    return found.is_global and not found.is_multicast


def match_allowed_source(url: str, sources: Sequence[str]) -> SplitResult | None:
    """The parts of a URL that one of the sources allows: the very URL, or what is below it where it ends in a slash.
    None for any other."""
    try:
        parts = urlsplit(url)
        place = _origin_of(parts)
        segments = [unquote(segment) for segment in parts.path.split("/")]
        # What one server takes for a step upwards, another does not: such paths are nobody's business here.
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
    """``config``: what is allowed."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._networks = [ipaddress.ip_network(each) for each in config.networks]
        self._fetch_slots = asyncio.Semaphore(CONCURRENT_FETCHES_MAX)

    async def fetch_all(self, asked: Sequence[LoadRequest], seconds: float) -> dict[str, LoadedDocument]:
        """The documents by URL. Those of a ``LOAD SILENT`` that cannot be had are missing; one that is not allowed is
        refused in any case. :class:`BadInput` names the URL and what is wrong, :class:`TooLarge` one that is too
        large, :class:`Unavailable` one that did not come in time."""
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
        # No proxy, no cookie, no password of this machine's goes along; what is packed could unfold to a flood.
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
    """Nothing is told of what is there: it might be what somebody wanted to know."""
    why = "it leads to an address that is not allowed" if redirected else "this address is not allowed"
    return _SourceNotAllowed(f"LOAD <{url[:200]}>: {why} (spec.load); send the document as an upload")
