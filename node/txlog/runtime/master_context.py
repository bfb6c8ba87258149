"""The dependencies of every endpoint of one log of a master."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from txlog.config.process_config import NodeConfig
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.literal_form import LiteralForm
from txlog.runtime.master_loop import MasterLoop, PendingWrite
from txlog.runtime.master_status import MasterStatus
from txlog.runtime.payload_transfer import PayloadTransfer
from txlog.runtime.transaction_status import TransactionTracker
from txlog.runtime.transaction_traces import TransactionTraces, WriteTrace
from txlog.runtime.worker_registry import WorkerRegistry
from txlog.telemetry.event_log import EventLog

API_PATH: Final = "/txlog"
"""Where TxLog's paths of a process and of its first log begin."""


@dataclass
class MasterContext:
    """The runtime of one log. ``repository``: its name. ``api_path``: where TxLog's paths of this log begin.
    ``payload_transfer``: sends large payloads to the others ahead; None: they travel with their posts.
    ``interactive_load``: the load to which large transfers yield. ``traces``: None where nothing is traced.
    ``fixed_masters()``: the masters of this log do not change, because there are further logs with the same ones.
    ``proved_down(node, birth, start)``: what else follows when a process is proved to be gone.

    It exists only over a whole journal: a damaged one is repaired before.
    """

    config: NodeConfig
    repository: str
    loop: MasterLoop
    registry: WorkerRegistry
    transactions: TransactionTracker
    log: EventLog
    payload_transfer: PayloadTransfer | None = None
    interactive_load: InteractiveLoad = field(default_factory=InteractiveLoad)
    api_path: str = API_PATH
    traces: TransactionTraces | None = None
    fixed_masters: Callable[[], bool] = lambda: False
    proved_down: Callable[[str, int, int], None] = lambda node, birth, start: None
    is_closing: bool = False
    started_at: float = field(default_factory=time.monotonic)

    def trace_write(self, write: PendingWrite, traceparent: str) -> WriteTrace | None:
        """See :meth:`TransactionTraces.begin`; None also where nothing is traced."""
        return self.traces.begin(write, traceparent) if self.traces is not None else None

    @property
    def status(self) -> MasterStatus:
        """What may be read of the core and the journal."""
        return self.loop.status

    @property
    def durability(self) -> DurabilityTracker:
        """The watermarks of the log and of this master's transactions."""
        return self.loop.durability

    @property
    def literals(self) -> LiteralForm:
        """In which form the stores of this data centre hold literals."""
        return self.registry.literals

    @property
    def state(self) -> str:
        """The state as the core names it."""
        return self.status.state

    @property
    def masters(self) -> list[tuple[str, str]]:
        """Node id and data centre of every master of the cluster, in order of precedence."""
        return [(m.node, m.data_center) for m in self.status.configured_members]

    @property
    def other_nodes(self) -> list[str]:
        """The node ids of the other masters."""
        return [node for node, _ in self.masters if node != self.config.node]

    @property
    def is_ready(self) -> bool:
        """Whether this master accepts requests: it has a log, its start may vote (rule 2), and it is not closing."""
        return not self.is_closing and self.status.log_state is not None and self.status.is_admitted
