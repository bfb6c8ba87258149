"""What this program can do that other masters of its cluster rely on, as one number."""

from __future__ import annotations

from typing import Final

from txlog.model.view import FORGETTING_LEVEL

LEVEL_FIRST_STAMPS: Final = 1
"""A master of this level keeps and passes on first stamps (``RunItem.first_stamp``), and reads tables of keys."""
LEVEL_TRIPLE_TERMS: Final = 2
"""A master of this level, and the pipeline of its data centre, read triple terms in quads of the log."""
LEVEL_SYNCHRONOUS: Final = 3
"""A master of this level keeps anchors, and gives synchronous transactions and decisions their meaning."""
PROTOCOL_LEVEL: Final = max(FORGETTING_LEVEL, LEVEL_FIRST_STAMPS, LEVEL_TRIPLE_TERMS, LEVEL_SYNCHRONOUS)
"""The level of this program, in ``Hello``, ``HelloReply`` and the messages of a view change; it grows by one with each
ability that others rely on. 0: not sent. What an older master would lose or not read is used only when every
configured master has reported the level that it needs."""
