"""Which configuration is in force at each index of the log: a function of the log alone (rule 20).

A *stable* change has taken effect for good. A change after the stable index is pending: it may still leave the log, so
a majority has to be one under each pending configuration, too.
"""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.configuration import Configuration, InLineage, apply_configuration_change, decode_configuration_change
from txlog.model.ids import Txid, ViewNumber
from txlog.protocol.events import ConfiguredMember
from txlog.protocol.log.log_index import LogIndex


class ConfigurationAt(NamedTuple):
    """The configuration in force from this entry of the log on; index 0 is the bootstrap. ``members``: its masters, in
    order of precedence."""

    since: int
    configuration: Configuration
    members: tuple[ConfiguredMember, ...]


def configuration_at(index: int, configuration: Configuration) -> ConfigurationAt:
    """The configuration as in force from ``index`` on, with its masters as members."""
    members = tuple(ConfiguredMember(m.node, m.data_center, m.weight) for m in configuration.masters)
    return ConfigurationAt(index, configuration, members)


class ConfigurationHistory:
    """``noops``: the changes in the log that took no effect. ``held``: the changes that are persisted here, in the log
    or not, since the last start."""

    def __init__(self, founding: Configuration) -> None:
        self.entries = [configuration_at(0, founding)]
        self.noops: dict[int, Txid] = {}
        self.held: dict[Txid, str] = {}
        self._made_in: dict[int, ViewNumber] = {}
        """The view that each change in the log names, by its index."""

    def set_bootstrap(self, founding: Configuration) -> None:
        """A master that followed without a view learns the founding record; its log is empty."""
        assert len(self.entries) + len(self.noops) == 1, "the founding is learnt before anything else"
        self.entries = [configuration_at(0, founding)]

    def restore(self, since: int, configuration: Configuration) -> None:
        """Set the configuration that is in force at a log start, and the entry since which it is."""
        self.entries = [configuration_at(since, configuration)]
        self.noops.clear()
        self._made_in.clear()

    def trim(self, index: int) -> None:
        """Forget the configurations that ended before this index, and the changes up to it that took no effect."""
        since = self.at_index(index).since
        self.entries = [one for one in self.entries if one.since >= since]
        self.noops = {at: txid for at, txid in self.noops.items() if at > index}
        self._made_in = {at: view for at, view in self._made_in.items() if at > index}

    def copy_up_to(self, upto: int) -> ConfigurationHistory:
        """A copy of the history up to this index of the log."""
        other = ConfigurationHistory(self.entries[0].configuration)
        other.entries = [one for one in self.entries if one.since <= upto]
        return other

    def apply(self, index: int, txid: Txid, key: str, in_lineage: InLineage) -> bool:
        """A change enters the log of a chain with this lineage. Returns whether it takes effect."""
        change = decode_configuration_change(key)
        if change is not None:
            self._made_in[index] = change.view
        after = apply_configuration_change(self.entries[-1].configuration, key, in_lineage)
        if after is None:
            self.noops[index] = txid
        else:
            self.entries.append(configuration_at(index, after))
        return after is not None

    def valid_up_to(self, history: LogIndex, after: int, cut: int, in_lineage: InLineage) -> int:
        """How far a chain with this lineage judges every change as it was judged here: from ``after`` on,
        up to ``cut``. Changes after that index have to take effect again: here the chain descended from a branch that
        did not survive."""
        places = [(history.index_of(txid.origin, txid.seq), txid) for txid in self.held]
        for index, txid in sorted(places):
            if after < index <= cut:
                follows = (
                    apply_configuration_change(self.at_index(index - 1).configuration, self.held[txid], in_lineage)
                    is not None
                )
                if follows == (index in self.noops):
                    return index - 1
        return cut

    def truncate(self, index: int) -> None:
        """Forget the entries after ``index``: they have left the log."""
        self.entries = [one for one in self.entries if one.since <= index]
        self.noops = {at: txid for at, txid in self.noops.items() if at <= index}
        self._made_in = {at: view for at, view in self._made_in.items() if at <= index}

    def views_outside(self, in_lineage: InLineage) -> set[ViewNumber]:
        """The views of other branches that changes name which are persisted here, in the log or not."""
        waiting = (decode_configuration_change(key) for key in self.held.values())
        named = {*self._made_in.values(), *(change.view for change in waiting if change is not None)}
        return {number for number in named if not in_lineage(number)}

    @property
    def latest(self) -> Configuration:
        """The configuration at the end of the log."""
        return self.entries[-1].configuration

    def at_index(self, index: int) -> ConfigurationAt:
        """The configuration in force at this index of the log."""
        at = len(self.entries) - 1
        while at and self.entries[at].since > index:
            at -= 1
        return self.entries[at]

    def joint_configurations(self, index: int) -> list[Configuration]:
        """The configuration in force there, and every later one: a majority is one under all of them."""
        first = self.at_index(index).since
        return [one.configuration for one in self.entries if one.since >= first]
