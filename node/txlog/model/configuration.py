"""What all masters of a cluster agree on besides the transactions: entries of the log (protocol section 3).

A change is a transaction of kind ``KIND_CONFIG``. Its key is the change, so that it is part of the content hash and of
the chain; its payload is the reason, for people to read. The configuration at an index of the log is the founding one,
changed by every entry up to there that took effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.ids import NODE_ID, ViewNumber
from txlog.model.synchronous import GraphRule, find_rule_problem

InLineage = Callable[[ViewNumber], bool]
"""Whether a chain descends from the view of this number, or is that view's."""
MEMBER: Final = "member"
MUTED: Final = "muted"
"""The master takes no client writes; it orders transactions, and feeds its workers, as before."""
LEAVING: Final = "leaving"
"""The master takes no more client writes; its last transaction removes it for good."""
ROLES: Final = (MEMBER, MUTED, LEAVING)

MASTERS_MAX: Final = 64
CHANGE_CHARACTERS_MAX: Final = 60_000
"""Limit of a change as a key, in characters: 64 masters with an address each take far less."""
_DATA_CENTER = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


class Master(msgspec.Struct, array_like=True, frozen=True):
    """``urls``: where the others reach the master, unless they are given another address; the first counts."""

    node: str
    data_center: str
    weight: int
    role: str = MEMBER
    urls: list[str] = []


class Configuration(msgspec.Struct, array_like=True, frozen=True):
    """``masters`` in order of precedence. ``majority``: ``splitMode: Majority``, else ``Continue``. ``version`` counts
    the changes that took effect. ``removed``: node ids that were masters once. ``keeps_literals``: stores hold
    literals as they were sent (decisions/0101); only that of the founding configuration counts, which never changes.
    ``graphs``: whose transactions are synchronous."""

    masters: list[Master]
    majority: bool
    key_retention_ms: int
    version: int = 0
    removed: list[str] = []
    keeps_literals: bool = False
    graphs: list[GraphRule] = []

    def master(self, node: str) -> Master | None:
        """The master with this node id."""
        return next((m for m in self.masters if m.node == node), None)

    def has_majority(self, nodes: Iterable[str], among: Iterable[str] | None = None) -> bool:
        """Whether these have more than half of the vote weight. ``among``: of these masters only and, where they have
        no votes at all, whether they are all there."""
        there = set(nodes)
        counted = {m.node for m in self.masters} if among is None else set(among)
        total = sum(m.weight for m in self.masters if m.node in counted)
        if not total:
            return among is not None and there >= counted
        return 2 * sum(m.weight for m in self.masters if m.node in there & counted) > total

    def validation_error(self) -> str:
        """Why the configuration is not valid; empty when it is."""
        nodes = [m.node for m in self.masters]
        total = sum(m.weight for m in self.masters)
        for m in self.masters:
            if not NODE_ID.fullmatch(m.node) or not _DATA_CENTER.fullmatch(m.data_center):
                return f"{m.node[:80]!r} in data centre {m.data_center[:80]!r}: expected names as in uk-1, uk"
            if nodes.count(m.node) > 1:
                return f"{m.node} is there twice"
            if m.role not in ROLES or not 0 <= m.weight <= 1000:
                return f"{m.node}: role {m.role[:20]!r}, weight {m.weight}: one of {', '.join(ROLES)}; 0 to 1000"
            if any(not _URL.fullmatch(url) for url in m.urls):
                return f"{m.node}: {m.urls}: expected addresses as in http://host:7300"
            if self.majority and 2 * m.weight >= total:
                return f"{m.node} would have {m.weight} of all {total} votes; Majority needs less than half for each"
        if not 1 <= len(nodes) <= MASTERS_MAX or not total:
            return f"{len(nodes)} masters with {total} votes: 1 to {MASTERS_MAX} masters, one vote at least"
        rest = [m for m in self.masters if m.role != LEAVING]
        if len(rest) < len(nodes):
            without = msgspec.structs.replace(self, masters=rest).validation_error()
            if without:
                return f"without {', '.join(m.node for m in self.masters if m.role == LEAVING)}: {without}"
        if self.key_retention_ms < 1:
            return f"a keyRetention of {self.key_retention_ms} ms: more than nothing"
        return find_rule_problem(self.graphs, self.masters)


class ConfigurationChange(msgspec.Struct, array_like=True, frozen=True):
    """``configuration`` follows the one of version ``base_version``; ``view``: in which view it was made."""

    view: ViewNumber
    base_version: int
    configuration: Configuration


def encode_configuration_change(change: ConfigurationChange) -> str:
    """A change as the key of its transaction."""
    return msgspec.json.encode(change).decode()


def decode_configuration_change(key: str) -> ConfigurationChange | None:
    """The inverse of :func:`encode_configuration_change`; None for any other key, which takes no effect."""
    try:
        return msgspec.json.decode(key, type=ConfigurationChange)
    except DECODE_ERRORS:
        return None


def apply_configuration_change(now: Configuration, key: str, in_lineage: InLineage) -> Configuration | None:
    """The configuration after this entry, where ``now`` was before it and ``in_lineage`` tells from which views the
    chain descends. None when the entry is a no-op. It was made in a view of another branch. Or it was made for a
    configuration that is not in force there, because another change came first."""
    change = decode_configuration_change(key)
    if (
        change is None
        or change.base_version != now.version
        or not in_lineage(change.view)
        or change.configuration.validation_error()
    ):
        return None
    return msgspec.structs.replace(change.configuration, version=now.version + 1)
