"""``GET /txlog/openapi.json``: the administration API as OpenAPI 3.1, with all its routes and no others.

Each answer below ``/txlog`` carries the version as ``TxLog-API-Version``. Its first number grows when something that
clients rely on goes away or changes its meaning; the second grows when something is added. The schemas list the fields
that are always present. More fields may appear, so clients ignore unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from txlog.auth import required_role
from txlog.divergence.repair_policy import STATES as REPAIR_STATES
from txlog.http.router import API_VERSION, Request, Response, Route, json_response
from txlog.wire.change_feed import NDJSON_MEDIA_TYPE, RDF_PATCH_MEDIA_TYPE, SSE_MEDIA_TYPE
from txlog.wire.log_page import MEDIA_TYPE

Schema = dict[str, Any]
JSON: Final = "application/json"
_PREFIX: Final = "/txlog"

_STRING: Final[Schema] = {"type": "string"}
_INTEGER: Final[Schema] = {"type": "integer"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_BOOLEAN: Final[Schema] = {"type": "boolean"}
_HASH: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_ANY_OBJECT: Final[Schema] = {"type": "object"}
_SECONDS: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 999_999_999}
_LEVEL: Final[Schema] = {"enum": ["accepted", "quorum", "synced", "applied", "applied-all"]}


def _array_of(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _nullable(of: Schema) -> Schema:
    return {"anyOf": [of, {"type": "null"}]}


def _object(_closed: bool = False, _optional: tuple[str, ...] = (), **fields: Schema) -> Schema:
    """The schema of an object. ``_closed``: the master refuses a body with other fields."""
    made: Schema = {"type": "object", "properties": fields, "required": [n for n in fields if n not in _optional]}
    return made | ({"additionalProperties": False} if _closed else {})


def _schema_ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _query_parameter(name: str, schema: Schema, text: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _response(text: str, schema: Schema | None = None, content: str = JSON) -> Schema:
    return {"description": text} | ({"content": {content: {"schema": schema}}} if schema is not None else {})


_POSITION: Final = _object(epoch=_COUNT, index=_COUNT, hash=_HASH)
_SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object(
        error={**_STRING, "description": "the kind of refusal, a stable word"},
        reason={**_STRING, "description": "a stable word where there are several of a kind, else empty"},
        message={**_STRING, "description": "for people: what is wrong, and what to do"},
    ),
    "Place": _POSITION,
    "Worker": _object(
        name=_STRING,
        url=_STRING,
        engine=_STRING,
        position=_nullable(_object(epoch=_COUNT, index=_COUNT, hash=_HASH, fence=_COUNT, unordered=_array_of(_STRING))),
        state=_STRING,
        error=_nullable(_STRING),
        hold=_nullable(_COUNT),
        reportedAt=_nullable({"type": "number"}),
        divergence=_nullable(_schema_ref("Finding")),
        repair=_nullable(_schema_ref("Standing")),
    ),
    "Standing": _object(
        state={"enum": list(REPAIR_STATES)},
        why=_STRING,
        done={**_COUNT, "description": "within a day"},
        last=_nullable(
            _object(
                worker=_STRING,
                source=_STRING,
                graphs=_array_of(_STRING),
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
        wrong=_BOOLEAN,
        why=_STRING,
        graphs=_array_of(_STRING),
        graphCount=_nullable(_COUNT),
        firstIndex=_COUNT,
        index=_COUNT,
        hash=_HASH,
        fence=_COUNT,
        right=_array_of(_STRING),
    ),
    "Duty": _object(
        id=_STRING,
        kind={"enum": ["backup", "restore", "unorder", "repair"]},
        why=_STRING,
        worker=_nullable(_STRING),
        error=_nullable(_STRING),
        to=_nullable(_schema_ref("Place")),
        lacks=_BOOLEAN,
    ),
    "Status": _object(
        node=_STRING,
        birth=_STRING,
        start=_COUNT,
        version=_STRING,
        state=_STRING,
        epoch=_COUNT,
        view=_ANY_OBJECT,
        duties=_array_of(_schema_ref("Duty")),
        clusterId=_nullable(_STRING),
        log=_schema_ref("Place"),
        stable=_schema_ref("Place"),
        trim=_object(
            keptFrom=_COUNT,
            mayGoTo=_COUNT,
            heldBackBy=_array_of(_object(kind=_STRING, name=_STRING, index=_INTEGER, why=_nullable(_STRING))),
            bytes=_COUNT,
            bytesMax=_COUNT,
            alarm=_BOOLEAN,
        ),
        queue=_object(transactions=_COUNT, bytes=_COUNT),
        counter=_COUNT,
        members=_array_of(_object(node=_STRING, birth=_STRING, weight=_COUNT, dataCenter=_STRING)),
        present=_array_of(_STRING),
        workers=_array_of(_schema_ref("Worker")),
        damage=_array_of({}),
        repository=_STRING,
        dataCenter=_STRING,
        uptimeSeconds={"type": "number"},
    ),
    "Transaction": _object(
        txid=_STRING,
        state=_STRING,
        durability=_LEVEL,
        position=_nullable(_schema_ref("Place")),
        noop=_nullable(_STRING),
        workers=_ANY_OBJECT,
    ),
    "LogPage": _object(
        after=_schema_ref("Place"),
        entries=_array_of(
            _object(index=_COUNT, hash=_HASH, txid=_STRING, stamp=_COUNT, kind=_STRING, payload=_STRING, noop=_STRING)
        ),
        stable=_schema_ref("Place"),
    ),
    "FeedEvent": _object(
        _optional=("previous", "index", "txid", "stamp", "kind", "noop", "key", "settled", "payload", "message"),
        event={"enum": ["position", "entry", "rewound", "gone", "diverged", "closing", "not-quads"]},
        id={"type": "string", "pattern": "^[0-9]+:[0-9a-f]{32}$"},
        previous=_STRING,
        index=_COUNT,
        txid=_STRING,
        stamp=_COUNT,
        kind={"enum": ["quads", "update", "skip", "namespace", "configuration"]},
        noop=_STRING,
        key=_STRING,
        settled=_BOOLEAN,
        payload=_STRING,
        message=_STRING,
    ),
    "Settings": _object(
        _optional=("changed",),
        changed=_array_of(_STRING),
        node=_STRING,
        dataCenter=_STRING,
        state=_STRING,
        view=_nullable(
            _object(number=_nullable(_STRING), splitRecovery=_STRING, prefers=_ANY_OBJECT, renewing=_BOOLEAN)
        ),
        settings=_array_of(
            _object(
                key=_STRING,
                property=_STRING,
                value=_STRING,
                source={"enum": ["manifest", "live", "properties", "default"]},
                manifest=_STRING,
                since=_nullable({"type": "number"}),
            )
        ),
    ),
    "Configuration": _object(
        _optional=("txid",),
        txid=_STRING,
        version=_COUNT,
        splitMode={"enum": ["Continue", "Majority"]},
        keyRetention=_STRING,
        masters=_array_of(
            _object(
                node=_STRING,
                dataCenter=_STRING,
                weight=_COUNT,
                role={"enum": ["member", "muted", "leaving"]},
                urls=_array_of(_STRING),
                inView=_BOOLEAN,
            )
        ),
        removed=_array_of(_STRING),
        pending=_nullable(_STRING),
    ),
}

_AFTER: Final = _query_parameter("after", {**_COUNT, "maximum": 1 << 62}, "entries behind this index")
_TIMEOUT: Final = _query_parameter("timeout", _SECONDS, "seconds, 5 unless told, 30 at most")
_HOLD_PURPOSE: Final = _query_parameter(
    "for", {"enum": ["look", "repair"]}, "beside the other hold, and only for some seconds"
)
_CHANGED: Final = {
    "200": _response("in effect", _schema_ref("Configuration")),
    "202": _response("it waits for its place in the log", _schema_ref("Configuration")),
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
    ("GET", "/txlog/openapi.json"): _operation("this document", {"200": _response("OpenAPI 3.1", _ANY_OBJECT)}),
    ("GET", "/txlog/status"): _operation("how this master is", {"200": _response("", _schema_ref("Status"))}),
    ("GET", "/txlog/log"): _operation(
        "entries of the log, up to the stable index",
        {
            "200": {
                "description": "a page",
                "content": {
                    MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
                    JSON: {"schema": _schema_ref("LogPage")},
                },
            }
        },
        _AFTER,
        _query_parameter("hash", _HASH, "the caller's chain hash there: compared"),
        _query_parameter("upto", _COUNT, "the last index wanted"),
        _query_parameter("maxBytes", {"type": "integer", "minimum": 1}, "about how large, 8 MiB at most"),
        _query_parameter("unordered", _STRING, "places INDEX:HASH,... of a worker's position"),
    ),
    ("GET", "/txlog/watch"): _operation(
        "the log as a feed; it ends at `until` only",
        {
            "200": {
                "description": "events as they happen",
                "content": {
                    SSE_MEDIA_TYPE: {"schema": _STRING},
                    NDJSON_MEDIA_TYPE: {"schema": _STRING, "description": "each line a FeedEvent, or empty"},
                    RDF_PATCH_MEDIA_TYPE: {"schema": _STRING},
                },
            },
            "410": _response("the place is no longer kept", _schema_ref("Error")),
        },
        _query_parameter("from", _STRING, "now, INDEX, INDEX:HASH or EPOCH:INDEX:HASH"),
        _query_parameter("until", _STRING, "now, or the index behind which it ends"),
        _query_parameter("level", {"enum": ["stable", "settled"]}, "settled: only what no rejoin moves"),
        _query_parameter("heartbeat", {"type": "integer", "minimum": 1, "maximum": 300}, "seconds"),
        _query_parameter("updates", {"enum": ["stop", "header"]}, "of RDF Patch: what to do with SPARQL updates"),
        {"name": "Last-Event-ID", "in": "header", "schema": _STRING, "description": "counts more than `from`"},
    ),
    ("GET", "/txlog/doorbell"): _operation(
        "waits until the stable index is above `after`, or a worker is due",
        {
            "200": _response(
                "", _object(stable=_schema_ref("Place"), tick=_COUNT, workers=_array_of(_schema_ref("Worker")))
            )
        },
        _AFTER,
        _query_parameter("tick", _COUNT, "the last one heard"),
        _TIMEOUT,
    ),
    ("POST", "/txlog/transactions"): _operation(
        "many transactions, a line each",
        {
            "200": _response(
                "a line for each, in order: what became of it, or `error` and `message`", _STRING, NDJSON_MEDIA_TYPE
            )
        },
        body={"type": "string", "description": "lines `update`, `quads`, or `add` and `delete`; optional `key`"},
        content=NDJSON_MEDIA_TYPE,
    ),
    ("GET", "/txlog/transactions/{txid}"): _operation(
        "what became of a transaction",
        {"200": _response("", _schema_ref("Transaction"))},
        _query_parameter("wait", _SECONDS, "seconds to wait for `durability`"),
        _query_parameter("durability", _LEVEL, "the level to wait for"),
    ),
    ("GET", "/txlog/workers"): _operation(
        "the stores behind the masters",
        {"200": _response("", _object(workers=_array_of(_schema_ref("Worker")), elsewhere=_ANY_OBJECT))},
    ),
    ("POST", "/txlog/workers"): _operation(
        "one worker more of this data centre, until this process ends",
        {"200": _response("the names of all", _object(workers=_array_of(_STRING)))},
        body=_object(_closed=True, _optional=("engine",), name=_STRING, url=_STRING, engine=_STRING),
    ),
    ("DELETE", "/txlog/workers/{name}"): _operation(
        "it is no worker any more",
        {"200": _response("how many reads are still under way there", _object(reading=_COUNT))},
        _TIMEOUT,
    ),
    ("POST", "/txlog/workers/{name}"): _operation(
        "a pipeline's report",
        {"200": _response("the index at which to hold it", _object(hold=_nullable(_COUNT)))},
        body=_object(
            _optional=("position", "state", "error", "status", "body", "txid", "tookMs"),
            position=_nullable(_ANY_OBJECT),
            state=_STRING,
            error=_nullable(_STRING),
            status=_nullable(_INTEGER),
            body=_nullable(_STRING),
            txid=_nullable(_STRING),
            tookMs=_nullable({"type": "number"}),
        ),
    ),
    ("POST", "/txlog/workers/{name}/look"): _operation(
        "what this worker was seen to hold at one position",
        {"200": _response("whether it differs from the others", _object(divergence=_nullable(_schema_ref("Finding"))))},
        body=_object(
            _optional=("graphs",),
            kind={"enum": ["counts", "sums"]},
            index=_COUNT,
            hash=_HASH,
            fence=_COUNT,
            quads=_COUNT,
            fingerprint=_STRING,
            graphs=_nullable({"type": "object", "additionalProperties": _STRING}),
        ),
    ),
    ("PUT", "/txlog/holds/{name}"): _operation(
        "ask the pipeline to stop this worker at an index",
        {"200": _response("", _schema_ref("Worker"))},
        _HOLD_PURPOSE,
        body=_object(index=_COUNT),
    ),
    ("DELETE", "/txlog/holds/{name}"): _operation(
        "let it go on", {"200": _response("", _schema_ref("Worker"))}, _HOLD_PURPOSE
    ),
    ("POST", "/txlog/skip/{txid}"): _operation(
        "let every worker pass over a transaction",
        {"200": _response("", _object(txid=_STRING, skip=_STRING, state=_STRING))},
        body=_object(_optional=("reason",), reason=_STRING),
    ),
    ("GET", "/txlog/duties"): _operation(
        "what this data centre has to do",
        {"200": _response("", _object(duties=_array_of(_schema_ref("Duty")), state=_STRING, dataCenter=_STRING))},
    ),
    ("GET", "/txlog/duties/{id}"): _operation(
        "whether a backup at this position would serve the duty",
        {"200": _response("", _object(usable=_BOOLEAN, why=_nullable(_STRING)))},
        _query_parameter("index", _COUNT, "the index of the backup"),
        _query_parameter("hash", _HASH, "its chain hash"),
        _query_parameter("epoch", _COUNT, "the epoch in which a worker reached it"),
    ),
    ("POST", "/txlog/duties/{id}"): _operation(
        "a duty is done or has failed; `begun` asks what GET asks",
        {"200": _response("whether it is still to be done", _object(open=_BOOLEAN))},
        body=_object(
            _closed=True,
            _optional=(
                *("index", "hash", "epoch", "message"),
                *("fence", "source", "graphs", "graphCount", "added", "removed"),
            ),
            state={"enum": ["done", "begun", "failed"]},
            index=_COUNT,
            hash=_HASH,
            epoch=_INTEGER,
            message=_STRING,
            fence=_COUNT,
            source=_STRING,
            graphs=_array_of(_STRING),
            graphCount=_COUNT,
            added=_COUNT,
            removed=_COUNT,
        ),
    ),
    ("POST", "/txlog/backups"): _operation(
        "all verified backups of this data centre",
        {"200": _response("", _object(known=_COUNT))},
        body=_object(
            _closed=True,
            backups=_array_of(_object(_optional=("split",), name=_STRING, index=_COUNT, hash=_HASH, split=_BOOLEAN)),
        ),
    ),
    ("GET", "/txlog/splits"): _operation(
        "what this master saw of splits",
        {"200": _response("", _object(node=_STRING, dataCenter=_STRING, records=_array_of(_ANY_OBJECT)))},
    ),
    ("GET", "/txlog/branch"): _operation(
        "which branch this log is",
        {
            "200": _response(
                "",
                _object(
                    node=_STRING,
                    dataCenter=_STRING,
                    clusterId=_STRING,
                    configured=_array_of(_object(node=_STRING, weight=_COUNT)),
                    prefers=_STRING,
                    splitMode=_STRING,
                    view=_ANY_OBJECT,
                    end=_COUNT,
                    hash=_HASH,
                ),
            )
        },
        _query_parameter("at", _COUNT, "the hash at this index, by default at the end"),
    ),
    ("GET", "/txlog/view-report"): _operation(
        "what this master would report if its view were stopped now",
        {
            "200": _response(
                "",
                _object(
                    node=_STRING,
                    checkpoints=_array_of(_STRING),
                    seqs=_array_of(_STRING),
                    report={"type": "string", "contentEncoding": "base64"},
                ),
            )
        },
        _query_parameter("checkpoints", _STRING, "`INDEX:HASH,...`: the report begins after the last one of this log"),
    ),
    ("GET", "/txlog/branches"): _operation(
        "the orders that this master has given up",
        {"200": _response("", _object(node=_STRING, branches=_array_of(_ANY_OBJECT)))},
    ),
    ("GET", "/txlog/branches/{view}"): _operation(
        "one of them",
        {
            "200": _response(
                "lines `index`, `id`, `hash`, `now`; also `kind`, `key`, `payload`, `missing`",
                _STRING,
                NDJSON_MEDIA_TYPE,
            )
        },
        _AFTER,
        _query_parameter("count", {"type": "integer", "minimum": 1, "maximum": 100_000}, "1000 unless told"),
        _query_parameter(
            "payload", {"enum": ["true", "false"]}, "true: with what each says; at most some 4 MiB in one answer"
        ),
    ),
    ("GET", "/txlog/settings"): _operation("what this master prefers", {"200": _response("", _schema_ref("Settings"))}),
    ("PATCH", "/txlog/settings"): _operation(
        "change some",
        {"200": _response("", _schema_ref("Settings"))},
        _query_parameter("check", {"enum": ["true", "false"]}, "true: only say whether they could be"),
        body={"type": "object", "additionalProperties": _nullable(_STRING)},
    ),
    ("GET", "/txlog/configuration"): _operation(
        "what all masters agree on", {"200": _response("", _schema_ref("Configuration"))}
    ),
    ("PATCH", "/txlog/configuration"): _operation(
        "change it",
        _CHANGED,
        body=_object(
            _closed=True,
            _optional=("splitMode", "keyRetention"),
            splitMode=_nullable({"enum": ["Continue", "Majority"]}),
            keyRetention=_nullable(_STRING),
        ),
    ),
    ("GET", "/txlog/peers"): _operation(
        "the other masters, and who hears whom",
        {
            "200": _response(
                "",
                _object(
                    peers=_array_of(_ANY_OBJECT),
                    refused=_array_of(_ANY_OBJECT),
                    hears=_ANY_OBJECT,
                    findings=_array_of(_ANY_OBJECT),
                ),
            )
        },
    ),
    ("POST", "/txlog/peers"): _operation(
        "name a new master",
        _CHANGED,
        body=_object(
            _closed=True,
            _optional=("weight", "urls"),
            node=_STRING,
            dataCenter=_STRING,
            weight=_INTEGER,
            urls=_array_of(_STRING),
        ),
    ),
    ("PATCH", "/txlog/peers/{node}"): _operation(
        "mute it or no longer, or give it another weight",
        _CHANGED,
        body=_object(
            _closed=True, _optional=("weight", "muted"), weight=_nullable(_INTEGER), muted=_nullable(_BOOLEAN)
        ),
    ),
    ("DELETE", "/txlog/peers/{node}"): _operation(
        "take it out for good", _CHANGED, _query_parameter("lost", {"enum": ["true", "false"]}, "true: it is gone")
    ),
    ("POST", "/txlog/members/{node}/down"): _operation(
        "that process is gone for certain",
        {"200": _response("", _object(node=_STRING, inView=_BOOLEAN))},
        body=_object(birth={"type": "string", "pattern": "^[0-9a-f]{16}$"}, start={"type": "integer", "minimum": 1}),
    ),
    ("POST", "/txlog/views"): _operation(
        "the operator's order to go on without some",
        {"202": _response("", _object(view=_nullable(_STRING), mayMiss=_array_of(_ANY_OBJECT)))},
        body=_object(without=_array_of(_STRING)),
    ),
    ("POST", "/txlog/found"): _operation(
        "the operator's order to found the cluster with these",
        {"202": _response("", _object(members=_array_of(_STRING)))},
        body=_object(members=_array_of(_STRING)),
    ),
    ("GET", "/txlog/peer"): _operation(
        "the door of the other masters: another protocol, with the token of the cluster",
        {"101": _response("the protocol changes")},
    ),
}


@cache
def build_document() -> Schema:
    """The whole document."""
    paths: dict[str, Schema] = {}
    for (method, path), found in _ROUTES.items():
        role = required_role(method, path)
        operation = dict(found)
        words = re.sub(r"[^A-Za-z]+", "-", path.removeprefix(_PREFIX)).strip("-")
        operation["operationId"] = f"{method.lower()}-{words}"
        operation["x-txlog-role"] = role.label if role is not None else "peer"
        if role is not None:
            operation["security"] = [{"basic": []}, {"bearer": []}, {}]
        inside = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in re.findall(r"\{(\w+)\}", path)
        ]
        if inside:
            operation["parameters"] = [*inside, *operation.get("parameters", [])]
        wrong = _response("refused; `error` and `reason` say how", _schema_ref("Error"))
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


class OpenApiHandler:
    """``GET /txlog/openapi.json``."""

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/openapi.json", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """The document: equal for all callers and at all masters of one version."""
        return json_response(build_document())
