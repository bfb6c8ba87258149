"""Which configuration is in force at each place of the log: a function of the log alone (rule 20).

What is *stable* has taken effect for good. What stands behind it is pending: it may still leave the log, so a majority
has to be one under each of these, too.
"""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.configuration import Configuration, followed_by
from txlog.model.ids import Txid, ViewNumber
from txlog.protocol.events import ConfiguredMember
from txlog.protocol.history import History


class Placed(NamedTuple):
    """In force from this entry of the log on; index 0 is the founding. ``members``: its masters, in order of
    precedence."""

    since: int
    configuration: Configuration
    members: tuple[ConfiguredMember, ...]


def placed(index: int, configuration: Configuration) -> Placed:
    members = tuple(ConfiguredMember(m.node, m.data_center, m.weight) for m in configuration.masters)
    return Placed(index, configuration, members)


class Configurations:
    """``noops``: the changes in the log that took no effect. ``held``: every change that is held, in the log or not."""

    def __init__(self, founding: Configuration) -> None:
        self.places = [placed(0, founding)]
        self.noops: dict[int, Txid] = {}
        self.held: dict[Txid, str] = {}

    def begin(self, founding: Configuration) -> None:
        """A master that followed without a view learns the founding record; its log is empty."""
        assert len(self.places) + len(self.noops) == 1, "the founding is learnt before anything else"
        self.places = [placed(0, founding)]

    def resume(self, since: int, configuration: Configuration) -> None:
        """What is in force at the foot of a log, since that entry."""
        self.places = [placed(since, configuration)]
        self.noops.clear()

    def trim(self, index: int) -> None:
        """What was in force before this place, and where nothing came of a change, is asked for no more."""
        since = self.place(index).since
        self.places = [one for one in self.places if one.since >= since]
        self.noops = {at: txid for at, txid in self.noops.items() if at > index}

    def copy(self, upto: int) -> Configurations:
        """The same up to this place in the log."""
        other = Configurations(self.places[0].configuration)
        other.places = [one for one in self.places if one.since <= upto]
        return other

    def enter(self, index: int, txid: Txid, key: str, views: list[ViewNumber]) -> bool:
        """A change enters the log of a chain that has grown through these views. Whether it takes effect."""
        after = followed_by(self.places[-1].configuration, key, views)
        if after is None:
            self.noops[index] = txid
        else:
            self.places.append(placed(index, after))
        return after is not None

    def stands_up_to(self, history: History, after: int, cut: int, views: list[ViewNumber]) -> int:
        """How far into this log, from ``after`` on and up to ``cut``, a chain grown through these views judges every
        change as it was judged here. Behind that it has to take effect anew: here the chain grew through a branch that
        did not go on."""
        places = [(history.index_of(txid.origin, txid.seq), txid) for txid in self.held]
        for index, txid in sorted(places):
            if after < index <= cut:
                follows = followed_by(self.place(index - 1).configuration, self.held[txid], views) is not None
                if follows == (index in self.noops):
                    return index - 1
        return cut

    def cut(self, index: int) -> None:
        """What stands behind ``index`` has left the log."""
        self.places = [one for one in self.places if one.since <= index]
        self.noops = {at: txid for at, txid in self.noops.items() if at <= index}

    @property
    def last(self) -> Configuration:
        """At the end of the log."""
        return self.places[-1].configuration

    def place(self, index: int) -> Placed:
        """What is in force at this place of the log."""
        at = len(self.places) - 1
        while at and self.places[at].since > index:
            at -= 1
        return self.places[at]

    def jointly(self, index: int) -> list[Configuration]:
        """What is in force there, and every one that comes after it: a majority is one under all of them."""
        first = self.place(index).since
        return [one.configuration for one in self.places if one.since >= first]
