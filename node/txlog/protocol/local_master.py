"""What a master knows of itself, shared by all parts of its core."""

from __future__ import annotations

from txlog.model.ids import Origin
from txlog.protocol.clock_comparison import ClockComparison
from txlog.protocol.events import ProtocolSettings
from txlog.protocol.peer_levels import PeerLevels


class LocalMaster:
    """``settings`` are in effect now; :meth:`Core.apply_settings` alone replaces them. ``birth`` and ``start`` name
    this process (rule 1). ``disk_full``: the disk has no room for transactions, as the driver last reported. ``clock``:
    what it knows of the time. ``peer_levels``: which versions the others have."""

    __slots__ = ("birth", "clock", "disk_full", "peer_levels", "settings", "start")

    def __init__(self, settings: ProtocolSettings, birth: int, start: int) -> None:
        self.settings = settings
        self.birth = birth
        self.start = start
        self.disk_full = False
        self.clock = ClockComparison()
        self.peer_levels = PeerLevels()

    @property
    def node(self) -> str:
        """The node id."""
        return self.settings.node

    @property
    def origin(self) -> Origin:
        """Node id and incarnation."""
        return Origin(self.settings.node, self.birth)
