"""What a link asks of masters, besides what any client does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from txlog.client.master_client import SPARQL_UPDATE, MasterClient
from txlog.client.responses import WriteResult
from txlog.client.write_headers import parse_write_result, write_headers
from txlog.model.durability import Durability
from txlog.model.errors import PeerFault

T = TypeVar("T")
ANSWER_S: Final = 10.0
VALUES_S: Final = 60.0
SWITCH_S: Final = 60.0
SITES_PATH: Final = "/txlog/sites"


class LogPosition(msgspec.Struct, frozen=True):
    """An entry of the log of one cluster. ``cluster``: its id. ``hash``: that of the log there in hexadecimal, empty:
    not known."""

    cluster: str
    index: int
    hash: str = ""


class _KeyValues(msgspec.Struct):
    values: list[list[str]]


class SwitchReport(msgspec.Struct, frozen=True, rename="camel"):
    """The last switch of the link with ``site``. ``manifest_offline``: the value of the manifest that counted last.
    ``take_at``: the entry of the order to take its state, 0: none."""

    site: str
    offline: bool
    manifest_offline: bool = False
    take_at: int = 0


class SiteOverview(msgspec.Struct, frozen=True):
    """What a master reports of the links of its data centre. ``links``: the last report of each. ``switches``: which
    ones are offline. ``index``: the last final entry of its log."""

    links: list[dict[str, Any]]
    switches: list[SwitchReport] = []
    index: int = 0

    def is_offline(self, site: str) -> bool:
        """Whether this cluster has the link with a site offline."""
        return any(each.offline for each in self.switches if each.site == site)

    def take_at(self, site: str) -> int:
        """The entry of the order that this cluster takes the state of a site; 0: there is none."""
        return max((each.take_at for each in self.switches if each.site == site), default=0)

    def manifest_offline(self, site: str) -> bool:
        """The value of the manifest that counted last for a site."""
        return any(each.manifest_offline for each in self.switches if each.site == site)


class SiteClient(MasterClient):
    """A master of a site."""

    def site_links(self) -> list[dict[str, Any]]:
        """The last report of each link of the master's data centre."""
        return self.site_overview().links

    def site_overview(self) -> SiteOverview:
        """``GET /txlog/sites``."""
        return self._json.get(SITES_PATH, SiteOverview)

    def switch_site(self, site: str, *, offline: bool, by_manifest: bool = False) -> dict[str, Any]:
        """``PATCH /txlog/sites/{name}``: take the link with a site offline, or bring it online. ``by_manifest``: the
        manifest has this value now. Raises :class:`NotFound` for a site without a link here. ``index`` of the answer is
        the entry of the switch, None where it is not stable yet."""
        body = {"offline": offline, "byManifest": by_manifest}
        path = f"{SITES_PATH}/{quote(site)}"
        return self._json.call("PATCH", path, dict[str, Any], body=body, timeout_s=SWITCH_S, repeatable=True)

    def order_state(self, site: str, *, takes: bool) -> dict[str, Any]:
        """``PATCH /txlog/sites/{name}``: take the state of a site, or no longer do so; otherwise as
        :meth:`switch_site`. Each call that takes it is one more order."""
        path = f"{SITES_PATH}/{quote(site)}"
        return self._json.call("PATCH", path, dict[str, Any], body={"takeState": takes}, timeout_s=SWITCH_S)

    def state_lines(self, cluster: str, after: int) -> Iterator[bytes]:
        """``GET /txlog/site/state``: the lines of all data at a final position, which is not before the entry
        ``after`` (:mod:`txlog.sites.state_lines`). Raises :class:`NoChangeSets`, :class:`LogAhead`,
        :class:`LogDiverged` for another cluster, and :class:`Unavailable`."""
        path = f"/txlog/site/state?{urlencode({'after': after, 'cluster': cluster})}"
        return self._connection.follow_lines(path, headers={}, timeout_s=VALUES_S)

    def key_values(self, position: LogPosition, kind: str, keys: Sequence[str]) -> list[list[str]]:
        """``POST /txlog/site/values``: the quads of each key after a final entry, as lines of N-Quads. ``kind``:
        ``property``, ``subject`` or ``quad``. Raises :class:`LogGone` where change sets are not kept from there on,
        :class:`LogAhead`, :class:`LogDiverged`, also for another cluster, and :class:`NoChangeSets`."""
        path = "/txlog/site/values"
        body = msgspec.structs.asdict(position) | {"kind": kind, "keys": list(keys)}
        answer = self._json.call("POST", path, _KeyValues, body=body, timeout_s=VALUES_S, repeatable=True)
        if len(answer.values) != len(keys):
            raise PeerFault(self.url, "Malformed", f"{path}: {len(answer.values)} values of {len(keys)} keys")
        return answer.values

    def write_entry(self, repository: str, text: bytes, key: str, wait_s: float) -> WriteResult:
        """Write an update with SPARQL's meaning, however the cluster is set: what it deletes without a graph is in the
        default graph. Otherwise as :meth:`MasterClient.write`, at the level ``synced``."""
        headers = write_headers(SPARQL_UPDATE, key, Durability.SYNCED, None, wait_s)
        headers["TxLog-Updates-Without-Graph"] = "default"
        path = f"/repositories/{quote(repository)}/statements"
        timeout_s = wait_s + self._timeout_s
        reply = self._connection.request("POST", path, body=text, headers=headers, timeout_s=timeout_s)
        return parse_write_result(reply.headers)


def ask_site(ask: Callable[[SiteClient], T]) -> Callable[[MasterClient], T]:
    """The same question at the address of another client."""

    def ask_there(master: MasterClient) -> T:
        with SiteClient(master.url, timeout_s=ANSWER_S) as client:
            return ask(client)

    return ask_there
