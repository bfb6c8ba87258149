"""``txlog peers``, ``peer`` and ``configuration``: the masters, and the configuration that the log holds of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.cli.cli_cluster import CliCluster, find_cluster
from txlog.cli.options import ClusterOptions, YesOption, confirm, register
from txlog.cli.tables import format_cell, out, print_line, show_json, show_table
from txlog.client import MasterClient
from txlog.config.graph_rules_file import read_graph_rules
from txlog.model.errors import BadInput, TxLogError, Unavailable
from txlog.runtime.connectivity_matrix import diagnose

POLL_INTERVAL_S = 0.2
app = typer.Typer()
peer_app = typer.Typer(
    no_args_is_help=True, help="Add, remove and mute masters, and change their votes, while the cluster runs."
)

NodeArgument = Annotated[str, typer.Argument(help="node id of the master, such as uk-3")]
WaitOption = Annotated[float, typer.Option(help="seconds until the change must be in effect")]


@register(app)
def peers(cluster: ClusterOptions) -> None:
    """Show the peers of the first master that answers, and which master receives messages from which."""
    show_peers(find_cluster(cluster), cluster.json)


def show_peers(cluster: CliCluster, json: bool) -> None:
    """Print what ``txlog peers`` shows of a cluster."""
    found = cluster.ask_first(MasterClient.peers)
    rows = _connectivity(cluster)
    wrong = diagnose(rows)
    if json:
        hears = {node: sorted(row) if row is not None else None for node, row in rows.items()}
        show_json({"peers": found, "hears": hears, "findings": [finding.to_dict() for finding in wrong]})
        return
    columns = [name for name in _PEER_COLUMNS if any(name in row for row in found)]
    heads = [_PEER_COLUMNS[name] for name in columns]
    show_table(heads, [[format_cell(row.get(name)) for name in columns] for row in found], "no peers")
    if rows:
        out.print()
        show_table(
            ["HEARS", *rows],
            [[node, *(_connectivity_cell(node, other, row) for other in rows)] for node, row in rows.items()],
        )
    for finding in wrong:
        out.print(f"{finding.kind}: {finding.text}", style="red", highlight=False)


_PEER_COLUMNS = {
    "node": "PEER",
    "dataCenter": "DATA CENTRE",
    "state": "STATE",
    "inView": "IN VIEW",
    "why": "OUT BECAUSE",
    "connected": "CONNECTED",
    "heard": "HEARD",
    "bothWays": "BOTH WAYS",
    "present": "PRESENT",
    "logIndex": "LOG",
    "start": "START",
    "faults": "FAULTS",
    "refused": "REFUSED",
    "lastFault": "LAST FAULT",
    "lastError": "LAST ERROR",
}


def _connectivity_cell(node: str, other: str, row: frozenset[str] | None) -> str:
    if node == other:
        return "."
    return "?" if row is None else "yes" if other in row else "NO"


def _connectivity(cluster: CliCluster) -> dict[str, frozenset[str] | None]:
    """By master, the masters from which it receives messages: as it reports itself where it answers, else as another
    master knows it. Only the first source knows this of a master that sends nothing to others."""
    rows: dict[str, frozenset[str] | None] = {}
    for answer in cluster.ask_all(lambda client: (client.status().node, client.connectivity())).values():
        if isinstance(answer, TxLogError):
            continue
        own, known = answer
        for node, row in known.items():
            if row is not None and (node == own or rows.get(node) is None):
                rows[node] = frozenset(row)
            else:
                rows.setdefault(node, None)
    return rows


@register(peer_app)
def add(
    node: NodeArgument,
    url: Annotated[list[str], typer.Argument(help="where the other masters reach it")],
    data_center: Annotated[str | None, typer.Option(help="default: the node id without its number")] = None,
    weight: Annotated[int, typer.Option(help="its vote weight")] = 1,
    *,
    cluster: ClusterOptions,
) -> None:
    """Add a master to the configuration. It joins when its process runs, reaches the others and has caught up."""
    where = data_center or node.rpartition("-")[0]
    if not where:
        raise BadInput(f"{node}: expected --data-center, since its name does not say it")
    found = find_cluster(cluster).ask_first(lambda client: client.add_peer(node, where, url, weight))
    done = f"{node} is a master of the cluster; it joins as soon as it has caught up"
    _show_configuration(found, done, cluster.json)


@register(peer_app)
def remove(
    node: NodeArgument,
    lost: Annotated[bool, typer.Option("--lost", help="the master is lost, with what only it holds")] = False,
    yes: YesOption = False,
    wait: WaitOption = 60.0,
    *,
    cluster: ClusterOptions,
) -> None:
    """Remove a master permanently: it accepts no more writes, hands over what it holds, and ends.

    Remove it from the manifests afterwards. Its journal can then be deleted."""
    confirm(yes or not lost, f"What only {node} had will be missing, now and for ever. Sure?")
    masters = find_cluster(cluster)  # before the request: the removed master ends meanwhile
    found = masters.ask_first(lambda client: client.remove_peer(node, lost=lost))
    until = time.monotonic() + wait
    while node not in found["removed"]:
        if time.monotonic() > until:
            raise Unavailable("Draining", f"{node} has not handed over all that it has after {wait:g} s; it continues")
        time.sleep(POLL_INTERVAL_S)
        found = masters.ask_first(MasterClient.configuration)
    _show_configuration(found, f"{node} is taken out", cluster.json)


@register(peer_app)
def mute(node: NodeArgument, *, cluster: ClusterOptions) -> None:
    """Make a master refuse writes of clients. It takes part in the order and supplies its workers as before."""
    _update(cluster, lambda client: client.update_peer(node, muted=True), f"{node} is muted")


@register(peer_app)
def unmute(node: NodeArgument, *, cluster: ClusterOptions) -> None:
    """Make a muted master accept writes of clients again."""
    _update(cluster, lambda client: client.update_peer(node, muted=False), f"{node} accepts writes again")


@register(peer_app)
def weight(
    node: NodeArgument,
    votes: Annotated[int, typer.Argument(help="the new vote weight, 0 to 1000")],
    *,
    cluster: ClusterOptions,
) -> None:
    """Change the vote weight of a master."""
    _update(cluster, lambda client: client.update_peer(node, weight=votes), f"{node} has {votes} votes")


@register(app)
def configuration(
    split_mode: Annotated[str | None, typer.Option(help="new value: Continue or Majority")] = None,
    key_retention: Annotated[str | None, typer.Option(help="new value, such as 24h")] = None,
    graphs: Annotated[
        Path | None,
        typer.Option(help="file with the new rules: YAML or JSON, a list as in spec.durability.graphs", dir_okay=False),
    ] = None,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show the configuration that is in the log, or change it."""
    rules = None if graphs is None else read_graph_rules(graphs)
    confirm(yes or rules != [], "All rules go: no transaction of any graph will wait for a quorum. Sure?")
    given = {"splitMode": split_mode, "keyRetention": key_retention, "graphs": rules}
    options = {name: value for name, value in given.items() if value is not None}  # an older master knows no graphs
    if not options:
        _update(cluster, MasterClient.configuration, "")
    else:
        _update(cluster, lambda client: client.configure(options), "")


def _update(cluster: ClusterOptions, change: Callable[[MasterClient], dict[str, Any]], done: str) -> None:
    _show_configuration(find_cluster(cluster).ask_first(change), done, cluster.json)


def _show_configuration(found: dict[str, Any], done: str, json: bool) -> None:
    """Print a configuration. ``done``: the text for a change that is in the log."""
    if json:
        show_json(found)
        return
    if found["pending"]:
        print_line(f"{found['pending']} waits for its place in the log; a member may be silent")
    elif done:
        print_line(done)
    rows = [
        (m["node"], m["dataCenter"], m["weight"], m["role"], "yes" if m["inView"] else "no", " ".join(m["urls"]))
        for m in found["masters"]
    ]
    show_table(["MASTER", "DATA CENTRE", "WEIGHT", "ROLE", "IN VIEW", "URL"], rows)
    rules = [(rule["match"], rule["quorum"], rule["timeout"]) for rule in found.get("graphs", [])]
    if rules:
        show_table(["GRAPHS", "QUORUM", "TIMEOUT"], rules)
    print_line(
        f"splitMode {found['splitMode']}, keyRetention {found['keyRetention']}, version {found['version']}"
        + (f", removed: {', '.join(found['removed'])}" if found["removed"] else "")
    )
