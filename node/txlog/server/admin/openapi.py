"""``GET /txlog/openapi.json``: the administration API as OpenAPI 3.1, with all its routes and no others.

Each answer below ``/txlog`` carries the version as ``TxLog-API-Version``. Its first number grows when something that
clients rely on goes away or changes its meaning; the second grows when something is added. The schemas list the fields
that are always present. More fields may appear, so clients ignore unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from txlog.auth import required_role
from txlog.http.router import API_VERSION, Request, Response, Route, encode_json, json_response
from txlog.model.rescued_transaction import KIND_HEADER
from txlog.server.admin.json_schema import (
    ANY_OBJECT,
    BOOLEAN,
    COUNT,
    HASH,
    JSON,
    LEVEL,
    STRING,
    Schema,
    array_of,
    describe_response,
    nullable,
    object_of,
    operation_of,
    query_parameter,
    schema_ref,
)
from txlog.sites.state_lines import STATE_MEDIA_TYPE
from txlog.wire.change_feed import NDJSON_MEDIA_TYPE, RDF_PATCH_MEDIA_TYPE, SSE_MEDIA_TYPE
from txlog.wire.log_page import MEDIA_TYPE

_PREFIX: Final = "/txlog"
_BINARY: Final[Schema] = {"type": "string", "format": "binary"}
_SECONDS: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 999_999_999}


_AFTER: Final = query_parameter("after", {**COUNT, "maximum": 1 << 62}, "entries behind this index")
_TIMEOUT: Final = query_parameter("timeout", _SECONDS, "seconds, by default 5, at most 30")
_HOLD_PURPOSE: Final = query_parameter(
    "for", {"enum": ["look", "repair"]}, "beside the other hold, and only for some seconds"
)
_CHANGED: Final = {
    "200": describe_response("in effect", schema_ref("Configuration")),
    "202": describe_response("it waits for its place in the log", schema_ref("Configuration")),
}
_DECIDED: Final = {"202": describe_response("the duty that does it", object_of(worker=STRING, duty=STRING))}


def _ok(schema: Schema, text: str = "", content: str = JSON) -> dict[str, Schema]:
    return {"200": describe_response(text, schema, content)}


def _ok_as(text: str, contents: dict[str, Schema]) -> dict[str, Schema]:
    """An answer in one of several media types."""
    return {"200": {"description": text, "content": {name: {"schema": schema} for name, schema in contents.items()}}}


def _ok_or_later(stable: Schema, later: Schema) -> dict[str, Schema]:
    """An entry of the log: the answer comes when it is stable, or after a while."""
    return {"200": describe_response("it is stable", stable), "202": describe_response("it is not stable yet", later)}


_ROUTES: Final[dict[tuple[str, str], Schema]] = {
    ("GET", "/txlog/openapi.json"): operation_of("this document", _ok(ANY_OBJECT, "OpenAPI 3.1")),
    ("GET", "/txlog/status"): operation_of("how this master is", _ok(schema_ref("Status"))),
    ("GET", "/txlog/live"): operation_of(
        "what this master knows of the cluster; as events, each change of it",
        _ok_as(
            "one snapshot, or with `Accept: text/event-stream` one whenever it has changed",
            {JSON: schema_ref("Live"), SSE_MEDIA_TYPE: STRING},
        ),
    ),
    ("GET", "/txlog/recovery"): operation_of(
        "to which moments a store can be restored, as far as this master knows",
        _ok(schema_ref("Recovery"), "backups, archives, and times of the log"),
    ),
    ("GET", "/txlog/synchro"): operation_of(
        "whether this side decides about synchronous transactions, and what is undecided",
        _ok(schema_ref("Synchro"), "quorums, votes and undecided transactions"),
        query_parameter("at", STRING, "INDEX:HASH: with `undecidedAt`, what was undecided at this position"),
    ),
    ("GET", "/txlog/log"): operation_of(
        "entries of the log, up to the stable index",
        _ok_as("a page", {MEDIA_TYPE: _BINARY, JSON: schema_ref("LogPage")}),
        _AFTER,
        query_parameter("hash", HASH, "the caller's chain hash there: compared"),
        query_parameter("upto", COUNT, "the last index wanted"),
        query_parameter("maxBytes", {"type": "integer", "minimum": 1}, "about how large, 8 MiB at most"),
        query_parameter("unordered", STRING, "places INDEX:HASH,... of a worker's position"),
        query_parameter("keys", {"enum": ["1"]}, "with idempotency keys, and never above the stable index"),
        query_parameter("effects", {"enum": ["payloads", "names"]}, "what a page with keys has of synchronous ones"),
    ),
    ("POST", "/txlog/site/values"): operation_of(
        "the quads of keys at a final position",
        _ok(object_of(values=array_of(array_of(STRING))), "of each key its quads, as lines of N-Quads")
        | {"410": describe_response("change sets are no longer kept from there on", schema_ref("Error"))},
        body=object_of(
            _optional=("hash", "cluster"),
            index=COUNT,
            kind={"enum": ["property", "subject", "quad"]},
            keys=array_of(STRING),
            hash=STRING,
            cluster=STRING,
        ),
    ),
    ("GET", "/txlog/site/state"): operation_of(
        "all data at one final position, for another site that takes the state of this one",
        _ok(_BINARY, "a head in JSON, the quads as lines of N-Quads, and their number in JSON", STATE_MEDIA_TYPE),
        query_parameter("after", COUNT, "an entry of the log that the state must contain"),
        query_parameter("cluster", STRING, "the id of this cluster: compared"),
    ),
    ("GET", "/txlog/watch"): operation_of(
        "the log as a feed; it ends at `until` only",
        {
            "200": {
                "description": "events as they happen",
                "content": {
                    SSE_MEDIA_TYPE: {"schema": STRING},
                    NDJSON_MEDIA_TYPE: {"schema": STRING, "description": "each line a FeedEvent, or empty"},
                    RDF_PATCH_MEDIA_TYPE: {"schema": STRING},
                },
            },
            "410": describe_response("the place is no longer kept", schema_ref("Error")),
        },
        query_parameter("from", STRING, "now, INDEX, INDEX:HASH or EPOCH:INDEX:HASH"),
        query_parameter("until", STRING, "now, or the index behind which it ends"),
        query_parameter("level", {"enum": ["stable", "settled"]}, "settled: only what no rejoin moves"),
        query_parameter("heartbeat", {"type": "integer", "minimum": 1, "maximum": 300}, "seconds"),
        query_parameter(
            "updates",
            {"enum": ["stop", "header", "quads"]},
            "of RDF Patch: what to do with SPARQL updates; quads: each entry is what it deleted and added",
        ),
        {"name": "Last-Event-ID", "in": "header", "schema": STRING, "description": "counts more than `from`"},
    ),
    ("GET", "/txlog/doorbell"): operation_of(
        "waits until the stable index is above `after`, or a worker is due",
        _ok(object_of(stable=schema_ref("Place"), tick=COUNT, workers=array_of(schema_ref("Worker")))),
        _AFTER,
        query_parameter("tick", COUNT, "the last one heard"),
        _TIMEOUT,
    ),
    ("POST", "/txlog/transactions"): operation_of(
        "many transactions, a line each",
        _ok(STRING, "a line for each, in order: what became of it, or `error` and `message`", NDJSON_MEDIA_TYPE),
        body={"type": "string", "description": "lines `update`, `quads`, or `add` and `delete`; optional `key`"},
        content=NDJSON_MEDIA_TYPE,
    ),
    ("POST", "/txlog/rescued/{txid}"): operation_of(
        "give a transaction of the lost cluster again; headers as of a write",
        {
            "202": describe_response("its level is not reached yet", STRING, "text/plain"),
            "204": describe_response("its level is reached"),
        },
        {"name": KIND_HEADER, "in": "header", "schema": {"enum": ["update", "quads"]}, "required": True},
        body={"type": "string", "description": "the payload, as the log had it"},
        content="application/octet-stream",
    ),
    ("GET", "/txlog/transactions/{txid}"): operation_of(
        "what became of a transaction",
        _ok(schema_ref("Transaction")),
        query_parameter("wait", _SECONDS, "seconds to wait for `durability`"),
        query_parameter("durability", LEVEL, "the level to wait for"),
    ),
    ("GET", "/txlog/workers"): operation_of(
        "the stores behind the masters", _ok(object_of(workers=array_of(schema_ref("Worker")), elsewhere=ANY_OBJECT))
    ),
    ("POST", "/txlog/workers"): operation_of(
        "one worker more of this data centre, until this process ends",
        _ok(object_of(workers=array_of(STRING)), "the names of all"),
        body=object_of(_closed=True, _optional=("engine",), name=STRING, url=STRING, engine=STRING),
    ),
    ("DELETE", "/txlog/workers/{name}"): operation_of(
        "it is no worker any more", _ok(object_of(reading=COUNT), "how many reads are still under way there"), _TIMEOUT
    ),
    ("POST", "/txlog/workers/{name}"): operation_of(
        "a pipeline's report",
        _ok(
            object_of(
                _optional=("bulk",), hold=nullable(COUNT), bulk=object_of(id=STRING, manifest=STRING, quads=COUNT)
            ),
            "the index at which to hold it, and a bulk load to prepare",
        ),
        body=schema_ref("WorkerReport"),
    ),
    ("POST", "/txlog/workers/{name}/look"): operation_of(
        "what this worker was seen to hold at one position",
        _ok(object_of(divergence=nullable(schema_ref("Finding"))), "whether it differs from the others"),
        body=schema_ref("GraphDigests"),
    ),
    ("POST", "/txlog/workers/{name}/comparison"): operation_of(
        "how far the comparison of this worker's content is", _ok(ANY_OBJECT), body=schema_ref("Comparison")
    ),
    ("POST", "/txlog/workers/{name}/adopt"): operation_of(
        "a person's decision: what this refused store holds comes before the first entry of the log",
        _DECIDED,
        body=schema_ref("StoreDecision"),
    ),
    ("POST", "/txlog/workers/{name}/discard"): operation_of(
        "a person's decision: what this refused store holds is deleted, and it is rebuilt",
        _DECIDED,
        body=schema_ref("StoreDecision"),
    ),
    ("PUT", "/txlog/holds/{name}"): operation_of(
        "ask the pipeline to stop this worker at an index",
        _ok(schema_ref("Worker")),
        _HOLD_PURPOSE,
        body=object_of(index=COUNT),
    ),
    ("DELETE", "/txlog/holds/{name}"): operation_of("let it go on", _ok(schema_ref("Worker")), _HOLD_PURPOSE),
    ("POST", "/txlog/skip/{txid}"): operation_of(
        "let every worker pass over a transaction",
        _ok(object_of(txid=STRING, skip=STRING, state=STRING)),
        body=object_of(_optional=("reason",), reason=STRING),
    ),
    ("GET", "/txlog/duties"): operation_of(
        "what this data centre has to do",
        _ok(object_of(duties=array_of(schema_ref("Duty")), state=STRING, dataCenter=STRING)),
    ),
    ("GET", "/txlog/duties/{id}"): operation_of(
        "whether a backup at this position would serve the duty",
        _ok(object_of(usable=BOOLEAN, why=nullable(STRING))),
        query_parameter("index", COUNT, "the index of the backup"),
        query_parameter("hash", HASH, "its chain hash"),
        query_parameter("epoch", COUNT, "the epoch in which a worker reached it"),
    ),
    ("POST", "/txlog/duties/{id}"): operation_of(
        "a duty is done or has failed; `begun` asks what GET asks",
        _ok(object_of(open=BOOLEAN), "whether it is still to be done"),
        body=schema_ref("DutyReport"),
    ),
    ("POST", "/txlog/backups"): operation_of(
        "all verified backups of this data centre", _ok(object_of(known=COUNT)), body=schema_ref("BackupReport")
    ),
    ("POST", "/txlog/archive"): operation_of(
        "how far the archiver of this data centre is",
        _ok(object_of(known=COUNT)),
        body=schema_ref("ArchiveReport"),
    ),
    ("POST", "/txlog/changesets"): operation_of(
        "how far the change sets of this data centre are",
        _ok(object_of(index=COUNT)),
        body=schema_ref("ChangeSetReport"),
    ),
    ("GET", "/txlog/sites"): operation_of(
        "how far the links of this data centre are",
        _ok(
            object_of(
                links=array_of(ANY_OBJECT),
                switches=array_of(
                    object_of(site=STRING, offline=BOOLEAN, index=COUNT, manifestOffline=BOOLEAN, takeAt=COUNT)
                ),
                index=COUNT,
            ),
            "of each link a LinkReport and `reportedSecondsAgo`; the last switch of each site; the last final entry",
        ),
    ),
    ("POST", "/txlog/sites"): operation_of(
        "how far a link of this data centre is", _ok(object_of(known=COUNT)), body=schema_ref("LinkReport")
    ),
    ("PATCH", "/txlog/sites/{name}"): operation_of(
        "take the link with a site offline, or bring it online; or take the state of that site",
        _ok_or_later(
            object_of(site=STRING, offline=BOOLEAN, index=COUNT, takeAt=COUNT),
            object_of(site=STRING, index=nullable(COUNT)),
        ),
        body=schema_ref("SiteSwitch"),
    ),
    ("POST", "/txlog/rehearsals"): operation_of(
        "the result of a rehearsed recovery of this data centre",
        _ok(object_of(known=COUNT)),
        body=schema_ref("RehearsalReport"),
    ),
    ("GET", "/txlog/traces"): operation_of(
        "the transactions that are recorded in traces, by index",
        _ok(object_of(transactions=array_of(object_of(txid=STRING, index=COUNT, traceparent=STRING)))),
        query_parameter("after", COUNT, "above this index"),
        query_parameter("upto", COUNT, "and up to this one"),
    ),
    ("GET", "/txlog/restore-points"): operation_of(
        "the restore points of the log, the oldest first",
        _ok(object_of(points=array_of(schema_ref("RestorePoint")))),
    ),
    ("POST", "/txlog/restore-points"): operation_of(
        "name this place of the log",
        _ok_or_later(schema_ref("CreatedRestorePoint"), schema_ref("CreatedRestorePoint")),
        body=schema_ref("NewRestorePoint"),
    ),
    ("GET", "/txlog/bulk"): operation_of("the bulk load that is prepared here", _ok(schema_ref("BulkLoads"))),
    ("PUT", "/txlog/bulk/{id}"): operation_of(
        "ask the pipelines to prepare a bulk load; for 30 s", _ok(schema_ref("BulkLoads")), body=schema_ref("BulkLoad")
    ),
    ("DELETE", "/txlog/bulk/{id}"): operation_of("end the preparation", _ok(schema_ref("BulkLoads"))),
    ("POST", "/txlog/bulk/{id}"): operation_of(
        "append the entry of a bulk load whose parts are on every target",
        _ok_or_later(object_of(transaction=STRING), object_of(transaction=nullable(STRING))),
        body=schema_ref("BulkLoad"),
    ),
    ("GET", "/txlog/splits"): operation_of(
        "what this master saw of splits", _ok(object_of(node=STRING, dataCenter=STRING, records=array_of(ANY_OBJECT)))
    ),
    ("GET", "/txlog/branch"): operation_of(
        "which branch this log is",
        _ok(
            object_of(
                node=STRING,
                dataCenter=STRING,
                clusterId=STRING,
                configured=array_of(object_of(node=STRING, weight=COUNT)),
                prefers=STRING,
                splitMode=STRING,
                view=ANY_OBJECT,
                end=COUNT,
                hash=HASH,
            )
        ),
        query_parameter("at", COUNT, "the hash at this index, by default at the end"),
    ),
    ("GET", "/txlog/view-report"): operation_of(
        "what this master would report if its view were stopped now",
        _ok(
            object_of(
                node=STRING,
                checkpoints=array_of(STRING),
                seqs=array_of(STRING),
                report={"type": "string", "contentEncoding": "base64"},
            )
        ),
        query_parameter("checkpoints", STRING, "`INDEX:HASH,...`: the report begins after the last one of this log"),
    ),
    ("GET", "/txlog/branches"): operation_of(
        "the orders that this master has given up", _ok(object_of(node=STRING, branches=array_of(ANY_OBJECT)))
    ),
    ("GET", "/txlog/branches/{view}"): operation_of(
        "one of them",
        _ok(STRING, "lines `index`, `id`, `hash`, `now`; also `kind`, `key`, `payload`, `missing`", NDJSON_MEDIA_TYPE),
        _AFTER,
        query_parameter("count", {"type": "integer", "minimum": 1, "maximum": 100_000}, "by default 1000"),
        query_parameter(
            "payload", {"enum": ["true", "false"]}, "true: with what each says; at most some 4 MiB in one answer"
        ),
    ),
    ("GET", "/txlog/settings"): operation_of("what this master prefers", _ok(schema_ref("Settings"))),
    ("PATCH", "/txlog/settings"): operation_of(
        "change some",
        _ok(schema_ref("Settings")),
        query_parameter("check", {"enum": ["true", "false"]}, "true: only say whether they could be"),
        body={"type": "object", "additionalProperties": nullable(STRING)},
    ),
    ("GET", "/txlog/configuration"): operation_of("what all masters agree on", _ok(schema_ref("Configuration"))),
    ("PATCH", "/txlog/configuration"): operation_of("change it", _CHANGED, body=schema_ref("ClusterOptions")),
    ("GET", "/txlog/peers"): operation_of(
        "the other masters, and who hears whom",
        _ok(
            object_of(
                peers=array_of(ANY_OBJECT),
                refused=array_of(ANY_OBJECT),
                hears=ANY_OBJECT,
                findings=array_of(ANY_OBJECT),
            )
        ),
    ),
    ("POST", "/txlog/peers"): operation_of("name a new master", _CHANGED, body=schema_ref("AddMaster")),
    ("PATCH", "/txlog/peers/{node}"): operation_of(
        "mute it or no longer, or give it another weight", _CHANGED, body=schema_ref("ChangeMaster")
    ),
    ("DELETE", "/txlog/peers/{node}"): operation_of(
        "take it out for good", _CHANGED, query_parameter("lost", {"enum": ["true", "false"]}, "true: it is gone")
    ),
    ("POST", "/txlog/members/{node}/down"): operation_of(
        "that process is gone for certain", _ok(object_of(node=STRING, inView=BOOLEAN)), body=schema_ref("DownReport")
    ),
    ("POST", "/txlog/views"): operation_of(
        "the operator's order to go on without some",
        {"202": describe_response("", object_of(view=nullable(STRING), mayMiss=array_of(ANY_OBJECT)))},
        body=schema_ref("ForceView"),
    ),
    ("POST", "/txlog/synchro/adopt"): operation_of(
        "the operator's order: the votes of these masters are lost for good",
        {"202": describe_response("the view that is left", object_of(view=STRING, without=array_of(STRING)))},
        body=schema_ref("AdoptVotes"),
    ),
    ("POST", "/txlog/found"): operation_of(
        "the operator's order to found the cluster with these",
        {"202": describe_response("", object_of(members=array_of(STRING)))},
        body=schema_ref("Bootstrap"),
    ),
    ("GET", "/txlog/peer"): operation_of(
        "the door of the other masters: another protocol, with the token of the cluster",
        {"101": describe_response("the protocol changes")},
    ),
}


@cache
def build_document() -> Schema:
    """The whole document."""
    from txlog.server.admin.api_schemas import build_components  # imported late: most masters never show the document

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
        wrong = describe_response("refused; `error` and `reason` say how", schema_ref("Error"))
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
            "schemas": build_components(),
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


if __name__ == "__main__":
    print(encode_json(build_document()).decode())
