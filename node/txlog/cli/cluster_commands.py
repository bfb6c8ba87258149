"""``txlog up``, ``down`` and ``status``: a cluster on this machine."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from txlog.cli.archive_view import print_archive, print_change_sets, print_rehearsals, rehearsal_row
from txlog.cli.cli_cluster import CliCluster, find_cluster, use_credentials
from txlog.cli.divergence_view import print_divergence
from txlog.cli.options import ClusterOptions, LocalOptions, SuccessionOptions, register
from txlog.cli.tables import colour_state, err, format_time, out, print_answer, show_json, show_section, show_table
from txlog.client import MasterClient, StatusResponse
from txlog.client.ca_trust import CaTrust
from txlog.local.daemon_control import ended_supervisor, start_daemon, stop_daemon, wait_ready, wait_repositories
from txlog.local.local_errors import CannotRun, NotRunning
from txlog.local.state_folder import StateFolder
from txlog.local.supervisor_client import SupervisorClient
from txlog.model.errors import BadInput, TxLogError

app = typer.Typer()


@register(app)
def up(
    paths: Annotated[
        list[Path],
        typer.Option("-f", "--file", help="a manifest, a folder of manifests, or one cluster.properties"),
    ],
    more: Annotated[list[Path] | None, typer.Argument(help="further manifests or folders")] = None,
    detached: Annotated[bool, typer.Option("--detach", "-d", help="run in the background")] = False,
    wait: Annotated[float, typer.Option(help="seconds until everything must be ready; 0 does not wait")] = 240.0,
    *,
    local: LocalOptions,
    succession: SuccessionOptions,
) -> None:
    """Run the data centres of the manifests as processes on this machine, until Ctrl-C or `txlog down`. A file that
    ends in .properties describes one master, whose peers run elsewhere."""
    from txlog.cli.succession_commands import begin_succession
    from txlog.local.supervisor_main import check, supervise  # slow to import, and only this command needs it

    succession.refuse_without_archive()
    paths = [*paths, *(more or [])]
    check(paths)
    folder = local.folder
    begun = begin_succession(succession, paths, folder, as_json=local.json) if succession.from_archive else None
    if succession.dry_run:
        return
    if detached:
        start_daemon(paths, folder)
        try:
            if begun is not None:
                begun.fill_stores()
            if wait:
                _wait_until_ready(folder, wait, local.json)
            status = SupervisorClient(folder).status()
        except NotRunning:
            raise ended_supervisor(folder) from None
        if local.json:
            show_json({**status, "recovery": begun.summary} if begun is not None else status)
        else:
            _show_processes(status)
            out.print(
                f"\nruns in the background; state and logs in {folder.root}; end it with: txlog down", style="dim"
            )
        return
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if not local.json:
        threading.Thread(target=_print_started, args=(folder, wait or 240.0), daemon=True).start()
    if begun is not None:
        threading.Thread(target=begun.fill_or_report, daemon=True).start()
    asyncio.run(supervise(paths, folder))


def _print_started(folder: StateFolder, wait: float) -> None:
    """Print the processes once they are ready, while the supervisor has the terminal."""
    until = time.monotonic() + wait
    while time.monotonic() < until:
        try:
            _wait_until_ready(folder, until - time.monotonic(), False)
            _show_processes(SupervisorClient(folder).status())
            out.print("\nrunning; Ctrl-C ends it", style="dim")
        except NotRunning:
            time.sleep(0.1)
        except TxLogError as error:
            err.print(str(error), style="red", markup=False)
            return
        else:
            return


def is_ready(process: dict[str, Any], masters: Sequence[str] = ()) -> bool:
    """Whether a process that runs also does its work: it answers over HTTP. A pipeline has reported every worker to one
    of ``masters``, those of its data centre."""
    if process["role"] == "pipeline":
        return any(_pipelines_ready(url, process["since"]) for url in masters)
    if not process["url"]:
        return True
    try:
        tls = CaTrust.from_environment().context() if process["url"].startswith("https:") else None
        with urllib.request.urlopen(process["url"] + process["readyPath"], timeout=2, context=tls) as answer:
            return bool(answer.status < 400)
    except (OSError, urllib.error.URLError, ValueError, BadInput):
        return False


def _pipelines_ready(master: str, since: float) -> bool:
    with MasterClient(master, timeout_s=2.0) as client:
        try:
            return all(float(worker.reported_at or 0) >= since for worker in client.workers())
        except (TxLogError, ValueError):
            return False


def _wait_until_ready(folder: StateFolder, wait: float, quiet: bool) -> None:
    use_credentials(folder)

    def is_process_ready(process: dict[str, Any]) -> bool:
        pipeline = process["role"] == "pipeline"
        return is_ready(process, folder.topology().master_urls(process["dataCenter"]) if pipeline else ())

    until = time.monotonic() + wait
    if quiet:
        for _ in wait_ready(folder, wait, is_process_ready):
            pass
        wait_repositories(folder, until - time.monotonic())
        return
    with Live(console=err, transient=True, refresh_per_second=8) as live:
        for processes in wait_ready(folder, wait, is_process_ready):
            table = Table(box=None, pad_edge=False, show_header=False)
            for process in processes:
                table.add_row(
                    process["name"], Text("ready", "green") if process["ready"] else colour_state(process["state"])
                )
            live.update(table)
    wait_repositories(folder, until - time.monotonic())


@register(app)
def down(
    purge: Annotated[bool, typer.Option(help="also delete the state folder, with all data of this cluster")] = False,
    *,
    local: LocalOptions,
) -> None:
    """Stop the cluster of a state folder: SIGTERM first, SIGKILL after a deadline."""
    folder = local.folder
    if not folder.exists:
        raise NotRunning(folder.root)
    ended = stop_daemon(folder)
    if folder.is_locked:
        raise CannotRun(f"the supervisor of {folder.root} does not end; see {folder.log('supervisor')}")
    if purge:
        folder.purge()
    data = f"{folder.root} is removed" if purge else f"the data stays in {folder.root}"
    result = {"ended": ended, "purged": purge}
    print_answer(local.json, result, f"{'ended' if ended else 'nothing ran'}; {data}")


@register(app)
def status(cluster: ClusterOptions) -> None:
    """Show the state of processes, masters and workers."""
    show_status(find_cluster(cluster), cluster.json)


def show_status(cluster: CliCluster, json: bool) -> None:
    """Print what ``txlog status`` shows of a cluster."""
    supervisor = SupervisorClient(cluster.state).status() if cluster.state else None
    answers = cluster.ask_all(MasterClient.status)
    reached = [answer for answer in answers.values() if isinstance(answer, StatusResponse)]
    if json:
        masters = [
            {"url": url, "status": found, "error": ""}
            if isinstance(found, StatusResponse)
            else {"url": url, "status": None, "error": str(found)}
            for url, found in answers.items()
        ]
        show_json({"supervisor": supervisor, "masters": masters})
        return
    if supervisor:
        _show_processes(supervisor)
        out.print()
    show_table(
        ["MASTER", "STATE", "VIEW", "LOG", "STABLE", "QUEUE", "MEMBERS", "WORKERS", ""],
        [
            (
                found.node,
                colour_state(found.state),
                _view_text(found),
                found.log.index,
                found.stable.index,
                found.queue.transactions,
                ", ".join(str(member["node"]) for member in found.members),
                _workers_text(found),
                found.view.holding,
            )
            if isinstance(found, StatusResponse)
            else (url, colour_state("Unreachable"), "", "", "", "", "", "", str(found))
            for url, found in answers.items()
        ],
    )
    print_archive(reached)
    print_rehearsals(reached)
    print_change_sets(reached)
    print_divergence({found.data_center: found.workers for found in reversed(reached)})
    show_section(["OUT OF THE VIEW", "WHY", "SAYS", ""], _excluded_members(reached))
    duties = {(one.data_center, str(duty["id"])): duty for one in reached for duty in one.duties}
    show_section(
        ["OPEN DUTY", "DATA CENTRE", "WORKER", "WHY", "ERROR"],
        [(each["kind"], dc, each["worker"], each["why"], each["error"]) for (dc, _), each in duties.items()],
    )


def _view_text(found: StatusResponse) -> str:
    """The number of a master's view, and what is unusual about it."""
    view = found.view
    remarks = [
        *(() if view.installed or not view.number else ("not installed",)),
        *(("stopped",) if view.stopped else ()),
        *((f"promised {view.promised}",) if view.promised and view.promised != view.number else ()),
        *((f"the others are in {view.ahead}",) if view.ahead else ()),
    ]
    return (view.number or str(found.epoch)) + (f" ({', '.join(remarks)})" if remarks else "")


def _excluded_members(seen: list[StatusResponse]) -> list[tuple[str, str, str, str]]:
    """Each master that is out of a view, why, the master that reports it, and what that means. A known reason counts
    more than ``unknown``."""
    found: dict[str, tuple[str, str, str, str]] = {}
    for status in seen:
        for one in status.view.out:
            if one.node not in found or found[one.node][1] == "unknown":
                found[one.node] = (one.node, one.why, status.node, one.text)
    return list(found.values())


def _workers_text(found: StatusResponse) -> str:
    return ", ".join(f"{w.name} {w.position.index if w.position else 0} {w.state}" for w in found.workers)


def _show_processes(supervisor: dict[str, Any]) -> None:
    show_table(
        ["PROCESS", "ROLE", "STATE", "RESTARTS", "PID", "URL"],
        [
            (p["name"], p["role"], colour_state(p["state"]), p["restarts"] or "", p["pid"], p["url"])
            for p in supervisor["processes"]
        ],
    )
    backups, rehearsals = supervisor["backups"], supervisor.get("rehearsals", ())
    show_section(["BACKUPS OF", "SCHEDULE", "NEXT", "LAST", ""], [*map(_backup_row, backups)])
    show_section(["REHEARSALS OF", "SCHEDULE", "NEXT", "LAST", ""], [*map(rehearsal_row, rehearsals)])
    show_section(
        ["REPOSITORY", "DATA CENTER", "LOG", "STATE", ""],
        [
            (each["name"], each["dataCenter"], each["log"] or "", each["state"], each["message"])
            for each in supervisor.get("repositories", ())
        ],
    )
    for process in supervisor["processes"]:
        if process["said"]:
            err.print(f"\n{process['name']} ended for good and said:", style="red")
            err.print("\n".join(process["said"]), markup=False, highlight=False)
            err.print(f"its log: {process['log']}", style="dim")


def _backup_row(schedule: dict[str, Any]) -> tuple[object, ...]:
    due = format_time(schedule["next"]) if schedule.get("next") else ""
    last = schedule.get("last") or {}
    result = last.get("name") or (colour_state(last["error"]) if "error" in last else "")
    merged = f"its chain was merged into {last['merged']}" if "merged" in last else ""
    note = f"a full one: {last['whyFull']}" if "whyFull" in last else merged
    place = " ".join(filter(None, (schedule["dataCenter"], schedule.get("repository"))))
    return place, schedule["schedule"] or "by hand", due, result, last.get("message", note)
