"""What is put together from the records of masters and the supervisor's duties."""

from __future__ import annotations

from typing import Any

from txlog.cli.split_commands import PHASE_TITLES, build_split_report


def view(number: str, members: list[str], silent: list[str]) -> dict[str, Any]:
    apart = 40 if silent else None
    told = {"number": number, "members": members, "silent": silent, "strategy": "Smart"}
    return {**told, "merged": False, "base": 40, "apartAt": apart}


ALL = ["uk-1", "us-1"]


def records(node: str, other: str, at: float, end: int, kept: int | None) -> dict[str, Any]:
    """One master that was alone from 5 s after the silence on, until 100 s after it."""
    alone = view(f"2.1.{node}", [node], [other])
    return {
        "node": node,
        "dataCenter": node[:2],
        "records": [
            {"at": at, "state": "Suspected", "was": "Joined"},
            {"at": at + 5, "view": alone, "before": view("1.1.uk-1", ALL, []), "end": 40, "kept": None},
            {"at": at + 5.1, "state": "Isolated", "was": "Suspected"},
            {"at": at + 100, "state": "Rejoining", "was": "Isolated"},
            {"at": at + 100.4, "view": view("3.1.uk-1", ALL, []), "before": alone, "end": end, "kept": kept},
            {"at": at + 101, "state": "Joined", "was": "Rejoining"},
        ],
    }


SEEN = [records("uk-1", "us-1", 1000.0, 60, None), records("us-1", "uk-1", 1000.5, 47, 40)]
DUTIES = [
    {"dataCenter": "uk", "duty": "b", "kind": "backup", "why": "", "at": 1002.0, "index": 40, "seconds": 0.7},
    {"dataCenter": "us", "duty": "b", "kind": "backup", "why": "", "at": 1003.0, "index": 40, "seconds": 1.9},
    {
        "dataCenter": "us",
        "duty": "r",
        "kind": "restore",
        "why": "",
        "at": 1109.4,
        "worker": "us-worker-1",
        "seconds": 3.0,
    },
]


def test_a_split_that_is_over_says_who_was_apart_what_moved_and_how_long_each_phase_took() -> None:
    (split,) = build_split_report(SEEN, DUTIES)
    assert (split["endedBy"], split["moved"], split["restoredWorkers"]) == ("3.1.uk-1", 7, ["us-worker-1"])
    assert [(b["members"], b["transactions"], b["moved"]) for b in split["branches"]] == [
        (["uk-1"], 20, 0),
        (["us-1"], 7, 7),
    ]
    wanted = {"untilIsolated": 5.1, "backingUp": 1.9, "apart": 95.3, "rejoining": 1.5, "goingBack": 9.0}
    assert split["seconds"] == wanted
    assert set(PHASE_TITLES) == set(wanted)


def test_one_that_is_still_there_has_no_end() -> None:
    still = [{**one, "records": one["records"][:3]} for one in SEEN]
    (split,) = build_split_report(still, DUTIES[:2])
    assert (split["endedBy"], split["ended"], split["moved"]) == (None, None, None)
    assert split["seconds"] == {"backingUp": 1.9, "goingBack": None}


def test_what_nobody_did_has_no_time() -> None:
    (split,) = build_split_report(SEEN, [])
    assert (split["seconds"]["backingUp"], split["seconds"]["goingBack"]) == (None, None)


def test_graphs_that_are_not_what_was_shown_stand_at_the_split_that_they_belong_to() -> None:
    side = {"side": "us-worker-1", "shownAt": 47, "graphs": 2, "first": ["urn:g:1", ""], "file": "/f"}
    shown = {"endedBy": "3.1.uk-1", "comparedAt": 67, "sides": [side]}
    (split,) = build_split_report(SEEN, [*DUTIES[:2], {**DUTIES[2], "shown": shown}])
    wanted = {"dataCenter": "us", "worker": "us-worker-1", "comparedAt": 67, **side}
    assert split["graphs"] == {"sides": [wanted], "notTold": []}
    (split,) = build_split_report(SEEN, [*DUTIES[:2], {**DUTIES[2], "shown": {**shown, "endedBy": "2.1.uk-1"}}])
    assert split["graphs"] == {"sides": [], "notTold": ["no worker went back for it that could be compared"]}
    (split,) = build_split_report(SEEN, [{**DUTIES[2], "shown": {"endedBy": "3.1.uk-1", "notTold": "why"}}])
    assert split["graphs"] == {"sides": [], "notTold": ["us-worker-1: why"]}
    (split,) = build_split_report([{**one, "records": one["records"][:3]} for one in SEEN], [])
    assert split["graphs"]["notTold"] == ["it is not over"]


def test_what_the_rejoin_found_undecided_is_committed_or_rolled_back() -> None:
    """One master has seen the decisions, the other one lags; a third one has trimmed the entry."""
    first, second = SEEN
    lag = {"undecided": ["us-1.00c0ffee00c0ffee.7", "us-1.00c0ffee00c0ffee.8", "us-1.00c0ffee00c0ffee.9"]}
    done = {
        "undecided": ["us-1.00c0ffee00c0ffee.9"],
        "committed": [{"txid": "us-1.00c0ffee00c0ffee.7", "index": 70}],
        "rolledBack": [{"txid": "us-1.00c0ffee00c0ffee.8", "index": 71}],
    }
    trimmed = {"undecided": [], "committed": [{"txid": "us-1.00c0ffee00c0ffee.7", "index": None}], "rolledBack": []}

    def with_facts(one: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
        return {**one, "records": [{**r, **facts} if r.get("view") else r for r in one["records"]]}

    seen = [with_facts(first, done), with_facts(second, lag), with_facts({**second, "node": "us-2"}, trimmed)]
    (split,) = build_split_report(seen, [])
    assert split["synchronous"] == {**done, "undecided": ["us-1.00c0ffee00c0ffee.9"]}
    (split,) = build_split_report(SEEN, [])
    assert split["synchronous"] == {"committed": [], "rolledBack": [], "undecided": []}
