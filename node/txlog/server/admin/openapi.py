"""``GET /txlog/openapi.json``: the administration API as OpenAPI 3.1, every route of it and no other.

The version stands in each answer below ``/txlog`` as ``TxLog-API-Version``. Its first number grows when something that
clients rely on goes away or means something else, the second when something is added. Schemas say which fields are
always there; more may come, so clients pass over what they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from txlog.access import needed
from txlog.divergence.repair_policy import STATES as REPAIR_STATES
from txlog.runtime.web import API_VERSION, Request, Response, Route, json_answer
from txlog.wire.feed import EVENTS, LINES, PATCH
from txlog.wire.pages import MEDIA_TYPE

Schema = dict[str, Any]
JSON: Final = "application/json"
_PREFIX: Final = "/txlog"

_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "integer"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_YES: Final[Schema] = {"type": "boolean"}
_HASH: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_ANY: Final[Schema] = {"type": "object"}
_SECONDS: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 999_999_999}
_LEVEL: Final[Schema] = {"enum": ["accepted", "quorum", "synced", "applied", "applied-all"]}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _or_null(of: Schema) -> Schema:
    return {"anyOf": [of, {"type": "null"}]}


def _object(_closed: bool = False, _optional: tuple[str, ...] = (), **fields: Schema) -> Schema:
    """``_closed``: a body with another field is refused."""
    made: Schema = {"type": "object", "properties": fields, "required": [n for n in fields if n not in _optional]}
    return made | ({"additionalProperties": False} if _closed else {})


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _query(name: str, schema: Schema, text: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _said(text: str, schema: Schema | None = None, content: str = JSON) -> Schema:
    return {"description": text} | ({"content": {content: {"schema": schema}}} if schema is not None else {})


_PLACE: Final = _object(epoch=_COUNT, index=_COUNT, hash=_HASH)
_SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object(
        error={**_TEXT, "description": "the kind of refusal, a stable word"},
        reason={**_TEXT, "description": "a stable word where there are several of a kind, else empty"},
        message={**_TEXT, "description": "for people: what is wrong, and what to do"},
    ),
    "Place": _PLACE,
    "Worker": _object(
        name=_TEXT,
        url=_TEXT,
        engine=_TEXT,
        position=_or_null(_object(epoch=_COUNT, index=_COUNT, hash=_HASH, fence=_COUNT, unordered=_list(_TEXT))),
        state=_TEXT,
        error=_or_null(_TEXT),
        hold=_or_null(_COUNT),
        reportedAt=_or_null({"type": "number"}),
        divergence=_or_null(_named("Finding")),
        repair=_or_null(_named("Standing")),
    ),
    "Standing": _object(
        state={"enum": list(REPAIR_STATES)},
        why=_TEXT,
        done={**_COUNT, "description": "within a day"},
        last=_or_null(
            _object(
                worker=_TEXT,
                source=_TEXT,
                graphs=_list(_TEXT),
                graphCount=_COUNT,
                added=_COUNT,
                removed=_COUNT,
                index=_COUNT,
                fence=_COUNT,
                at={"type": "number"},
            )
        ),
    ),
    "Finding": _object(
        kind={"enum": ["counts", "sums", "refusal"]},
        wrong=_YES,
        why=_TEXT,
        graphs=_list(_TEXT),
        graphCount=_or_null(_COUNT),
        firstIndex=_COUNT,
        index=_COUNT,
        hash=_HASH,
        fence=_COUNT,
        right=_list(_TEXT),
    ),
    "Duty": _object(
        id=_TEXT,
        kind={"enum": ["backup", "restore", "unorder", "repair"]},
        why=_TEXT,
        worker=_or_null(_TEXT),
        error=_or_null(_TEXT),
        to=_or_null(_named("Place")),
        lacks=_YES,
    ),
    "Status": _object(
        node=_TEXT,
        birth=_TEXT,
        start=_COUNT,
        version=_TEXT,
        state=_TEXT,
        epoch=_COUNT,
        view=_ANY,
        duties=_list(_named("Duty")),
        clusterId=_or_null(_TEXT),
        log=_named("Place"),
        stable=_named("Place"),
        trim=_object(
            keptFrom=_COUNT,
            mayGoTo=_COUNT,
            heldBackBy=_list(_object(kind=_TEXT, name=_TEXT, index=_NUMBER, why=_or_null(_TEXT))),
            bytes=_COUNT,
            bytesMax=_COUNT,
            alarm=_YES,
        ),
        queue=_object(transactions=_COUNT, bytes=_COUNT),
        counter=_COUNT,
        members=_list(_object(node=_TEXT, birth=_TEXT, weight=_COUNT, dataCenter=_TEXT)),
        present=_list(_TEXT),
        workers=_list(_named("Worker")),
        damage=_list({}),
        repository=_TEXT,
        dataCenter=_TEXT,
        uptimeSeconds={"type": "number"},
    ),
    "Transaction": _object(
        txid=_TEXT,
        state=_TEXT,
        durability=_LEVEL,
        position=_or_null(_named("Place")),
        noop=_or_null(_TEXT),
        workers=_ANY,
    ),
    "LogPage": _object(
        after=_named("Place"),
        entries=_list(
            _object(index=_COUNT, hash=_HASH, txid=_TEXT, stamp=_COUNT, kind=_TEXT, payload=_TEXT, noop=_TEXT)
        ),
        stable=_named("Place"),
    ),
    "FeedEvent": _object(
        _optional=("previous", "index", "txid", "stamp", "kind", "noop", "key", "settled", "payload", "message"),
        event={"enum": ["position", "entry", "rewound", "gone", "diverged", "closing", "not-quads"]},
        id={"type": "string", "pattern": "^[0-9]+:[0-9a-f]{32}$"},
        previous=_TEXT,
        index=_COUNT,
        txid=_TEXT,
        stamp=_COUNT,
        kind={"enum": ["quads", "update", "skip", "namespace", "configuration"]},
        noop=_TEXT,
        key=_TEXT,
        settled=_YES,
        payload=_TEXT,
        message=_TEXT,
    ),
    "Settings": _object(
        _optional=("changed",),
        changed=_list(_TEXT),
        node=_TEXT,
        dataCenter=_TEXT,
        state=_TEXT,
        view=_or_null(_object(number=_or_null(_TEXT), splitRecovery=_TEXT, prefers=_ANY, renewing=_YES)),
        settings=_list(
            _object(
                key=_TEXT,
                property=_TEXT,
                value=_TEXT,
                source={"enum": ["manifest", "live", "properties", "default"]},
                manifest=_TEXT,
                since=_or_null({"type": "number"}),
            )
        ),
    ),
    "Configuration": _object(
        _optional=("txid",),
        txid=_TEXT,
        version=_COUNT,
        splitMode={"enum": ["Continue", "Majority"]},
        keyRetention=_TEXT,
        masters=_list(
            _object(
                node=_TEXT,
                dataCenter=_TEXT,
                weight=_COUNT,
                role={"enum": ["member", "muted", "leaving"]},
                urls=_list(_TEXT),
                inView=_YES,
            )
        ),
        removed=_list(_TEXT),
        pending=_or_null(_TEXT),
    ),
}

_AFTER: Final = _query("after", {**_COUNT, "maximum": 1 << 62}, "entries behind this index")
_TIMEOUT: Final = _query("timeout", _SECONDS, "seconds, 5 unless told, 30 at most")
_FOR: Final = _query("for", {"enum": ["look", "repair"]}, "beside the other hold, and only for some seconds")
_CHANGED: Final = {
    "200": _said("in effect", _named("Configuration")),
    "202": _said("it waits for its place in the log", _named("Configuration")),
}


def _operation(
    text: str, answers: dict[str, Schema], *queries: Schema, body: Schema | None = None, content: str = JSON
) -> Schema:
    made: Schema = {"summary": text, "responses": answers}
    if queries:
        made["parameters"] = list(queries)
    if body is not None:
        made["requestBody"] = {"required": True, "content": {content: {"schema": body}}}
    return made


_ROUTES: Final[dict[tuple[str, str], Schema]] = {
    ("GET", "/txlog/openapi.json"): _operation("this document", {"200": _said("OpenAPI 3.1", _ANY)}),
    ("GET", "/txlog/status"): _operation("how this master is", {"200": _said("", _named("Status"))}),
    ("GET", "/txlog/log"): _operation(
        "entries of the log, up to the stable index",
        {
            "200": {
                "description": "a page",
                "content": {
                    MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
                    JSON: {"schema": _named("LogPage")},
                },
            }
        },
        _AFTER,
        _query("hash", _HASH, "the caller's chain hash there: compared"),
        _query("upto", _COUNT, "the last index wanted"),
        _query("maxBytes", {"type": "integer", "minimum": 1}, "about how large, 8 MiB at most"),
        _query("unordered", _TEXT, "places INDEX:HASH,... of a worker's position"),
    ),
    ("GET", "/txlog/watch"): _operation(
        "the log as a feed; it ends at `until` only",
        {
            "200": {
                "description": "events as they happen",
                "content": {
                    EVENTS: {"schema": _TEXT},
                    LINES: {"schema": _TEXT, "description": "each line a FeedEvent, or empty"},
                    PATCH: {"schema": _TEXT},
                },
            },
            "410": _said("the place is no longer kept", _named("Error")),
        },
        _query("from", _TEXT, "now, INDEX, INDEX:HASH or EPOCH:INDEX:HASH"),
        _query("until", _TEXT, "now, or the index behind which it ends"),
        _query("level", {"enum": ["stable", "settled"]}, "settled: only what no rejoin moves"),
        _query("heartbeat", {"type": "integer", "minimum": 1, "maximum": 300}, "seconds"),
        _query("updates", {"enum": ["stop", "header"]}, "of RDF Patch: what to do with SPARQL updates"),
        {"name": "Last-Event-ID", "in": "header", "schema": _TEXT, "description": "counts more than `from`"},
    ),
    ("GET", "/txlog/doorbell"): _operation(
        "waits until the stable index is above `after`, or a worker is due",
        {"200": _said("", _object(stable=_named("Place"), tick=_COUNT, workers=_list(_named("Worker"))))},
        _AFTER,
        _query("tick", _COUNT, "the last one heard"),
        _TIMEOUT,
    ),
    ("POST", "/txlog/transactions"): _operation(
        "many transactions, a line each",
        {"200": _said("a line for each, in order: what became of it, or `error` and `message`", _TEXT, LINES)},
        body={"type": "string", "description": "lines `update`, `quads`, or `add` and `delete`; optional `key`"},
        content=LINES,
    ),
    ("GET", "/txlog/transactions/{txid}"): _operation(
        "what became of a transaction",
        {"200": _said("", _named("Transaction"))},
        _query("wait", _SECONDS, "seconds to wait for `durability`"),
        _query("durability", _LEVEL, "the level to wait for"),
    ),
    ("GET", "/txlog/workers"): _operation(
        "the stores behind the masters",
        {"200": _said("", _object(workers=_list(_named("Worker")), elsewhere=_ANY))},
    ),
    ("POST", "/txlog/workers"): _operation(
        "one worker more of this data centre, until this process ends",
        {"200": _said("the names of all", _object(workers=_list(_TEXT)))},
        body=_object(_closed=True, _optional=("engine",), name=_TEXT, url=_TEXT, engine=_TEXT),
    ),
    ("DELETE", "/txlog/workers/{name}"): _operation(
        "it is no worker any more",
        {"200": _said("how many reads are still under way there", _object(reading=_COUNT))},
        _TIMEOUT,
    ),
    ("POST", "/txlog/workers/{name}"): _operation(
        "a pipeline's report",
        {"200": _said("the index at which to hold it", _object(hold=_or_null(_COUNT)))},
        body=_object(
            _optional=("position", "state", "error", "status", "body", "txid", "tookMs"),
            position=_or_null(_ANY),
            state=_TEXT,
            error=_or_null(_TEXT),
            status=_or_null(_NUMBER),
            body=_or_null(_TEXT),
            txid=_or_null(_TEXT),
            tookMs=_or_null({"type": "number"}),
        ),
    ),
    ("POST", "/txlog/workers/{name}/look"): _operation(
        "what this worker was seen to hold at one position",
        {"200": _said("whether it differs from the others", _object(divergence=_or_null(_named("Finding"))))},
        body=_object(
            _optional=("graphs",),
            kind={"enum": ["counts", "sums"]},
            index=_COUNT,
            hash=_HASH,
            fence=_COUNT,
            quads=_COUNT,
            fingerprint=_TEXT,
            graphs=_or_null({"type": "object", "additionalProperties": _TEXT}),
        ),
    ),
    ("PUT", "/txlog/holds/{name}"): _operation(
        "ask the pipeline to stop this worker at an index",
        {"200": _said("", _named("Worker"))},
        _FOR,
        body=_object(index=_COUNT),
    ),
    ("DELETE", "/txlog/holds/{name}"): _operation("let it go on", {"200": _said("", _named("Worker"))}, _FOR),
    ("POST", "/txlog/skip/{txid}"): _operation(
        "let every worker pass over a transaction",
        {"200": _said("", _object(txid=_TEXT, skip=_TEXT, state=_TEXT))},
        body=_object(_optional=("reason",), reason=_TEXT),
    ),
    ("GET", "/txlog/duties"): _operation(
        "what this data centre has to do",
        {"200": _said("", _object(duties=_list(_named("Duty")), state=_TEXT, dataCenter=_TEXT))},
    ),
    ("POST", "/txlog/duties/{id}"): _operation(
        "a duty is done, begun or has failed",
        {"200": _said("whether it is still to be done", _object(open=_YES))},
        body=_object(
            _closed=True,
            _optional=(
                *("index", "hash", "epoch", "message"),
                *("fence", "source", "graphs", "graphCount", "added", "removed"),
            ),
            state={"enum": ["done", "begun", "failed"]},
            index=_COUNT,
            hash=_HASH,
            epoch=_NUMBER,
            message=_TEXT,
            fence=_COUNT,
            source=_TEXT,
            graphs=_list(_TEXT),
            graphCount=_COUNT,
            added=_COUNT,
            removed=_COUNT,
        ),
    ),
    ("POST", "/txlog/backups"): _operation(
        "all verified backups of this data centre",
        {"200": _said("", _object(known=_COUNT))},
        body=_object(
            _closed=True,
            backups=_list(_object(_optional=("split",), name=_TEXT, index=_COUNT, hash=_HASH, split=_YES)),
        ),
    ),
    ("GET", "/txlog/splits"): _operation(
        "what this master saw of splits",
        {"200": _said("", _object(node=_TEXT, dataCenter=_TEXT, records=_list(_ANY)))},
    ),
    ("GET", "/txlog/branch"): _operation(
        "which branch this log is",
        {
            "200": _said(
                "",
                _object(
                    node=_TEXT,
                    dataCenter=_TEXT,
                    clusterId=_TEXT,
                    configured=_list(_object(node=_TEXT, weight=_COUNT)),
                    prefers=_TEXT,
                    splitMode=_TEXT,
                    view=_ANY,
                    end=_COUNT,
                    hash=_HASH,
                ),
            )
        },
        _query("at", _COUNT, "the hash at this index, by default at the end"),
    ),
    ("GET", "/txlog/branches"): _operation(
        "the orders that this master has given up",
        {"200": _said("", _object(node=_TEXT, branches=_list(_ANY)))},
    ),
    ("GET", "/txlog/branches/{view}"): _operation(
        "one of them",
        {"200": _said("lines `index`, `id`, `hash`, `now`; also `kind`, `key`, `payload`, `missing`", _TEXT, LINES)},
        _AFTER,
        _query("count", {"type": "integer", "minimum": 1, "maximum": 100_000}, "1000 unless told"),
        _query("payload", {"enum": ["true", "false"]}, "true: with what each says; at most some 4 MiB in one answer"),
    ),
    ("GET", "/txlog/settings"): _operation("what this master prefers", {"200": _said("", _named("Settings"))}),
    ("PATCH", "/txlog/settings"): _operation(
        "change some",
        {"200": _said("", _named("Settings"))},
        _query("check", {"enum": ["true", "false"]}, "true: only say whether they could be"),
        body={"type": "object", "additionalProperties": _or_null(_TEXT)},
    ),
    ("GET", "/txlog/configuration"): _operation(
        "what all masters agree on", {"200": _said("", _named("Configuration"))}
    ),
    ("PATCH", "/txlog/configuration"): _operation(
        "change it",
        _CHANGED,
        body=_object(
            _closed=True,
            _optional=("splitMode", "keyRetention"),
            splitMode=_or_null({"enum": ["Continue", "Majority"]}),
            keyRetention=_or_null(_TEXT),
        ),
    ),
    ("GET", "/txlog/peers"): _operation(
        "the other masters, and who hears whom",
        {"200": _said("", _object(peers=_list(_ANY), refused=_list(_ANY), hears=_ANY, findings=_list(_ANY)))},
    ),
    ("POST", "/txlog/peers"): _operation(
        "name a new master",
        _CHANGED,
        body=_object(
            _closed=True,
            _optional=("weight", "urls"),
            node=_TEXT,
            dataCenter=_TEXT,
            weight=_NUMBER,
            urls=_list(_TEXT),
        ),
    ),
    ("PATCH", "/txlog/peers/{node}"): _operation(
        "mute it or no longer, or give it another weight",
        _CHANGED,
        body=_object(_closed=True, _optional=("weight", "muted"), weight=_or_null(_NUMBER), muted=_or_null(_YES)),
    ),
    ("DELETE", "/txlog/peers/{node}"): _operation(
        "take it out for good", _CHANGED, _query("lost", {"enum": ["true", "false"]}, "true: it is gone")
    ),
    ("POST", "/txlog/members/{node}/down"): _operation(
        "that process is gone for certain",
        {"200": _said("", _object(node=_TEXT, inView=_YES))},
        body=_object(birth={"type": "string", "pattern": "^[0-9a-f]{16}$"}, start={"type": "integer", "minimum": 1}),
    ),
    ("POST", "/txlog/views"): _operation(
        "the operator's order to go on without some",
        {"202": _said("", _object(view=_or_null(_TEXT), mayMiss=_list(_ANY)))},
        body=_object(without=_list(_TEXT)),
    ),
    ("POST", "/txlog/found"): _operation(
        "the operator's order to found the cluster with these",
        {"202": _said("", _object(members=_list(_TEXT)))},
        body=_object(members=_list(_TEXT)),
    ),
    ("GET", "/txlog/peer"): _operation(
        "the door of the other masters: another protocol, with the token of the cluster",
        {"101": _said("the protocol changes")},
    ),
}


@cache
def document() -> Schema:
    """The whole of it."""
    paths: dict[str, Schema] = {}
    for (method, path), found in _ROUTES.items():
        role = needed(method, path)
        operation = dict(found)
        words = re.sub(r"[^A-Za-z]+", "-", path.removeprefix(_PREFIX)).strip("-")
        operation["operationId"] = f"{method.lower()}-{words}"
        operation["x-txlog-role"] = role.word if role is not None else "peer"
        if role is not None:
            operation["security"] = [{"basic": []}, {"bearer": []}, {}]
        inside = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in re.findall(r"\{(\w+)\}", path)
        ]
        if inside:
            operation["parameters"] = [*inside, *operation.get("parameters", [])]
        wrong = _said("refused; `error` and `reason` say how", _named("Error"))
        answers = {code: dict(answer) for code, answer in operation["responses"].items()} | {"default": wrong}
        for answer in answers.values():
            answer["headers"] = {"TxLog-API-Version": {"$ref": "#/components/headers/TxLog-API-Version"}}
        operation["responses"] = answers
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "TxLog: the administration API of a master",
            "version": API_VERSION,
            "description": "RDF4J's and SPARQL's paths are described by their own documents; these are TxLog's.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "headers": {"TxLog-API-Version": {"description": "of this document", "schema": {"const": API_VERSION}}},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


class OpenApi:
    def routes(self) -> list[Route]:
        return [Route("GET", "/txlog/openapi.json", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """The same for everybody and at every master of one version."""
        return json_answer(document())
