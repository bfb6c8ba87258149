"""The net effect in two steps is the effect of one transaction after another, however the log is cut and dealt."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from txlog.model.quads import encode_quads
from txlog.pipeline.batch.net_effect import BLOCK_BYTES, merge_pieces, split_into_buckets
from txlog.pipeline.batch.task_messages import BucketPiece
from txlog.workers.update_batches import merge_quad_changes as one_by_one

QUADS = [f"<urn:s{n}> <urn:p> <urn:o> <urn:g{n % 3}> .".encode() for n in range(5)] + [
    b"<urn:s> <urn:p> <urn:o> .",
    b'<urn:s> <urn:p> "D <x>  A" .',
    '<urn:s> <urn:p> "\\nD é"@en <urn:g9> .'.encode(),
]
transactions = st.lists(
    st.dictionaries(st.sampled_from(QUADS), st.booleans(), max_size=4).map(
        lambda does: encode_quads([q for q, add in does.items() if not add], [q for q, add in does.items() if add])
    ),
    max_size=12,
)


@given(transactions, st.integers(1, 5), st.lists(st.integers(0, 12)), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_two_steps_are_one(payloads: list[bytes], buckets: int, cuts: list[int], chance: object) -> None:
    places = sorted({0, len(payloads), *(cut for cut in cuts if cut < len(payloads))})
    dealt: list[list[BucketPiece]] = [[] for _ in range(buckets)]
    for begin, end in pairwise(places):
        for bucket, piece in split_into_buckets(begin + 1, payloads[begin:end], buckets):
            dealt[bucket].append(piece)
    adds: list[bytes] = []
    deletes: list[bytes] = []
    left: list[bytes] = []
    for bucket in dealt:
        chance.shuffle(bucket)  # type: ignore[attr-defined]
        made = merge_pieces(bucket)
        adds += b"".join(made.adds).split(b"\n")[:-1]
        deletes += made.deletes
        left += made.kept_graphs
    expected = one_by_one(payloads)
    assert set(adds) == set(expected[1])
    assert sorted(deletes) == sorted(expected[0])
    gone = {quad.split(b" ")[-2] for quad in expected[2] if quad.count(b" <urn:g") == 1}
    assert set(left) == gone


def test_what_is_to_be_loaded_comes_in_blocks_of_whole_lines() -> None:
    quads = [b'<urn:s%d> <urn:p> "%b" .' % (number, b"x" * (BLOCK_BYTES // 50)) for number in range(120)]
    found = [piece for _, piece in split_into_buckets(1, [encode_quads([], quads), encode_quads(quads[:1], [])], 1)]
    made = merge_pieces(found)
    assert len(made.adds) > 2
    assert all(block.endswith(b" .\n") and len(block) <= BLOCK_BYTES + len(quads[-1]) for block in made.adds)
    assert sorted(b"".join(made.adds).split(b"\n")[:-1]) == sorted(quads[1:])
    assert (made.deletes, made.kept_graphs) == (quads[:1], [])


def test_a_quad_is_in_one_bucket_whatever_is_done_to_it() -> None:
    for quad in QUADS:
        did = [
            split_into_buckets(1, [encode_quads([], [quad])], 7),
            split_into_buckets(2, [encode_quads([quad], [])], 7),
        ]
        assert len({bucket for found in did for bucket, _ in found}) == 1


def test_nothing_is_no_piece() -> None:
    assert split_into_buckets(1, [], 3) == []
    assert split_into_buckets(1, [b"", b""], 3) == []
