"""What a link asks of masters, besides what any client does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from txlog.client.connection import MasterConnection
from txlog.client.json_calls import JsonCalls
from txlog.client.master_client import SPARQL_UPDATE, MasterClient
from txlog.client.responses import WriteResult
from txlog.client.write_headers import parse_write_result, write_headers
from txlog.model.durability import Durability
from txlog.model.errors import PeerFault

ANSWER_S: Final = 10.0
VALUES_S: Final = 60.0


class LogPosition(NamedTuple):
    """An entry of the log of one cluster. ``cluster``: its id. ``hash``: that of the log there in hexadecimal, empty:
    not known."""

    cluster: str
    index: int
    hash: str = ""


class _KeyValues(msgspec.Struct):
    values: list[list[str]]


class _SiteLinks(msgspec.Struct):
    links: list[dict[str, Any]]


class SiteClient(MasterClient):
    """A master of a site."""

    def site_links(self) -> list[dict[str, Any]]:
        """``GET /txlog/sites``: the last report of each link of the master's data centre."""
        return self._json.get("/txlog/sites", _SiteLinks).links

    def key_values(self, position: LogPosition, kind: str, keys: Sequence[str]) -> list[list[str]]:
        """``POST /txlog/site/values``: the quads of each key after a final entry, as lines of N-Quads. ``kind``:
        ``property``, ``subject`` or ``quad``. Raises :class:`LogGone` where change sets are not kept from there on,
        :class:`LogAhead`, :class:`LogDiverged`, also for another cluster, and :class:`NoChangeSets`."""
        path = "/txlog/site/values"
        body = position._asdict() | {"kind": kind, "keys": list(keys)}
        answer = self._json.call("POST", path, _KeyValues, body=body, timeout_s=VALUES_S, repeatable=True)
        if len(answer.values) != len(keys):
            raise PeerFault(self.url, "Malformed", f"{path}: {len(answer.values)} values of {len(keys)} keys")
        return answer.values

    def write_entry(self, repository: str, text: bytes, key: str, wait_s: float) -> WriteResult:
        """Write an update with SPARQL's meaning, whatever the cluster says: what it deletes without a graph is in the
        default graph. Otherwise as :meth:`MasterClient.write`, at the level ``synced``."""
        headers = write_headers(SPARQL_UPDATE, key, Durability.SYNCED, None, wait_s)
        headers["TxLog-Updates-Without-Graph"] = "default"
        path = f"/repositories/{quote(repository)}/statements"
        timeout_s = wait_s + self._timeout_s
        reply = self._connection.request("POST", path, body=text, headers=headers, timeout_s=timeout_s)
        return parse_write_result(reply.headers)


def read_site_links(master: MasterClient) -> list[dict[str, Any]]:
    """``GET /txlog/sites`` at the same address: the last report of each link of the master's data centre."""
    with closing(MasterConnection(master.url, timeout_s=ANSWER_S)) as connection:
        return list(JsonCalls(connection).get("/txlog/sites", dict[str, Any])["links"])
