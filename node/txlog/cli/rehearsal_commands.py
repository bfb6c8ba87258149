"""``txlog rehearse``: a recovery from the archive, in a throw-away place, compared with a live worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer

from txlog.archive.archive_errors import NoArchive
from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, DataCenterOption, TargetOptions, option_ms, register
from txlog.cli.tables import colour_state, err, print_line, show_json, show_table, warn
from txlog.config.process_config import RehearsalConfig, RehearsalLevel
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput
from txlog.rehearsal.planted_run import PlantedRun
from txlog.rehearsal.rehearsal_job import RehearsalJob
from txlog.wire.rehearsal_report import RehearsalReport

app = typer.Typer()


@register(app)
def rehearse(
    planted: Annotated[
        bool, typer.Option("--planted", help="then plant twelve faults, one after the other: each has to be named")
    ] = False,
    base: Annotated[str | None, typer.Option(help="this backup; default: the newest that fits")] = None,
    backups: Annotated[
        str | None, typer.Option(help="the target of the backups; default: the manifest's, else --target")
    ] = None,
    max_rpo: Annotated[str | None, typer.Option(help="such as 10s; default: the manifest's")] = None,
    max_rto: Annotated[str | None, typer.Option(help="such as 2h; default: the manifest's")] = None,
    level: Annotated[str | None, typer.Option(help="data or cluster; default: the manifest's, else cluster")] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="where the throw-away store lies; default: the temporary folder")
    ] = None,
    data_center: DataCenterOption = None,
    *,
    target: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Rehearse a recovery in a throw-away place. It makes a new cluster's journal and a store from the archive, and
    compares the store with a live worker at the same index. The cluster stays as it is. Exit code 1 unless it is good.
    """
    found = find_cluster(cluster)
    where = found.find_data_center(data_center)
    config = _read_config(found.state, where, found.data_centers[where], target)
    changes: dict[str, Any] = {
        "backups": target.to_config(backups) if backups else None,
        "max_rpo_s": option_ms("--max-rpo", max_rpo) / 1000 if max_rpo is not None else None,
        "max_rto_s": option_ms("--max-rto", max_rto) / 1000 if max_rto is not None else None,
        "level": _level(level),
        "scratch_folder": scratch,
    }
    config = config.model_copy(update={name: value for name, value in changes.items() if value is not None})
    show: Callable[[str], None] = (lambda _: None) if cluster.json else _show_step
    job = RehearsalJob(config, show, base)
    if planted:
        _show_planted(job.run_planted(show), as_json=cluster.json)
        return
    report, problems = job.run()
    _show_report(report, problems, as_json=cluster.json)


def _read_config(state: StateFolder | None, where: str, masters: list[str], target: TargetOptions) -> RehearsalConfig:
    """As the manifest says; ``--target`` replaces its archive."""
    path = state.rehearsal(where) if state is not None else None
    if path is not None and path.is_file():
        config = RehearsalConfig.model_validate_json(path.read_bytes())
        return config.model_copy(update={"target": target.to_config(target.target)}) if target.target else config
    if target.target is None:
        raise NoArchive(
            f"the manifest of {where} has no spec.archive; name one with --target FOLDER or s3://BUCKET/PREFIX"
        )
    return RehearsalConfig(data_center=where, masters=masters, target=target.to_config(target.target))


def _level(text: str | None) -> str | None:
    if text not in (None, *get_args(RehearsalLevel)):
        raise BadInput(f"--level {text[:20] if text else ''}: expected {' or '.join(get_args(RehearsalLevel))}")
    return text


def _show_step(text: str) -> None:
    err.print(f"{text} …", style="dim", markup=False)


def _show_report(report: RehearsalReport, problems: list[str], *, as_json: bool) -> None:
    if as_json:
        show_json({**msgspec.to_builtins(report), "problems": problems})
    else:
        _print_report(report)
        for problem in problems:
            warn(problem)
    if not report.ok:
        raise typer.Exit(1)


def _print_report(report: RehearsalReport) -> None:
    show_table(["PHASE", "SECONDS"], [(name, f"{seconds:.1f}") for name, seconds in report.phases.items()])
    compared = f"{report.graphs} graphs, {report.quads:,} quads compared with {report.worker} at index {report.index}"
    if report.ok:
        print_line(
            f"good: {compared}, none differs; {report.rpo_seconds:.1f} s would have been lost; writes after "
            f"{report.rto_writes_seconds:.1f} s, reads after {report.rto_reads_seconds:.1f} s"
        )
    else:
        print_line(f"{report.error} in the phase {report.phase}: {report.message}", style="red")


def _show_planted(run: PlantedRun, *, as_json: bool) -> None:
    if as_json:
        show_json(run.to_dict())
    else:
        _print_report(run.sound)
        show_table(
            ["FAULT", "EXPECTED", "NAMED", "PHASE", ""],
            [
                (
                    each.name,
                    each.expected,
                    colour_state("yes", "Running") if each.named else colour_state(each.error or "no", "Failed"),
                    each.phase,
                    each.message,
                )
                for each in run.faults
            ],
            "no fault was planted",
        )
    if not run.ok:
        raise typer.Exit(1)
