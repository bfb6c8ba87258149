"""What masters know of the archive: each measures the delay with its own clock, and keeps the log until it is read
back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until
from test_trimming_on_disk import SEGMENT_BYTES, load, tell_backup

from txlog.server.admin.archive_reports import PLACES_MAX, PlaceMemory
from txlog.server.admin.stable_delay import SAMPLES_MAX, StableAges
from txlog.wire.archive_report import ArchivePlace

ARCHIVE = {"max_delay_ms": 200}


async def stable(cluster: Cluster, at: int = 0) -> dict[str, Any]:
    found = (await cluster.get(at, "/txlog/status"))["stable"]
    return {"index": found["index"], "hash": found["hash"]}


async def report(cluster: Cluster, at: int, archived: list[Any], verified: list[Any], **more: Any) -> None:
    body = {"archived": archived, "verified": verified, "state": "Shipping", **more}
    await cluster.post(at, "/txlog/archive", json.dumps(body), 200)


async def stream(cluster: Cluster, at: int = 0) -> Any:
    found = (await cluster.get(at, "/txlog/status"))["archive"]
    return found["streams"][0] if found else None


async def test_the_delay_grows_while_nothing_is_archived_and_all_masters_know_it(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(2, archive=ARCHIVE)
    await cluster.start()
    assert (await stream(cluster))["state"] == "Unknown"
    assert (await stream(cluster))["delaySeconds"] is None
    await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 1 }")
    place = await stable(cluster)
    await report(cluster, 0, [place], [], stream="s3://b/x", files=1)

    async def known_there() -> bool:
        return bool((await stream(cluster, 1))["archived"] == place)

    await until(known_there)  # by a notice
    seen = await stream(cluster, 1)
    assert (seen["state"], seen["delaySeconds"], seen["stream"], seen["files"]) == ("Shipping", 0.0, "s3://b/x", 1)

    await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 2 }")  # no archiver takes this one
    for at in range(2):

        async def behind(at: int = at) -> bool:
            found = await stream(cluster, at)
            return bool(found["state"] == "Behind" and found["delaySeconds"] > 5.0)

        await until(behind)
    metrics = (await cluster.get(0, "/metrics")).splitlines()
    delay = next(line for line in metrics if line.startswith('txlog_archive_delay_seconds{data_center="uk"}'))
    assert float(delay.split()[-1]) > 5.0

    await cluster.stop(0)
    await cluster.start(0)  # no restart shortens it
    await report(cluster, 0, [place], [])
    assert (await stream(cluster, 0))["delaySeconds"] > 5.0
    await report(cluster, 0, [await stable(cluster)], [])
    assert (await stream(cluster, 0))["delaySeconds"] == 0.0


async def test_a_place_of_another_log_does_not_count(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, archive=ARCHIVE)
    await cluster.start()
    for n in range(3):
        await cluster.write(0, f"INSERT DATA {{ <urn:a> <urn:b> {n} }}")
    place = await stable(cluster)
    await report(cluster, 0, [{"index": place["index"], "hash": "00" * 16}, {"index": 99, "hash": "11" * 16}], [])
    assert (await stream(cluster))["archived"] is None
    assert (await stream(cluster))["delaySeconds"] > 0


async def test_without_an_archive_there_is_no_section_and_nothing_is_kept(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    assert await stream(cluster) is None
    assert "txlog_archive" not in await cluster.get(0, "/metrics")
    kinds = {one["kind"] for one in (await cluster.get(0, "/txlog/status"))["trim"]["heldBackBy"]}
    assert "archive" not in kinds


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"archived": 5}',
        '{"archived": [{"index": 1, "hash": "zz"}]}',
        '{"archived": [{"index": 1, "hash": "00"}]}',
        json.dumps({"archived": [{"index": -1, "hash": "00" * 16}]}),
        json.dumps({"archived": [{"index": 1, "hash": "00" * 16}] * 17}),
    ],
)
async def test_a_malformed_report_is_refused(clusters: Callable[..., Cluster], body: str) -> None:
    cluster = clusters(1)
    await cluster.start()
    await cluster.post(0, "/txlog/archive", body, 400)


async def kept_from(cluster: Cluster) -> int:
    return int((await cluster.get(0, "/txlog/status"))["trim"]["keptFrom"])


async def test_the_log_goes_only_up_to_the_verified_place(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, archive=ARCHIVE, segment_bytes=SEGMENT_BYTES, trim_interval_ms=50)
    await cluster.start()
    await load(cluster, 0, "a-")
    verified = await stable(cluster)
    await load(cluster, 0, "b-")
    archived = await stable(cluster)
    await tell_backup(cluster, 0)

    async def held() -> bool:
        holders = (await cluster.get(0, "/txlog/status"))["trim"]["heldBackBy"]
        return any(one["kind"] == "archive" and one["name"] == "uk" for one in holders)

    await until(held)
    assert await kept_from(cluster) == 0  # nothing was reported since the start
    await report(cluster, 0, [archived], [verified])

    async def trimmed(index: int) -> bool:
        return await kept_from(cluster) == index

    await until(lambda: trimmed(verified["index"]))
    await report(cluster, 0, [archived], [archived])
    await until(lambda: trimmed(archived["index"]))


@pytest.mark.parametrize("on_full", ["gap", "hold"])
async def test_a_journal_that_is_nearly_full_lets_it_go_or_holds_it(
    clusters: Callable[..., Cluster], on_full: str
) -> None:
    cluster = clusters(
        1,
        archive={**ARCHIVE, "on_full": on_full},
        segment_bytes=SEGMENT_BYTES,
        trim_interval_ms=50,
        journal_bytes_max=1_000_000,
    )
    await cluster.start()
    for n in range(100):
        if (await cluster.get(0, "/txlog/status"))["trim"]["alarm"]:
            break
        await cluster.write(0, f'INSERT DATA {{ <urn:{n}> <urn:p> "{"x" * 20_000}" }}')
    index = await tell_backup(cluster, 0)
    if on_full == "gap":

        async def gone() -> bool:
            return await kept_from(cluster) == index

        await until(gone)
        assert any("ArchiveLetGo" in line for line in cluster.logged(0))
        return

    async def held() -> bool:
        trim = (await cluster.get(0, "/txlog/status"))["trim"]
        return bool(trim["heldBackBy"][0]["kind"] == "archive" and trim["mayGoTo"] == 0)

    await until(held)
    assert await kept_from(cluster) == 0


# Pure


def test_an_age_is_measured_since_it_was_noted() -> None:
    ages = StableAges()
    ages.note(5, 10.0)
    ages.note(5, 11.0)
    ages.note(9, 12.0)
    assert [ages.age_of(index, 20.0) for index in (1, 5, 6, 9, 10)] == [10.0, 10.0, 8.0, 8.0, 0.0]
    ages.note(7, 13.0)  # a rejoin
    assert [ages.age_of(index, 20.0) for index in (5, 6, 7, 8)] == [10.0, 7.0, 7.0, 0.0]


def test_samples_are_bounded() -> None:
    ages = StableAges()
    for at in range(3 * SAMPLES_MAX):
        ages.note(at, float(at))
    assert len(ages._samples) <= SAMPLES_MAX
    assert ages.age_of(0, 10.0) == 10.0


def test_an_older_place_counts_when_the_newest_is_on_another_branch() -> None:
    memory = PlaceMemory()
    old, new = ArchivePlace(5, "a"), ArchivePlace(8, "b")
    memory.add([old])
    memory.add([new])
    assert memory.highest(lambda each: True) == new
    assert memory.highest(lambda each: each != new) == old
    assert memory.highest(lambda each: False) is None
    memory.add(ArchivePlace(at, "c") for at in range(100, 100 + PLACES_MAX))
    assert memory.highest(lambda each: each == old) is None
