import json
from pathlib import Path

import pytest

from txlog.journal import Journal, MemoryVfs
from txlog.server.startup_files import BadStart, write_identity


def test_each_start_says_which_process_it_is(tmp_path: Path) -> None:
    """A container's termination message: it names the process whose end is seen."""
    files, said = MemoryVfs(), tmp_path / "termination-log"
    said.write_text("")
    told = []
    for _ in range(2):
        journal, recovered = Journal.open(files, node="uk-1", draw_birth=lambda: 0xC0FFEE, segment_bytes=1 << 16)
        journal.close()
        write_identity(said, "uk-1", recovered)
        told.append(json.loads(said.read_text()))
    assert told[0] == {"node": "uk-1", "birth": "0000000000c0ffee", "start": 1}
    assert told[1] == {**told[0], "start": 2}


def test_one_that_cannot_say_it_does_not_start(tmp_path: Path) -> None:
    _, recovered = Journal.open(MemoryVfs(), node="uk-1", draw_birth=lambda: 1, segment_bytes=1 << 16)
    with pytest.raises(BadStart, match="identity_file"):
        write_identity(tmp_path / "no" / "such", "uk-1", recovered)
