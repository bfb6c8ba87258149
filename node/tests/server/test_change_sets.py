"""``/txlog/watch?updates=quads``: the change sets that a process of the data centre makes, as masters give them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from apart import go_apart, insert, states
from master_cluster import TOKEN, Cluster, until
from worker_driver import Driver, OxigraphProcess

from e2e.lib.ports import free_ports
from txlog.capture.__main__ import run_capture
from txlog.config.process_config import ChangeSetsConfig
from txlog.telemetry.event_log import EventLog
from txlog.wire.change_page import change_set_token

INSERT = 'INSERT DATA { <urn:a> <urn:p> "1" , "2" }'
MODIFY = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }"


class Capturing:
    """Masters with one store, and the process that makes change sets, in this process."""

    def __init__(self, folder: Path, cluster: Cluster, driver: Driver | None, port: int) -> None:
        self.folder, self.cluster, self._driver, self.port = folder, cluster, driver, port
        self.log = io.StringIO()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def driver(self) -> Driver:
        assert self._driver is not None
        return self._driver

    def config(self, **changes: Any) -> ChangeSetsConfig:
        (self.folder / "own-token").write_bytes(TOKEN + b"\n")
        masters = [self.cluster.url(at) for at in range(len(self.cluster.nodes))]
        fields = {"keep_ms": 3_600_000, "masters": masters, **changes}
        return ChangeSetsConfig(
            data_center="uk",
            folder=self.folder / "changesets",
            port=self.port,
            peer_token_file=self.folder / "own-token",
            **fields,
        )

    def start(self, **changes: Any) -> None:
        self._stop = asyncio.Event()
        log = EventLog("uk-changesets", self.log, limit_s=0.0)
        self._task = asyncio.create_task(run_capture(self.config(**changes), log, self._stop))

    async def stop(self) -> None:
        if self._task is not None:
            self._stop.set()
            await self._task
            self._task = None

    async def status(self, at: int = 0) -> dict[str, Any]:
        [found] = (await self.cluster.get(at, "/txlog/status"))["changeSets"]
        return dict(found)

    async def captured(self, index: int, at: int = 0) -> None:
        async def is_there() -> bool:
            executed = (await self.status(at))["executed"]
            return executed is not None and executed["index"] >= index

        await until(is_there)

    async def watch(self, query: str, at: int = 0, status: int = 200, **headers: str) -> str:
        sent = {"Accept": "application/rdf-patch", **{name.replace("_", "-"): value for name, value in headers.items()}}
        url = self.cluster.url(at, f"/txlog/watch?updates=quads&{query}")
        async with self.cluster.session.get(url, headers=sent) as answer:
            text = await answer.text()
            assert answer.status == status, (answer.status, text)
            return text

    async def watch_again(self, query: str) -> str:
        """When the process has come back: until then masters know what it reported before."""

        async def answered() -> str | None:
            url = self.cluster.url(0, f"/txlog/watch?updates=quads&{query}")
            async with self.cluster.session.get(url, headers={"Accept": "application/rdf-patch"}) as answer:
                text = await answer.text()
                assert answer.status in (200, 503, 409), text
                return text if answer.status == 200 else None

        return str(await until(answered))


@pytest.fixture
async def capturing(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Capturing]:
    store = OxigraphProcess(tmp_path / "store")
    [port] = free_ports(1)
    changes = {"url": f"http://127.0.0.1:{port}"}
    cluster = clusters(2, workers=[{"name": "w-1", "url": store.url}], change_sets=changes)
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    made = Capturing(tmp_path, cluster, driver, port)
    yield made
    await made.stop()
    await asyncio.to_thread(driver.close)
    with contextlib.suppress(ProcessLookupError):
        store.kill()


def rows(patch: str) -> list[str]:
    return [line for line in patch.splitlines() if line[:2] in ("A ", "D ")]


async def test_an_update_comes_as_the_quads_that_it_changed(capturing: Capturing) -> None:
    cluster = capturing.cluster
    assert (await capturing.status())["state"] == "Unknown"
    await cluster.write(0, 'INSERT DATA { <urn:a> <urn:p> "1" , "2" }')
    capturing.start()
    await cluster.write(1, MODIFY)
    await capturing.captured(2)
    text = await capturing.watch("from=0&until=now")
    assert rows(text) == [
        'A <urn:a> <urn:p> "1" .',
        'A <urn:a> <urn:p> "2" .',
        'D <urn:a> <urn:p> "1" .',
        'D <urn:a> <urn:p> "2" .',
        'A <urn:a> <urn:q> "1" .',
        'A <urn:a> <urn:q> "2" .',
    ]
    assert text.count("TC .") == 2
    [first, _] = re.findall("H id <urn:txlog:log:(.*)> .", text)
    assert rows(await capturing.watch(f"from={first}&until=now")) == rows(text)[2:]
    found = await capturing.status()
    assert (found["state"], found["entriesBehind"], found["delaySeconds"]) == ("Following", 0, 0.0)
    lines = [
        json.loads(line)
        for line in (await capturing.watch("from=0&until=2", Accept="application/x-ndjson")).splitlines()
    ]
    assert [(line["kind"], line["index"]) for line in lines[1:]] == [("quads", 1), ("quads", 2)]


async def test_a_store_that_was_lost_is_made_again_with_the_same_bytes(capturing: Capturing) -> None:
    for text in (INSERT, MODIFY, "DELETE WHERE { ?s <urn:q> ?o }"):
        await capturing.cluster.write(0, text)
    capturing.start()
    await capturing.captured(3)
    before = await capturing.watch("from=0&until=3")
    await capturing.stop()
    shutil.rmtree(capturing.folder / "changesets")
    capturing.start()
    await until(lambda: capturing.log.getvalue().count("ChangeSetsBegin") == 2)
    assert await capturing.watch_again("from=0&until=3") == before
    assert len(rows(before)) == 8


async def test_a_store_of_which_a_byte_is_lost_is_made_again(capturing: Capturing) -> None:
    await capturing.cluster.write(0, INSERT)
    await capturing.cluster.write(0, MODIFY)
    capturing.start()
    await capturing.captured(2)
    before = await capturing.watch("from=0&until=2")
    await capturing.stop()
    [path] = (capturing.folder / "changesets" / "store" / "changes").glob("*.changes")
    data = path.read_bytes()
    path.write_bytes(data[:120] + bytes([data[120] ^ 1]) + data[121:])
    capturing.start()
    await until(lambda: "ChangeSetsRebuilt" in capturing.log.getvalue())
    await until(lambda: capturing.log.getvalue().count("ChangeSetsBegin") == 2)
    assert await capturing.watch_again("from=0&until=2") == before
    assert (await capturing.status())["rebuilds"] == 1


async def test_the_first_data_is_a_copy_of_a_worker_where_the_log_is_long(capturing: Capturing) -> None:
    await capturing.cluster.write(0, INSERT)
    await until(lambda: applied(capturing, 1))
    capturing.start(replay_max=0)
    await capturing.captured(1)
    found = await capturing.status()
    assert (found["keptFrom"], found["state"]) == (1, "Following")
    await capturing.cluster.write(0, MODIFY)
    await capturing.captured(2)
    assert [row[:1] for row in rows(await capturing.watch("from=1&until=2"))] == ["D", "D", "A", "A"]
    refused = json.loads(await capturing.watch("from=0&until=2", status=410))
    assert refused["reason"] == "Gone"
    assert "from index 2 on" in refused["message"]


async def applied(capturing: Capturing, index: int) -> bool:
    return bool((await capturing.cluster.get(0, "/txlog/status"))["applied"] >= index)


async def test_a_skip_by_hand_of_an_entry_that_left_makes_the_store_again(capturing: Capturing) -> None:
    await capturing.cluster.write(0, INSERT)
    await capturing.cluster.write(0, 'INSERT DATA { <urn:b> <urn:p> "3" }')
    capturing.start()
    await capturing.captured(2)
    [txid, _] = re.findall('H transaction "(.*)" .', await capturing.watch("from=0&until=2"))
    await capturing.cluster.post(0, f"/txlog/skip/{txid}", "{}", 200)
    await until(lambda: "CapturedEntrySkipped" in capturing.log.getvalue())
    await capturing.captured(3)
    text = await capturing.watch_again("from=0&until=3")
    assert rows(text) == ['A <urn:b> <urn:p> "3" .']
    assert 'H noop "skip"' in text


async def test_a_change_that_is_too_large_names_its_graphs(capturing: Capturing) -> None:
    capturing.start(quads_max=2)
    await capturing.captured(0)
    await capturing.cluster.write(0, "INSERT DATA { <urn:a> <urn:p> 1, 2 . GRAPH <urn:g> { <urn:a> <urn:p> 3 } }")
    await capturing.cluster.write(0, "DELETE WHERE { GRAPH <urn:g> { ?s ?p ?o } }")
    await capturing.captured(2)
    text = await capturing.watch("from=0&until=2")
    assert re.findall('H large "(.*)" .', text) == ["default", "urn:g"]
    assert len(rows(text)) == 1
    lines = (await capturing.watch("from=0&until=2", Accept="application/x-ndjson")).splitlines()
    large = json.loads(lines[1])
    assert (large["kind"], large["graphs"], "payload" in large) == ("large", ["", "urn:g"], False)


async def test_what_is_asked_wrongly_or_too_early_is_refused_by_name(
    capturing: Capturing, clusters: Callable[..., Cluster]
) -> None:
    cluster = capturing.cluster
    await cluster.write(0, INSERT)
    assert json.loads(await capturing.watch("from=0", status=503))["reason"] == "ChangeSetsLoading"
    capturing.start()
    await capturing.captured(1)
    assert json.loads(await capturing.watch("from=9", status=409))["reason"] == "Ahead"
    assert json.loads(await capturing.watch(f"from=1:{'0' * 32}", status=409))["reason"] == "Diverged"
    url = cluster.url(0, "/txlog/watch?updates=rows")
    async with cluster.session.get(url) as answer:
        assert (answer.status, "quads" in await answer.text()) == (400, True)
    for body in ("{", '{"executed": {"index": 1, "hash": "00"}, "state": "Following"}', '{"state": "Following"}'):
        await cluster.post(0, "/txlog/changesets", body, 400)
    await capturing.stop()
    assert json.loads(await capturing.watch("from=0", status=503))["reason"] == "ChangeSetsUnreachable"


async def test_without_change_sets_it_is_refused(one: Cluster) -> None:
    async with one.session.get(one.url(0, "/txlog/watch?updates=quads")) as answer:
        assert (answer.status, json.loads(await answer.text())["reason"]) == (409, "NoChangeSets")
    assert (await one.get(0, "/txlog/status"))["changeSets"] is None


async def test_a_read_after_a_write_waits_for_its_change_set(capturing: Capturing) -> None:
    capturing.start()
    await capturing.cluster.write(0, INSERT)
    await capturing.captured(1)
    await asyncio.to_thread(capturing.driver.pause)
    url = capturing.cluster.url(0, "/repositories/demo/statements")
    headers = {"Content-Type": "application/sparql-update", "TxLog-Durability": "synced"}
    async with capturing.cluster.session.post(url, data=MODIFY, headers=headers) as answer:
        assert answer.status == 204
        position = answer.headers["TxLog-Position"]
    asked = {"TxLog-Min-Position": position, "Prefer": "wait=0.3"}
    assert json.loads(await capturing.watch("from=1&until=now", status=503, **asked))["reason"] == "ChangeSetsBehind"
    reading = asyncio.create_task(capturing.watch("from=1&until=now", TxLog_Min_Position=position))
    capturing.driver.resume()
    assert len(rows(await reading)) == 4


async def test_split_recovery_does_not_become_none(capturing: Capturing) -> None:
    url = capturing.cluster.url(0, "/txlog/settings")
    async with capturing.cluster.session.patch(url, json={"splitRecovery": "None"}) as answer:
        assert (answer.status, "change sets" in await answer.text()) == (409, True)


async def test_all_masters_know_how_far_it_is_and_the_delay_grows_without_it(capturing: Capturing) -> None:
    await capturing.cluster.write(0, INSERT)
    await until(lambda: applied(capturing, 1))

    async def is_late(at: int) -> bool:
        metrics = (await capturing.cluster.get(at, "/metrics")).splitlines()
        behind = [line for line in metrics if line.startswith('txlog_changesets_behind_entries{data_center="uk"}')]
        return behind == ['txlog_changesets_behind_entries{data_center="uk"} 1.0']

    for at in range(2):
        await until(lambda at=at: is_late(at))
    capturing.start()
    for at in range(2):
        await capturing.captured(1, at)
        assert (await capturing.status(at))["entriesBehind"] == 0


async def test_masters_read_with_a_token(capturing: Capturing) -> None:
    capturing.start()
    await capturing.captured(0)
    url = f"http://127.0.0.1:{capturing.port}/changes"
    for headers, status in (
        ({}, 401),
        ({"Authorization": f"Bearer {TOKEN.decode()}"}, 401),
        ({"Authorization": f"Bearer {change_set_token(TOKEN)}"}, 200),
    ):
        async with capturing.cluster.session.get(url, headers=headers) as answer:
            assert answer.status == status, await answer.text()


async def following_the_loser(clusters: Callable[..., Cluster], folder: Path) -> tuple[Cluster, Capturing]:
    """Three masters with a first entry, and a process that follows uk-3, which loses a split."""
    [port] = free_ports(1)
    changes = {"url": f"http://127.0.0.1:{port}"}
    cluster = clusters(3, max_peer_lag_ms=3000, round_timeout_ms=800, idle_interval_ms=100, change_sets=changes)
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    capturing = Capturing(folder, cluster, None, port)
    capturing.start(masters=[cluster.url(2)])
    await cluster.write(0, insert("first"))
    return cluster, capturing


async def test_after_a_rejoin_it_goes_back_and_followers_are_rewound(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The process follows uk-3, which loses. Who does not ask for more than final entries is never rewound."""
    cluster, capturing = await following_the_loser(clusters, tmp_path)
    await capturing.captured(1, 2)
    feeds = [
        asyncio.create_task(capturing.watch(f"from=0&until=9{level}", 2, Accept="application/x-ndjson"))
        for level in ("&level=stable", "")
    ]
    heal = await go_apart(cluster)
    for number, at in enumerate((2, 0, 2, 1, 2)):
        await cluster.write(at, insert(f"alone-{number}"))
    branch = (await cluster.get(2, "/txlog/status"))["stable"]["index"]
    await capturing.captured(branch, 2)
    heal()
    texts = await asyncio.gather(*feeds)
    stable, settled = ([json.loads(line) for line in text.splitlines() if line] for text in texts)
    kept: dict[int, str] = {}
    for event in stable:
        if event["event"] == "rewound":
            last = int(event["id"].partition(":")[0])
            kept = {index: text for index, text in kept.items() if index <= last}
        elif event["event"] == "entry":
            kept[event["index"]] = event["payload"]
    assert [event["event"] for event in stable].count("rewound") == 1
    assert [event["event"] for event in settled].count("rewound") == 0
    assert [event["payload"] for event in settled if event["event"] == "entry"] == [kept[at] for at in range(1, 10)]
    assert len(set(kept.values())) == 9
    assert "ChangeSetsWentBack" in capturing.log.getvalue()
    await capturing.stop()


async def test_what_a_store_has_of_a_branch_that_was_given_up_does_not_leave(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The store hangs where the branch ended, and a report claims that it is on the merged log."""
    cluster, capturing = await following_the_loser(clusters, tmp_path)
    heal = await go_apart(cluster)
    for number in range(3):
        await cluster.write(2, insert(f"alone-{number}"))
        await cluster.write(0, insert(f"other-{number}"))
    branch = (await cluster.get(2, "/txlog/status"))["stable"]["index"]
    await capturing.captured(branch, 2)
    await capturing.stop()
    capturing.start(masters=[f"http://127.0.0.1:{free_ports(1)[0]}"])
    heal()
    await until(lambda: states(cluster) == {"Joined"})

    async def merged() -> dict[str, Any] | None:
        found = (await cluster.get(2, "/txlog/status"))["stable"]
        return dict(found) if found["index"] >= 10 else None

    place = await until(merged)
    claim = {"executed": {"index": place["index"], "hash": place["hash"]}, "state": "Following"}
    await until(lambda: "ChangeSetsWait" in capturing.log.getvalue())
    await cluster.post(2, "/txlog/changesets", json.dumps(claim), 200)
    url = cluster.url(2, "/txlog/watch?updates=quads&from=0&level=stable&heartbeat=1")
    async with cluster.session.get(url, headers={"Accept": "application/x-ndjson"}) as answer:
        assert answer.status == 200
        events = []
        while line := (await answer.content.readline()).strip():
            events.append(json.loads(line))
    log = (await cluster.get(2, "/txlog/log?after=0", headers={"Accept": "application/json"}))["entries"]
    hashes = {entry["index"]: entry["hash"] for entry in log}
    sent = [event["id"].split(":") for event in events if event["event"] == "entry"]
    assert sent
    assert all(hashes[int(index)] == value for index, value in sent)
    await capturing.stop()
