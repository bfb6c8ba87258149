"""The keys of entries for transactions over several repositories: one text for each, every other text is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.crosslog_entry import (
    PARTICIPANTS_MAX,
    SYSTEM_LOG,
    DecideKey,
    FinishedKey,
    OutcomeKey,
    PrepareKey,
    check_participants,
    decode_outcome,
    decode_prepare,
    decode_system,
    encode_outcome,
    encode_prepare,
    encode_system,
)
from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid

GID = "uk-1.00c0ffee00c0ffee.42"

txids = st.builds(Txid, st.sampled_from([Origin("uk-1", 0xC0FFEE), Origin("us-1", 7)]), st.integers(1, 1 << 40))
logs = st.lists(st.integers(0, 300).filter(lambda log: log != SYSTEM_LOG), min_size=2, max_size=9, unique=True).map(
    tuple
)
keys = st.text(max_size=20)


@given(st.one_of(st.none(), txids), logs, st.integers(1, 1000), keys)
def test_a_prepare_is_read_as_it_was_written(
    gid: Txid | None, participants: tuple[int, ...], expire_after_ms: int, client_key: str
) -> None:
    key = PrepareKey(gid, participants, expire_after_ms, client_key)
    assert decode_prepare(encode_prepare(key)) == key


@given(txids, st.booleans(), st.integers(1, 1 << 40))
def test_an_outcome_is_read_as_it_was_written(gid: Txid, commits: bool, place: int) -> None:
    for key in (OutcomeKey(gid, commits, place), OutcomeKey(gid, commits=False, place=0)):
        assert decode_outcome(encode_outcome(key)) == key


@given(txids, st.booleans(), logs, keys)
def test_an_entry_of_the_system_log_is_read_as_it_was_written(
    gid: Txid, commits: bool, participants: tuple[int, ...], client_key: str
) -> None:
    for key in (
        DecideKey(gid, commits, participants, client_key if commits else ""),
        FinishedKey(gid.origin, gid.seq),
    ):
        assert decode_system(encode_system(key)) == key


def test_the_texts() -> None:
    assert encode_prepare(PrepareKey(None, (0, 2), 180_000, "a b")) == "- 180000 0,2 a b"
    assert encode_system(decode_system(f"decide commit {GID} 2,0 a b")) == f"decide commit {GID} 2,0 a b"
    assert decode_system(f"finished {GID}") == FinishedKey(Origin("uk-1", 0xC0FFEE00C0FFEE), 42)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 180000 0,2",
        "- 0 0,2 k",
        "- 86400001 0,2 k",
        "- 0180000 0,2 k",
        "- 180000 0 k",
        "- 180000 0,1 k",
        "- 180000 0,0 k",
        "- 180000 0,02 k",
        "- 180000 0,-2 k",
        "- ３ 0,2 k",
        "- 180000  k",
        "x 180000 0,2 k",
    ],
)
def test_no_other_text_is_a_prepare(text: str) -> None:
    with pytest.raises(BadInput):
        decode_prepare(text)


@pytest.mark.parametrize(
    "text",
    ["", "commit", f"commit {GID}", f"commit {GID} 0", f"abort {GID} 01", f"maybe {GID} 3", f"abort {GID} 3 "],
)
def test_no_other_text_is_an_outcome(text: str) -> None:
    with pytest.raises(BadInput):
        decode_outcome(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "finished",
        "finished uk-1",
        f"forgotten {GID}",
        f"decide commit {GID} 0,2",
        f"decide abort {GID} 0,2 k",
        f"decide maybe {GID} 0,2",
        f"decide commit {GID} 1,2 k",
        "decide abort",
    ],
)
def test_no_other_text_is_of_the_system_log(text: str) -> None:
    with pytest.raises(BadInput):
        decode_system(text)


def test_a_transaction_has_few_parts_in_different_repositories() -> None:
    check_participants((0, *range(2, PARTICIPANTS_MAX + 1)))
    for wrong in ((0,), (0, 0), (0, SYSTEM_LOG), (0, *range(2, PARTICIPANTS_MAX + 2))):
        with pytest.raises(BadInput):
            check_participants(wrong)
