"""``txlog load`` and ``txlog verify``: much data in, and whether it is the same everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from txlog.cli import loading
from txlog.cli.loading import Loader
from txlog.cli.output import (
    DEFAULT_STATE,
    Cluster,
    JsonOption,
    MasterOption,
    StateOption,
    coloured,
    err,
    find_cluster,
    out,
    show_json,
    show_table,
)
from txlog.cli.reading import open_source
from txlog.cli.verifying import Held, Reaching, verify
from txlog.model.durability import Durability
from txlog.workers.http_transport import HttpTransport


def add_to(app: typer.Typer) -> None:
    app.command()(load)
    app.command("verify")(run_verify)


def load(
    sources: Annotated[list[str], typer.Argument(metavar="FILE|URL...", help="nt, nq, ttl, trig, n3, rdf; also .gz")],
    master: MasterOption = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="quads in one transaction")] = 1000,
    durability: Annotated[Durability, typer.Option(help="what each transaction waits for")] = Durability.SYNCED,
    graph: Annotated[str | None, typer.Option(help="IRI of the graph for triples that name none")] = None,
    form: Annotated[str | None, typer.Option("--format", help="where the name says nothing: nt, nq, ttl, ...")] = None,
    patience: Annotated[float, typer.Option(help="seconds without any progress before it gives up")] = 60.0,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Write RDF files as transactions, over all masters at once. The same command goes on after an interruption."""
    masters = find_cluster(state, master).masters
    loader = Loader(masters, quads=batch, durability=durability, graph=graph, patience_s=patience)
    done = []
    for name in sources:
        began = time.monotonic()
        with open_source(name, form) as source, _bar(json) as bar:
            task = bar.add_task(name, total=source.size, quads="")

            found = loader.load(source, _teller(bar, task))
        seconds = time.monotonic() - began
        done.append(
            {
                "source": name,
                "quads": found.quads,
                "transactions": found.transactions,
                "sentAgain": found.repeats,
                "seconds": round(seconds, 3),
                "byMaster": found.by_master,
            }
        )
        if not json:
            rate = f"{found.quads / seconds:,.0f}/s" if seconds else ""
            out.print(f"{name}: {found.quads:,} quads in {found.transactions:,} transactions, {seconds:.1f} s, {rate}")
    if json:
        show_json(done)


def _teller(bar: Progress, task: TaskID) -> Callable[[loading.Progress], None]:
    return lambda made: bar.update(task, completed=made.offset, quads=f"{made.quads:,} quads")


def _bar(quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[quads]}"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )


def run_verify(
    wait: Annotated[float, typer.Option(help="seconds until every worker must stand at the index")] = 60.0,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Compare the contents of all workers at one position, while writes go on. Exit code 1 when they differ."""
    show_verdict(find_cluster(state, master), wait, json)


def show_verdict(cluster: Cluster, wait: float, json: bool, reach: Reaching = HttpTransport) -> None:
    """``reach``: how a worker is read."""
    quiet = json or not err.is_terminal
    with err.status("asking") as status:
        if quiet:
            status.stop()
        verdict = verify(
            dict(cluster.data_centers),
            wait,
            lambda said: None if quiet else status.update(said),
            opened=cluster.open,
            reach=reach,
        )
    if json:
        show_json({"index": verdict.index, "equal": verdict.equal, "workers": [_json(w) for w in verdict.workers]})
    else:
        show_table(
            ["WORKER", "DATA CENTRE", "INDEX", "QUADS", "GRAPHS", "DIGEST", ""],
            [_row(each, verdict.index) for each in verdict.workers],
        )
        for each in verdict.workers:
            for graph in each.differs[:20]:
                err.print(f"{each.worker.name} differs in {graph or 'the default graph'}", style="red", markup=False)
    if not verdict.equal:
        raise typer.Exit(1)


def _row(each: Held, index: int) -> tuple[object, ...]:
    assert each.digest is not None
    said = coloured("different" if each.differs else "equal")
    if each.position is not None and each.position.unordered:
        said = said.append(", unordered")
    total = f"{each.digest.total:032x}"
    return each.worker.name, each.data_center, index, f"{each.digest.quads:,}", len(each.digest.graphs), total, said


def _json(each: Held) -> dict[str, object]:
    assert each.digest is not None
    return {
        "name": each.worker.name,
        "dataCenter": each.data_center,
        "engine": each.worker.engine,
        "position": str(each.position.position) if each.position else None,
        "quads": each.digest.quads,
        "digest": f"{each.digest.total:032x}",
        "graphs": {name: [count, f"{total:032x}"] for name, (count, total) in each.digest.graphs.items()},
        "differs": each.differs,
    }
