"""JSON schemas of the administration API's bodies, generated from the structs that masters decode and encode.

Where a handler builds its answer without a struct, the schema is written here. Import it late: it loads the client.
"""

from __future__ import annotations

from typing import Final

import msgspec

from txlog.client.responses import JsonMarker, JsonPosition, TransactionStatus, WorkerStatus
from txlog.model.graph_digests import KINDS, GraphDigests
from txlog.runtime.worker_state import PipelineReport, WorkerMarker
from txlog.server.admin.archive_reports import StreamStatus
from txlog.server.admin.bulk_loads import BulkLoadRequest
from txlog.server.admin.change_set_reports import ChangeSetStatus
from txlog.server.admin.configuration import (
    AddMasterRequest,
    ChangeMasterRequest,
    ClusterOptionsRequest,
    GraphRuleRequest,
)
from txlog.server.admin.duties import Duty, DutyPosition, DutyReport
from txlog.server.admin.json_schema import (
    ANY_OBJECT,
    BOOLEAN,
    COUNT,
    HASH,
    INTEGER,
    LEVEL,
    NUMBER,
    REF,
    SPLIT_MODE,
    STRING,
    Schema,
    array_of,
    nullable,
    object_of,
    schema_ref,
)
from txlog.server.admin.live_schema import LIVE, RECOVERY, TRIM
from txlog.server.admin.log_retention import BackupReport, VerifiedBackup
from txlog.server.admin.restore_points import RestorePointRequest
from txlog.server.admin.site_links import SiteSwitchRequest
from txlog.server.admin.store_decisions import StoreDecision
from txlog.server.admin.synchronous_view import AdoptVotesRequest
from txlog.server.admin.views import BootstrapRequest, DownReport, ForceViewRequest
from txlog.sites.link_report import LinkReport
from txlog.supervision.duties import DutyKind
from txlog.wire.archive_report import ArchivePlace, ArchiveReport
from txlog.wire.change_feed import NAMESPACE_KIND, UNDECIDED, CommittedTransaction, FeedEvent
from txlog.wire.change_set_report import ChangeSetReport
from txlog.wire.comparison_report import ComparisonReport
from txlog.wire.divergence_report import REPAIR_STATES, CompletedRepair, DivergenceFinding, RepairStatus
from txlog.wire.log_page import KIND_NAMES
from txlog.wire.rehearsal_report import RehearsalReport

_ANSWERS: Final[dict[type[msgspec.Struct], str]] = {
    JsonPosition: "Place",
    DutyPosition: "Place",
    JsonMarker: "Marker",
    WorkerStatus: "Worker",
    DivergenceFinding: "Finding",
    RepairStatus: "Standing",
    CompletedRepair: "CompletedRepair",
    Duty: "Duty",
    TransactionStatus: "Transaction",
    FeedEvent: "FeedEvent",
    CommittedTransaction: "CommittedTransaction",
    StreamStatus: "ArchiveStream",
    ChangeSetStatus: "ChangeSetStatus",
}
"""Struct to the name of its schema. A master sends all fields, but for structs that omit defaults."""
_REQUESTS: Final[dict[type[msgspec.Struct], str]] = {
    PipelineReport: "WorkerReport",
    WorkerMarker: "ReportedMarker",
    GraphDigests: "GraphDigests",
    ComparisonReport: "Comparison",
    DutyReport: "DutyReport",
    VerifiedBackup: "VerifiedBackup",
    BackupReport: "BackupReport",
    ArchivePlace: "ArchivePlace",
    ArchiveReport: "ArchiveReport",
    ChangeSetReport: "ChangeSetReport",
    LinkReport: "LinkReport",
    RehearsalReport: "RehearsalReport",
    RestorePointRequest: "NewRestorePoint",
    SiteSwitchRequest: "SiteSwitch",
    BulkLoadRequest: "BulkLoad",
    AddMasterRequest: "AddMaster",
    ChangeMasterRequest: "ChangeMaster",
    ClusterOptionsRequest: "ClusterOptions",
    GraphRuleRequest: "GraphRule",
    DownReport: "DownReport",
    BootstrapRequest: "Bootstrap",
    ForceViewRequest: "ForceView",
    AdoptVotesRequest: "AdoptVotes",
    StoreDecision: "StoreDecision",
}
"""Struct to the name of its schema. A client may leave out fields that have a default."""
_COUNTS: Final = (
    "index",
    "firstIndex",
    "fence",
    "graphCount",
    "added",
    "removed",
    "done",
    "quads",
    "hold",
    "stamp",
    "files",
    "bytes",
    "errors",
    "gaps",
    "losses",
    "entries",
    "graphs",
    "differing",
    "cells",
    "waiting",
)
_CELL: Final[Schema] = {"type": "array", "prefixItems": [STRING, nullable(STRING)], "minItems": 2, "maxItems": 2}
"""The IRIs of a graph and a predicate."""
_FIELDS: Final[dict[str, dict[str, Schema]]] = {
    "Place": {"epoch": COUNT},
    "Marker": {"epoch": COUNT},
    "Worker": {
        "reportedAt": nullable(NUMBER),
        "divergence": nullable(schema_ref("Finding")),
        "repair": nullable(schema_ref("Standing")),
        "comparison": nullable(schema_ref("Comparison")),
    },
    "Finding": {"kind": {"enum": [*KINDS, "refusal"]}, "cells": array_of(_CELL)},
    "Standing": {"state": {"enum": list(REPAIR_STATES)}},
    "Duty": {"kind": {"enum": [kind.value for kind in DutyKind]}},
    "Transaction": {"durability": LEVEL, "workers": ANY_OBJECT},
    "FeedEvent": {
        "event": {"enum": ["position", "entry", "rewound", "gone", "diverged", "closing", "not-quads"]},
        "id": {"type": "string", "pattern": "^[0-9]+:[0-9a-f]{32}$"},
        "kind": {"enum": [NAMESPACE_KIND, *KIND_NAMES.values()]},
        "synchronous": {"enum": [UNDECIDED]},
    },
    "CommittedTransaction": {"kind": {"enum": ["quads", "update"]}},
    "GraphDigests": {"kind": {"enum": list(KINDS)}, "cell": nullable(_CELL)},
    "DutyReport": {"state": {"enum": ["done", "begun", "failed"]}},
    "ClusterOptions": {"splitMode": nullable(SPLIT_MODE)},
    "DownReport": {
        "birth": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "start": {"type": "integer", "minimum": 1},
    },
}
"""What the API promises beyond a field's type."""


def _generated() -> dict[str, Schema]:
    structs = {**_ANSWERS, **_REQUESTS}
    names = {struct.__name__: name for struct, name in structs.items()}
    sent = {struct.__name__ for struct in _ANSWERS if not struct.__struct_config__.omit_defaults}
    _, found = msgspec.json.schema_components(structs, ref_template=REF + "{name}")
    made: dict[str, Schema] = {}
    for struct, schema in found.items():
        if struct not in names:
            continue  # a field of this type has another schema in the API
        fields = {name: _narrowed(name, field, names) for name, field in schema["properties"].items()}
        optional = () if struct in sent else tuple(name for name in fields if name not in schema["required"])
        closed = not schema.get("additionalProperties", True)
        made[names[struct]] = object_of(closed, optional, **(fields | _FIELDS.get(names[struct], {})))
    return made


def _narrowed(field: str, schema: Schema, names: dict[str, str]) -> Schema:
    """The schema without its default, with the API's names, and with what the field's own name implies."""
    if "$ref" in schema:
        struct = schema["$ref"].removeprefix(REF)
        return schema_ref(names.get(struct, struct))
    if "anyOf" in schema:
        return {"anyOf": [_narrowed(field, one, names) for one in schema["anyOf"]]}
    if "items" in schema:
        return array_of(_narrowed("", schema["items"], names))
    if schema == {"type": "integer"} | ({"default": schema["default"]} if "default" in schema else {}):
        return COUNT if field in _COUNTS else INTEGER
    if field == "hash":
        return HASH
    return {name: value for name, value in schema.items() if name != "default"}


_HAND_WRITTEN: Final[dict[str, Schema]] = {
    "Error": object_of(
        error={**STRING, "description": "the kind of refusal, a stable word"},
        reason={**STRING, "description": "a stable word where there are several of a kind, else empty"},
        message={**STRING, "description": "for people: what is wrong, and what to do"},
    ),
    "Status": object_of(
        node=STRING,
        birth=STRING,
        start=COUNT,
        version=STRING,
        state=STRING,
        epoch=COUNT,
        view=ANY_OBJECT,
        duties=array_of(schema_ref("Duty")),
        clusterId=nullable(STRING),
        log=schema_ref("Place"),
        stable=schema_ref("Place"),
        trim=TRIM,
        archive=nullable(
            object_of(
                streams=array_of(schema_ref("ArchiveStream")),
                rehearsals=array_of(
                    object_of(
                        dataCenter=STRING,
                        lastGoodAt=nullable(NUMBER),
                        dueAt=nullable(NUMBER),
                        last=nullable(schema_ref("RehearsalReport")),
                    )
                ),
            )
        ),
        changeSets=nullable(array_of(schema_ref("ChangeSetStatus"))),
        queue=object_of(transactions=COUNT, bytes=COUNT),
        counter=COUNT,
        members=array_of(object_of(node=STRING, birth=STRING, weight=COUNT, dataCenter=STRING)),
        present=array_of(STRING),
        workers=array_of(schema_ref("Worker")),
        applied=COUNT,
        damage=array_of({}),
        repository=STRING,
        dataCenter=STRING,
        uptimeSeconds=NUMBER,
    ),
    "RestorePoint": object_of(name=STRING, index=COUNT, hash=nullable(STRING), at=nullable(NUMBER)),
    "CreatedRestorePoint": object_of(
        name=STRING,
        transaction=nullable(STRING),
        index=nullable(COUNT),
        hash=nullable(STRING),
        at=nullable(NUMBER),
    ),
    "BulkLoads": object_of(
        _optional=("refused",),
        dataCenter=STRING,
        preparing=nullable(object_of(id=STRING, manifest=STRING, quads=COUNT)),
        workers=array_of(
            object_of(
                name=STRING,
                engine=STRING,
                state=STRING,
                index=COUNT,
                bulk=nullable(object_of(mode=STRING, load=STRING, phase=STRING, quads=COUNT, error=nullable(STRING))),
            )
        ),
        refused=nullable(STRING),
    ),
    "Live": LIVE,
    "Recovery": RECOVERY,
    "LogPage": object_of(
        _optional=("stableIndex", "settled", "view"),
        stableIndex=COUNT,
        settled=COUNT,
        view=STRING,
        after=schema_ref("Place"),
        entries=array_of(
            object_of(index=COUNT, hash=HASH, txid=STRING, stamp=COUNT, kind=STRING, payload=STRING, noop=STRING)
        ),
        stable=schema_ref("Place"),
    ),
    "Settings": object_of(
        _optional=("changed",),
        changed=array_of(STRING),
        node=STRING,
        dataCenter=STRING,
        state=STRING,
        view=nullable(object_of(number=nullable(STRING), splitRecovery=STRING, prefers=ANY_OBJECT, renewing=BOOLEAN)),
        settings=array_of(
            object_of(
                key=STRING,
                property=STRING,
                value=STRING,
                source={"enum": ["manifest", "live", "properties", "default"]},
                manifest=STRING,
                since=nullable(NUMBER),
            )
        ),
    ),
    "Synchro": object_of(
        _optional=("undecidedAt",),
        undecidedAt=array_of(STRING),
        quorate=BOOLEAN,
        view=nullable(STRING),
        anchor=nullable(STRING),
        electorate=object_of(
            votes=COUNT,
            here=COUNT,
            masters=array_of(object_of(node=STRING, votes=COUNT, here=BOOLEAN, counts=BOOLEAN)),
        ),
        graphs=array_of(
            object_of(
                match=STRING,
                quorum=STRING,
                timeout=STRING,
                needs=COUNT,
                asked=nullable(COUNT),
                here=COUNT,
                reached=BOOLEAN,
            )
        ),
        queue=object_of(
            undecided=COUNT,
            own=COUNT,
            limit=COUNT,
            oldestSeconds=NUMBER,
            doomed=COUNT,
            bytes=COUNT,
            commitLagSeconds=NUMBER,
        ),
        undecided=array_of(
            object_of(
                txid=STRING,
                owner=STRING,
                index=nullable(COUNT),
                quorum=STRING,
                needs=COUNT,
                held=array_of(STRING),
                late=BOOLEAN,
                state={"enum": ["waiting", "certain", "doomed"]},
                ageSeconds=NUMBER,
            )
        ),
    ),
    "Configuration": object_of(
        _optional=("txid",),
        txid=STRING,
        version=COUNT,
        splitMode=SPLIT_MODE,
        keyRetention=STRING,
        masters=array_of(
            object_of(
                node=STRING,
                dataCenter=STRING,
                weight=COUNT,
                role={"enum": ["member", "muted", "leaving"]},
                urls=array_of(STRING),
                inView=BOOLEAN,
            )
        ),
        removed=array_of(STRING),
        graphs=array_of(object_of(match=STRING, quorum=STRING, timeout=STRING)),
        pending=nullable(STRING),
    ),
}


def build_components() -> dict[str, Schema]:
    """All named schemas of the document."""
    return _HAND_WRITTEN | _generated()
