"""The entries of the system log as bytes, their fold, and view 1 of a log that they found."""

from __future__ import annotations

import msgspec
import pytest

from txlog.model.configuration import Configuration, Master
from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid
from txlog.model.view import bootstrap_cluster_id
from txlog.system.catalogue import (
    BY_REQUEST,
    BeginRemoval,
    CreateRepository,
    EndRemoval,
    FoundingMember,
    FoundRepository,
    RepositorySettings,
    RepositoryState,
    WantRepository,
)
from txlog.system.entries import OUTCOMES_MAX, FirstRepository, SystemEntry, SystemLogFold, decode_entry, encode_entry
from txlog.system.first_view import JournalBirth, found_entry, founding_members, founding_view

SETTINGS = RepositorySettings("Simple", "Majority", 86_400_000)
FIRST = FirstRepository("orders", "01" * 16, "Smart", "Continue", 86_400_000)
CREATE = CreateRepository(2, "stock", SETTINGS)
MASTERS = [Master("uk-1", "uk", 1, urls=["http://a"]), Master("uk-2", "uk", 2), Master("us-1", "us", 1)]
BIRTHS = {"uk-1": JournalBirth(7, True, 3), "uk-2": JournalBirth(8, True, 4), "us-1": JournalBirth(9, False, 3)}


def txid(seq: int) -> Txid:
    return Txid(Origin("uk-1", 7), seq)


def folded(*entries: SystemEntry | bytes) -> SystemLogFold:
    fold = SystemLogFold()
    for index, entry in enumerate(entries, 1):
        fold.apply(index, txid(index), entry if isinstance(entry, bytes) else encode_entry(entry))
    return fold


@pytest.mark.parametrize(
    "entry",
    [
        FIRST,
        CREATE,
        FoundRepository(2, b"\x01" * 16, (FoundingMember("uk-1", (1 << 64) - 1), FoundingMember("us-1", 0)), True, 3),
        WantRepository("stock", BY_REQUEST, True),
        WantRepository("stock", "uk", False),
        BeginRemoval(2),
        EndRemoval(2),
    ],
)
def test_an_entry_is_read_as_it_was_written(entry: SystemEntry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"INSERT DATA { <urn:a> <urn:b> <urn:c> }",
        b'{"type":"rename","number":2}',
        b'{"type":"create","number":"2"}',
        b'{"type":"found","number":2,"cluster_id":"xx","members":[],"keeps_literals":true,"level":1}',
        b'{"type":"first","name":"a","cluster_id":"x","split_recovery":"","split_mode":"","key_retention_ms":1}',
    ],
)
def test_bytes_that_are_no_entry_change_nothing_and_are_counted(payload: bytes) -> None:
    with pytest.raises(BadInput):
        decode_entry(payload)
    fold = folded(FIRST, payload, CREATE)
    assert (fold.unknown, fold.index) == (1, 3)
    assert list(fold.outcomes.values()) == ["", "UnknownEntry", ""]
    assert fold.catalogue is not None
    assert fold.catalogue.find("stock") is not None


def test_a_field_of_a_newer_program_is_passed_over() -> None:
    more = msgspec.json.decode(encode_entry(CREATE)) | {"colour": "red"}
    assert decode_entry(msgspec.json.encode(more)) == CREATE


def test_the_first_entry_about_log_0_counts() -> None:
    fold = folded(CREATE, FIRST, msgspec.structs.replace(FIRST, name="other"), CREATE, CREATE)
    assert list(fold.outcomes.values()) == ["UnknownRepository", "", "FoundedBefore", "", "NameTaken"]
    assert fold.first == FIRST
    assert fold.catalogue is not None
    assert [record.name for record in fold.catalogue.kept()] == ["orders", "stock"]


def test_outcomes_are_kept_for_the_last_entries() -> None:
    fold = folded(FIRST, *([BeginRemoval(9)] * OUTCOMES_MAX))
    assert len(fold.outcomes) == OUTCOMES_MAX
    assert txid(1) not in fold.outcomes
    assert fold.outcomes[txid(OUTCOMES_MAX + 1)] == "UnknownRepository"


def test_a_log_is_founded_once_every_member_has_a_journal() -> None:
    assert found_entry(2, {"uk-1": BIRTHS["uk-1"]}, ["uk-1", "us-1"], MASTERS) is None
    assert found_entry(2, BIRTHS, [], MASTERS) is None
    entry = found_entry(2, BIRTHS, ["us-1", "uk-1"], MASTERS)
    assert entry is not None
    assert entry.members == (FoundingMember("uk-1", 7), FoundingMember("us-1", 9)), "in order of precedence"
    assert (entry.keeps_literals, entry.level) == (False, 3)
    whole = found_entry(2, BIRTHS, ["uk-1", "uk-2"], MASTERS)
    assert whole is not None
    assert (whole.keeps_literals, whole.level) == (True, 3)
    assert whole.cluster_id != entry.cluster_id


def test_a_member_without_a_journal_is_left_out_after_a_while() -> None:
    """``uk-2`` has half of all votes."""
    cluster = Configuration(MASTERS, True, 1000)
    everyone = ["uk-1", "uk-2", "us-1"]
    assert founding_members(["uk-1", "uk-2"], everyone, cluster, False) == everyone
    assert founding_members(["uk-1", "uk-2"], everyone, cluster, True) == ["uk-1", "uk-2"]
    assert founding_members(["uk-1", "us-1"], everyone, cluster, True) == everyone, "no majority"
    assert founding_members(BIRTHS, ["uk-1", "uk-2"], cluster, True) == ["uk-1", "uk-2"], "of the view alone"


def test_every_master_makes_the_same_view_1() -> None:
    entry = found_entry(2, BIRTHS, ["uk-1", "us-1"], MASTERS)
    assert entry is not None
    fold = folded(FIRST, CREATE, entry)
    assert fold.catalogue is not None
    record = fold.catalogue.records[2]
    assert record.state is RepositoryState.FOUNDED
    view = founding_view(record, MASTERS)
    assert view is not None
    assert view.number == (1, 1, "uk-1")
    assert [(one.node, one.birth, one.weight) for one in view.members] == [("uk-1", 7, 1), ("us-1", 9, 1)]
    assert view.cluster_id == bootstrap_cluster_id(view.members) == record.cluster_id
    assert (view.majority, view.strategy, view.preferred_strategies) == (True, "Simple", ["Simple", "Simple"])
    assert view.bootstrap_configuration is not None
    assert [one.node for one in view.bootstrap_configuration.masters] == ["uk-1", "uk-2", "us-1"]
    assert not view.bootstrap_configuration.keeps_literals
    assert founding_view(record, MASTERS) == view


def test_a_founding_of_other_masters_gives_no_view() -> None:
    entry = found_entry(2, BIRTHS, ["uk-1", "us-1"], MASTERS)
    assert entry is not None
    fold = folded(FIRST, CREATE, entry)
    assert fold.catalogue is not None
    record = fold.catalogue.records[2]
    assert founding_view(record, MASTERS[:2]) is None
    heavier = [msgspec.structs.replace(one, weight=5) for one in MASTERS]
    assert founding_view(record, heavier) is None
