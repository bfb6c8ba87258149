"""The client of one master's HTTP API ("The feed" in docs/reference/http-api.md): blocking and typed."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from txlog.client.connection import MasterConnection
from txlog.client.credentials import Credentials
from txlog.client.responses import (
    Doorbell,
    JsonPosition,
    PauseResponse,
    QueryResult,
    StatusResponse,
    TransactionStatus,
    WorkerReport,
    WorkerStatus,
    WriteRequest,
    WriteResult,
)
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.durability import Durability
from txlog.model.errors import PeerFault, Unavailable
from txlog.model.graph_digests import GraphDigests
from txlog.wire.change_feed import NDJSON_MEDIA_TYPE, FeedEvent, parse_event_line
from txlog.wire.log_page import MEDIA_TYPE, LogPage, decode_page

T = TypeVar("T")
PauseReason = Literal["", "look", "repair"]

JSON_RESULTS = "application/sparql-results+json"
SPARQL_UPDATE = "application/sparql-update"
_JSON = {"Content-Type": "application/json"}
_LINES = {"Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}
_encode_line = msgspec.json.Encoder().encode
_decode_written = msgspec.json.Decoder(WriteResult).decode


class MasterClient:
    """One master, by its base URL (``http://host:port``). Keeps one connection, so one thread at a time uses it.

    Every call raises :class:`~txlog.client.errors.MasterUnreachable` when nothing answers within ``timeout_s``
    (connecting: within ``connect_s``), :class:`PeerFault` ``Malformed`` when the answer is none of ours, and
    otherwise the master's own error."""

    def __init__(
        self,
        url: str,
        timeout_s: float = 10.0,
        *,
        connect_s: float = 2.0,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        name: str | None = None,
    ) -> None:
        """``tls``, ``credentials``, ``name``: as :class:`~txlog.client.connection.MasterConnection` has them."""
        self._timeout_s = timeout_s
        self._connection = MasterConnection(
            url, timeout_s=timeout_s, connect_s=connect_s, tls=tls, credentials=credentials, name=name
        )

    @property
    def url(self) -> str:
        return self._connection.url

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> MasterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how it is

    def status(self) -> StatusResponse:
        return self._get("/txlog/status", StatusResponse)

    def peers(self) -> list[dict[str, Any]]:
        """Each peer as this master sees it, in the cluster's order."""
        answer: Any = self._get("/txlog/peers", object)
        return list(answer["peers"] if isinstance(answer, dict) else answer)

    def connectivity(self) -> dict[str, list[str] | None]:
        """Who hears whom, as far as this master knows: node id to those it hears itself, None where it is not known."""
        answer: Any = self._get("/txlog/peers", object)
        found: dict[str, list[str] | None] = answer.get("hears", {}) if isinstance(answer, dict) else {}
        return found

    def workers(self) -> list[WorkerStatus]:
        """The workers of its data centre, as pipelines reported them."""
        reply = self._connection.request("GET", "/txlog/workers").body
        try:
            told = msgspec.json.decode(reply)
            return msgspec.convert(told["workers"] if isinstance(told, dict) else told, list[WorkerStatus])
        except (*DECODE_ERRORS, KeyError) as wrong:
            raise PeerFault(self.url, "Malformed", f"/txlog/workers: {wrong}") from None

    def health(self, kind: str = "ready", timeout_s: float | None = None) -> bool:
        """``kind``: live, ready or startup. False when the master says no; unreachable is an error."""
        try:
            self._connection.request("GET", f"/health/{kind}", timeout_s=timeout_s)
        except Unavailable as no:
            if no.reason == "Unreachable":
                raise
            return False
        return True

    def metrics(self) -> str:
        """The metrics in Prometheus' text format."""
        return self._connection.request("GET", "/metrics").body.decode()

    # -- the log

    def doorbell(self, after: int, tick: int = 0, timeout_s: float = 5.0) -> Doorbell:
        """Wait, at most ``timeout_s`` (30), until the stable index is above ``after`` or the tick above ``tick``."""
        query = urlencode({"after": after, "tick": tick, "timeout": f"{timeout_s:g}"})
        return self._get(f"/txlog/doorbell?{query}", Doorbell, timeout_s=timeout_s + self._timeout_s)

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        unordered: Sequence[tuple[int, bytes]] = (),
    ) -> LogPage:
        """The entries behind index ``after``, at most up to ``upto`` and the stable index, about ``max_bytes`` of
        them (at least one). ``at_hash`` is the caller's chain hash at ``after``: :class:`LogDiverged`,
        :class:`LogAhead` or :class:`LogNeedsRestore` when this log does not continue there; None does not check.
        ``unordered``: what was executed on the way to these places is a no-op; :class:`Unavailable` ``UnknownBranch``
        from a master that never had such an order."""
        query: dict[str, str | int] = {"after": after}
        if at_hash is not None:
            query["hash"] = at_hash.hex()
        if upto is not None:
            query["upto"] = upto
        if max_bytes is not None:
            query["maxBytes"] = max_bytes
        if unordered:
            query["unordered"] = ",".join(f"{index}:{value.hex()}" for index, value in unordered)
        reply = self._connection.request("GET", f"/txlog/log?{urlencode(query)}", headers={"Accept": MEDIA_TYPE})
        return decode_page(self.url, reply.body)

    def watch(
        self,
        start: str = "now",
        *,
        until: int | None = None,
        settled: bool = False,
        heartbeat_s: int = 5,
    ) -> Iterator[FeedEvent]:
        """This master's feed behind the place ``start`` (``INDEX``, ``INDEX:HASH``), as it comes; see
        :class:`~txlog.wire.change_feed.FeedEvent` and, for one that goes on at other masters,
        :class:`~txlog.client.Follower`.
        :class:`LogGone`, :class:`LogDiverged`, :class:`LogAhead`."""
        query: dict[str, str | int] = {"from": start, "heartbeat": heartbeat_s}
        if until is not None:
            query["until"] = until
        if settled:
            query["level"] = "settled"
        lines = self._connection.follow_lines(
            f"/txlog/watch?{urlencode(query)}",
            headers={"Accept": NDJSON_MEDIA_TYPE},
            timeout_s=3 * heartbeat_s + self._timeout_s,
        )
        for line in lines:
            event = parse_event_line(self.url, line)
            if event is not None:
                yield event

    # -- the repository

    def query(
        self,
        repository: str,
        text: str,
        *,
        accept: str = JSON_RESULTS,
        at_least: JsonPosition | None = None,
        wait_s: float,
    ) -> QueryResult:
        """A SPARQL query, answered by a worker that has executed ``at_least`` (:attr:`WriteResult.position`); the whole
        answer, in the form ``accept``. :class:`Unavailable` when there is no such worker after ``wait_s``."""
        headers = {"Content-Type": "application/sparql-query", "Accept": accept, "Prefer": f"wait={wait_s:g}"}
        if at_least is not None:
            headers["TxLog-Min-Position"] = f"{at_least.epoch}:{at_least.index}:{at_least.hash}"
        reply = self._connection.request(
            "POST",
            f"/repositories/{quote(repository)}",
            body=text.encode(),
            headers=headers,
            timeout_s=wait_s + self._timeout_s,
        )
        return QueryResult(reply.body, reply.headers.get("Content-Type", ""), reply.headers.get("TxLog-Worker", ""))

    def write(
        self,
        repository: str,
        body: bytes,
        media: str,
        *,
        graphs: Sequence[str] = (),
        key: str | None = None,
        durability: Durability | None = None,
        wait_s: float,
    ) -> WriteResult:
        """One transaction: an update (:data:`SPARQL_UPDATE`), or RDF to add, in ``graphs`` (IRIs without brackets) if
        there are some. ``durability`` is what was reached within ``wait_s``, None while nobody knows; without ``txid``
        it is not even known whether it was taken. Sent again only with a ``key``, or when it surely was not sent.
        :class:`KeyNotTaken`, :class:`KeyTaken`; :class:`Conflict` when workers refuse it."""
        headers = {"Content-Type": media, "Prefer": f"wait={wait_s:g}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        if durability is not None:
            headers["TxLog-Durability"] = durability.value
        query = "?" + urlencode([("context", f"<{graph}>") for graph in graphs]) if graphs else ""
        reply = self._connection.request(
            "POST",
            f"/repositories/{quote(repository)}/statements{query}",
            body=body,
            headers=headers,
            timeout_s=wait_s + self._timeout_s,
            repeatable=key is not None,
        )
        told = reply.headers
        return WriteResult(
            told.get("TxLog-Transaction"), _parse_position(told.get("TxLog-Position")), told.get("TxLog-Durability")
        )

    # -- transactions

    def transaction(
        self, txid: str, wait_s: float | None = None, durability: Durability | None = None
    ) -> TransactionStatus:
        """What became of a transaction; with ``wait_s``, as soon as it has reached ``durability``, or then."""
        query: dict[str, str] = {}
        if wait_s is not None:
            query["wait"] = f"{wait_s:g}"
        if durability is not None:
            query["durability"] = durability.value
        path = f"/txlog/transactions/{quote(txid)}" + (f"?{urlencode(query)}" if query else "")
        return self._get(path, TransactionStatus, timeout_s=(wait_s or 0.0) + self._timeout_s)

    def submit(
        self,
        writes: Iterable[WriteRequest],
        durability: Durability | None = None,
        wait_s: float | None = None,
        batch_bytes: int = 1 << 16,
    ) -> Iterator[WriteResult]:
        """Write many transactions over one request; yields one answer for each, in order, as soon as its level
        is reached. A line that is refused is an answer with ``error``, and the others go on.

        ``writes`` is read in another thread, in pieces of about ``batch_bytes`` (0: each line at once, for a
        producer that waits for answers). ``wait_s`` bounds the wait for each answer."""
        headers = dict(_LINES)
        if durability is not None:
            headers["TxLog-Durability"] = durability.value
        if wait_s is not None:
            headers["Prefer"] = f"wait={wait_s:g}"
        answers = self._connection.stream_lines(
            "/txlog/transactions",
            _encode_batches(writes, batch_bytes),
            headers=headers,
            timeout_s=(wait_s or 30.0) + self._timeout_s,
        )
        for line in answers:
            if not line:
                continue
            try:
                yield _decode_written(line)
            except DECODE_ERRORS as wrong:
                raise PeerFault(self.url, "Malformed", f"/txlog/transactions: {wrong}") from None

    def skip(self, txid: str) -> object:
        """Append an entry that lets every worker pass over ``txid``; the operator's last resort."""
        return self._call("POST", f"/txlog/skip/{quote(txid)}", object, body=b"{}")

    def bootstrap(self, members: Sequence[str]) -> None:
        """The operator's order to found the cluster with these, given to the first of them. :class:`Conflict` when it
        is founded, when one of them has not answered, or when another one comes first."""
        body = msgspec.json.encode({"members": list(members)})
        self._call("POST", "/txlog/found", object, body=body, repeatable=True)

    def force_view(self, without: Sequence[str]) -> dict[str, Any]:
        """The operator's order to go on without these members; ``view`` is the one that is left, ``mayMiss`` what was
        heard of them and is not held. :class:`Conflict` when one of them is heard, or is no member."""
        body = msgspec.json.encode({"without": list(without)})
        found: dict[str, Any] = self._call("POST", "/txlog/views", dict[str, Any], body=body, repeatable=True)
        return found

    def report_down(self, node: str, birth: str, start: int) -> bool:
        """Say that this very process is gone for certain; whether it is still in the view. :class:`Conflict` when that
        is stale, or about the master that is asked."""
        body = msgspec.json.encode({"birth": birth, "start": start})
        answer: Any = self._call("POST", f"/txlog/members/{quote(node)}/down", object, body=body, repeatable=True)
        return bool(answer["inView"])

    # -- duties

    def duties(self) -> list[dict[str, Any]]:
        """What its data centre has to do: ``id``, ``kind`` (backup, restore), ``why``, ``worker``, ``error``."""
        answer: Any = self._get("/txlog/duties", object)
        return list(answer["duties"])

    def complete_duty(self, duty: str, index: int, value: str, epoch: int = -1) -> bool:
        """Report a duty as done at this position, which a worker reached in that epoch; whether it is still open.
        :class:`~txlog.model.errors.OffTheLog` for a backup that does not help this master."""
        return self._report_duty("done", duty, index, value, epoch)

    def check_duty_position(self, duty: str, index: int, value: str, epoch: int = -1) -> bool:
        """Say that a backup at this position is about to be made. Answers and raises as :meth:`complete_duty`."""
        return self._report_duty("begun", duty, index, value, epoch)

    def _report_duty(self, state: str, duty: str, index: int, value: str, epoch: int) -> bool:
        body = msgspec.json.encode({"state": state, "index": index, "hash": value, "epoch": epoch})
        answer: Any = self._call("POST", f"/txlog/duties/{quote(duty)}", object, body=body, repeatable=True)
        return bool(answer["open"])

    def report_repair(self, duty: str, done: Mapping[str, Any]) -> None:
        """Say what a repair did: ``index``, ``hash``, ``epoch`` and ``fence`` of the worker's marker, ``source``,
        ``graphs``, ``graphCount``, ``added``, ``removed``."""
        body = msgspec.json.encode({"state": "done", **done})
        self._call("POST", f"/txlog/duties/{quote(duty)}", object, body=body, repeatable=True)

    def fail_duty(self, duty: str, message: str) -> None:
        """Say what went wrong with it, for ``txlog status``."""
        body = msgspec.json.encode({"state": "failed", "message": message})
        self._call("POST", f"/txlog/duties/{quote(duty)}", object, body=body, repeatable=True)

    def branch(self, at: int | None = None) -> dict[str, Any]:
        """Which branch its log is: ``view`` with its history, ``end``, and ``hash`` at ``at``, else at the end.
        :class:`~txlog.model.errors.NotFound` for an index above its log."""
        query = "" if at is None else f"?at={at}"
        found: dict[str, Any] = self._get(f"/txlog/branch{query}", dict[str, Any])
        return found

    def register_backups(self, backups: Sequence[Mapping[str, Any]]) -> None:
        """All verified backups of its data centre: ``name``, ``index``, ``hash`` and whether it is held for a
        ``split``."""
        body = msgspec.json.encode({"backups": list(backups)})
        self._call("POST", "/txlog/backups", object, body=body, repeatable=True)

    def splits(self) -> dict[str, Any]:
        """What it saw of splits: ``node``, ``dataCenter``, ``records``."""
        found: dict[str, Any] = self._get("/txlog/splits", dict[str, Any])
        return found

    def branches(self) -> list[dict[str, Any]]:
        """The branches that it has given up, oldest first: ``view``, ``members``, ``splitRecovery``, ``endedBy``,
        ``at``, ``after``, ``end``, ``hash``, ``stable``; ``view`` and ``error`` of one that cannot be read."""
        found: list[dict[str, Any]] = self._get("/txlog/branches", dict[str, Any])["branches"]
        return found

    def branch_entries(
        self, view: str, after: int = 0, count: int = 1000, *, payload: bool = False
    ) -> list[dict[str, Any]]:
        """Of one that it has given up, behind index ``after``: ``index``, ``id``, ``hash``, and ``now``, where the
        transaction stands in the log today (None: it waits, or is trimmed). With ``payload`` also ``kind``, ``key``,
        ``payload``, and ``missing`` (``reason``, ``backup``, ``text``) where it cannot be told. :class:`NotFound`."""
        found: list[dict[str, Any]] = []
        while len(found) < count:  # an answer with payloads may end early
            asked = {"after": after, "count": count - len(found), **({"payload": "true"} if payload else {})}
            path = f"/txlog/branches/{quote(view)}?{urlencode(asked)}"
            lines = [msgspec.json.decode(line) for line in self._connection.request("GET", path).body.splitlines()]
            found += lines
            if not lines or not payload:
                break
            after = lines[-1]["index"]
        return found

    # -- the configuration of the cluster

    def configuration(self) -> dict[str, Any]:
        """What is in force by its log: ``version``, ``splitMode``, ``keyRetention``, ``masters``, ``removed``,
        ``pending``. :class:`Conflict` before it belongs to a cluster. The next four answer the same."""
        found: dict[str, Any] = self._get("/txlog/configuration", dict[str, Any])
        return found

    def configure(self, split_mode: str | None, key_retention: str | None) -> dict[str, Any]:
        """Change what is not None. :class:`BadInput`, :class:`ChangePending`."""
        body = {"splitMode": split_mode, "keyRetention": key_retention}
        return self._change("PATCH", "/txlog/configuration", body)

    def add_peer(self, node: str, data_center: str, urls: Sequence[str], weight: int = 1) -> dict[str, Any]:
        """Name a new master. :class:`Conflict` when it is one, :class:`ChangePending`."""
        body = {"node": node, "dataCenter": data_center, "urls": list(urls), "weight": weight}
        return self._change("POST", "/txlog/peers", body)

    def update_peer(self, node: str, *, muted: bool | None = None, weight: int | None = None) -> dict[str, Any]:
        """Mute it or no longer, or give it another weight. :class:`NotFound`, :class:`ChangePending`."""
        return self._change("PATCH", f"/txlog/peers/{quote(node)}", {"muted": muted, "weight": weight})

    def remove_peer(self, node: str, *, lost: bool = False) -> dict[str, Any]:
        """Take it out for good; it is among ``removed`` when it has brought in what it has. ``lost``: it is gone.
        :class:`Conflict` when it is in the view and said to be lost, or is not and should bring in what it has."""
        return self._change("DELETE", f"/txlog/peers/{quote(node)}{'?lost=true' if lost else ''}", {})

    def _change(self, how: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        data = msgspec.json.encode({key: value for key, value in body.items() if value is not None})
        found: dict[str, Any] = self._call(how, path, dict[str, Any], body=data)
        return found

    # -- settings

    def settings(self) -> dict[str, Any]:
        """What it prefers, each value with where it comes from, and the view's strategy for splits."""
        found: dict[str, Any] = self._get("/txlog/settings", dict[str, Any])
        return found

    def change_settings(self, changes: Mapping[str, str | None], *, check: bool = False) -> dict[str, Any]:
        """Change some, or (``check``) only ask whether that could be done. :class:`BadInput` for what is no setting or
        does not fit, :class:`Conflict` while it may not be changed."""
        body = msgspec.json.encode(dict(changes))
        path = "/txlog/settings?check=true" if check else "/txlog/settings"
        found: dict[str, Any] = self._call("PATCH", path, dict[str, Any], body=body, repeatable=True)
        return found

    # -- workers

    def report_worker(self, name: str, report: WorkerReport) -> int | None:
        """Tell this master how a worker is; the answer is the index at which to hold it, or None."""
        body = msgspec.json.encode(report)
        return self._call("POST", f"/txlog/workers/{quote(name)}", PauseResponse, body=body, repeatable=True).hold

    def report_digests(self, name: str, look: GraphDigests) -> None:
        """Tell this master what a worker was seen to hold."""
        body = msgspec.json.encode(look)
        self._call("POST", f"/txlog/workers/{quote(name)}/look", object, body=body, repeatable=True)

    def pause_worker(self, name: str, index: int, *, why: PauseReason = "") -> None:
        """Ask the pipeline not to take this worker above ``index`` until :meth:`resume_worker`. With a ``why`` it
        stands beside any other hold, and for some seconds only."""
        body = msgspec.json.encode({"index": index})
        self._connection.request("PUT", _pause_path(name, why), body=body, headers=_JSON)

    def resume_worker(self, name: str, *, why: PauseReason = "") -> None:
        self._connection.request("DELETE", _pause_path(name, why))

    # -- shared

    def _get(self, path: str, kind: type[T], timeout_s: float | None = None) -> T:
        return self._call("GET", path, kind, timeout_s=timeout_s, repeatable=True)

    def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: bytes | None = None,
        timeout_s: float | None = None,
        repeatable: bool = False,
    ) -> T:
        reply = self._connection.request(
            method,
            path,
            body=body,
            headers=_JSON if body is not None else {},
            timeout_s=timeout_s,
            repeatable=repeatable,
        )
        try:
            return msgspec.json.decode(reply.body or b"null", type=kind)
        except DECODE_ERRORS as wrong:
            raise PeerFault(self.url, "Malformed", f"{path}: {wrong}") from None


def _parse_position(told: str | None) -> JsonPosition | None:
    """``epoch:index:hash``."""
    parts = (told or "").split(":")
    return JsonPosition(int(parts[0]), int(parts[1]), parts[2]) if len(parts) == 3 else None


def _pause_path(name: str, why: PauseReason) -> str:
    return f"/txlog/holds/{quote(name)}" + (f"?for={why}" if why else "")


def _encode_batches(writes: Iterable[WriteRequest], batch_bytes: int) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for write in writes:
        line = _encode_line(write) + b"\n"
        held.append(line)
        size += len(line)
        if size >= batch_bytes:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
