"""The JSON schemas of ``GET /txlog/live`` and ``/txlog/recovery``, from which the console's types are generated."""

from __future__ import annotations

from typing import Final

from txlog.server.admin.json_schema import (
    BOOLEAN,
    COUNT,
    HASH,
    INTEGER,
    NUMBER,
    SPLIT_MODE,
    STRING,
    Schema,
    array_of,
    nullable,
    object_of,
    schema_ref,
)
from txlog.wire.divergence_report import REPAIR_STATES

_VIEW: Final[Schema] = object_of(
    number=nullable(STRING),
    installed=BOOLEAN,
    stopped=BOOLEAN,
    promised=nullable(STRING),
    ahead=nullable(STRING),
    changing=nullable(STRING),
    holding=STRING,
    splitMode=SPLIT_MODE,
    splitRecovery=nullable(STRING),
    splitBackupAt=nullable(COUNT),
    out=array_of(object_of(node=STRING, why=STRING, text=STRING)),
)
_MASTER: Final[Schema] = object_of(
    node=STRING,
    dataCenter=STRING,
    self=BOOLEAN,
    inView=BOOLEAN,
    present=BOOLEAN,
    connected=BOOLEAN,
    why=nullable(STRING),
)
_WORKER: Final[Schema] = object_of(
    dataCenter=STRING,
    name=STRING,
    engine=STRING,
    state=STRING,
    index=nullable(COUNT),
    hold=nullable(COUNT),
    error=nullable(STRING),
    fault=nullable(STRING),
    txid=nullable(STRING),
    differs=nullable(object_of(graphs=nullable(INTEGER), wrong=BOOLEAN)),
    repair=nullable({"enum": list(REPAIR_STATES)}),
)
TRIM: Final[Schema] = object_of(
    keptFrom=COUNT,
    servedFrom=COUNT,
    mayGoTo=COUNT,
    heldBackBy=array_of(object_of(kind=STRING, name=STRING, index=INTEGER, why=nullable(STRING))),
    bytes=COUNT,
    bytesMax=COUNT,
    alarm=BOOLEAN,
)
LIVE: Final[Schema] = object_of(
    at={**NUMBER, "description": "seconds since 1970, by this master's clock"},
    node=STRING,
    dataCenter=STRING,
    repository=STRING,
    state=STRING,
    epoch=COUNT,
    view=_VIEW,
    log=object_of(start=COUNT, end=COUNT, stable=COUNT, settled=COUNT, applied=COUNT, appliedAll=COUNT),
    queue=object_of(transactions=COUNT, bytes=COUNT),
    origins=array_of(object_of(node=STRING, transactions=COUNT)),
    latencyMs=object_of(synced=nullable(NUMBER), applied=nullable(NUMBER)),
    masters=array_of(_MASTER),
    workers=array_of(_WORKER),
    hears={"type": "object", "additionalProperties": nullable(array_of(STRING))},
    findings=array_of(object_of(kind=STRING, nodes=array_of(STRING), text=STRING)),
    duties=array_of(schema_ref("Duty")),
    trim=TRIM,
)
"""``hears``: by master, from which others it receives; null where that is not known here."""

_TIME: Final[Schema] = nullable({**NUMBER, "description": "seconds since 1970; null where it is not known"})
_PLACE: Final[Schema] = nullable(object_of(index=COUNT, hash=HASH, at=_TIME))
RECOVERY: Final[Schema] = object_of(
    at=NUMBER,
    dataCenter=STRING,
    clusterId=nullable(STRING),
    backups=array_of(
        object_of(
            name=STRING,
            dataCenter=STRING,
            index=COUNT,
            hash=HASH,
            split=BOOLEAN,
            onLog=nullable(BOOLEAN),
            at=_TIME,
            madeAt=_TIME,
        )
    ),
    streams=array_of(
        object_of(
            dataCenter=STRING,
            stream=STRING,
            state=STRING,
            error=STRING,
            delaySeconds=nullable(NUMBER),
            gaps=COUNT,
            losses=COUNT,
            archived=_PLACE,
            verified=_PLACE,
        )
    ),
    marks=array_of(object_of(index=COUNT, at=NUMBER)),
)
"""``at`` of a position: the stamp of its entry. ``onLog``: null where the log no longer reaches back to it."""
