"""Links between measured masters: the proxies of `txlog up`, with a delay for each direction."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.lib.cluster.masters import BenchMasters, stop_processes, three_masters, wait_for_listener
from e2e.lib.ports import free_ports
from e2e.lib.report import CannotMeasure
from txlog.local.link_proxy import LinkConfig

PROXY_TIMEOUT_S = 20.0


class LinkControl:
    """The proxies' control; a direction that is not named by :meth:`set_faults` is as fast as this machine."""

    def __init__(self, control: socket.socket, nodes: Sequence[tuple[str, str]]) -> None:
        control.settimeout(PROXY_TIMEOUT_S)
        self._control = control
        self._lines = control.makefile("r")
        self._nodes = nodes

    def close(self) -> None:
        """The proxies end with their control."""
        self._lines.close()
        self._control.close()

    def set_faults(self, rows: Sequence[dict[str, Any]]) -> None:
        """``[{"from","to","delayMs","cut"}]``: the whole table."""
        self._control.sendall(json.dumps({"id": 1, "table": list(rows)}).encode() + b"\n")
        if not self._lines.readline():
            raise CannotMeasure("the links' process is gone")

    def delay_between_sites(self, one_way_ms: float) -> None:
        """So long from each master to each one of another data centre; inside one nothing is slow."""
        pairs = [(a, b) for a, at in self._nodes for b, there in self._nodes if at != there]
        self.set_faults([{"from": a, "to": b, "delayMs": one_way_ms} for a, b in pairs])

    def delay_node(self, node: str, one_way_ms: float) -> None:
        """All links of one master, both ways."""
        others = [other for other, _ in self._nodes if other != node]
        pairs = [pair for other in others for pair in ((node, other), (other, node))]
        self.set_faults([{"from": a, "to": b, "delayMs": one_way_ms} for a, b in pairs])


@contextmanager
def linked_masters(
    folder: Path, nodes: Sequence[tuple[str, str]], *, keep: bool = False, **settings: Any
) -> Iterator[tuple[BenchMasters, LinkControl]]:
    """Masters that reach each other through the proxies of `txlog up` only, and these."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [node for node, _ in nodes]
    pairs = [(a, b) for a in names for b in names if a != b]
    ports = free_ports(len(names) + len(pairs))
    own = dict(zip(names, ports, strict=False))
    between = dict(zip(pairs, ports[len(names) :], strict=True))
    configs = [LinkConfig(source=a, target=b, listen_port=port, target_port=own[b]) for (a, b), port in between.items()]
    file = folder / "links.json"
    file.write_text(json.dumps([config.model_dump() for config in configs]))
    mine, theirs = socket.socketpair()
    with open(folder / "links.log", "wb") as log:
        command = [sys.executable, "-m", "txlog.local.link_proxy", "--config", str(file)]
        process = subprocess.Popen(
            [*command, "--control-fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    theirs.close()
    links = LinkControl(mine, nodes)
    try:
        wait_for_listener(configs[-1].listen_port)
        links.set_faults([])
        with three_masters(
            folder / "masters",
            keep=keep,
            nodes=nodes,
            ports=own,
            routes={pair: f"http://127.0.0.1:{port}" for pair, port in between.items()},
            **settings,
        ) as masters:
            yield masters, links
    finally:
        links.close()
        stop_processes([process])
