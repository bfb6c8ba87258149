"""The supervisor's handling of processes, with small programs of our own in place of the real ones."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from txlog.config.manifest_reader import load_manifests
from txlog.local import process_identity
from txlog.local.local_errors import NotRunning
from txlog.local.log_files import rotate_log
from txlog.local.ports import choose_ports
from txlog.local.process_identity import ProcessIdentity, identity_of
from txlog.local.process_plan import ProcessPlan, make_plan, port_names
from txlog.local.process_spec import ProcessSpec
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms
from txlog.local.supervisor import Supervisor, SupervisorIntervals
from txlog.local.supervisor_api import serve_control_api
from txlog.local.supervisor_client import SupervisorClient
from txlog.model.errors import BadInput, NotFound

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-data-centres"
DEADLINE = 30.0
FAST = SupervisorIntervals(
    restart_min_s=0.05, restart_max_s=0.2, stable_after_s=60.0, watch_new_s=0.05, watch_s=0.1, rotate_logs_s=0.05
)

SLEEPER = "import signal; signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True)\nwhile 1: signal.pause()"
)
MASTER = """
import http.server, json, sys
config = json.load(open(sys.argv[2]))
start = (config.get("last_seen") or {"start": 0})["start"] + 1
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        at = {"epoch": 0, "index": 0, "hash": "00" * 16}
        status = {"node": config["node"], "birth": "00c0ffee00c0ffee", "start": start, "state": "Joined",
                  "view": {"installed": True}}
        body = json.dumps({**status, "stable": at, "log": at}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", config["port"]), Handler).serve_forever()
"""


def real_plan(state: StateFolder) -> ProcessPlan:
    manifests = load_manifests(EXAMPLE)
    reserved = state.root.parent / "reserved.json"
    ports = choose_ports(state, port_names(manifests), reserved)
    return make_plan(manifests, state, ports, StorePrograms("oxigraph", Path("/nowhere")))


def plan_of(state: StateFolder, *programs: ProcessSpec) -> ProcessPlan:
    plan = real_plan(state)
    return ProcessPlan(plan.topology, programs, (), plan.master_configs, {})


def program(name: str, text: str, stop_s: float = 5.0) -> ProcessSpec:
    return ProcessSpec(
        name=name, role="worker", data_center="uk", command=(sys.executable, "-c", text), stop_timeout_s=stop_s
    )


@asynccontextmanager
async def running(plan: ProcessPlan, state: StateFolder) -> AsyncIterator[Supervisor]:
    with state.locked():
        supervisor = Supervisor(plan, state, FAST)
        stop = asyncio.Event()
        async with serve_control_api(supervisor, stop):
            task = asyncio.create_task(supervisor.run(stop))
            try:
                yield supervisor
            finally:
                stop.set()
                await asyncio.wait_for(task, DEADLINE)


def spawn(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", *map(str, arguments)], **options)


async def eventually(true: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not true():  # noqa: ASYNC110 - processes and files raise no event
            await asyncio.sleep(0.01)


def told(supervisor: Supervisor, name: str) -> dict[str, object]:
    return next(process for process in supervisor.describe()["processes"] if process["name"] == name)


def pid_of(supervisor: Supervisor, name: str) -> int:
    pid = told(supervisor, name)["pid"]
    assert isinstance(pid, int)
    return pid


async def test_what_dies_is_started_again(state: StateFolder) -> None:
    async with running(plan_of(state, program("a", SLEEPER)), state) as supervisor:
        await eventually(lambda: told(supervisor, "a")["state"] == "Running")
        for count in (1, 2, 3):
            os.kill(pid_of(supervisor, "a"), signal.SIGKILL)
            await eventually(lambda c=count: told(supervisor, "a")["restarts"] == c and told(supervisor, "a")["pid"])
        assert told(supervisor, "a")["exitCode"] == -9


async def test_what_keeps_dying_is_started_with_growing_pauses(state: StateFolder) -> None:
    async with running(plan_of(state, program("a", "raise SystemExit(1)")), state) as supervisor:
        await eventually(lambda: told(supervisor, "a")["state"] == "Waiting")
        await eventually(lambda: told(supervisor, "a")["restarts"] == 3)
        assert told(supervisor, "a")["exitCode"] == 1


async def test_a_program_that_is_not_there_is_shown_and_tried_again(state: StateFolder) -> None:
    missing = ProcessSpec(name="a", role="worker", data_center="uk", command=("/no/such/program",))
    async with running(plan_of(state, missing), state) as supervisor:
        await eventually(lambda: told(supervisor, "a")["restarts"] == 2)
        assert told(supervisor, "a")["exitCode"] == 127


async def test_a_fatal_end_is_shown_and_not_repeated_until_somebody_starts_it(state: StateFolder) -> None:
    fatal = program("a", "print('IdentityLost: another journal'); raise SystemExit(70)")
    async with running(plan_of(state, fatal), state) as supervisor:
        await eventually(lambda: told(supervisor, "a")["state"] == "Fatal")
        assert told(supervisor, "a")["said"] == ["IdentityLost: another journal"]
        assert told(supervisor, "a")["restarts"] == 0
        log = state.log("a")
        await supervisor.start("a")
        await eventually(lambda: log.read_text().count("IdentityLost") == 2)
        await eventually(lambda: told(supervisor, "a")["state"] == "Fatal")


async def test_what_was_stopped_stays_down_and_what_ignores_it_is_killed(state: StateFolder) -> None:
    async with running(plan_of(state, program("a", STUBBORN, stop_s=0.2)), state) as supervisor:
        await eventually(lambda: state.log("a").exists() and "here" in state.log("a").read_text())
        pid = pid_of(supervisor, "a")
        await supervisor.stop("a")
        assert told(supervisor, "a")["state"] == "Stopped"
        assert identity_of(pid) is None
        await supervisor.start("a")
        await eventually(lambda: told(supervisor, "a")["state"] == "Running")


async def test_what_a_dead_process_leaves_in_its_group_is_killed(state: StateFolder) -> None:
    text = f"""
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
    print(child.pid, flush=True)
    time.sleep(1000)
    """
    async with running(plan_of(state, program("a", textwrap.dedent(text))), state) as supervisor:
        await eventually(lambda: state.log("a").exists() and state.log("a").read_text().endswith("\n"))
        grandchild = int(state.log("a").read_text())
        os.kill(pid_of(supervisor, "a"), signal.SIGKILL)
        await eventually(lambda: identity_of(grandchild) is None)


async def test_nothing_is_left_when_it_ends(state: StateFolder) -> None:
    async with running(plan_of(state, program("a", SLEEPER), program("b", SLEEPER)), state) as supervisor:
        await eventually(lambda: all(p["pid"] for p in supervisor.describe()["processes"]))
        pids = [pid_of(supervisor, name) for name in "ab"]
        assert set(state.read("processes.json")) == {"a", "b"}
    assert [identity_of(pid) for pid in pids] == [None, None]
    assert state.read("processes.json") == {}
    assert not (state.root / "control.json").exists()


async def test_a_master_is_told_its_last_birth_and_start(state: StateFolder, tmp_path: Path) -> None:
    plan = real_plan(state)
    (tmp_path / "master.py").write_text(MASTER)
    config = state.master("uk-1") / "config.json"
    port = plan.master_configs["uk-1"].port
    master = ProcessSpec(
        name="uk-1",
        role="master",
        data_center="uk",
        command=(sys.executable, str(tmp_path / "master.py"), "--config", str(config)),
        url=f"http://127.0.0.1:{port}",
    )
    plan = ProcessPlan(plan.topology, (master,), (), plan.master_configs, {})

    def seen() -> object:
        return state.read("seen.json", {}).get("uk-1")

    birth = 0x00C0FFEE00C0FFEE
    async with running(plan, state) as supervisor:
        await eventually(lambda: seen() == {"birth": birth, "start": 1})
        assert "last_seen" not in json.loads(config.read_text())
        os.kill(pid_of(supervisor, "uk-1"), signal.SIGKILL)
        await eventually(lambda: seen() == {"birth": birth, "start": 2})
        assert json.loads(config.read_text())["last_seen"] == {"birth": birth, "start": 1}
    async with running(plan, state):  # also another supervisor knows
        await eventually(lambda: seen() == {"birth": birth, "start": 3})


def test_logs_are_bounded(state: StateFolder) -> None:
    log = state.log("a")
    with open(log, "ab", buffering=0) as writer:
        writer.write(b"x" * 100)
        rotate_log(log, 200)
        assert log.stat().st_size == 100
        writer.write(b"y" * 101)
        rotate_log(log, 200)
        writer.write(b"z")
    assert log.read_bytes() == b"z"
    assert log.with_name("a.log.1").read_bytes() == b"x" * 100 + b"y" * 101


async def test_links_and_processes_through_the_control_api(state: StateFolder) -> None:
    plan = real_plan(state)
    links = [p for p in plan.programs if p.role == "links"]
    control = SupervisorClient(state)
    async with running(
        ProcessPlan(plan.topology, tuple(links), plan.links, plan.master_configs, {}), state
    ) as supervisor:
        await eventually(lambda: told(supervisor, "links")["state"] == "Running")
        assert await asyncio.to_thread(control.delay, "uk", "us", 50) == 4
        assert await asyncio.to_thread(control.cut, "uk-1", "us-1", True) == 1
        rows = {(row["from"], row["to"]): row for row in await asyncio.to_thread(control.links)}
        assert len(rows) == 6
        assert rows["uk-1", "us-1"] == {"from": "uk-1", "to": "us-1", "delayMs": 50, "cut": True, "connections": 0}
        assert rows["us-1", "uk-1"]["cut"] is False
        assert rows["uk-1", "uk-2"]["delayMs"] == 0

        await asyncio.to_thread(control.kill, "links")  # a new proxy process knows the same faults
        await eventually(lambda: told(supervisor, "links")["restarts"] == 1 and told(supervisor, "links")["pid"])
        port = next(link.listen_port for link in plan.links if (link.source, link.target) == ("uk-1", "us-1"))
        await eventually(lambda: connects(port))
        assert await asyncio.to_thread(control.heal) == 6
        rows = {(row["from"], row["to"]): row for row in await asyncio.to_thread(control.links)}
        assert not any(row["cut"] for row in rows.values())
        assert rows["uk-1", "us-1"]["delayMs"] == 50
        await asyncio.to_thread(lambda: control.heal("us", delays=True))
        assert (await asyncio.to_thread(control.status))["faults"] == []

        with pytest.raises(BadInput, match="no data centre or master is called de; there are uk, us, uk-1, uk-2, us-1"):
            await asyncio.to_thread(control.cut, "uk", "de")
        with pytest.raises(BadInput, match="no link between uk-1 and uk-1"):
            await asyncio.to_thread(control.cut, "uk-1", "uk-1")
        with pytest.raises(BadInput, match="0 to 60000 ms"):
            await asyncio.to_thread(control.delay, "uk", "us", -1)
        with pytest.raises(NotFound, match="no process is called x; there are links"):
            await asyncio.to_thread(control.stop, "x")
    with pytest.raises(NotRunning, match="txlog up"):
        control.status()


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from test_supervisor import FAST, Supervisor, plan_of, program, SLEEPER
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms
state = StateFolder(Path(sys.argv[1]))
with state.locked():
    asyncio.run(Supervisor(plan_of(state, program("a", SLEEPER)), state, FAST).run(asyncio.Event()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part in it is Linux's")
async def test_children_die_with_a_supervisor_that_is_killed(state: StateFolder) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    process = spawn(SUPERVISOR, state.root, env=environment)
    try:
        await eventually(lambda: state.read("processes.json", {}).get("a"))
        mark = ProcessIdentity.model_validate(state.read("processes.json")["a"])
        assert state.is_locked
        assert process_identity.is_alive(mark)
    finally:
        process.kill()
        process.wait()
    await eventually(lambda: not process_identity.is_alive(mark))
    assert not state.is_locked


async def test_what_an_earlier_supervisor_left_is_ended_and_no_other_process(state: StateFolder) -> None:
    left = spawn(SLEEPER, start_new_session=True)
    other = spawn(SLEEPER, start_new_session=True)
    try:
        mark = identity_of(left.pid)
        assert mark is not None
        used_again = ProcessIdentity(pid=other.pid, began="before")
        gone = ProcessIdentity(pid=2**22 - 1, began="never")
        marks = {"left": mark, "reused": used_again, "gone": gone}
        state.write("processes.json", {name: each.model_dump() for name, each in marks.items()})
        async with running(plan_of(state, program("a", SLEEPER)), state) as supervisor:
            await eventually(lambda: told(supervisor, "a")["state"] == "Running")
            assert left.wait(DEADLINE) == -signal.SIGTERM
            assert other.poll() is None
    finally:
        for each in (left, other):
            each.kill()
            each.wait()


def test_a_mark_is_of_one_process_only() -> None:
    mine = identity_of(os.getpid())
    assert mine is not None
    assert process_identity.is_alive(mine)
    assert not process_identity.is_alive(ProcessIdentity(pid=mine.pid, began="another time"))
    began = time.monotonic()
    assert process_identity.terminate_all([ProcessIdentity(pid=mine.pid, began="another time")], 60.0) == []
    assert time.monotonic() - began < 30
