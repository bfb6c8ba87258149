"""Masters that know nothing but a ``cluster.properties`` file each, as an operator starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.lib.cluster.stores import empty_oxigraph
from e2e.lib.ports import free_ports
from e2e.lib.wait import wait_until
from txlog.client import MasterClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REPOSITORY = "demo"
DEADLINE_S = 60.0
BEAN = "ReplicationCluster:name=ClusterInfo"


class StandaloneMaster:
    """One master in a folder of its own, with its file."""

    def __init__(self, root: Path, node: str, port: int) -> None:
        self.node, self.folder, self.url = node, root / node, f"http://127.0.0.1:{port}"
        self.file = self.folder / "cluster.properties"
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        (self.folder / "peer-token").write_text("a-shared-secret\n")

    @property
    def repository(self) -> str:
        return f"{self.url}/repositories/{REPOSITORY}"

    def write_file(self, others: list[StandaloneMaster], more: str = "") -> None:
        lines = [f"# the master {self.node}", f"node-id={self.node}", f"master-url={self.repository}"]
        for at, other in enumerate(others, start=1):
            lines += [f"peer.{at}.id={other.node}", f"peer.{at}.url={other.repository}"]
        self.file.write_text("\n".join([*lines, "split-recovery=simple", "durability=synced", more]))

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            command = [sys.executable, "-m", "txlog.server", "--properties", "cluster.properties"]
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        os.kill(process.pid, how)
        return process.wait(DEADLINE_S)

    def query_status(self) -> MasterClient:
        return MasterClient(self.url, 10.0)

    def jolokia(self, **asked: Any) -> Any:
        told = curl(f"{self.url}/jolokia", "--data", json.dumps({"mbean": BEAN, **asked}))
        answer = json.loads(told)
        assert answer["status"] == 200, answer
        return answer["value"]


def curl(url: str, *more: str) -> str:
    done = subprocess.run(["curl", "-sS", *more, url], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def until(what: Callable[[], object]) -> None:
    wait_until("it is so", DEADLINE_S, what)


def members_of(master: StandaloneMaster) -> list[str]:
    with master.query_status() as client:
        status = client.status()
        return [member["node"] for member in status.members] if status.state == "Joined" else []


@contextmanager
def masters_of(root: Path, nodes: list[str]) -> Iterator[list[StandaloneMaster]]:
    masters = [StandaloneMaster(root, node, port) for node, port in zip(nodes, free_ports(len(nodes)), strict=True)]
    with ExitStack() as stack:
        for master in masters:
            stack.callback(master.end, signal.SIGKILL)
        yield masters


def test_three_masters_run_from_their_files_alone(tmp_path: Path) -> None:
    with masters_of(tmp_path, ["uk-1", "uk-2", "us-1", "us-2"]) as masters:
        three, fourth = masters[:3], masters[3]
        for master in three:
            master.write_file([other for other in reversed(three) if other is not master], "auto-replication=true\n")
            master.start()
        until(lambda: all(members_of(master) == ["uk-1", "uk-2", "us-1"] for master in three))
        first, second, us = three
        assert "PropertiesPassedOver" in (first.folder / "log").read_text()
        update = "INSERT DATA { <urn:s> <urn:p> 1 }"
        head = curl(f"{us.repository}/statements", "-i", "--data-urlencode", f"update={update}")
        assert "204" in head.splitlines()[0], head
        with us.query_status() as client:
            assert client.status().stable.index == 1, "ordered by all three: it was answered as synced"

        # Settings go into the file, between what people wrote there, and outlive the process.
        second.jolokia(type="write", attribute="MaxPeerLag", value="45s")
        text = second.file.read_text()
        assert text.startswith("# the master uk-2\nnode-id=uk-2\n")
        assert text.endswith("auto-replication=true\nmax-peer-lag=45s\n")
        with second.query_status() as client:
            (lag,) = [one for one in client.settings()["settings"] if one["key"] == "maxPeerLag"]
        assert (lag["value"], lag["source"], lag["manifest"]) == ("45s", "properties", "1m")
        assert second.end() == 0
        second.start()
        until(lambda: "uk-2" in members_of(second))
        assert second.jolokia(type="read", attribute="MaxPeerLag") == "45s"
        assert second.jolokia(type="read", attribute="SplitRecovery") == "Simple"

        # A master more: named at one of them, it stands in every file, and comes with a file of its own.
        first.jolokia(type="exec", operation="addSyncPeer", arguments=["us-2", fourth.repository])
        lines = f"peer.3.id=us-2\npeer.3.url={fourth.repository}\n"
        until(lambda: all(master.file.read_text().endswith(lines) for master in three))
        fourth.write_file(three)
        fourth.start()
        until(lambda: all(members_of(m) == ["uk-1", "uk-2", "us-1", "us-2"] for m in masters))
        with fourth.query_status() as client:
            assert client.status().stable.index >= 2, "it has fetched the log"
        first.jolokia(type="exec", operation="removeSyncPeer", arguments=["us-2"])
        until(lambda: all(fourth.node not in master.file.read_text() for master in three))
        assert fourth.process is not None
        assert fourth.process.wait(DEADLINE_S) == 70
        fourth.process = None
        assert "Removed" in (fourth.folder / "log").read_text()


def test_a_crash_and_a_start_from_the_file_lose_nothing(tmp_path: Path) -> None:
    with masters_of(tmp_path, ["uk-1", "us-1"]) as masters:
        for master in masters:
            master.write_file([other for other in masters if other is not master])
            master.start()
        until(lambda: all(members_of(master) == ["uk-1", "us-1"] for master in masters))
        for at in range(3):
            curl(
                f"{masters[at % 2].repository}/statements",
                "--data-urlencode",
                f"update=INSERT DATA {{ <urn:{at}> <urn:p> 1 }}",
            )
        for master in masters:
            master.end(signal.SIGKILL)
        for master in masters:
            master.start()
        until(lambda: all(members_of(master) == ["uk-1", "us-1"] for master in masters))
        with masters[0].query_status() as client:
            assert client.status().stable.index == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max-per-lag=1s", "cluster.properties:4: max-per-lag: no such property; expected max-peer-lag?"),
        ("peer-token-file=nowhere", "nowhere: No such file or directory"),
    ],
)
def test_a_mistake_ends_the_start_by_name(tmp_path: Path, line: str, said: str) -> None:
    with masters_of(tmp_path, ["uk-1"]) as (master,):
        master.file.write_text(f"#\nnode-id=uk-1\nmaster-url={master.repository}\n{line}\n")
        command = [sys.executable, "-m", "txlog.server", "--properties", str(master.file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 64
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_txlog_up_runs_one_file_with_its_pipeline_and_duties(tmp_path: Path) -> None:
    """The whole way of a write: one master, somebody else's store, the Spark application beside it."""
    state = tmp_path / "state"
    txlog = [sys.executable, "-m", "txlog.cli.main"]
    with masters_of(tmp_path, ["uk-1"]) as (master,), ExitStack() as stack:
        store, _ = stack.enter_context(empty_oxigraph(tmp_path / "store"))
        master.write_file([], f"worker.1.url={store}\n")
        master.file.write_text(master.file.read_text().replace("durability=synced", "durability=applied"))
        up = [*txlog, "up", "-f", str(master.file), "--state", str(state), "--detach", "--json"]
        stack.callback(subprocess.run, [*txlog, "down", "--state", str(state)], timeout=120, check=False)
        done = subprocess.run(up, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        assert [each["name"] for each in json.loads(done.stdout)["processes"]] == ["uk-1", "uk-pipeline"]
        update = "INSERT DATA { <urn:s> <urn:p> 1 }"
        head = curl(f"{master.repository}/statements", "-i", "--data-urlencode", f"update={update}")
        assert "TxLog-Durability: applied" in head, head
        assert curl(f"{master.repository}/size") == "1"
        assert (master.folder / "journal").is_dir(), "beside its file, not in the state folder"
        assert master.jolokia(type="read", attribute="NodeStatus") == [f"[ON] {store}"]
