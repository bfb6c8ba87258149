"""What a master prefers, over HTTP: shown, changed, kept, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster, until

PATH = "/txlog/settings"


async def patch(cluster: Cluster, at: int, changes: Any, status: int = 200, query: str = "") -> dict[str, Any]:
    data = changes if isinstance(changes, bytes) else json.dumps(changes).encode()
    async with cluster.session.patch(cluster.url(at, PATH + query), data=data) as answer:
        told: dict[str, Any] = json.loads(await answer.read())
        assert answer.status == status, (answer.status, told)
        return told


def values(told: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["key"]: (one["value"], one["source"]) for one in told["settings"]}


async def strategies(cluster: Cluster) -> list[str]:
    found = []
    for at in range(len(cluster.nodes)):
        view = (await cluster.get(at, PATH))["view"]
        found.append(view["splitRecovery"] + ("?" if view["renewing"] else ""))
    return found


async def test_a_changed_strategy_installs_the_same_members_anew(three: Cluster) -> None:
    await until(lambda: {three.service(at).loop.executor.core.state for at in range(3)} == {"Joined"})
    before = (await three.get(0, "/txlog/status"))["view"]
    told = await patch(three, 2, {"split-recovery": "SIMPLE"}, query="?check=true")
    assert told["changed"] == ["splitRecovery"]
    assert values(await three.get(2, PATH))["splitRecovery"] == ("Smart", "manifest"), "only asked"
    told = await patch(three, 2, {"split-recovery": "SIMPLE"})
    assert values(told)["splitRecovery"] == ("Simple", "live")
    assert told["view"]["renewing"]

    async def is_agreed() -> bool:
        return await strategies(three) == ["Simple", "Simple", "Simple"]

    await until(is_agreed)
    status = await three.get(0, "/txlog/status")
    assert status["view"]["splitRecovery"] == "Simple"
    assert status["view"]["number"] != before["number"]
    assert [m["node"] for m in status["members"]] == ["uk-1", "uk-2", "uk-3"]
    await three.write(0, 'INSERT DATA { <urn:s> <urn:p> "o" }')
    assert (await patch(three, 2, {"splitRecovery": "simple"}))["changed"] == []


async def test_a_strategy_is_refused_while_somebody_is_silent_and_times_are_not(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(2, round_timeout_ms=500, idle_interval_ms=100)
    await cluster.start()
    await cluster.crash(1)
    await until(lambda: cluster.service(0).loop.executor.core.state == "Suspected")
    for query in ("", "?check=true"):
        told = await patch(cluster, 0, {"splitRecovery": "Simple", "maxPeerLag": "9s"}, 409, query)
        assert told["error"] == "Conflict"
        assert told["message"].startswith("splitRecovery cannot be changed now: uk-1 is Suspected; wait until")
    told = await cluster.get(0, PATH)
    assert (values(told)["splitRecovery"], values(told)["maxPeerLag"]) == (("Smart", "manifest"), ("1m", "manifest"))
    assert (await patch(cluster, 0, {"splitRecovery": "smart"}))["changed"] == [], "what it is already is no change"
    assert values(await patch(cluster, 0, {"maxPeerLag": "9s"}))["maxPeerLag"] == ("9s", "live")
    assert cluster.service(0).loop.executor.core.settings.max_peer_lag_ms == 9000


async def test_live_settings_outlive_the_process_until_the_manifest_changes(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    told = await patch(cluster, 0, {"leave-timeout": "1s", "idleInterval": "200ms", "splitRecovery": "Simple"})
    assert told["changed"] == ["splitRecovery", "idleInterval", "leaveTimeout"]
    await cluster.stop()
    await cluster.start()
    now = values(await cluster.get(0, PATH))
    assert (now["leaveTimeout"], now["idleInterval"]) == (("1s", "live"), ("200ms", "live"))
    settings = cluster.service(0).loop.executor.core.settings
    assert (settings.idle_interval_ms, settings.strategy) == (200, "Simple")
    assert (await strategies(cluster)) == ["Simple"]
    await cluster.stop()
    cluster.configs[0]["idle_interval_ms"] = 250
    await cluster.start()
    now = values(await cluster.get(0, PATH))
    assert (now["leaveTimeout"], now["idleInterval"]) == (("1s", "live"), ("250ms", "manifest"))
    assert "LiveSettingsDropped" in cluster.logged(0)
    told = await patch(cluster, 0, {"leaveTimeout": None, "splitRecovery": "manifest"})
    assert values(told)["leaveTimeout"] == ("5s", "manifest")
    assert not [one for one in told["settings"] if one["source"] == "live"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "expected {"),
        (b"[1]", "expected {"),
        (b'{"maxPeerLag"', "expected {"),
        ({}, "nothing to set"),
        ({"maxPeerLag": "soon"}, "maxPeerLag is 'soon'; expected a duration"),
        ({"maxPeerLag": 7}, "maxPeerLag is '7'; expected a duration"),
        ({"splitRecovery": "clever"}, "expected None, Simple or Smart"),
        ({"split_recovery": "Smart"}, "no such setting: 'split_recovery'; did you mean split-recovery?"),
        ({"splitMode": "Majority"}, "it is what they are started with"),
        ({"idleInterval": "1s"}, "idleInterval is '1s'; expected a duration below roundTimeout (1s)"),
        ({"leaveTimeout": "1s", "roundTimeout": "300ms"}, "expected a duration below roundTimeout (300ms)"),
    ],
)
async def test_bad_input_changes_nothing(one: Cluster, data: Any, said: str) -> None:
    before = await one.get(0, PATH)
    told = await patch(one, 0, data, 400)
    assert told["error"] == "BadInput"
    assert said in told["message"]
    assert (await one.get(0, PATH))["settings"] == before["settings"]


async def test_a_question_that_is_none_and_a_body_without_end_are_refused(one: Cluster) -> None:
    assert "expected true or false" in (await patch(one, 0, {"leaveTimeout": "1s"}, 400, "?check=maybe"))["message"]
    assert (await patch(one, 0, b"[" + b" " * (17 << 10) + b"]", 413))["error"] == "TooLarge"


async def test_a_disk_that_does_not_keep_it_changes_nothing(one: Cluster) -> None:
    in_the_way = folder_of(one) / "settings.json.new"
    in_the_way.mkdir()
    told = await patch(one, 0, {"leaveTimeout": "1s"}, 503)
    assert (told["reason"], "nothing was changed" in told["message"]) == ("NotKept", True)
    assert values(await one.get(0, PATH))["leaveTimeout"] == ("5s", "manifest")
    in_the_way.rmdir()
    assert values(await patch(one, 0, {"leaveTimeout": "1s"}))["leaveTimeout"] == ("1s", "live")


async def test_a_settings_file_that_is_broken_keeps_a_master_from_starting(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    (folder_of(cluster) / "settings.json").write_text("{")
    cluster.spawn(0)
    assert cluster.process(0).wait(60) == 64
    cluster.processes[0] = None
    said = (cluster.folder / "uk-1.log").read_text()
    assert "settings.json" in said
    assert "remove it to go back to what the manifest says" in said


def folder_of(cluster: Cluster) -> Path:
    folder = Path(cluster.configs[0]["journal_folder"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder
