"""The live view of a terminal, drawn from snapshots as a master sends them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from txlog.cli.live_summary import RateHistory, Severity, headline
from txlog.cli.top_screen import TopState, WorkerOrder, draw, sort_workers, sparkline
from txlog.client.live_snapshot import LiveSnapshot, parse_live, parse_live_line
from txlog.model.errors import PeerFault

NODES = ("uk-1", "uk-2", "us-1")


def snapshot(**changes: Any) -> LiveSnapshot:
    told: dict[str, Any] = {
        "at": 1000.0,
        "node": "uk-1",
        "dataCenter": "uk",
        "repository": "catalogue",
        "state": "Joined",
        "view": {"number": "3.2.us-1", "splitRecovery": "Smart", "holding": ""},
        "log": {"start": 1, "end": 123_460, "stable": 123_456, "applied": 123_450, "appliedAll": 120_000},
        "queue": {"transactions": 4, "bytes": 2048},
        "origins": [{"node": node, "transactions": 40_000 + 1000 * at} for at, node in enumerate(NODES)],
        "latencyMs": {"synced": 8.25, "applied": 31.0},
        "masters": [master(node) for node in NODES],
        "workers": [worker("uk-worker-1", 123_456), worker("uk-worker-2", 123_400), worker("us-worker-1", 122_000)],
        "hears": {node: [other for other in NODES if other != node] for node in NODES},
        "trim": {"keptFrom": 1, "bytes": 300 << 20, "bytesMax": 10 << 30, "alarm": False},
    }
    return parse_live("http://uk-1", json.dumps(told | changes).encode())


def master(node: str, **changes: Any) -> dict[str, Any]:
    told = {"node": node, "dataCenter": node[:2], "self": node == "uk-1", "inView": True, "present": True}
    return told | {"connected": True, "why": None} | changes


def worker(name: str, index: int | None, **changes: Any) -> dict[str, Any]:
    return {"name": name, "dataCenter": name[:2], "engine": "oxigraph", "state": "Working", "index": index} | changes


def screen(live: LiveSnapshot, width: int = 80, height: int = 24, **state: Any) -> list[str]:
    history = RateHistory(180.0)
    history.add(live)
    shown = TopState(live, history, "http://uk-1:7300", "", 0.0, WorkerOrder.NAME)._replace(**state)
    console = Console(width=width, height=height, record=True, file=None, force_terminal=False, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(draw(shown, width, height))
    return captured.get().splitlines()


def test_a_cluster_fits_a_terminal_of_80_columns_and_24_lines() -> None:
    lines = screen(snapshot())
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for seen in ("uk-2", "us-worker-1", "123,456", "1,456", "8.2 ms", "view 3.2.us-1", "sort workers: name", "300 MiB"):
        assert seen in text
    assert "…" not in text, "nothing of a usual cluster is cut off"


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (132, 43), (250, 80)])
def test_a_large_cluster_keeps_the_size_of_the_terminal(width: int, height: int) -> None:
    nodes = [f"uk-{at}" for at in range(1, 10)]
    live = snapshot(
        masters=[master(node) for node in nodes],
        workers=[worker(f"uk-worker-{at}", at) for at in range(60)],
        duties=[{"kind": "backup", "why": "split", "worker": None}] * 9,
        hears=dict.fromkeys(nodes, nodes),
    )
    lines = screen(live, width, height)
    assert max(map(len, lines)) <= width
    if height >= 24:
        assert len(lines) <= height
    assert any("more workers" in line for line in lines)


def test_a_split_is_said_in_words_and_by_signs() -> None:
    masters = [master("uk-1"), master("uk-2"), master("us-1", present=False, inView=False, why="silent")]
    live = snapshot(state="Isolated", masters=masters, hears={"uk-1": ["uk-2"], "uk-2": ["uk-1"], "us-1": None})
    text = " ".join(" ".join(screen(live)).split())
    assert "Split. uk-1 and uk-2 continue as one side and take writes; us-1 cannot be reached." in text
    assert "✖us-1" in text, "its messages do not arrive"
    assert "last known" in text, "nothing is known of its workers"


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({}, Severity.WAIT, "not there yet"),
        ({"workers": [worker("uk-worker-1", 123_456)]}, Severity.GOOD, "the worker keeps up with 123,456 transactions"),
        ({"workers": []}, Severity.GOOD, "there is no worker"),
        ({"state": "Suspected"}, Severity.WARN, "silent"),
        ({"state": "Rejoining"}, Severity.WARN, "merged into one log"),
        ({"state": "Founding"}, Severity.WARN, "uk-1 is Founding"),
        ({"view": {"number": "1", "holding": "a backup is missing"}}, Severity.BAD, "a backup is missing"),
        ({"findings": [{"kind": "OneWay", "text": "us-1 does not hear uk-1"}]}, Severity.WARN, "does not hear"),
        ({"workers": [worker("w", 1, state="Blocked", error="no space")]}, Severity.BAD, "w: no space"),
        ({"duties": [{"kind": "restore", "why": "rejoin", "worker": "w"}]}, Severity.WARN, "restore w (rejoin)"),
        ({"masters": [master("uk-1"), master("uk-2", present=False, why="crashed")]}, Severity.WARN, "uk-2 is out"),
    ],
)
def test_the_sentence_says_what_is_going_on(changes: dict[str, Any], severity: Severity, words: str) -> None:
    found = headline(snapshot(**changes))
    assert (found.severity, words in found.text) == (severity, True), found


def test_workers_are_sorted_by_name_by_lag_and_by_state() -> None:
    live = snapshot(
        workers=[worker("a", 100), worker("b", 123_456, state="Blocked"), worker("c", 5), worker("d", None)]
    )
    names = {order: [one.name for one in sort_workers(live, order)] for order in WorkerOrder}
    assert names[WorkerOrder.NAME] == ["a", "b", "c", "d"]
    assert names[WorkerOrder.LAG] == ["d", "c", "a", "b"], "an unknown position may be any"
    assert names[WorkerOrder.STATE] == ["b", "a", "c", "d"]
    assert WorkerOrder.STATE.following is WorkerOrder.NAME


def test_an_old_snapshot_is_named_as_old() -> None:
    text = " ".join(" ".join(screen(snapshot(), problem="http://uk-1:7300: refused", age_s=12.0)).split())
    assert "No answer: http://uk-1:7300: refused. What is shown is 12 s old." in text


def test_rates_end_when_nothing_arrives_and_begin_again_with_another_master() -> None:
    history = RateHistory(180.0)
    history.add(snapshot(at=1000.0))
    history.add(snapshot(at=1002.0, origins=[{"node": "uk-1", "transactions": 40_100}]))
    assert history.rates(1002.0) == {"uk-1": 50.0}
    assert history.rates(1010.0) == {"uk-1": 0.0}
    assert sum(history.totals(1002.0, 18)) == 10.0
    history.add(snapshot(node="us-1", at=900.0, origins=[{"node": "uk-1", "transactions": 90_000}]))
    assert history.rates(900.0) == {"uk-1": 0.0}


def test_a_small_rate_is_not_drawn_as_none() -> None:
    assert sparkline([0, 1, 1000]) == " ▁█"
    assert sparkline([0, 0]) == "  "


def test_lines_without_a_snapshot_are_passed_over_and_a_broken_one_is_refused() -> None:
    assert parse_live_line("u", b": alive") is None
    assert parse_live_line("u", b"retry: 1000") is None
    assert parse_live_line("u", b'data: {"at": 1, "node": "uk-1", "new": {}}') is not None
    with pytest.raises(PeerFault):
        parse_live_line("u", b"data: {")
