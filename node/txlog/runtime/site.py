"""What every door of one master is given."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from txlog.config.process import NodeConfig
from txlog.runtime.ahead import Ahead
from txlog.runtime.company import Company
from txlog.runtime.events import EventLog
from txlog.runtime.loop import Loop
from txlog.runtime.registry import Registry
from txlog.runtime.transactions import Transactions


@dataclass
class Site:
    """One master's shell. ``ahead``: how large payloads reach the others; None: with their posts. ``company``: to whom
    what is large gives way.

    There is one only over a whole journal: a damaged one is mended before."""

    config: NodeConfig
    loop: Loop
    registry: Registry
    transactions: Transactions
    log: EventLog
    ahead: Ahead | None = None
    company: Company = field(default_factory=Company)
    closing: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def state(self) -> str:
        """The core's own word."""
        return self.loop.core.state

    @property
    def masters(self) -> list[tuple[str, str]]:
        """Node id and data centre of every master of the cluster, in order of precedence: as the log says, or the
        manifests before."""
        return [(m.node, m.data_center) for m in self.loop.core.views.configured]

    @property
    def others(self) -> list[str]:
        """The node ids of the other masters."""
        return [node for node, _ in self.masters if node != self.config.node]

    @property
    def ready(self) -> bool:
        core = self.loop.core
        return not self.closing and core.agreement is not None and core.founding.admitted
