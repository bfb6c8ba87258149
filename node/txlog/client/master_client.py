"""Blocking, typed client of one master's HTTP API (docs/reference/http-api.md)."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode

import msgspec

from txlog.client.bulk_submit import submit_writes
from txlog.client.connection import MasterConnection
from txlog.client.credentials import Credentials
from txlog.client.errors import MethodNotAllowed
from txlog.client.json_calls import JsonCalls
from txlog.client.responses import (
    Doorbell,
    JsonMarker,
    JsonPosition,
    PauseResponse,
    QueryResult,
    StatusResponse,
    TransactionStatus,
    ViewReportResponse,
    WorkerReport,
    WorkerStatus,
    WriteRequest,
    WriteResult,
)
from txlog.client.write_headers import parse_write_result, write_headers
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.durability import Durability
from txlog.model.errors import OffTheLog, PeerFault, Unavailable
from txlog.model.graph_digests import GraphDigests
from txlog.supervision.duties import DutyList
from txlog.wire.change_feed import NDJSON_MEDIA_TYPE, FeedEvent, parse_event_line
from txlog.wire.comparison_report import ComparisonReport
from txlog.wire.log_page import MEDIA_TYPE, LogPage, decode_page

PauseReason = Literal["", "look", "repair"]

JSON_RESULTS = "application/sparql-results+json"
SPARQL_UPDATE = "application/sparql-update"


class MasterClient:
    """One master, by its base URL (``http://host:port``). It keeps one connection, so one thread at a time uses it.

    Every call raises :class:`~txlog.client.errors.MasterUnreachable` when nothing answers within ``timeout_s``
    (connecting: within ``connect_s``). It raises :class:`PeerFault` ``Malformed`` when the answer has another format,
    and otherwise the master's own error."""

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
        """``tls``, ``credentials``, ``name``: as in :class:`~txlog.client.connection.MasterConnection`."""
        self._timeout_s = timeout_s
        self._connection = MasterConnection(
            url, timeout_s=timeout_s, connect_s=connect_s, tls=tls, credentials=credentials, name=name
        )
        self._json = JsonCalls(self._connection)

    @property
    def url(self) -> str:
        """The base URL of the master."""
        return self._connection.url

    def close(self) -> None:
        """Close the connection. The next call opens another one."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- status

    def status(self) -> StatusResponse:
        """``GET /txlog/status``: the state of this master and of its view."""
        return self._json.get("/txlog/status", StatusResponse)

    def peers(self) -> list[dict[str, Any]]:
        """Each peer as this master sees it, in the cluster's order."""
        answer: Any = self._json.get("/txlog/peers", object)
        return list(answer["peers"] if isinstance(answer, dict) else answer)

    def connectivity(self) -> dict[str, list[str] | None]:
        """The connectivity matrix as this master knows it: node id to the ids of the masters from which that node
        receives messages. None: not known."""
        answer: Any = self._json.get("/txlog/peers", object)
        found: dict[str, list[str] | None] = answer.get("hears", {}) if isinstance(answer, dict) else {}
        return found

    def workers(self) -> list[WorkerStatus]:
        """The workers of the master's data centre, as pipelines reported them."""
        answer: Any = self._json.get("/txlog/workers", object)
        try:
            return msgspec.convert(answer["workers"] if isinstance(answer, dict) else answer, list[WorkerStatus])
        except (*DECODE_ERRORS, KeyError) as wrong:
            raise PeerFault(self.url, "Malformed", f"/txlog/workers: {wrong}") from None

    def health(self, kind: str = "ready", timeout_s: float | None = None) -> bool:
        """``kind``: live, ready or startup. False when the master answers 503; an unreachable master is an error."""
        try:
            self._connection.request("GET", f"/health/{kind}", timeout_s=timeout_s)
        except Unavailable:
            return False
        return True

    def metrics(self) -> str:
        """The master's metrics in Prometheus' text format."""
        return self._connection.request("GET", "/metrics").body.decode()

    def follow_live(self, timeout_s: float) -> Iterator[bytes]:
        """The lines of ``GET /txlog/live`` as they arrive: one every 15 s at least. ``timeout_s`` bounds each wait."""
        return self._connection.follow_lines(
            "/txlog/live", headers={"Accept": "text/event-stream"}, timeout_s=timeout_s
        )

    # -- the log

    def doorbell(self, after: int, tick: int = 0, timeout_s: float = 5.0) -> Doorbell:
        """Wait, at most ``timeout_s`` (30), until the stable index is above ``after`` or the tick above ``tick``."""
        query = urlencode({"after": after, "tick": tick, "timeout": f"{timeout_s:g}"})
        return self._json.get(f"/txlog/doorbell?{query}", Doorbell, timeout_s=timeout_s + self._timeout_s)

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        unordered: Sequence[tuple[int, bytes]] = (),
        *,
        keys: bool = False,
        effect_names: bool = False,
    ) -> LogPage:
        """The entries after index ``after``, at most up to ``upto`` and the stable index: about ``max_bytes`` of
        payload, at least one entry.

        ``at_hash`` is the caller's chain hash at ``after``; None does not compare it. Raises :class:`LogDiverged`,
        :class:`LogAhead` or :class:`LogNeedsRestore` when this log does not continue there. ``unordered``: positions
        (index, chain hash) on abandoned branches. Entries that were executed up to them are returned as no-ops. Raises
        :class:`Unavailable` ``UnknownBranch`` from a master that never had such a branch.

        ``keys``: a page with keys (:class:`LogPage`), which ends at the stable index also under ``None``. A master of
        an earlier version answers with another one (:attr:`LogPage.has_keys`). ``effect_names``: of such a page, the
        effects have no payloads, and it may begin anywhere in the log."""
        query: dict[str, str | int] = {"after": after}
        if at_hash is not None:
            query["hash"] = at_hash.hex()
        if upto is not None:
            query["upto"] = upto
        query |= {"maxBytes": max_bytes} if max_bytes is not None else {}
        if unordered:
            query["unordered"] = ",".join(f"{index}:{value.hex()}" for index, value in unordered)
        query |= {"keys": 1} if keys else {}
        query |= {"effects": "names"} if effect_names else {}
        reply = self._connection.request("GET", f"/txlog/log?{urlencode(query)}", headers={"Accept": MEDIA_TYPE})
        return decode_page(self.url, reply.body)

    def watch(
        self,
        start: str = "now",
        *,
        until: int | None = None,
        settled: bool = False,
        heartbeat_s: int = 5,
        change_sets: bool = False,
    ) -> Iterator[FeedEvent]:
        """Yield the events of this master's feed after the position ``start`` (``now``, ``INDEX`` or ``INDEX:HASH``)
        as they arrive: see :class:`~txlog.wire.change_feed.FeedEvent`. ``until``: the last index. ``settled``: only
        final entries. ``heartbeat_s``: seconds between heartbeats. ``change_sets``: each entry is what it changed.

        :class:`~txlog.client.FeedFollower` continues at other masters; this call does not. Raises :class:`LogGone`,
        :class:`LogDiverged`, :class:`LogAhead` and, with ``change_sets``, :class:`NoChangeSets`."""
        query: dict[str, str | int] = {"from": start, "heartbeat": heartbeat_s}
        query |= {"until": until} if until is not None else {}
        query |= {"updates": "quads"} if change_sets else {}
        query |= {"level": "settled" if settled else "stable"} if settled or change_sets else {}
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
        """Run a SPARQL query on a worker that has executed ``at_least`` (:attr:`WriteResult.position`). Returns the
        whole answer in the media type ``accept``. Raises :class:`Unavailable` when no worker is there within
        ``wait_s`` seconds."""
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
        synchronous: bool | str | None = None,
        wait_s: float,
    ) -> WriteResult:
        """Write one transaction: an update (:data:`SPARQL_UPDATE`), or RDF to add. ``graphs``: the graphs (IRIs without
        brackets) to which RDF is added; empty: the default graph or those that the RDF names.

        The result's ``durability`` is the level that was reached within ``wait_s`` seconds; None: not known. Without
        ``txid`` it is not known whether the master accepted the write. The connection repeats the request only with
        a ``key``, or when the request was certainly not sent.
        ``synchronous``: True, or the quorum that must hold it, perhaps with a time-out: ``all; timeout=10s``. Where it
        is not known yet whether it takes effect, the result's ``synchronous`` is ``pending``; without both
        ``synchronous`` and ``durability``, :class:`OutcomeUndecided` is raised.

        Raises :class:`KeyNotTaken`, :class:`KeyTaken`, :class:`RolledBack` where no quorum held it in time, and
        :class:`Conflict` when workers refuse the transaction."""
        query = "?" + urlencode([("context", f"<{graph}>") for graph in graphs]) if graphs else ""
        reply = self._connection.request(
            "POST",
            f"/repositories/{quote(repository)}/statements{query}",
            body=body,
            headers=write_headers(media, key, durability, synchronous, wait_s),
            timeout_s=wait_s + self._timeout_s,
            repeatable=key is not None,
        )
        return parse_write_result(reply.headers)

    # -- transactions

    def transaction(
        self, txid: str, wait_s: float | None = None, durability: Durability | None = None
    ) -> TransactionStatus:
        """The status of a transaction. With ``wait_s`` the master answers once the transaction has reached
        ``durability``, or after ``wait_s`` seconds."""
        query: dict[str, str] = {}
        if wait_s is not None:
            query["wait"] = f"{wait_s:g}"
        if durability is not None:
            query["durability"] = durability.value
        path = f"/txlog/transactions/{quote(txid)}" + (f"?{urlencode(query)}" if query else "")
        return self._json.get(path, TransactionStatus, timeout_s=(wait_s or 0.0) + self._timeout_s)

    def submit(
        self,
        writes: Iterable[WriteRequest],
        durability: Durability | None = None,
        wait_s: float | None = None,
        batch_bytes: int = 1 << 16,
    ) -> Iterator[WriteResult]:
        """Write many transactions over one request. Yields one result for each, in order, as soon as its level is
        reached. A refused line yields a result with ``error``; the other lines are still written.

        ``writes`` is read in another thread, in pieces of about ``batch_bytes`` (0: each line at once, for a
        producer that waits for answers). ``wait_s`` bounds the wait for each answer."""
        return submit_writes(self._connection, writes, durability, wait_s, batch_bytes, self._timeout_s)

    def skip(self, txid: str) -> object:
        """Append an entry that makes every worker skip ``txid``: the operator's last resort."""
        return self._json.call("POST", f"/txlog/skip/{quote(txid)}", object, body={})

    def bootstrap(self, members: Sequence[str], *, forget: bool = False) -> None:
        """Bootstrap the cluster with these members; send it to the first of them. ``forget``: also where a member lost
        the journal of an earlier cluster. Raises :class:`Conflict` when the cluster exists already, when a member has
        not answered or lost a journal, or when another member comes first."""
        self._json.post("/txlog/found", {"members": list(members), **({"forget": True} if forget else {})})

    def force_view(self, without: Sequence[str]) -> dict[str, Any]:
        """The operator's override: continue without these members. In the answer ``view`` is the view that the master
        leaves. ``mayMiss``: up to which sequence number this master knows and has persisted each removed member's
        transactions. Raises :class:`Conflict` when one of them is reachable, or is no member."""
        found: dict[str, Any] = self._json.post("/txlog/views", {"without": list(without)})
        return found

    def report_down(self, node: str, birth: str, start: int) -> bool:
        """Report that this process (``birth``, ``start``) of a master has certainly ended. Returns whether the master
        is still in the view. Raises :class:`Conflict` when the report is stale, or is about the receiving master."""
        answer = self._json.post(f"/txlog/members/{quote(node)}/down", {"birth": birth, "start": start})
        return bool(answer["inView"])

    def adopt_worker(self, worker: str, seen: JsonMarker, *, force: bool = False) -> str:
        """A person's decision: what the refused store of this worker holds at the position ``seen`` comes before the
        first entry of the log. Returns the id of the duty that does it. ``force``: also where other workers lack that
        content. Raises :class:`Conflict` when that cannot be, or there is nothing to decide."""
        return self._decide("adopt", worker, seen, {"force": True} if force else {})

    def discard_worker(self, worker: str, seen: JsonMarker) -> str:
        """A person's decision: what the refused store of this worker holds at the position ``seen`` is deleted, and the
        worker is rebuilt. Returns the id of the duty that does it. Raises :class:`Conflict` as :meth:`adopt_worker`."""
        return self._decide("discard", worker, seen, {})

    def _decide(self, what: str, worker: str, seen: JsonMarker, more: dict[str, Any]) -> str:
        position = {"index": seen.index, "hash": seen.hash, "cluster": seen.cluster}
        return str(self._json.post(f"/txlog/workers/{quote(worker)}/{what}", {**position, **more})["duty"])

    # -- duties

    def duty_list(self) -> DutyList:
        """``GET /txlog/duties``: the open duties of the master's data centre, and the state of the master."""
        return self._json.get("/txlog/duties", DutyList)

    def duties(self) -> list[dict[str, Any]]:
        """The open duties alone: ``id``, ``kind`` (as ``DutyKind``), ``why``, ``worker``, ``error``."""
        return self.duty_list().duties

    def can_use_backup(self, duty: str, index: int, value: str, epoch: int = -1) -> bool:
        """Ask whether a backup at this position, which a worker reached in that epoch, would serve the duty. Raises
        :class:`~txlog.model.errors.NotFound` when the duty is not open."""
        query = urlencode({"index": index, "hash": value, **({"epoch": epoch} if epoch >= 0 else {})})
        try:
            answer: Any = self._json.get(f"/txlog/duties/{quote(duty)}?{query}", object)
        except MethodNotAllowed:  # a master of the last release answers this question only to a report
            try:
                self._report_backup("begun", duty, index, value, epoch)
            except OffTheLog:
                return False
            return True
        return bool(answer["usable"])

    def complete_duty(self, duty: str, index: int, value: str, epoch: int = -1) -> bool:
        """Report a duty as done at this position, which a worker reached in that epoch. Returns whether the duty is
        still open. Raises :class:`~txlog.model.errors.OffTheLog` for a backup that this master cannot use."""
        return self._report_backup("done", duty, index, value, epoch)

    def _report_backup(self, state: str, duty: str, index: int, value: str, epoch: int) -> bool:
        body = {"state": state, "index": index, "hash": value, "epoch": epoch}
        return bool(self._json.post(f"/txlog/duties/{quote(duty)}", body)["open"])

    def report_repair(self, duty: str, done: Mapping[str, Any]) -> None:
        """Report what a repair did: ``index``, ``hash``, ``epoch`` and ``fence`` of the worker's marker, ``source``,
        ``graphs``, ``graphCount``, ``added``, ``removed``."""
        self._json.post(f"/txlog/duties/{quote(duty)}", {"state": "done", **done})

    def fail_duty(self, duty: str, message: str) -> None:
        """Report why a duty failed, for ``txlog status``."""
        self._json.post(f"/txlog/duties/{quote(duty)}", {"state": "failed", "message": message})

    def branch(self, at: int | None = None) -> dict[str, Any]:
        """The branch of this master's log: ``view`` with its history, ``end``, and ``hash`` at ``at`` (None: at the
        end). Raises :class:`~txlog.model.errors.NotFound` for an index above its log."""
        query = "" if at is None else f"?at={at}"
        return self._json.get(f"/txlog/branch{query}", dict[str, Any])

    def view_report(self, checkpoints: Sequence[str] | None = None) -> ViewReportResponse:
        """What this master would report for a view change: its log after the last of these checkpoints (``index:hash``)
        that it has, else after its log start. None: after its end. Raises
        :class:`~txlog.model.errors.NotFound` when the master runs a version without this path."""
        query = "" if checkpoints is None else "?" + urlencode({"checkpoints": ",".join(checkpoints)}, safe=":,")
        return self._json.get(f"/txlog/view-report{query}", ViewReportResponse)

    def register_backups(self, backups: Sequence[Mapping[str, Any]]) -> None:
        """Send the list of all verified backups of the data centre: ``name``, ``index``, ``hash``, and whether a
        ``split`` pins it."""
        self._json.post("/txlog/backups", {"backups": list(backups)})

    def splits(self) -> dict[str, Any]:
        """The splits that this master saw: ``node``, ``dataCenter``, ``records``."""
        return self._json.get("/txlog/splits", dict[str, Any])

    def branches(self) -> list[dict[str, Any]]:
        """The branches that this master abandoned, oldest first: ``view``, ``members``, ``splitRecovery``, ``endedBy``,
        ``at``, ``after``, ``end``, ``hash``, ``stable``. A branch that cannot be read has ``view`` and ``error``."""
        return list(self._json.get("/txlog/branches", dict[str, Any])["branches"])

    def branch_entries(
        self, view: str, after: int = 0, count: int = 1000, *, payload: bool = False
    ) -> list[dict[str, Any]]:
        """At most ``count`` entries of an abandoned branch after index ``after``: ``index``, ``id``, ``hash``, and
        ``now``, the transaction's index in the log today (None: it is in the queue, or is trimmed). With ``payload``
        also ``kind``, ``key``, ``payload``, and ``missing`` (``reason``, ``backup``, ``text``) where the payload is
        not available. Raises :class:`NotFound`."""
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

    # -- the configuration of the cluster, and settings

    def synchro(self, at: str = "") -> dict[str, Any]:
        """``GET /txlog/synchro``. ``at``: ``INDEX:HASH``, for ``undecidedAt``."""
        return self._json.get(f"/txlog/synchro{f'?at={at}' if at else ''}", dict[str, Any])

    def adopt_votes(self, without: Sequence[str]) -> dict[str, Any]:
        """The operator's override: the votes of these masters are lost for good. Raises :class:`Conflict` when one of
        them answers or has no vote, or when the rest does not need it or has no majority. Returns ``view`` of then."""
        return self._json.call("POST", "/txlog/synchro/adopt", dict[str, Any], body={"without": list(without)})

    def configuration(self) -> dict[str, Any]:
        """The configuration in force by this master's log, as the API has it. Raises :class:`Conflict` before the
        master belongs to a cluster. The next four methods return the same."""
        return self._json.get("/txlog/configuration", dict[str, Any])

    def configure(self, options: dict[str, Any]) -> dict[str, Any]:
        """Change options. Raises :class:`BadInput` and :class:`ChangePending`."""
        return self._change("PATCH", "/txlog/configuration", options)

    def add_peer(self, node: str, data_center: str, urls: Sequence[str], weight: int = 1) -> dict[str, Any]:
        """Add a master to the configuration. Raises :class:`Conflict` when it is there, and :class:`ChangePending`."""
        body = {"node": node, "dataCenter": data_center, "urls": list(urls), "weight": weight}
        return self._change("POST", "/txlog/peers", body)

    def update_peer(self, node: str, *, muted: bool | None = None, weight: int | None = None) -> dict[str, Any]:
        """Mute or unmute a master, or change its vote weight. Raises :class:`NotFound` and :class:`ChangePending`."""
        return self._change("PATCH", f"/txlog/peers/{quote(node)}", {"muted": muted, "weight": weight})

    def remove_peer(self, node: str, *, lost: bool = False) -> dict[str, Any]:
        """Remove a master for good. It is among ``removed`` once the others have its transactions. ``lost``: the
        master is gone. Raises :class:`Conflict` for a ``lost`` one in the view, and for another one out of it."""
        return self._change("DELETE", f"/txlog/peers/{quote(node)}{'?lost=true' if lost else ''}", {})

    def _change(self, how: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._json.call(how, path, dict[str, Any], body={k: v for k, v in body.items() if v is not None})

    def settings(self) -> dict[str, Any]:
        """This master's settings, each with the source of its value, and the view's strategy for splits."""
        return self._json.get("/txlog/settings", dict[str, Any])

    def change_settings(self, changes: Mapping[str, str | None], *, check: bool = False) -> dict[str, Any]:
        """Change settings, or (``check``) only ask whether the change is possible. Raises :class:`BadInput` for an
        unknown setting or a wrong value, and :class:`Conflict` while the setting may not be changed."""
        path = "/txlog/settings?check=true" if check else "/txlog/settings"
        return self._json.call("PATCH", path, dict[str, Any], body=dict(changes), repeatable=True)

    # -- workers

    def add_worker(self, name: str, url: str, engine: str) -> None:
        """Add a worker to the master's data centre until the master's process ends. Idempotent."""
        self._json.post("/txlog/workers", {"name": name, "url": url, "engine": engine})

    def remove_worker(self, name: str, drain_s: float) -> int:
        """Remove a worker; the master waits at most ``drain_s`` seconds for its reads in progress. Returns how many of
        them still run. Idempotent."""
        path, timeout_s = f"/txlog/workers/{quote(name)}?timeout={drain_s:g}", drain_s + self._timeout_s
        answer: Any = self._json.call("DELETE", path, object, timeout_s=timeout_s, repeatable=True)
        return int(answer["reading"])

    def report_worker(self, name: str, report: WorkerReport) -> PauseResponse:
        """Report a worker's state to this master. Returns what the pipeline is asked to do."""
        path = f"/txlog/workers/{quote(name)}"
        return self._json.call("POST", path, PauseResponse, body=report, repeatable=True)

    def report_digests(self, name: str, digests: GraphDigests) -> None:
        """Report the graph digests of a worker to this master."""
        self._json.post(f"/txlog/workers/{quote(name)}/look", digests)

    def report_comparison(self, name: str, report: ComparisonReport) -> None:
        """Report how far the comparison of a worker's content is."""
        self._json.post(f"/txlog/workers/{quote(name)}/comparison", report)

    def pause_worker(self, name: str, index: int, *, why: PauseReason = "") -> None:
        """Ask the pipeline to pause this worker at ``index`` until :meth:`resume_worker`. A pause with a ``why`` exists
        beside any other pause, and ends by itself after some seconds."""
        self._json.call("PUT", _pause_path(name, why), object, body={"index": index}, repeatable=True)

    def resume_worker(self, name: str, *, why: PauseReason = "") -> None:
        """End the pause of this worker that has the same ``why``."""
        self._connection.request("DELETE", _pause_path(name, why))


def _pause_path(name: str, why: PauseReason) -> str:
    return f"/txlog/holds/{quote(name)}" + (f"?for={why}" if why else "")
