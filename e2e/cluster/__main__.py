"""``python -m e2e.cluster up|down|...``: the data centres ``uk`` and ``us`` by hand (``make cluster``)."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from e2e.cluster import prerequisites
from e2e.cluster.data_center import ClusterLevel, DataCenter
from e2e.cluster.image_archives import build_pause_image
from e2e.cluster.layout import ClusterSite, ClusterUnavailable, run_folder
from e2e.cluster.node import ClusterNode
from e2e.cluster.programs import build_programs

NUMBERS: Final = {"uk": 1, "us": 2}
LEVELS: Final = {"api": ClusterLevel.API, "controllers": ClusterLevel.CONTROLLERS, "nodes": ClusterLevel.NODES}


def data_centers(programs: Path, images: Sequence[Path] = ()) -> dict[str, DataCenter]:
    """Both, as they are found in the run's folder or about to be made."""
    archives = [build_pause_image(programs), *images]
    return {
        name: DataCenter(
            ClusterSite(name, number),
            programs,
            images=archives,
            peers={other: at for other, at in NUMBERS.items() if other != name},
        )
        for name, number in NUMBERS.items()
    }


def up(centers: Sequence[DataCenter], level: ClusterLevel) -> None:
    with ThreadPoolExecutor(len(centers)) as pool:
        list(pool.map(lambda center: center.up(level), centers))


def _merged(centers: Sequence[DataCenter]) -> Path:
    """One kubeconfig with a context for each."""
    each = [json.loads(center.site.kubeconfig.read_text()) for center in centers]
    merged = {**each[0], **{what: [one[what][0] for one in each] for what in ("clusters", "users", "contexts")}}
    file = run_folder() / "kubeconfig"
    file.write_text(json.dumps(merged, indent=1))
    return file


def _print_next_steps(centers: Sequence[DataCenter], programs: Path, seconds: float) -> None:
    names = " and ".join(center.site.name for center in centers)
    print(
        f"""{names}: ready after {seconds:.1f} s. Next:
  export KUBECONFIG={_merged(centers)} PATH={programs}:$PATH
  kubectl --context uk get nodes,pods -A
  python -m e2e.cluster node uk 2             # a second node
  python -m e2e.cluster part uk us            # they lose each other; `heal uk us`
  python -m e2e.cluster wan uk us 40          # 40 ms each way; `wan uk us 0`
  python -m e2e.cluster kill us               # a power loss; `up us` brings it back with its disks
  make cluster-down"""
    )


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("needs", help="whether this machine can run them; installs Debian's packages where it may")
    started = commands.add_parser("up", help="start them, or one")
    started.add_argument("names", nargs="*", metavar="NAME")
    started.add_argument("--level", choices=LEVELS, default="nodes")
    started.add_argument("--image", action="append", type=Path, default=[], help="an archive that every node has")
    node = commands.add_parser("node", help="start one more node")
    node.add_argument("name")
    node.add_argument("k", type=int)
    image = commands.add_parser("image", help="give an image's archive to all nodes")
    image.add_argument("archive", type=Path)
    shell = commands.add_parser("sh", help="run a command in a node: uk or uk/2")
    shell.add_argument("name")
    shell.add_argument("words", nargs=argparse.REMAINDER)
    killed = commands.add_parser("kill", help="a power loss of a data centre (uk) or of a node (uk/2)")
    killed.add_argument("name")
    for command, what in (("part", "they lose each other"), ("heal", "they have each other again")):
        link = commands.add_parser(command, help=what)
        link.add_argument("one")
        link.add_argument("other")
        link.add_argument("--one-way", action="store_true", help="only `one` no longer hears `other`")
    wan = commands.add_parser("wan", help="distance: milliseconds each way, jitter, loss in percent; 0 takes it away")
    for name, kind in (("one", str), ("other", str), ("delay", float)):
        wan.add_argument(name, type=kind)
    wan.add_argument("--jitter", type=float, default=0.0)
    wan.add_argument("--loss", type=float, default=0.0)
    commands.add_parser("down", help="end them; nothing is left")
    return parser


def _node(told: str) -> ClusterNode:
    name, _, k = told.partition("/")
    if name not in NUMBERS:
        raise ClusterUnavailable(f"no data centre is called {name}; there are {', '.join(NUMBERS)}")
    return ClusterNode(ClusterSite(name, NUMBERS[name]), int(k or 1))


def run_command(told: argparse.Namespace) -> int:
    if told.command == "needs":
        prerequisites.check_prerequisites()
        return 0
    if told.command == "sh":
        return subprocess.run(_node(told.name).command_inside(*told.words), check=False).returncode
    if told.command in ("up", "node"):
        prerequisites.check_prerequisites()
    programs = build_programs()
    centers = data_centers(programs, getattr(told, "image", []))
    if told.command == "up":
        began = time.monotonic()
        chosen = [centers[_node(name).site.name] for name in told.names] or list(centers.values())
        up(chosen, LEVELS[told.level])
        _print_next_steps(chosen, programs, time.monotonic() - began)
    elif told.command == "node":
        centers[_node(told.name).site.name].add_node(told.k)
    elif told.command == "image":
        for center in centers.values():
            center.add_image(told.archive.resolve())
    elif told.command == "kill":
        killed = [_node(told.name)] if "/" in told.name else centers[_node(told.name).site.name].nodes
        for node in killed:
            node.power_off()
    elif told.command in ("part", "heal"):
        one, other = centers[_node(told.one).site.name], centers[_node(told.other).site.name]
        one.block_from(other.site, told.command == "part")
        if not told.one_way:
            other.block_from(one.site, told.command == "part")
    elif told.command == "wan":
        one, other = centers[_node(told.one).site.name], centers[_node(told.other).site.name]
        for here, there in ((one, other), (other, one)):
            here.delay_to(there.site, told.delay, told.jitter, told.loss)
    else:
        for center in centers.values():
            center.down()
    return 0


def main() -> int:
    try:
        return run_command(_arguments().parse_args())
    except ClusterUnavailable as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
