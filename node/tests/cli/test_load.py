import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stub_master import StubMaster
from typer.testing import CliRunner

from txlog.cli.bulk_loader import BulkLoader, LoadProgress, LoadStopped
from txlog.cli.main import app
from txlog.cli.rdf_chunks import open_source
from txlog.model.errors import BadInput

QUADS = 3000


@pytest.fixture
def masters() -> Iterator[tuple[StubMaster, StubMaster]]:
    store: dict[str, str] = {}
    pair = StubMaster("uk-1", store), StubMaster("us-1", store)
    yield pair
    for each in pair:
        each.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.nt"
    path.write_text("".join(f'<http://e/s{n}> <http://e/p> "{n}" .\n' for n in range(QUADS)))
    return path


def load(file: Path, *masters: StubMaster, patience_s: float = 20.0) -> LoadProgress:
    with open_source(str(file)) as source:
        return BulkLoader([m.url for m in masters], quads=10, patience_s=patience_s).load(source)


def loaded(store: dict[str, str]) -> list[str]:
    return sorted(line for text in store.values() for line in text.splitlines())


def test_all_masters_share_the_work(file: Path, masters: tuple[StubMaster, StubMaster]) -> None:
    made = load(file, *masters)
    assert (made.quads, made.transactions, made.resent) == (QUADS, QUADS // 10, 0)
    assert loaded(masters[0].store) == sorted(file.read_text().splitlines())
    assert all(master.lines for master in masters)
    assert sum(made.by_master.values()) == QUADS // 10


def test_the_same_file_again_changes_nothing(file: Path, masters: tuple[StubMaster, StubMaster]) -> None:
    load(file, *masters)
    keys = set(masters[0].store)
    load(file, masters[1])
    assert set(masters[0].store) == keys


def test_chunks_of_a_master_that_breaks_off_go_to_another(file: Path, masters: tuple[StubMaster, StubMaster]) -> None:
    def breaks(number: int, line: dict[str, Any]) -> None:
        if number > 20:
            raise ConnectionError

    masters[0].trouble = breaks
    made = load(file, *masters)
    assert made.transactions == QUADS // 10
    assert made.resent > 0
    assert loaded(masters[0].store) == sorted(file.read_text().splitlines())


def test_a_master_that_is_full_for_a_while_is_asked_again(file: Path, masters: tuple[StubMaster, StubMaster]) -> None:
    masters[0].trouble = lambda number, line: (
        {"error": "Unavailable", "reason": "QueueFull", "message": "full"} if number < 30 else None
    )
    made = load(file, masters[0])
    assert loaded(masters[0].store) == sorted(file.read_text().splitlines())
    assert made.resent > 0


def test_a_refusal_stops_the_load_and_names_the_lines(file: Path, masters: tuple[StubMaster, StubMaster]) -> None:
    masters[0].trouble = lambda number, line: (
        {"error": "BadInput", "message": "MALFORMED DATA"} if '"500"' in line["quads"] else None
    )
    with pytest.raises(BadInput, match=r"chunk 51 \(.*a.nt:501 and after\): MALFORMED DATA"):
        load(file, masters[0])


def test_without_any_master_it_gives_up_and_says_how_to_go_on(file: Path) -> None:
    gone = StubMaster()
    gone.close()
    with pytest.raises(LoadStopped, match="the same command continues"):
        load(file, gone, patience_s=0.5)


def test_the_command(file: Path, masters: tuple[StubMaster, StubMaster]) -> None:
    urls = [argument for master in masters for argument in ("--master", master.url)]
    found = CliRunner().invoke(app, ["load", str(file), *urls, "--batch", "100", "--json"])
    assert found.exit_code == 0, found.output
    (told,) = json.loads(found.stdout)
    assert (told["quads"], told["transactions"]) == (QUADS, 30)
    assert CliRunner().invoke(app, ["load", str(file), *urls]).stdout.startswith(f"{file}: 3,000 quads in 3 tr")
