"""``GET /txlog/synchro`` and ``txlog synchro``, from what a master knows."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from txlog.cli import synchro_commands
from txlog.cli.main import app
from txlog.model.anchor import Anchor
from txlog.model.configuration import Configuration, Master
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import ALL, compute_needs
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.synchronous import parse_rule
from txlog.model.synchronous_entry import KIND_SYNCHRONOUS_QUADS, SynchronousKey
from txlog.protocol.views.undecided import SynchronousStatus, UndecidedEntry, UndecidedState, UndecidedStatus
from txlog.server.admin.synchronous_view import describe_synchronous

MASTERS = [Master("uk-1", "uk", 1), Master("uk-2", "uk", 1), Master("us-1", "us", 1)]
RULES = [parse_rule("http://ex.org/a/*"), parse_rule("http://ex.org/b", "all")]
CONFIGURATION = Configuration(MASTERS, False, 1000, graphs=RULES)
BIRTH = 0xC0FFEE
NOTHING = {"bytes": 0, "commitLagSeconds": 0.0}


def status(present: list[str], quorate: bool = True, undecided: int = 0) -> SynchronousStatus:
    members = [(master.node, BIRTH) for master in MASTERS]
    anchor = Anchor((2, 1, "uk-1"), members, MASTERS, voters=members[:2])
    found = []
    for seq in range(1, undecided + 1):
        stamp = (1_000_000 - 1000 * seq) << LOGICAL_BITS
        key = SynchronousKey(ALL, 30_000)
        entry = UndecidedEntry(Txid(Origin("uk-1", BIRTH), seq), seq - 1, KIND_SYNCHRONOUS_QUADS, key, stamp)
        state = UndecidedState.DOOMED if seq == 1 else UndecidedState.WAITING
        found.append(UndecidedStatus(entry, state, compute_needs(ALL, MASTERS), ["uk-1"], seq == 1))
    return SynchronousStatus(quorate, (3, 1, "us-1"), anchor, present, found)


def test_all_is_well() -> None:
    found = describe_synchronous(status(["uk-1", "uk-2", "us-1"]), CONFIGURATION, "uk-1", 0.0, 10)
    assert (found["quorate"], found["view"], found["anchor"]) == (True, "3.1.us-1", "2.1.uk-1")
    assert [(rule["needs"], rule["here"], rule["reached"]) for rule in found["graphs"]] == [(2, 3, True), (3, 3, True)]
    assert [master["counts"] for master in found["electorate"]["masters"]] == [True, True, False]
    assert found["queue"] == {"undecided": 0, "own": 0, "limit": 10, "oldestSeconds": 0.0, "doomed": 0, **NOTHING}


def test_one_master_is_out() -> None:
    found = describe_synchronous(status(["uk-1", "uk-2"]), CONFIGURATION, "uk-1", 0.0, 10)
    assert [rule["reached"] for rule in found["graphs"]] == [True, False]
    minority = describe_synchronous(status(["uk-1", "uk-2"], quorate=False), CONFIGURATION, "uk-1", 0.0, 10)
    assert [rule["reached"] for rule in minority["graphs"]] == [False, False]


def test_what_is_undecided() -> None:
    found = describe_synchronous(status(["uk-1"], undecided=2), CONFIGURATION, "uk-1", 1_000_000.0, 10)
    assert found["queue"] == {"undecided": 2, "own": 2, "limit": 10, "oldestSeconds": 2.0, "doomed": 1, **NOTHING}
    first, second = found["undecided"]
    assert (first["state"], first["late"], first["index"], first["ageSeconds"]) == ("doomed", True, None, 1.0)
    assert (second["index"], second["needs"], second["held"], second["owner"]) == (1, 3, ["uk-1"], "uk-1")


def test_a_cluster_that_has_none() -> None:
    found = describe_synchronous(None, None, "uk-1", 0.0, 10)
    assert (found["quorate"], found["anchor"], found["graphs"], found["undecided"]) == (False, None, [], [])
    waiting = describe_synchronous(None, CONFIGURATION, "uk-1", 0.0, 10)
    assert [rule["reached"] for rule in waiting["graphs"]] == [False, False]


class _Answering:
    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def ask_first(self, _: object) -> dict[str, Any]:
        return self._found


@pytest.mark.parametrize(("present", "code"), [(["uk-1", "uk-2", "us-1"], 0), (["uk-1", "uk-2"], 4)])
def test_the_exit_code_tells_whether_every_rule_is_reached(
    present: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = describe_synchronous(status(present, undecided=1), CONFIGURATION, "uk-1", 1_000_000.0, 10)
    monkeypatch.setattr(synchro_commands, "find_cluster", lambda _: _Answering(found))
    done = CliRunner().invoke(app, ["synchro"])
    assert done.exit_code == code
    shown = done.stdout
    assert "http://ex.org/b" in shown
    assert "1 undecided" in shown
