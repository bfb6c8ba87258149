"""Decides which incarnation of a master a supervisor remembers and hands to its next start (protocol section 1).

A master whose journal does not know that incarnation has lost its journal, and founds no cluster by itself. So a
supervisor remembers only what was a member of a cluster: before that, a journal holds nothing that could be lost. While
a master with a new journal waits or learns, the earlier incarnation stays remembered, over any number of starts.
"""

from __future__ import annotations


def should_remember(birth: int, remembered_birth: int | None, is_view_installed: bool) -> bool:
    """Whether this incarnation replaces the remembered one, or is that one with a later start."""
    return is_view_installed or birth == remembered_birth
