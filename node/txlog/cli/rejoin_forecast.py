"""What a rejoin would do now, from what the masters say of their branches. Pure: the rules of protocol section 4 once
more, over answers instead of reports; a test on real masters compares the two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from txlog.model.view import STRATEGIES

HashAt = Callable[["AnsweringBranch", int], str]
"""The chain hash of that side's log at an index within it."""
StampedTransaction = tuple[int, str, int, int]
"""An entry's stamp, and the node, birth and seq of its transaction."""


class AnsweringBranch(NamedTuple):
    """One view and the masters in it that answer. ``end``: of the longest of their logs, which ``branch_info`` is
    of."""

    view_number: str
    view_order: tuple[int, int, str]
    nodes: tuple[str, ...]
    members: tuple[str, ...]
    end: int
    history: tuple[str, ...]
    strategies: tuple[str, ...]
    strategy: str
    branch_info: dict[str, Any]


class RejoinForecast(NamedTuple):
    """``forks``: the winner first; ``laggards`` follow without a vote. ``shared_index``: D, the last index that all
    forks have. ``kept_up_to``: by view, up to where its log stays as it is. ``merged``: in stamp order (``Simple``).
    ``strategy``: of the view that would follow, which decides whether workers go back."""

    forks: list[AnsweringBranch]
    laggards: list[AnsweringBranch]
    shared_index: int
    merged: bool
    strategy: str
    weights: dict[str, int]
    kept_up_to: dict[str, int]

    @property
    def winner(self) -> AnsweringBranch:
        return self.forks[0]

    def moved_entries(self, side: AnsweringBranch) -> int:
        """Entries that lose their place in its log."""
        return side.end - self.kept_up_to[side.view_number]


def group_branches(told: Sequence[dict[str, Any]]) -> list[AnsweringBranch]:
    """By view, in the order of their numbers."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in told:
        groups.setdefault(one["view"]["number"], []).append(one)
    found = []
    for number, ones in groups.items():
        longest = max(ones, key=lambda one: (one["end"], one["node"]))
        view = longest["view"]
        epoch, ballot, coordinator = view["order"]
        found.append(
            AnsweringBranch(
                number,
                (epoch, ballot, coordinator),
                tuple(sorted(one["node"] for one in ones)),
                tuple(view["members"]),
                longest["end"],
                tuple(view["history"]),
                tuple(view["strategies"]),
                view["strategy"],
                longest,
            )
        )
    return sorted(found, key=lambda side: side.view_order)


def last_shared_index(one: AnsweringBranch, other: AnsweringBranch, hash_at: HashAt) -> int:
    """The last index at which both logs have the same hash: what is equal there is equal before, too."""
    low, high = 0, min(one.end, other.end)
    while low < high:
        middle = (low + high + 1) // 2
        if hash_at(one, middle) == hash_at(other, middle):
            low = middle
        else:
            high = middle - 1
    return low


def forecast_rejoin(
    told: Sequence[dict[str, Any]],
    hash_at: HashAt,
    behind: Callable[[AnsweringBranch, int], Iterable[StampedTransaction]],
    weights_at: Callable[[AnsweringBranch, int], dict[str, int]],
) -> RejoinForecast:
    """``branch_info``: of every master that answers; ``behind``: the entries of a side's log behind an index, in order;
    ``weights_at``: of the masters configured at an index, in order of precedence."""
    sides = group_branches(told)
    configured = weights_at(sides[0], min(last_shared_index(sides[0], side, hash_at) for side in sides))
    majority = told[0]["splitMode"] == "Majority"
    forks = [sides[-1]] if majority else _find_forks(sides, hash_at)
    here = {node for side in sides for node in side.nodes}
    weighed = {fork.view_number: _fork_weight(fork, sides, forks, here, configured) for fork in forks}
    forks.sort(key=lambda fork: weighed[fork.view_number], reverse=True)
    winner = forks[0]
    laggers = [side for side in sides if side not in forks]
    shared = min(last_shared_index(winner, fork, hash_at) for fork in forks)
    merged = len(forks) > 1 and _shared_strategy(forks) == "Simple"
    kept = {side.view_number: last_shared_index(winner, side, hash_at) for side in sides}
    if merged:
        kept |= _kept_after_merge(forks, shared, behind)
        kept |= {lag.view_number: min(kept[lag.view_number], kept[winner.view_number]) for lag in laggers}
    strategy = min((one["prefers"] for one in told), key=STRATEGIES.index)
    if len(sides) == 1 and set(winner.members) <= here:
        strategy = winner.strategy
    weights = {number: weight for number, (weight, _, _) in weighed.items()}
    return RejoinForecast(forks, laggers, shared, merged, strategy, weights, kept)


def _find_forks(sides: list[AnsweringBranch], hash_at: HashAt) -> list[AnsweringBranch]:
    leaves = [side for side in sides if not any(side.view_number in other.history for other in sides)]
    return [
        one
        for one in leaves
        if _absent_members(one, sides)
        or not any(_is_extended_by(one, other, hash_at) for other in leaves if other is not one)
    ]


def _is_extended_by(one: AnsweringBranch, other: AnsweringBranch, hash_at: HashAt) -> bool:
    ahead = other.end > one.end or other.view_order > one.view_order
    return ahead and one.end <= other.end and last_shared_index(one, other, hash_at) == one.end


def _later_branches(side: AnsweringBranch, sides: list[AnsweringBranch]) -> list[AnsweringBranch]:
    return [other for other in sides if other.view_order > side.view_order]


def _absent_members(side: AnsweringBranch, sides: list[AnsweringBranch]) -> list[str]:
    """Members of its view that do not answer in it, and that nobody who answers has seen in a later one."""
    later = _later_branches(side, sides)
    return [
        node
        for node in side.members
        if node not in side.nodes and not any(node in other.nodes and node in other.members for other in later)
    ]


def _fork_weight(
    fork: AnsweringBranch,
    sides: list[AnsweringBranch],
    forks: list[AnsweringBranch],
    here: set[str],
    configured: dict[str, int],
) -> tuple[int, int, int]:
    nodes = set(fork.nodes)
    for other in sides:
        holders = [each for each in forks if other.view_number in each.history]
        if other not in forks and holders == [fork]:
            nodes |= set(other.nodes)
    later = _later_branches(fork, sides)
    nodes |= {m for m in fork.members if m not in here and not any(m in other.members for other in later)}
    order = {node: place for place, node in enumerate(configured)}
    first = min(order.get(node, len(order)) for node in fork.nodes)
    return sum(configured.get(node, 0) for node in nodes), fork.end, -first


def _shared_strategy(forks: list[AnsweringBranch]) -> str:
    """Of the last view that all of these have grown from."""
    first = forks[0]
    lines = [{*fork.history, fork.view_number} for fork in forks]
    for number, strategy in zip(reversed(first.history), reversed(first.strategies), strict=True):
        if all(number in line for line in lines):
            return strategy
    return first.strategy


def _kept_after_merge(
    forks: list[AnsweringBranch], shared: int, behind: Callable[[AnsweringBranch, int], Iterable[StampedTransaction]]
) -> dict[str, int]:
    """Each transaction once, at its least stamp; a fork keeps what stands at the same places with the same stamps."""
    logs = {fork.view_number: list(behind(fork, shared)) for fork in forks}
    least: dict[tuple[str, int, int], int] = {}
    for log in logs.values():
        for stamp, node, birth, seq in log:
            txid = (node, birth, seq)
            least[txid] = min(stamp, least.get(txid, stamp))
    merged = sorted((stamp, *txid) for txid, stamp in least.items())
    kept = {}
    for number, log in logs.items():
        same = next((at for at, pair in enumerate(zip(log, merged, strict=False)) if pair[0] != pair[1]), len(log))
        kept[number] = shared + same
    return kept
