"""`txlog verify` against real stores; a stub stands for the masters, and the test for the pipeline."""

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from stub_master import StubMaster
from typer.testing import CliRunner

from e2e.lib.ports import free_port
from txlog.cli.content_verification import NotHeld, compare_contents
from txlog.cli.main import app
from txlog.local.supervisor_main import obtain_oxigraph
from txlog.model.entry import Position
from txlog.workers.adapter import MarkerPosition
from txlog.workers.marker_names import marker_name

DEADLINE = 60.0


def marker(index: int) -> str:
    return marker_name(MarkerPosition(Position(1, index, index.to_bytes(16, "big")), 0))


class Store:
    """An Oxigraph with ten quads and a marker."""

    def __init__(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [obtain_oxigraph(), "serve", "-b", f"127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + DEADLINE
        while True:
            try:
                urllib.request.urlopen(self.url).close()
                break
            except OSError:
                assert time.monotonic() < end, "no store in time"
                time.sleep(0.02)
        self.index: int | None = None
        quads = " ".join(f'GRAPH <http://e/g> {{ <http://e/s{n}> <http://e/p> "{n}" }}' for n in range(10))
        self.update(f"INSERT DATA {{ {quads} }}")

    def update(self, text: str) -> None:
        headers = {"Content-Type": "application/sparql-update"}
        request = urllib.request.Request(f"{self.url}/update", text.encode(), headers)
        urllib.request.urlopen(request).close()

    def move(self, index: int) -> None:
        drop = f"DROP GRAPH <{marker(self.index)}> ; " if self.index is not None else ""
        self.update(f"{drop}CREATE GRAPH <{marker(index)}>")
        self.index = index


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Store]]:
    stores = [Store(), Store()]
    yield stores
    for store in stores:
        store.process.kill()
        store.process.wait()


@pytest.fixture
def stores(processes: list[Store]) -> list[Store]:
    for store in processes:
        store.update('DELETE DATA { <http://e/more> <http://e/p> "x" }')
        store.move(7)
    return processes


@pytest.fixture
def masters(stores: list[Store]) -> Iterator[dict[str, StubMaster]]:
    found = {}
    for dc, store in zip(("uk", "us"), stores, strict=True):
        found[dc] = StubMaster(f"{dc}-1")
        found[dc].workers = [worker(f"{dc}-worker-1", store)]
    yield found
    for master in found.values():
        master.close()


def worker(name: str, store: Store) -> dict[str, Any]:
    return {"name": name, "url": store.url, "engine": "oxigraph", "position": None, "state": "Working"}


def urls(masters: dict[str, StubMaster]) -> dict[str, list[str]]:
    return {dc: [master.url] for dc, master in masters.items()}


def test_equal_stores_are_equal_and_let_go(masters: dict[str, StubMaster]) -> None:
    verdict = compare_contents(urls(masters), DEADLINE)
    assert verdict.equal
    assert verdict.index == 7
    digests = [each.digest for each in verdict.workers]
    assert digests[0] == digests[1]
    assert digests[0] is not None
    assert digests[0].quads == 10
    assert all(not master.holds for master in masters.values())


def test_a_difference_is_named_and_the_exit_code_says_it(masters: dict[str, StubMaster], stores: list[Store]) -> None:
    stores[1].update('INSERT DATA { <http://e/more> <http://e/p> "x" }')
    arguments = [argument for master in masters.values() for argument in ("--master", master.url)]
    found = CliRunner().invoke(app, ["verify", *arguments, "--json"])
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert told["equal"] is False
    assert [each["differs"] for each in told["workers"]] == [[], [""]]
    people = CliRunner().invoke(app, ["verify", *arguments])
    assert people.exit_code == 1
    assert "different" in people.stdout


def test_a_worker_that_is_behind_is_waited_for(masters: dict[str, StubMaster], stores: list[Store]) -> None:
    stores[1].move(3)

    def pipeline() -> None:
        end = time.monotonic() + DEADLINE
        while not masters["us"].holds and time.monotonic() < end:
            time.sleep(0.01)
        stores[1].move(masters["us"].holds["us-worker-1"])

    thread = threading.Thread(target=pipeline)
    thread.start()
    assert compare_contents(urls(masters), DEADLINE).equal
    thread.join()


def test_a_worker_that_is_ahead_raises_the_index(masters: dict[str, StubMaster], stores: list[Store]) -> None:
    stores[0].move(9)

    def pipeline() -> None:
        end = time.monotonic() + DEADLINE
        while masters["us"].holds.get("us-worker-1") != 9 and time.monotonic() < end:
            time.sleep(0.01)
        stores[1].move(9)

    thread = threading.Thread(target=pipeline)
    thread.start()
    verdict = compare_contents(urls(masters), DEADLINE)
    assert (verdict.equal, verdict.index) == (True, 9)
    thread.join()


def test_a_worker_that_does_not_come_is_named_and_everybody_let_go(
    masters: dict[str, StubMaster], stores: list[Store]
) -> None:
    stores[1].move(3)
    with pytest.raises(NotHeld, match="us-worker-1 is at 3; see txlog worker list"):
        compare_contents(urls(masters), 0.3)
    assert all(not master.holds for master in masters.values())
