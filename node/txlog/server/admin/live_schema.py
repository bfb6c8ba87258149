"""The JSON schema of ``GET /txlog/live``, from which the console's types are generated."""

from __future__ import annotations

from typing import Final

from txlog.divergence.repair_policy import STATES as REPAIR_STATES
from txlog.server.admin.json_schema import (
    BOOLEAN,
    COUNT,
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
_TRIM: Final[Schema] = object_of(
    keptFrom=COUNT,
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
    trim=_TRIM,
)
"""``hears``: by master, from which others it receives; null where that is not known here."""
