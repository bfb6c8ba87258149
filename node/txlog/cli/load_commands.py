"""``txlog load`` and ``txlog verify``: load files of data; compare the contents of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.progress import DownloadColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from txlog.cli import bulk_loader
from txlog.cli.bulk_loader import BulkLoader
from txlog.cli.cli_cluster import CliCluster, find_cluster
from txlog.cli.content_verification import PausedWorker, compare_contents
from txlog.cli.options import ClusterOptions, register
from txlog.cli.rdf_chunks import open_source
from txlog.cli.tables import Row, colour_state, err, open_progress, out, show_json, show_table
from txlog.model.durability import Durability

app = typer.Typer()


@register(app)
def load(
    sources: Annotated[list[str], typer.Argument(metavar="FILE|URL...", help="nt, nq, ttl, trig, n3 or rdf; also .gz")],
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="quads per transaction")] = 1000,
    durability: Annotated[
        Durability, typer.Option(help="the level that each transaction waits for")
    ] = Durability.SYNCED,
    graph: Annotated[str | None, typer.Option(help="IRI of the graph for triples without one")] = None,
    form: Annotated[str | None, typer.Option("--format", help="if the name does not show it: nt, nq, ttl, ...")] = None,
    patience: Annotated[float, typer.Option(help="seconds without progress before it fails")] = 60.0,
    *,
    cluster: ClusterOptions,
) -> None:
    """Write RDF files as transactions, through all masters at once. Repeat it to continue after an interruption."""
    masters = find_cluster(cluster).masters
    loader = BulkLoader(masters, quads=batch, durability=durability, graph=graph, patience_s=patience)
    done = []
    for name in sources:
        began = time.monotonic()
        columns = (TaskProgressColumn(), DownloadColumn(), TextColumn("{task.fields[quads]}"))
        with open_source(name, form) as source, open_progress(cluster.json, *columns) as bar:
            task = bar.add_task(name, total=source.size, quads="")

            found = loader.load(source, _progress_callback(bar, task))
        seconds = time.monotonic() - began
        done.append(
            {
                "source": name,
                "quads": found.quads,
                "transactions": found.transactions,
                "sentAgain": found.resent,
                "seconds": round(seconds, 3),
                "byMaster": found.by_master,
            }
        )
        if not cluster.json:
            rate = f"{found.quads / seconds:,.0f}/s" if seconds else ""
            out.print(f"{name}: {found.quads:,} quads in {found.transactions:,} transactions, {seconds:.1f} s, {rate}")
    if cluster.json:
        show_json(done)


def _progress_callback(bar: Progress, task: TaskID) -> Callable[[bulk_loader.LoadProgress], None]:
    return lambda made: bar.update(task, completed=made.offset, quads=f"{made.quads:,} quads")


@register(app, "verify")
def run_verify(
    wait: Annotated[float, typer.Option(help="seconds until every worker must be at the index")] = 60.0,
    *,
    cluster: ClusterOptions,
) -> None:
    """Compare the contents of all workers at one position, while writes continue. Exit code 1 if they differ."""
    show_comparison(find_cluster(cluster), wait, cluster.json)


def show_comparison(cluster: CliCluster, wait: float, json: bool) -> None:
    """Print what ``txlog verify`` shows of a cluster. Exits with 1 when the contents differ."""
    quiet = json or not err.is_terminal
    with err.status("asking") as status:
        if quiet:
            status.stop()
        verdict = compare_contents(
            dict(cluster.data_centers),
            wait,
            lambda text: None if quiet else status.update(text),
            open_client=cluster.open_client,
            open_transport=cluster.open_transport,
        )
    if json:
        show_json(
            {"index": verdict.index, "equal": verdict.equal, "workers": [_worker_to_dict(w) for w in verdict.workers]}
        )
    else:
        show_table(
            ["WORKER", "DATA CENTRE", "INDEX", "QUADS", "GRAPHS", "DIGEST", ""],
            [_worker_row(each, verdict.index) for each in verdict.workers],
        )
        for each in verdict.workers:
            for graph in each.differences[:20]:
                err.print(f"{each.worker.name} differs in {graph or 'the default graph'}", style="red", markup=False)
    if not verdict.equal:
        raise typer.Exit(1)


def _worker_row(each: PausedWorker, index: int) -> Row:
    assert each.digest is not None
    result = colour_state("different" if each.differences else "equal")
    if each.position is not None and each.position.unordered:
        result = result.append(", unordered")
    total = f"{each.digest.total:032x}"
    return each.worker.name, each.data_center, index, f"{each.digest.quads:,}", len(each.digest.graphs), total, result


def _worker_to_dict(each: PausedWorker) -> dict[str, object]:
    assert each.digest is not None
    return {
        "name": each.worker.name,
        "dataCenter": each.data_center,
        "engine": each.worker.engine,
        "position": str(each.position.position) if each.position else None,
        "quads": each.digest.quads,
        "digest": f"{each.digest.total:032x}",
        "graphs": {name: [count, f"{total:032x}"] for name, (count, total) in each.digest.graphs.items()},
        "differs": each.differences,
    }
