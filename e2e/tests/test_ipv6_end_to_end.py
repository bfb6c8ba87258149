"""Two masters that know each other by addresses of IPv6, and clients that do."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from e2e.lib.ports import free_ports
from e2e.lib.wait import wait_until
from txlog.client import MasterClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
DEADLINE_S = 60.0


def has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6) as tried:
        tried.bind(("::1", 0))
        return True
    return False


@pytest.fixture
def masters(tmp_path: Path) -> Iterator[dict[str, str]]:
    """URLs of two masters by node id."""
    urls = {node: f"http://[::1]:{port}" for node, port in zip(("uk-1", "us-1"), free_ports(2), strict=True)}
    with ExitStack() as ends:
        for node, url in urls.items():
            folder = tmp_path / node
            folder.mkdir()
            (folder / "peer-token").write_text("a-shared-secret\n")
            ((other, address),) = [each for each in urls.items() if each[0] != node]
            lines = [f"node-id={node}", f"master-url={url}/repositories/demo", "split-recovery=none"]
            lines += [f"peer.1.id={other}", f"peer.1.url={address}/repositories/demo"]
            (folder / "cluster.properties").write_text("\n".join(lines))
            log = ends.enter_context((folder / "log").open("wb"))
            command = [sys.executable, "-m", "txlog.server", "--properties", "cluster.properties"]
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            ends.callback(process.wait, DEADLINE_S)
            ends.callback(process.kill)
        yield urls


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_masters_and_clients_meet_at_addresses_of_ipv6(masters: dict[str, str]) -> None:
    def joined() -> bool:
        found = []
        for url in masters.values():
            with MasterClient(url, 10.0) as master:
                status = master.status()
                found.append(status.state == "Joined" and sorted(status.present) == sorted(masters))
        return all(found)

    wait_until("both masters are in one view", DEADLINE_S, joined)
    request = urllib.request.Request(
        f"{masters['us-1']}/repositories/demo/statements",
        data=b"INSERT DATA { <urn:s> <urn:p> <urn:o> }",
        headers={"Content-Type": "application/sparql-update", "TxLog-Durability": "synced"},
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        assert answer.status == 204
