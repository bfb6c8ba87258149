"""A log that was written into stopped masters' journals is a log like any other to those who start on it."""

from pathlib import Path

import pytest

from bench.journal_fill import build_payload, fill_journals
from e2e.lib.cluster.masters import REPOSITORY, stop_processes, three_masters
from e2e.lib.load.closed_loop import ClosedLoad, RequestTemplate
from e2e.lib.readers import same_log
from e2e.lib.report import CannotMeasure
from txlog.client import MasterClient, WriteRequest
from txlog.model.durability import Durability
from txlog.model.quads import decode_quads

ENTRIES, WAITING = 4500, 300


@pytest.mark.cluster
def test_masters_go_on_from_a_log_that_was_written_for_them(tmp_path: Path) -> None:
    with three_masters(tmp_path / "masters", start_s=60) as masters:
        ClosedLoad(masters.urls, RequestTemplate(REPOSITORY, "synced", 1, "before"), 3).run(
            0.0, 0.1, lambda: None, lambda: None
        )
        before = masters.wait_at_rest()
        stop_processes(list(masters.processes.values()), 30)
        folders = [masters.journal_of(node) for node in masters.by_node]
        grown = fill_journals(folders, "uk-1", ENTRIES, 200, waiting=WAITING)
        assert (grown.entries, grown.waiting) == (before + ENTRIES, WAITING)
        for node in masters.by_node:
            masters.start(node)
        masters.wait_joined(60)
        assert masters.wait_at_rest() == before + ENTRIES + WAITING, "what waited was ordered"
        with MasterClient(masters.urls[2], 30) as master:
            [entry] = master.log_page(before + 4000, upto=before + 4001).entries
            assert len(entry.payload) == len(b"A \n") + 200 - 1
            assert [add for add, _ in decode_quads(entry.payload)] == [True]
        with MasterClient(masters.urls[1], 30) as master:
            [answer] = master.submit([WriteRequest(quads="<urn:a> <urn:b> <urn:c> .\n")], Durability.SYNCED, wait_s=30)
            assert answer.error is None
        masters.wait_at_rest()
        agree, lengths = same_log(masters.urls)
        assert agree
        assert min(lengths) == before + ENTRIES + WAITING + 1


def test_a_folder_that_no_master_has_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="no journal"):
        fill_journals([tmp_path / "uk-1" / "journal"], "uk-1", 10, 200)


@pytest.mark.parametrize("size", [0, 40, 200])
def test_a_payload_is_one_quad_as_large_as_asked_or_as_small_as_can_be(size: int) -> None:
    data = build_payload(7, size)
    [(add, line)] = decode_quads(data)
    assert add
    assert line.startswith(b"<s:000000007> <s:p> ")
    assert len(line) + 1 == (size or len(b"<s:000000007> <s:p> <s:o> .\n"))
