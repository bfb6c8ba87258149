"""Three real masters, their links and their supervisor: kill, stop, a lost disk, links that carry one way only."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout
from typer.testing import CliRunner

from txlog.cli.main import app as command_line
from txlog.config.manifest_reader import load_manifests
from txlog.local.ports import choose_ports
from txlog.local.process_plan import ProcessPlan, make_plan, port_names
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms
from txlog.local.supervisor import Supervisor, SupervisorIntervals
from txlog.local.supervisor_api import serve_control_api

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-data-centres"
DEADLINE = 60.0
PACE = SupervisorIntervals(restart_min_s=0.05, restart_max_s=0.5, stable_after_s=1.0, watch_new_s=0.1, watch_s=1.0)
NODES = ["uk-1", "uk-2", "us-1"]


class Running:
    """The cluster, as a client and an operator see it."""

    def __init__(self, supervisor: Supervisor, session: ClientSession) -> None:
        self.supervisor = supervisor
        self.session = session
        self.urls = {m.node: m.url for m in supervisor.plan.topology.masters}

    async def get(self, node: str, path: str) -> Any:
        async with self.session.get(self.urls[node] + path) as answer:
            return await answer.json()

    async def write(self, node: str, what: object, level: str = "synced", wait: float = 20) -> int:
        headers = {
            "Content-Type": "application/n-quads",
            "TxLog-Durability": level,
            "Prefer": f"wait={wait:g}",
        }
        path = f"{self.urls[node]}/repositories/{self.supervisor.plan.topology.repository}/statements"
        async with self.session.post(path, data=f"<urn:s:{what}> <urn:p> <urn:o> .\n", headers=headers) as answer:
            await answer.read()
            return answer.status

    async def joined(self, *nodes: str) -> bool:
        """These, and no others, have installed one view."""
        told = [await self.get(node, "/txlog/status") for node in nodes]
        views = {status["view"]["number"] for status in told}
        return len(views) == 1 and all(
            [m["node"] for m in status["members"]] == list(nodes)
            and status["view"]["installed"]
            and status["state"] == "Joined"
            for status in told
        )

    async def out(self, node: str) -> list[tuple[str, str]]:
        status = await self.get(node, "/txlog/status")
        return [(one["node"], one["why"]) for one in status["view"]["out"]]

    async def findings(self, node: str) -> list[tuple[str, list[str]]]:
        return [(one["kind"], one["nodes"]) for one in (await self.get(node, "/txlog/peers"))["findings"]]


async def eventually(what: Callable[[], Any], seconds: float = DEADLINE) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            value = what()
            if await value if asyncio.iscoroutine(value) else value:
                return
        except (ClientError, OSError, TimeoutError):
            pass
        assert time.monotonic() < until, f"not within {seconds:g} s"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def masters(
    state: StateFolder, paths: Path = EXAMPLE, nodes_of_it: Sequence[str] = NODES, **changes: Any
) -> AsyncIterator[Running]:
    """The manifests' masters and links, without stores and Spark."""
    manifests = load_manifests(paths)
    ports = choose_ports(state, port_names(manifests))
    plan = make_plan(manifests, state, ports, StorePrograms("oxigraph", Path("/nowhere")))
    nodes = {node: config.model_copy(update={"workers": [], **changes}) for node, config in plan.master_configs.items()}
    topology = plan.topology.model_copy(update={"workers": []})
    programs = tuple(p for p in plan.programs if p.role in ("links", "master"))
    plan = replace(plan, topology=topology, programs=programs, master_configs=nodes, pipeline_configs={})
    assert isinstance(plan, ProcessPlan)
    with state.locked():
        supervisor = Supervisor(plan, state, PACE)
        stop = asyncio.Event()
        async with serve_control_api(supervisor, stop), ClientSession(timeout=ClientTimeout(total=30)) as session:
            task = asyncio.create_task(supervisor.run(stop))
            running = Running(supervisor, session)
            try:
                await eventually(lambda: running.joined(*nodes_of_it))
                yield running
            finally:
                stop.set()
                await asyncio.wait_for(task, DEADLINE)


async def test_a_killed_master_is_proved_down_and_taken_in_again(state: StateFolder) -> None:
    async with masters(state) as cluster:
        for n in range(5):
            assert await cluster.write("uk-1", n) == 204
        before = await cluster.get("uk-2", "/txlog/status")
        await eventually(lambda: _last_start_is_noted(state, before))
        await cluster.supervisor.kill("uk-2")
        await cluster.supervisor.stop("uk-2")  # it stays away until both others know why it is out
        assert _process(cluster, "uk-2")["exitCode"] == -signal.SIGKILL
        assert await cluster.write("uk-1", "while-it-is-away") == 204
        for node in ("uk-1", "us-1"):
            await eventually(lambda node=node: _is_out(cluster, node, [("uk-2", "down")]))
        await cluster.supervisor.start("uk-2")
        await eventually(lambda: cluster.joined(*NODES))
        after = await cluster.get("uk-1", "/txlog/status")
        assert after["view"]["number"] != before["view"]["number"]
        assert await cluster.write("uk-2", "it-is-back") == 204


async def test_a_killed_master_starts_again_by_itself(state: StateFolder) -> None:
    async with masters(state) as cluster:
        before = await cluster.get("uk-2", "/txlog/status")
        await eventually(lambda: _last_start_is_noted(state, before))
        await cluster.supervisor.kill("uk-2")
        assert await cluster.write("uk-1", "while-it-is-away") == 204
        await eventually(lambda: _restarted(cluster, "uk-2", before["start"]))
        await eventually(lambda: cluster.joined(*NODES))
        assert await cluster.write("uk-2", "it-is-back") == 204


def _last_start_is_noted(state: StateFolder, status: dict[str, Any]) -> bool:
    return bool(state.read("seen.json", {}).get("uk-2", {}).get("start") == status["start"])


async def _is_out(cluster: Running, node: str, wanted: list[tuple[str, str]]) -> bool:
    return await cluster.out(node) == wanted


async def _restarted(cluster: Running, node: str, start: int) -> bool:
    status = await cluster.get(node, "/txlog/status")
    return bool(status["start"] > start)


async def test_a_stopped_master_leaves_and_comes_back(state: StateFolder) -> None:
    async with masters(state) as cluster:
        await cluster.supervisor.stop("us-1")
        assert _process(cluster, "us-1")["exitCode"] == 0
        await eventually(lambda: cluster.joined("uk-1", "uk-2"))
        assert await cluster.out("uk-2") == [("us-1", "left")]
        for n in range(5):
            assert await cluster.write("uk-1", n) == 204
        await cluster.supervisor.start("us-1")
        await eventually(lambda: cluster.joined(*NODES))
        assert await cluster.out("uk-2") == []
        assert (await cluster.get("us-1", "/txlog/status"))["stable"]["index"] == 5


def _process(cluster: Running, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(p for p in cluster.supervisor.describe()["processes"] if p["name"] == name)
    return found


async def test_a_master_whose_disk_is_lost_learns_and_an_old_image_ends_by_name(state: StateFolder) -> None:
    async with masters(state) as cluster:
        folder = state.master("uk-2") / "journal"
        for n in range(20):
            assert await cluster.write(NODES[n % 3], n) == 204
        before = await cluster.get("uk-2", "/txlog/status")
        await cluster.supervisor.stop("uk-2")
        shutil.rmtree(folder)
        await cluster.supervisor.start("uk-2")
        await eventually(lambda: cluster.joined(*NODES))
        after = await cluster.get("uk-2", "/txlog/status")
        assert after["birth"] != before["birth"]
        assert after["stable"]["index"] == 20
        assert await cluster.write("uk-2", "with-a-new-birth") == 204

        await cluster.supervisor.stop("uk-2")
        shutil.copytree(folder, folder.with_name("image"))
        await cluster.supervisor.start("uk-2")
        await eventually(lambda: cluster.joined(*NODES))
        start = (await cluster.get("uk-2", "/txlog/status"))["start"]
        await eventually(lambda: state.read("seen.json", {}).get("uk-2", {}).get("start") == start)
        await cluster.supervisor.stop("uk-2")
        shutil.rmtree(folder)
        folder.with_name("image").rename(folder)
        await cluster.supervisor.start("uk-2")
        await eventually(lambda: _process(cluster, "uk-2")["state"] == "Fatal")
        assert json.loads(_process(cluster, "uk-2")["said"][-1])["event"] == "OldJournal"
        await eventually(lambda: cluster.joined("uk-1", "us-1"))


async def test_links_that_carry_one_way_and_masters_that_are_deaf_or_mute_are_named(state: StateFolder) -> None:
    async with masters(state) as cluster:
        for node in NODES:
            await eventually(lambda node=node: _known(cluster, node))
            assert await cluster.findings(node) == []

        await cluster.supervisor.change_links(lambda table: table.cut("uk-1", "us-1", one_way=True))
        for node in NODES:  # the two at its ends, and the third that only heard of it
            await eventually(lambda node=node: _finds(cluster, node, [("one-way", ["uk-1", "us-1"])]))
        said = await asyncio.to_thread(_txlog_peers, state)
        assert "one-way: nothing arrives from uk-1 at us-1" in said
        assert await cluster.write("uk-1", "around-the-cut") == 204
        await cluster.supervisor.change_links(lambda table: table.heal())
        for node in NODES:
            await eventually(lambda node=node: _finds(cluster, node, []))

        await cluster.supervisor.change_links(lambda table: table.cut("uk", "us-1", one_way=True))
        for node in ("uk-1", "uk-2"):
            await eventually(lambda node=node: _finds(cluster, node, [("deaf", ["us-1"])]))
        assert "deaf: us-1 is deaf" in await asyncio.to_thread(_txlog_peers, state)
        await cluster.supervisor.change_links(lambda table: table.heal())
        for node in NODES:
            await eventually(lambda node=node: _finds(cluster, node, []))

        await cluster.supervisor.change_links(lambda table: table.cut("us-1", "uk", one_way=True))
        await eventually(lambda: _finds(cluster, "us-1", [("mute", ["us-1"])]))
        for node in ("uk-1", "uk-2"):  # its own row does not get out: to them it is silent
            await eventually(lambda node=node: _finds(cluster, node, [("silent", ["us-1"])]))
        await eventually(lambda: _says(state, "mute: us-1 is mute"))
        await cluster.supervisor.change_links(lambda table: table.heal())
        await eventually(lambda: cluster.joined(*NODES))
        for node in NODES:
            await eventually(lambda node=node: _finds(cluster, node, []))


async def _finds(cluster: Running, node: str, wanted: list[tuple[str, list[str]]]) -> bool:
    return await cluster.findings(node) == wanted


async def _known(cluster: Running, node: str) -> bool:
    rows = (await cluster.get(node, "/txlog/peers"))["hears"]
    return all(row is not None and len(row) == len(NODES) - 1 for row in rows.values())


async def _says(state: StateFolder, text: str) -> bool:
    return text in await asyncio.to_thread(_txlog_peers, state)


def _txlog_peers(state: StateFolder) -> str:
    told = CliRunner().invoke(command_line, ["peers", "--state", str(state.root)])
    assert told.exit_code == 0, told.output
    return told.stdout


async def test_a_master_that_is_new_in_the_manifests_is_let_in(state: StateFolder, tmp_path: Path) -> None:
    async with masters(state) as running:
        assert await running.write("us-1", 1) == 204
    folder = tmp_path / "manifests"
    shutil.copytree(EXAMPLE, folder)
    changed = 0
    for path in folder.glob("*.yaml"):
        text = path.read_text()
        changed += text.count("masters: 2")
        path.write_text(text.replace("masters: 2", "masters: 3"))
    assert changed == 2
    everybody = ["uk-1", "uk-2", "us-1", "uk-3"]
    async with masters(state, folder, everybody) as running:
        assert await running.write("uk-3", 2) == 204
        told = await running.get("us-1", "/txlog/configuration")
        assert [m["node"] for m in told["masters"]] == everybody
    async with masters(state, folder, everybody) as running:
        again = await running.get("us-1", "/txlog/configuration")
        assert again["version"] == told["version"]
