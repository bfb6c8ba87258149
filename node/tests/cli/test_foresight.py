"""The rules of a rejoin over what masters say of their branches: who votes, who wins, what keeps its place."""

from __future__ import annotations

from typing import Any

from txlog.cli.rejoin_forecast import (
    AnsweringBranch,
    StampedTransaction,
    forecast_rejoin,
    group_branches,
    last_shared_index,
)

ALL = "abcde"
Log = list[StampedTransaction]


def log(*stamps: int, of: str = "a") -> Log:
    return [(stamp, of, 1, seq) for seq, stamp in enumerate(stamps, 1)]


class World:
    """Masters by name, each with a view, its history and a log."""

    def __init__(self, **weights: int) -> None:
        self.weights = weights or dict.fromkeys(ALL, 1)
        self.told: list[dict[str, Any]] = []
        self.logs: dict[str, Log] = {}

    def put(
        self,
        nodes: str,
        epoch: int,
        entries: Log,
        *,
        members: str = "",
        history: list[str] | None = None,
        strategy: str = "Smart",
    ) -> World:
        before = history if history is not None else ["1.1.a"]
        for node in nodes:
            self.logs[node] = entries
            self.told.append(
                {
                    "node": node,
                    "prefers": strategy,
                    "splitMode": "Continue",
                    "view": {
                        "number": f"{epoch}.1.{nodes[0]}",
                        "order": [epoch, 1, nodes[0]],
                        "members": list(members or nodes),
                        "strategy": strategy,
                        "history": before,
                        "strategies": [strategy] * len(before),
                    },
                    "end": len(entries),
                }
            )
        return self

    def hash_at(self, side: AnsweringBranch, index: int) -> str:
        return str(self.logs[side.branch_info["node"]][:index])

    def foresee(self) -> Any:
        return forecast_rejoin(
            self.told,
            self.hash_at,
            lambda side, index: self.logs[side.branch_info["node"]][index:],
            lambda side, index: self.weights,
        )


SAME = log(1, 2, 3)


def test_the_weight_decides_then_the_length_then_the_order() -> None:
    one, other = [*SAME, *log(10, of="b")], [*SAME, *log(11, 12, of="c")]
    assert World(a=1, b=1, c=3).put("ab", 2, one).put("c", 2, other).foresee().winner.nodes == ("c",)
    assert World(a=1, b=1, c=2).put("ab", 2, one).put("c", 2, other).foresee().winner.nodes == ("c",)
    equal = World(a=1, b=1, c=2).put("ab", 2, one).put("c", 2, [*SAME, *log(11, of="c")]).foresee()
    assert equal.winner.nodes == ("a", "b")
    assert equal.shared_index == 3
    assert {side.nodes: equal.moved_entries(side) for side in equal.forks} == {("a", "b"): 0, ("c",): 1}


def test_a_member_that_is_away_counts_for_the_only_branch_that_has_it() -> None:
    world = (
        World(a=1, b=1, c=2).put("a", 2, [*SAME, *log(9, of="a")], members="ab").put("c", 2, [*SAME, *log(8, of="c")])
    )
    found = world.foresee()
    assert found.weights == {"2.1.a": 2, "2.1.c": 2}
    assert found.winner.nodes == ("a",)


def test_a_master_whose_view_is_in_anothers_history_does_not_vote() -> None:
    world = (
        World(a=1, b=5).put("a", 2, [*SAME, *log(9)]).put("b", 1, [*SAME, *log(7, 8, of="b")], members="ab", history=[])
    )
    world.told[1]["view"]["number"] = "1.1.a"
    found = world.foresee()
    assert [side.nodes for side in found.forks] == [("a",)]
    assert [side.nodes for side in found.laggards] == [("b",)]
    assert found.moved_entries(found.laggards[0]) == 2, "what it had ordered alone goes back to its queue"


def test_a_log_that_is_a_prefix_follows_when_everybody_of_its_view_is_here() -> None:
    ahead = [*SAME, *log(9, of="b")]
    assert len(World().put("a", 2, SAME).put("b", 3, ahead).foresee().forks) == 1
    away = World().put("a", 2, SAME, members="ac").put("b", 3, ahead).foresee()
    assert len(away.forks) == 2, "c may know of more"


def test_simple_merges_by_the_least_stamp_and_keeps_what_stays_in_its_place() -> None:
    one = [*SAME, (10, "b", 1, 1), (20, "b", 1, 2)]
    other = [*SAME, (10, "b", 1, 1), (15, "c", 1, 1), (16, "b", 1, 2)]
    found = World(a=1, b=2, c=1).put("ab", 2, one, strategy="Simple").put("c", 2, other, strategy="Simple").foresee()
    assert (found.merged, found.shared_index, found.winner.nodes) == (True, 4, ("a", "b"))
    assert {side.nodes: found.kept_up_to[side.view_number] for side in found.forks} == {("a", "b"): 4, ("c",): 6}


def test_the_last_view_that_all_grew_from_decides_the_way_and_the_safest_preference_what_follows() -> None:
    world = World(a=1, b=1).put("a", 2, [*SAME, *log(9)], strategy="Simple").put("b", 2, [*SAME, *log(8, of="b")])
    for one in world.told:
        one["view"]["strategies"] = ["Smart"]
    found = world.foresee()
    assert (found.merged, found.strategy) == (False, "Simple")


def test_where_two_logs_part_is_found_by_halves() -> None:
    world = World().put("a", 2, log(*range(1, 1001))).put("b", 2, [*log(*range(1, 700)), *log(5000, of="b")])
    one, other = group_branches(world.told)
    asked: list[int] = []

    def hash_at(side: AnsweringBranch, index: int) -> str:
        asked.append(index)
        return world.hash_at(side, index)

    assert last_shared_index(one, other, hash_at) == 699
    assert len(asked) <= 2 * 10
