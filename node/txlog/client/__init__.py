"""The client of a master's HTTP API: for the pipeline, the command line, the tests and users."""

from txlog.client.errors import MasterUnreachable
from txlog.client.failover import FailoverClient
from txlog.client.feed_follower import FeedFollower
from txlog.client.master_client import MasterClient
from txlog.client.responses import (
    Doorbell,
    JsonMarker,
    JsonPosition,
    QueryResult,
    RecordedTrace,
    StatusResponse,
    TransactionStatus,
    WorkerReport,
    WorkerStatus,
    WriteRequest,
    WriteResult,
)
from txlog.client.retrying_write import RetryPolicy

__all__ = [
    "Doorbell",
    "FailoverClient",
    "FeedFollower",
    "JsonMarker",
    "JsonPosition",
    "MasterClient",
    "MasterUnreachable",
    "QueryResult",
    "RecordedTrace",
    "RetryPolicy",
    "StatusResponse",
    "TransactionStatus",
    "WorkerReport",
    "WorkerStatus",
    "WriteRequest",
    "WriteResult",
]
