from __future__ import annotations

import random
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import apply_up_to, digest, digest_worker
from txlog.workers.adapter import UnexpectedAnswer, WorkerRequest
from txlog.workers.digest import DEFAULT_GRAPH

LINES = [
    b"<urn:s> <urn:p> <urn:o> .",
    b"<urn:s> <urn:p> <urn:g> .",
    b"<urn:s> <urn:p> <urn:o> <urn:g> .",
    b"<urn:s> <urn:p> <urn:g> <urn:g> .",
    b'<urn:s> <urn:p> "a b c" .',
    b'<urn:s> <urn:p> "a <urn:g> ." .',
    b'<urn:s> <urn:p> "a <urn:g> ." <urn:g> .',
    b'<urn:s> <urn:p> "x <y"^^<urn:g> .',
    b'<urn:s> <urn:p> "x <y"^^<urn:d> <urn:g> .',
    b'<urn:s> <urn:p> "hello world"@en <urn:h> .',
    b'<urn:s> <urn:p> "" <urn:h> .',
]
GRAPH_OF = [DEFAULT_GRAPH, DEFAULT_GRAPH, "urn:g", "urn:g", DEFAULT_GRAPH, DEFAULT_GRAPH, "urn:g", DEFAULT_GRAPH]
GRAPH_OF += ["urn:g", "urn:h", "urn:h"]


def plain(line: bytes) -> int:
    return int.from_bytes(blake2b(line, digest_size=16).digest(), "little")


@given(st.permutations(range(len(LINES))), st.integers(1, 60), st.booleans())
def test_any_order_and_any_cut_give_the_plain_sum(order: list[int], size: int, newline: bool) -> None:
    text = b"\n".join(LINES[i] for i in order) + (b"\n" if newline else b"")
    made = digest(text[at : at + size] for at in range(0, len(text), size))
    assert made.quads == len(LINES)
    assert made.total == sum(map(plain, LINES)) % (1 << 128)
    assert made.graphs == {
        name: (
            GRAPH_OF.count(name),
            sum(plain(x) for x, g in zip(LINES, GRAPH_OF, strict=True) if g == name) % (1 << 128),
        )
        for name in (DEFAULT_GRAPH, "urn:g", "urn:h")
    }


def test_system_graphs_do_not_count() -> None:
    ours = b"<urn:s> <urn:p> <urn:o> <urn:txlog:system:probe> .\n"
    assert digest([ours]) == digest([]) == digest([b"\n"])
    assert digest([ours + LINES[2]]) == digest([LINES[2]])


def test_differences_are_named_by_graph() -> None:
    one = digest([b"\n".join(LINES)])
    assert one.differs_from(one) == []
    assert one.differs_from(digest([b"\n".join(LINES[1:])])) == [DEFAULT_GRAPH]
    assert one.differs_from(digest([b"\n".join(LINES[:-2])])) == ["urn:h"]
    assert digest([]).differs_from(one) == [DEFAULT_GRAPH, "urn:g", "urn:h"]


def test_two_workers_with_the_same_log_in_other_pieces(worker: OxigraphProcess, tmp_path) -> None:  # type: ignore[no-untyped-def]
    other = OxigraphProcess(tmp_path / "other")
    try:
        chance = random.Random(4)
        log = MemoryLog()
        for n in range(400):
            quad = f'<urn:s:{chance.randrange(40)}> <urn:p> "{n % 7} \u00e9" <urn:g:{n % 5}> .'
            (log.add if chance.random() < 0.7 else log.delete)(quad)
        apply_up_to(ADAPTER, worker.transport, log, 400)
        for upto in (3, 77, 78, 200, 400):
            apply_up_to(ADAPTER, other.transport, log, upto, merge_max_transactions=7)
        one, two = digest_worker(ADAPTER, worker.transport), digest_worker(ADAPTER, other.transport)
        assert one == two
        assert one.quads == len(worker.quads()) > 50
        log.add("<urn:s> <urn:p> <urn:o> <urn:g:3> .")
        apply_up_to(ADAPTER, other.transport, log, 401)
        assert one.differs_from(digest_worker(ADAPTER, other.transport)) == ["urn:g:3"]
    finally:
        other.kill()


def test_an_error_is_not_a_digest(worker: OxigraphProcess) -> None:
    class Wrong(type(ADAPTER)):  # type: ignore[misc]
        def snapshot(self, accept: str = "application/n-quads") -> WorkerRequest:
            return WorkerRequest("GET", "/nothing/here")

    with pytest.raises(UnexpectedAnswer, match="404"):
        digest_worker(Wrong(), worker.transport)
