"""``/jolokia``: the attributes and operations of the predecessor's bean, which scripts read and call over HTTP. It
speaks the protocol of Jolokia 1 (protocol 7): read, write, exec, list, search, version; GET and POST, many requests per
body.

The handlers of ``/txlog`` do the work. A name without a counterpart is refused by name. As in Jolokia, a refusal is
HTTP 200 with ``status`` and ``error`` in its body.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from txlog.auth import is_cross_site
from txlog.config.preferences import read_changes
from txlog.config.units import format_quantity
from txlog.http.router import Request, Response, Route, json_response, read_body, target_path
from txlog.model.configuration import MEMBER, MUTED, Master
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, Conflict, Forbidden, NotFound, Refused, TxLogError, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.runtime.read_balance import DurationCounter
from txlog.server.admin.configuration import ConfigurationHandler
from txlog.server.admin.settings import SettingsHandler

PROTOCOL: Final = "7.2"
DOMAIN: Final = "ReplicationCluster"
BODY_MAX: Final = 256 << 10
REQUESTS_MAX: Final = 200
"""Requests in one body."""
MODES: Final = ("NORMAL", "MUTE")
AVAILABLE, READ_ONLY, UNAVAILABLE = 0, 1, 2
NO_COUNTERPART: Final = {
    "AutoReplication": "a worker that fell off the log is rebuilt by txlog up, always (txlog worker rebuild)",
    "NetSpeedBitsPerSec": "workers are brought up by the log or by a backup; nothing is estimated from it",
    "FullReplicationTimeFactor": "workers are brought up by the log or by a backup; nothing is estimated from it",
    "MinTimeToConsiderFullReplicationS": "workers are brought up by the log or by a backup",
    "ProtectSingleWorker": "a backup of a worker stops neither it nor its writes",
    "MasterReplicationPort": "backups go to a folder or to S3, not through a port of the master",
    "addClusterNode": "workers come by txlog worker add",
    "backup": "a master makes none: ask txlog backup create, or spec.backup of the manifest",
    "incrementalBackup": "backups are whole: txlog backup create",
    "restoreFromImage": "ask txlog restore",
    "changeSystemTransactionPassword": "masters know each other by the peer token and certificates, which are files",
}
"""Names of the predecessor that are refused, and their replacements."""
STARTUP_ONLY_TEXT: Final = "it is what this master is started with: its manifest or cluster.properties"
_STARTUP_ONLY: Final = ("NodeID", "MasterURL", "LogMaxSize")
_MUTATING_TYPES: Final = ("write", "exec")
_PATH_SEGMENT: Final = re.compile(r"((?:[^/!]|!.)*)(?:/|$)", re.DOTALL)
_ESCAPED: Final = re.compile(r"!(.)", re.DOTALL)
_MILLISECONDS: Final = re.compile(r"[0-9]{1,15}")


class _JmxNotFound(Refused):
    """``exception_name``: the name of the Java exception, which scripts look for."""

    status = 404

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.exception_name = kind


class JolokiaHandler:
    """``settings`` and ``configuring`` carry out the changes. ``triples`` queries a worker for its number of
    statements."""

    def __init__(
        self,
        site: MasterContext,
        settings: SettingsHandler,
        configuring: ConfigurationHandler,
        triples: Callable[[], Awaitable[int]],
    ) -> None:
        self._context = site
        self._settings = settings
        self._configuration = configuring
        self._attribute_readers: dict[str, tuple[str, str, Callable[[], Any]]] = {
            "NodeID": ("java.lang.String", "this master's node id", lambda: site.config.node),
            "MasterURL": ("java.lang.String", "where the others reach it", self._own_url),
            "SyncPeers": ("[Ljava.lang.String;", "the other masters: id and URL", self._peers),
            "SplitRecovery": ("java.lang.String", "None, Simple or Smart", lambda: self._setting("splitRecovery")),
            "MaxPeerLag": (
                "java.lang.String",
                "as 30s; written: also milliseconds",
                lambda: self._setting("maxPeerLag"),
            ),
            "Mode": ("java.lang.String", "NORMAL or MUTE", self._mode),
            "ReadOnly": ("boolean", "it takes no writes", lambda: not site.is_ready or self._mode() != MODES[0]),
            "IsWritable": ("boolean", "it takes writes", lambda: site.is_ready and self._mode() == MODES[0]),
            "Status": ("int", "0 available, 1 read-only, 2 unavailable", self._status),
            "NodeStatus": ("[Ljava.lang.String;", "[ON] or [OFF] and the URL of each worker", self._worker_lines),
            "ClusterStatusSummary": ("java.lang.String", "for people", self._summary),
            "NumberOfTriples": ("long", "statements in the worker that would answer a query now", triples),
            "CompletedReads": (
                "int",
                "answered by workers since this process began",
                lambda: site.registry.reads.completed_reads.total,
            ),
            "AverageReadTime": (
                "int",
                "milliseconds, of those",
                lambda: round(site.registry.reads.completed_reads.mean_ms),
            ),
            "CompletedWrites": ("int", "taken by this master since this process began", self._writes_done),
            "CompletedTasks": ("[I", "transactions executed, by worker as in NodeStatus", self._tasks_done),
            "AverageTaskTimes": ("[I", "milliseconds for one of them", self._task_times),
            "LogMaxSize": ("java.lang.String", "as 10Gi: what the journal may take", self._log_max_size),
        }
        self._attribute_writers: dict[str, Callable[[Any], Awaitable[None]]] = {
            "SplitRecovery": lambda value: self._change_setting("splitRecovery", value),
            "MaxPeerLag": lambda value: self._change_setting("maxPeerLag", value),
            "Mode": self._set_mode,
            "ReadOnly": self._set_read_only,
        }
        self._operations: dict[str, tuple[list[str], str, Callable[[list[Any]], Awaitable[None]]]] = {
            "addSyncPeer": (
                ["id", "url"],
                "name a new master; its data centre is its id without the number",
                self._add_peer,
            ),
            "removeSyncPeer": (
                ["id"],
                "take a master out for good, once it has brought in what it has",
                self._remove_peer,
            ),
            "removeClusterNode": (
                ["nodeURI"],
                "nothing is read from this worker, and it is waited for no more, at this master while it runs",
                self._remove_worker,
            ),
        }

    @property
    def bean_names(self) -> list[str]:
        """Both spellings of the one bean: with the repository's name and without it."""
        return [f"{DOMAIN}:name=ClusterInfo/{self._context.repository}", f"{DOMAIN}:name=ClusterInfo"]

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/jolokia", self.get),
            Route("POST", "/jolokia", self.post),
            Route("POST", "/jolokia/", self.post),
            Route("GET", "/jolokia/{path*}", self.get),
        ]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``/jolokia/read/BEAN/ATTRIBUTE``, ``write/BEAN/ATTRIBUTE/VALUE``, ``exec/BEAN/OPERATION/ARGUMENT...``,
        ``list``, ``search/PATTERN``, ``version``; ``!/`` escapes a slash inside a name."""
        raw = target_path(request).removeprefix("/jolokia").removeprefix("/")
        pieces = [_ESCAPED.sub(r"\1", piece) for piece in _PATH_SEGMENT.findall(unquote(raw))[:-1] or ["version"]]
        asked: dict[str, Any] = {"type": pieces[0]}
        if pieces[0] in ("read", "write"):
            asked |= dict(zip(("mbean", "attribute", "value"), pieces[1:], strict=False))
            if pieces[0] == "read" and "," in asked.get("attribute", ""):
                asked["attribute"] = asked["attribute"].split(",")
        elif pieces[0] == "exec":
            asked |= dict(zip(("mbean", "operation"), pieces[1:3], strict=False)) | {"arguments": pieces[3:]}
        elif pieces[0] == "search":
            asked |= {"mbean": "/".join(pieces[1:])}
        if pieces[0] in _MUTATING_TYPES:
            self._reject_cross_site(request)
        return json_response(await self._execute(asked))

    def _reject_cross_site(self, request: Request) -> None:
        """Refuses a cross-site GET that changes something: it needs the same protection as a POST."""
        headers = request.headers
        foreign = is_cross_site("POST", headers.get("Host"), headers.get("Origin"), headers.get("Sec-Fetch-Site"))
        if foreign or request.method != "GET":
            raise Forbidden("a page of another web site, or a HEAD, may change nothing")

    async def post(self, request: Request, _: Mapping[str, str]) -> Response:
        """One request as JSON, or a list of requests that are carried out in order."""
        try:
            requests = msgspec.json.decode(await read_body(request, BODY_MAX))
        except DECODE_ERRORS as wrong:
            raise BadInput(f'expected {{"type": "read", "mbean": ..., ...}}, or a list of such: {wrong}') from None
        if isinstance(requests, dict):
            return json_response(await self._execute(requests))
        if not isinstance(requests, list) or len(requests) > REQUESTS_MAX:
            raise BadInput(f"expected a request or a list of at most {REQUESTS_MAX}")
        return json_response([await self._execute(one) for one in requests])

    async def _execute(self, asked: Any) -> dict[str, Any]:
        """The answer to one request; a refusal is an answer, too."""
        common = {"request": asked, "timestamp": int(time.time())}
        try:
            return {**common, "value": await self._dispatch(asked), "status": 200}
        except TxLogError as wrong:
            kind = wrong.exception_name if isinstance(wrong, _JmxNotFound) else f"txlog.{wrong.name}"
            return {**common, "status": wrong.status, "error_type": kind, "error": f"{kind} : {wrong}"}

    async def _dispatch(self, asked: Any) -> Any:
        kind = asked.get("type") if isinstance(asked, dict) else None
        match kind.lower() if isinstance(kind, str) else kind:
            case "version":
                return {"agent": PROTOCOL, "protocol": PROTOCOL, "info": {"product": "txlog"}}
            case "list":
                return self._list()
            case "search":
                return self._matching_names(_text_field(asked, "mbean"))
            case "read":
                return await self._read(asked)
            case "write":
                return await self._write(asked)
            case "exec":
                return await self._exec(asked)
        raise BadInput(f"type {str(kind)[:40]!r}: one of read, write, exec, list, search, version")

    # The bean

    def _matching_names(self, pattern: str) -> list[str]:
        found = [name for name in self.bean_names if fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))]
        domain, _, keys = pattern.partition(":")
        if not found and keys == "*" and fnmatch.fnmatchcase(DOMAIN, domain):
            return self.bean_names
        return found

    def _check_bean(self, asked: dict[str, Any]) -> None:
        name = _text_field(asked, "mbean")
        if name not in self.bean_names:
            there = " and ".join(self.bean_names)
            raise _JmxNotFound("javax.management.InstanceNotFoundException", f"{name[:200]}; there is {there}")

    def _list(self) -> dict[str, Any]:
        attributes = {
            name: {"rw": name in self._attribute_writers, "type": kind, "desc": text}
            for name, (kind, text, _) in self._attribute_readers.items()
        }
        operations = {
            name: {
                "args": [{"name": arg, "type": "java.lang.String", "desc": ""} for arg in args],
                "ret": "void",
                "desc": text,
            }
            for name, (args, text, _) in self._operations.items()
        }
        bean = {"desc": "a master of TxLog", "attr": attributes, "op": operations}
        return {DOMAIN: {name.partition(":")[2]: bean for name in self.bean_names}}

    async def _read(self, asked: dict[str, Any]) -> Any:
        pattern, attribute = _text_field(asked, "mbean"), asked.get("attribute")
        if "*" in pattern:
            values = await self._attributes(attribute)
            return dict.fromkeys(self._matching_names(pattern), values)
        self._check_bean(asked)
        if isinstance(attribute, str) and attribute:
            return await self._attribute(attribute)
        return await self._attributes(attribute)

    async def _attributes(self, wanted: Any) -> dict[str, Any]:
        if not wanted:
            return {name: await self._attribute_or_none(name) for name in self._attribute_readers}
        names = [wanted] if isinstance(wanted, str) else wanted
        if not isinstance(names, list):
            raise BadInput("attribute: a name, a list of names, or nothing for all")
        return {str(name): await self._attribute(str(name)) for name in names}

    async def _attribute_or_none(self, name: str) -> Any:
        """None for an attribute without a value now: a client that reads all attributes still gets the others."""
        try:
            return await self._attribute(name)
        except Unavailable:
            return None

    async def _attribute(self, name: str) -> Any:
        found = self._attribute_readers.get(name)
        if found is None:
            why = NO_COUNTERPART.get(name, f"there are {', '.join(self._attribute_readers)}")
            raise _JmxNotFound("javax.management.AttributeNotFoundException", f"{name[:80]}; {why}")
        value = found[2]()
        return await value if isinstance(value, Awaitable) else value

    async def _write(self, asked: dict[str, Any]) -> Any:
        """Answers with the previous value, as Jolokia does."""
        self._check_bean(asked)
        name = _text_field(asked, "attribute")
        before = await self._attribute(name)
        change = self._attribute_writers.get(name)
        if change is None:
            why = STARTUP_ONLY_TEXT if name in _STARTUP_ONLY else f"these can: {', '.join(self._attribute_writers)}"
            raise _JmxNotFound("javax.management.AttributeNotFoundException", f"{name} cannot be written; {why}")
        await change(asked.get("value"))
        return before

    async def _exec(self, asked: dict[str, Any]) -> None:
        self._check_bean(asked)
        name = _text_field(asked, "operation").partition("(")[0]
        found = self._operations.get(name)
        if found is None:
            why = NO_COUNTERPART.get(name, f"there are {', '.join(self._operations)}")
            raise _JmxNotFound("java.lang.IllegalArgumentException", f"no operation {name[:80]}; {why}")
        parameters, _, run = found
        arguments = asked.get("arguments") or []
        if not isinstance(arguments, list) or len(arguments) != len(parameters):
            raise BadInput(f"{name} takes {len(parameters)} arguments: {', '.join(parameters)}")
        if not all(isinstance(one, str) and one for one in arguments):
            raise BadInput(f"{name}: {', '.join(parameters)} are text")
        await run(arguments)

    # Attributes

    def _masters(self) -> list[Master]:
        now = self._context.status.configuration
        return list(now.masters) if now is not None else []

    def _urls(self) -> dict[str, str]:
        from_log = {m.node: m.urls[0] for m in self._masters() if m.urls}
        return {**from_log, **{peer.node: peer.url for peer in self._context.config.peers}}

    def _own_url(self) -> str:
        return f"{self._urls().get(self._context.config.node, '')}/repositories/{self._context.repository}"

    def _peers(self) -> list[str]:
        urls, repository = self._urls(), self._context.repository
        return [f"{node} {urls.get(node, '')}/repositories/{repository}" for node in self._context.other_nodes]

    def _setting(self, key: str) -> str:
        return next(str(one["value"]) for one in self._settings.describe()["settings"] if one["key"] == key)

    def _mode(self) -> str:
        mine = next((m for m in self._masters() if m.node == self._context.config.node), None)
        return MODES[mine is not None and mine.role == MUTED]

    def _status(self) -> int:
        if not self._context.is_ready:
            return UNAVAILABLE
        return AVAILABLE if self._mode() == MODES[0] else READ_ONLY

    def _worker_lines(self) -> list[str]:
        return [
            f"[{'ON' if worker.state in ('Working', 'Unordered') else 'OFF'}] {worker.url}"
            for worker in self._context.registry.workers.values()
        ]

    def _summary(self) -> str:
        site, place = self._context, self._context.durability.stable_position()
        lines = [f"{site.config.node}: {site.state}, stable at {place.index} ({place.hash.hex()})"]
        for worker in site.registry.workers.values():
            at = worker.position.index if worker.position is not None else "an unknown place"
            lines.append(f"{worker.name} {worker.url}: {worker.state}, at {at}")
        return "\n".join(lines)

    def _writes_done(self) -> int:
        counts = self._context.loop.counts
        return counts.transactions - sum(counts.refused.values())

    def _executed_counts(self) -> list[DurationCounter]:
        registry = self._context.registry
        return [registry.executed_counts.get(name, DurationCounter()) for name in registry.workers]

    def _tasks_done(self) -> list[int]:
        return [tally.total for tally in self._executed_counts()]

    def _task_times(self) -> list[int]:
        return [round(tally.mean_ms) for tally in self._executed_counts()]

    def _log_max_size(self) -> str:
        return format_quantity(self._context.config.log_bytes_max)

    # Changes

    async def _change_setting(self, key: str, value: Any) -> None:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str) and key == "maxPeerLag" and _MILLISECONDS.fullmatch(text):
            text += "ms"
        if not isinstance(text, str) or not text:
            raise BadInput(f"{key}: expected a text, got {str(value)[:40]!r}")
        await self._settings.change(read_changes({key: text}))

    async def _set_mode(self, value: Any) -> None:
        if value not in MODES:
            raise BadInput(f"Mode {str(value)[:40]!r}: {' or '.join(MODES)}")
        if value != self._mode():
            await self._configuration.mute(self._context.config.node, value == MODES[1])

    async def _set_read_only(self, value: Any) -> None:
        wanted = {"true": True, "false": False}.get(str(value).lower()) if isinstance(value, bool | str) else None
        if wanted is None:
            raise BadInput(f"ReadOnly {str(value)[:40]!r}: true or false")
        await self._set_mode(MODES[wanted])

    async def _add_peer(self, arguments: list[Any]) -> None:
        node, url = arguments
        center = node.rpartition("-")[0]
        if not center:
            raise BadInput(f"{node[:80]}: a node id as uk-2; its data centre is what stands before the number")
        address = re.sub(r"(?:/rdf4j-server)?/repositories/[^/]*$", "", url)
        await self._configuration.add_master(Master(node, center, 1, MEMBER, [address]))

    async def _remove_peer(self, arguments: list[Any]) -> None:
        await self._configuration.remove_master(arguments[0], lost=False)

    async def _remove_worker(self, arguments: list[Any]) -> None:
        """Removes a worker by the URL that ``NodeStatus`` shows, or by the URL of a repository below it. The last
        worker cannot be removed. Without a worker no read would work, and no write of the default level would be
        answered in time."""
        url, registry = str(arguments[0]).rstrip("/"), self._context.registry
        name = next((w.name for w in registry.workers.values() if f"{url}/".startswith(f"{w.url.rstrip('/')}/")), None)
        if name is None:
            there = ", ".join(worker.url for worker in registry.workers.values())
            raise NotFound(f"no worker at {url[:200]}; there are {there}")
        if len(registry.workers) == 1:
            raise Conflict(f"{name} is the last worker of {registry.data_center}; add another one first")
        registry.remove(name)


def _text_field(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name}: expected a text")
    return value
