"""The client of a master's HTTP API: for the pipeline, the command line, the tests and users."""

from txlog.client.errors import MasterUnreachable
from txlog.client.failover import FailoverClient
from txlog.client.feed_follower import FeedFollower
from txlog.client.master_client import MasterClient
from txlog.client.responses import (
    Divergence,
    Doorbell,
    JsonMarker,
    JsonPosition,
    QueryResult,
    RecordedTrace,
    RepairRecord,
    StatusResponse,
    TransactionStatus,
    WorkerReport,
    WorkerStatus,
    WriteRequest,
    WriteResult,
)
from txlog.client.retrying_write import RetryPolicy

__all__ = [
    "Divergence",
    "Doorbell",
    "FailoverClient",
    "FeedFollower",
    "JsonMarker",
    "JsonPosition",
    "MasterClient",
    "MasterUnreachable",
    "QueryResult",
    "RecordedTrace",
    "RepairRecord",
    "RetryPolicy",
    "StatusResponse",
    "TransactionStatus",
    "WorkerReport",
    "WorkerStatus",
    "WriteRequest",
    "WriteResult",
]
