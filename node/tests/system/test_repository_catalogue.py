"""The fold of the system log's entries about repositories: each rule by itself, and all of them in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlog.system.catalogue import (
    BY_REQUEST,
    FIRST_LOG,
    FIRST_NUMBER,
    LOGS_MAX,
    BeginRemoval,
    CatalogueChange,
    CatalogueRefusal,
    CreateRepository,
    EndRemoval,
    FoundingMember,
    FoundRepository,
    RepositoryCatalogue,
    RepositoryRecord,
    RepositorySettings,
    RepositoryState,
    WantRepository,
)

SETTINGS = RepositorySettings("Smart", "Continue", 86_400_000)
MEMBERS = (FoundingMember("uk-1", 7), FoundingMember("us-1", 8))
FIRST = RepositoryRecord(FIRST_LOG, "orders", SETTINGS, RepositoryState.FOUNDED, b"first", MEMBERS)
STOCK = FIRST_NUMBER


def create(name: str = "stock", number: int = STOCK) -> CreateRepository:
    return CreateRepository(number, name, SETTINGS)


def found(number: int = STOCK, cluster_id: bytes = b"stock") -> FoundRepository:
    return FoundRepository(number, cluster_id, MEMBERS)


def catalogue(*changes: CatalogueChange) -> RepositoryCatalogue:
    """Each of these counts."""
    made = RepositoryCatalogue(FIRST)
    for change in changes:
        assert made.apply(change) is None, change
    return made


def test_a_repository_is_created_founded_removed_and_created_again() -> None:
    made = catalogue(create(), found())
    record = made.find("stock")
    assert record == RepositoryRecord(STOCK, "stock", SETTINGS, RepositoryState.FOUNDED, b"stock", MEMBERS)
    assert made.apply(BeginRemoval(STOCK)) is None
    assert made.records[STOCK].state is RepositoryState.REMOVING
    assert made.apply(create(number=STOCK + 1)) is CatalogueRefusal.REMOVING, "its data are still there"
    assert made.apply(EndRemoval(STOCK)) is None
    assert made.find("stock") is None
    assert made.apply(create()) is CatalogueRefusal.NUMBER_TAKEN, "a number is never used again"
    assert made.apply(create(number=STOCK + 1)) is None
    for late in (found(), BeginRemoval(STOCK), EndRemoval(STOCK)):
        assert made.apply(late) is CatalogueRefusal.UNKNOWN, "entries about the old log do not meet the new one"
    assert [(each.number, each.state) for each in made.kept()] == [
        (FIRST_LOG, RepositoryState.FOUNDED),
        (STOCK + 1, RepositoryState.CREATED),
    ]


@pytest.mark.parametrize(
    "name",
    ["", "system", "SYSTEM", "System", "a/b", "a b", "ä", "a.b", "-a", "a-", ".", "a\n", "a" * 64],
)
def test_a_name_that_stores_and_paths_cannot_have(name: str) -> None:
    assert catalogue().apply(create(name)) is CatalogueRefusal.BAD_NAME


@pytest.mark.parametrize("name", ["a", "0", "Stock_2-x", "a" * 63])
def test_a_name_that_they_can_have(name: str) -> None:
    assert catalogue().apply(create(name)) is None


@pytest.mark.parametrize("name", ["stock", "Stock", "orders", "ORDERS"])
def test_one_name_has_one_log(name: str) -> None:
    made = catalogue(create())
    assert made.apply(create(name, STOCK + 1)) is CatalogueRefusal.NAME_TAKEN
    assert made.next_number == STOCK + 1


@pytest.mark.parametrize("number", [-1, 0, 1, STOCK, STOCK + 2])
def test_only_the_next_number_is_taken(number: int) -> None:
    made = catalogue(create())
    assert made.apply(create("other", number)) is CatalogueRefusal.NUMBER_TAKEN


def test_there_are_no_more_than_a_master_can_serve() -> None:
    made = catalogue(*(create(f"r{number}", number) for number in range(STOCK, STOCK + LOGS_MAX - 1)))
    assert made.apply(create("one-more", made.next_number)) is CatalogueRefusal.TOO_MANY
    assert made.apply(BeginRemoval(STOCK)) is None
    assert made.apply(create("one-more", made.next_number)) is CatalogueRefusal.TOO_MANY
    assert made.apply(EndRemoval(STOCK)) is None
    assert made.apply(create("one-more", made.next_number)) is None


def test_the_first_founding_counts() -> None:
    made = catalogue(create(), found())
    other = FoundRepository(STOCK, b"other", MEMBERS[:1])
    assert made.apply(other) is CatalogueRefusal.FOUNDED_BEFORE
    assert made.records[STOCK].members == MEMBERS
    assert made.apply(found(FIRST_LOG, b"other")) is CatalogueRefusal.FOUNDED_BEFORE
    assert made.apply(found(STOCK + 1)) is CatalogueRefusal.UNKNOWN


@pytest.mark.parametrize("members", [(), (MEMBERS[0], FoundingMember("uk-1", 9))])
def test_a_log_has_members_each_once(members: tuple[FoundingMember, ...]) -> None:
    made = catalogue(create())
    assert made.apply(FoundRepository(STOCK, b"stock", members)) is CatalogueRefusal.NO_MEMBERS
    assert made.apply(found()) is None


def test_no_two_logs_have_one_cluster_id() -> None:
    made = catalogue(create(), found(), BeginRemoval(STOCK), EndRemoval(STOCK), create("next", STOCK + 1))
    for taken in (b"stock", b"first", b""):
        assert made.apply(found(STOCK + 1, taken)) is CatalogueRefusal.CLUSTER_ID_TAKEN, "also of a removed one"
    assert made.apply(found(STOCK + 1, b"next")) is None


def test_what_a_manifest_names_is_not_removed_and_what_none_names_stays() -> None:
    made = catalogue(create(), found(), WantRepository("stock", "uk", True), WantRepository("stock", BY_REQUEST, True))
    assert made.unwanted() == []
    assert made.apply(BeginRemoval(STOCK)) is CatalogueRefusal.NAMED_BY_MANIFEST
    assert made.apply(WantRepository("stock", "us", False)) is None, "it takes away its own want only"
    assert made.apply(BeginRemoval(STOCK)) is CatalogueRefusal.NAMED_BY_MANIFEST
    assert made.apply(WantRepository("stock", "uk", False)) is None
    assert made.records[STOCK].wanted_by == {BY_REQUEST}
    assert made.unwanted() == []
    assert made.apply(WantRepository("stock", BY_REQUEST, False)) is None
    assert [record.name for record in made.unwanted()] == ["stock"]
    assert made.records[STOCK].state is RepositoryState.FOUNDED, "it stays"
    assert made.apply(BeginRemoval(STOCK)) is None
    assert made.unwanted() == []


def test_a_request_alone_does_not_hinder_a_removal() -> None:
    made = catalogue(create(), WantRepository("stock", BY_REQUEST, True), BeginRemoval(STOCK), EndRemoval(STOCK))
    assert made.records[STOCK].wanted_by == frozenset()


def test_in_the_middle_of_its_removal_a_repository_takes_nothing_new() -> None:
    made = catalogue(create(), BeginRemoval(STOCK))
    for change in (found(), WantRepository("stock", "uk", True), BeginRemoval(STOCK)):
        assert made.apply(change) is CatalogueRefusal.REMOVING
    assert made.records[STOCK].state is RepositoryState.REMOVING


def test_the_first_repository_is_not_removed_and_a_removal_begins_before_it_ends() -> None:
    made = catalogue(create())
    assert made.apply(BeginRemoval(FIRST_LOG)) is CatalogueRefusal.FIRST_REPOSITORY
    assert made.apply(EndRemoval(STOCK)) is CatalogueRefusal.NOT_REMOVING
    assert made.apply(EndRemoval(FIRST_LOG)) is CatalogueRefusal.NOT_REMOVING
    assert made.apply(EndRemoval(1)) is CatalogueRefusal.UNKNOWN
    assert made.apply(WantRepository("Stock", "uk", True)) is CatalogueRefusal.UNKNOWN, "names are exact"
    assert made.unwanted() == [made.records[STOCK]]


# Any order

NAMES = st.sampled_from(["stock", "Stock", "sales", "orders", "system"])
NUMBERS = st.integers(0, 6)
CHANGES: st.SearchStrategy[CatalogueChange] = st.one_of(
    st.builds(CreateRepository, NUMBERS, NAMES, st.just(SETTINGS)),
    st.builds(FoundRepository, NUMBERS, st.sampled_from([b"first", b"a", b"b", b"c"]), st.just(MEMBERS)),
    st.builds(WantRepository, NAMES, st.sampled_from(["uk", "us", BY_REQUEST]), st.booleans()),
    st.builds(BeginRemoval, NUMBERS),
    st.builds(EndRemoval, NUMBERS),
)
ORDER = list(RepositoryState)


@settings(max_examples=300, deadline=None)
@given(st.lists(CHANGES, max_size=40))
def test_what_holds_after_any_entries(changes: list[CatalogueChange]) -> None:
    made, again = RepositoryCatalogue(FIRST), RepositoryCatalogue(FIRST)
    for change in changes:
        before = dict(made.records)
        expected = made.find_refusal(change)
        assert made.records == before, "a question changes nothing"
        refusal = made.apply(change)
        assert refusal is expected
        assert again.apply(change) is refusal, "every master judges alike"
        assert made.records == again.records
        if refusal is not None:
            assert made.records == before
        kept = [record.name.lower() for record in made.kept()]
        assert len(kept) == len(set(kept)), "one name, one log"
        ids = [record.cluster_id for record in made.records.values() if record.cluster_id]
        assert len(ids) == len(set(ids)), "one cluster id, one log"
        assert list(made.records) == [FIRST_LOG, *range(FIRST_NUMBER, made.next_number)], "no number is left out"
        assert made.records[FIRST_LOG].state is RepositoryState.FOUNDED
        for number, record in before.items():
            now = made.records[number]
            assert ORDER.index(now.state) >= ORDER.index(record.state), "no repository comes back"
            assert (now.name, now.settings) == (record.name, record.settings)
            assert record.cluster_id in (b"", now.cluster_id)
            if now.state is RepositoryState.REMOVING:
                assert not now.is_named_by_manifest
        for record in made.kept():
            assert (record.state is RepositoryState.FOUNDED) <= bool(record.members)
            assert made.find(record.name) is record
