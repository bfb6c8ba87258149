"""The client of a master's HTTP API: for the pipeline, the command line, the tests and users."""

from txlog.client.answers import (
    Divergence,
    Doorbell,
    Found,
    Place,
    Repair,
    Status,
    Transaction,
    Worker,
    WorkerPlace,
    WorkerReport,
    Write,
    Written,
)
from txlog.client.failover import Masters
from txlog.client.faults import MasterUnreachable
from txlog.client.feed import Follower
from txlog.client.master import MasterClient
from txlog.client.writing import Patience

__all__ = [
    "Divergence",
    "Doorbell",
    "Follower",
    "Found",
    "MasterClient",
    "MasterUnreachable",
    "Masters",
    "Patience",
    "Place",
    "Repair",
    "Status",
    "Transaction",
    "Worker",
    "WorkerPlace",
    "WorkerReport",
    "Write",
    "Written",
]
