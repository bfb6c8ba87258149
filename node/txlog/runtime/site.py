"""What every door of one master is given."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from txlog.config.process import NodeConfig
from txlog.runtime.events import EventLog
from txlog.runtime.loop import Loop
from txlog.runtime.registry import Registry
from txlog.runtime.transactions import Transactions


@dataclass
class Site:
    """One master's shell. ``damage`` lists what of its journal could not be read and is not repaired yet."""

    config: NodeConfig
    loop: Loop
    registry: Registry
    transactions: Transactions
    log: EventLog
    damage: list[str] = field(default_factory=list)
    closing: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def state(self) -> str:
        """``Damaged`` before everything else; otherwise the core's own word."""
        return "Damaged" if self.damage else self.loop.core.state

    @property
    def ready(self) -> bool:
        core = self.loop.core
        return not self.closing and not self.damage and core.agreement is not None and core.founding.admitted
