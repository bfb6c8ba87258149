"""Keeps the processes of a local cluster running: restarts what dies, at once and then with growing pauses.

A process that exits with the code of :class:`~txlog.model.errors.Fatal` has logged why it must not continue. It stays
down, and is shown, until an operator starts it. At each start, a master receives the last incarnation and start that
the supervisor saw of it. The supervisor polls ``/txlog/status`` for them and stores them on disk.

All files are in one state folder (:mod:`txlog.local.state_folder`). On Linux the children die with the supervisor, even
after ``kill -9``. Elsewhere, and for any process that survived, the next supervisor of the folder ends what the last
one left. It recognises them by process id *and* start time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from txlog.config.live_settings import BadSettings, read_effective_settings
from txlog.config.process_config import LastSeenIncarnation
from txlog.config.process_config_builder import MASTER_STOP_MARGIN_S
from txlog.local.child_process import ChildProcess
from txlog.local.config_files import remove_leftovers, write_config_files
from txlog.local.duty_runner import DutyRunner, duty_log_name
from txlog.local.link_faults import LinkFaultTable
from txlog.local.local_errors import CannotRun
from txlog.local.log_files import last_lines, rotate_log
from txlog.local.master_requests import register_new_masters, report_down, request_master
from txlog.local.process_identity import end_leftovers
from txlog.local.process_plan import LINK_PROXY_NAME, ProcessPlan
from txlog.local.process_spec import ProcessSpec
from txlog.local.repository_wants import RepositoryWants
from txlog.local.scheduled_backups import BACKUPS, REHEARSALS, ScheduledBackups
from txlog.local.stalled_stores import StalledStoreRestarter
from txlog.local.state_folder import StateFolder
from txlog.model.errors import Fatal, NotFound, TxLogError
from txlog.model.master_state import MasterState
from txlog.supervision.last_seen import should_remember
from txlog.supervision.retry_delay import next_delay_s

log = logging.getLogger("txlog.local")

STOP_ORDER: Final = ("site", "pipeline", "archiver", "changesets", "master", "worker", "links")
"""Readers before what they read; the processes of a group end together."""
LINK_PROXY_TIMEOUT_S: Final = 10.0
STATUS_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True)
class SupervisorIntervals:
    """Seconds. A process that has run for ``stable_after_s`` restarts without a pause again. ``watch_new_s``: polling
    interval until a new master has reported its incarnation, ``watch_s``: afterwards."""

    restart_min_s: float = 0.2
    restart_max_s: float = 10.0
    stable_after_s: float = 10.0
    watch_new_s: float = 0.5
    watch_s: float = 10.0
    rotate_logs_s: float = 5.0


class ProcessState(StrEnum):
    """The state of one supervised process."""

    STARTING = "Starting"
    RUNNING = "Running"
    WAITING = "Waiting"
    """It died, and the supervisor restarts it soon."""
    FATAL = "Fatal"
    """It exited with a fatal error and is not restarted automatically."""
    STOPPED = "Stopped"
    """An operator stopped it."""


@dataclass
class SupervisedProcess:
    """The state of one process, as the supervisor knows it."""

    spec: ProcessSpec
    state: ProcessState = ProcessState.STOPPED
    child: ChildProcess | None = None
    restarts: int = 0
    exit_code: int | None = None
    since: float = field(default_factory=time.time)
    wanted: bool = True
    task: asyncio.Task[None] | None = None
    wake_event: asyncio.Event = field(default_factory=asyncio.Event)

    def set_state(self, state: ProcessState) -> None:
        """Sets the state and the time since when it holds."""
        self.state, self.since = state, time.time()


class Supervisor:
    """Supervises one plan in one state folder, whose lock the caller holds."""

    def __init__(self, plan: ProcessPlan, state: StateFolder, pace: SupervisorIntervals | None = None) -> None:
        self.plan = plan
        self.state = state
        self.links = LinkFaultTable(plan.topology)
        self.backups = ScheduledBackups(plan.backup_plans, state)
        self.rehearsals = ScheduledBackups(plan.rehearsal_plans, state, kind=REHEARSALS)
        self.duties = DutyRunner(plan.duty_configs, state)
        self.repositories = RepositoryWants(plan.topology, state, self)
        self._intervals = pace or SupervisorIntervals()
        self._processes = {program.name: SupervisedProcess(program) for program in plan.programs}
        self._last_seen: dict[str, dict[str, int]] = state.read("seen.json", {})
        self._is_unstored = False
        """The last incarnations could not be written to the disk."""
        self._seen_start: dict[str, int] = {}  # process id whose incarnation and start were reported
        self._links_reader: asyncio.StreamReader | None = None
        self._links_writer: asyncio.StreamWriter | None = None
        self._links_lock = asyncio.Lock()
        self._request_ids = itertools.count(1)
        self._started_at = time.time()
        self._is_stopping = False
        self._down_reports: set[asyncio.Task[None]] = set()

    # -- lifecycle

    async def run(self, stop: asyncio.Event) -> None:
        """Ends what an earlier supervisor left, starts everything, keeps it running until ``stop``, ends everything."""
        await asyncio.to_thread(end_leftovers, self.state)
        write_config_files(self.plan, self.state)
        watchers = [asyncio.create_task(self._watch_masters()), asyncio.create_task(self._rotate_logs())]
        watchers.insert(0, asyncio.create_task(self._register_masters()))
        stalled = StalledStoreRestarter(self.plan.duty_configs, self.state, self.end_stalled)
        watchers.insert(0, asyncio.create_task(stalled.run()))
        watchers.insert(0, asyncio.create_task(self.repositories.run()))
        watchers += [asyncio.create_task(each.run()) for each in (self.rehearsals, self.backups, self.duties)]
        try:
            for kept in self._processes.values():
                self._start_process(kept)
            await stop.wait()
        finally:
            self._is_stopping = True
            for task in (*watchers, *self._down_reports):
                task.cancel()
            await asyncio.wait(watchers[-3:])  # a running backup ends before the stores that it reads
            await self._stop_all()
            await asyncio.gather(*watchers, *self._down_reports, return_exceptions=True)
            self._write_processes()

    async def _register_masters(self) -> None:
        config = next(iter(self.plan.master_configs.values()), None)
        if config is not None:
            await register_new_masters(config.peers, {m.node: m.url for m in self.plan.topology.masters}, self.state)

    async def _stop_all(self) -> None:
        for role in STOP_ORDER:
            group = [name for name, kept in self._processes.items() if kept.spec.role == role]
            await asyncio.gather(*(self.stop(name) for name in group))

    # -- change of plan

    def adopt_plan(self, plan: ProcessPlan) -> None:
        """New processes are started by this plan; running ones are unchanged."""
        self.plan = plan
        write_config_files(self.plan, self.state)

    async def apply_plan(self, plan: ProcessPlan) -> None:
        """Starts what is new in this plan, stops what it lacks; the others continue, see :meth:`adopt_plan`."""
        self.adopt_plan(plan)
        wanted = {program.name for program in plan.programs}
        for name in [name for name in self._processes if name not in wanted]:
            await self.stop(name)
            del self._processes[name]
        for program in plan.programs:
            if program.name not in self._processes:
                self._processes[program.name] = SupervisedProcess(program)
                self._start_process(self._processes[program.name])
        self._write_processes()

    # -- one process

    def _start_process(self, kept: SupervisedProcess) -> None:
        kept.wanted = True
        kept.wake_event.clear()
        kept.task = asyncio.create_task(self._keep_running(kept))

    async def _keep_running(self, kept: SupervisedProcess) -> None:
        """Restarts it until it is no longer wanted."""
        pause = 0.0
        while kept.wanted:
            if pause:
                kept.set_state(ProcessState.WAITING)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(kept.wake_event.wait(), pause)
                kept.wake_event.clear()
                if not kept.wanted:
                    break
            began = time.monotonic()
            code = await self._run_once(kept)
            kept.child = None
            kept.exit_code = code
            self._write_processes()
            if kept.spec.role == "master":
                self._report_down(kept.spec.name, code)
            if not kept.wanted:
                break
            if code == Fatal.EXIT_CODE:
                kept.set_state(ProcessState.FATAL)
                reason = " | ".join(last_lines(self.state.log(kept.spec.name), 3))
                log.error("%s ended for good: %s", kept.spec.name, reason)
                return
            kept.restarts += 1
            lived = time.monotonic() - began
            # A process that was killed once restarts at once; only one that keeps dying waits.
            bounds_s = (self._intervals.restart_min_s, self._intervals.restart_max_s)
            pause = 0.0 if lived >= self._intervals.stable_after_s else next_delay_s(pause, bounds_s)
            log.warning("%s ended with %s, starts again in %.1f s", kept.spec.name, code, pause)
        kept.set_state(ProcessState.STOPPED)

    async def _run_once(self, kept: SupervisedProcess) -> int:
        program = kept.spec
        mine: socket.socket | None = None
        theirs: socket.socket | None = None
        command = program.command
        if program.role == "links":
            mine, theirs = socket.socketpair()
            command = (*command, "--control-fd", str(theirs.fileno()))
        kept.set_state(ProcessState.STARTING)
        try:
            if program.role == "master":
                self._write_master_config(program.name)
            if program.role == "worker":
                remove_leftovers(self.state.worker(program.name))
            kept.child = ChildProcess(command, program.environment, self.state.log(program.name), theirs)
        except OSError as error:
            log.error("%s cannot be started: %s", program.name, error)
            return 127
        finally:
            if theirs is not None:
                theirs.close()
        kept.set_state(ProcessState.RUNNING)
        self._write_processes()
        if mine is not None:
            await self._open_links(mine)
        try:
            return await kept.child.wait()
        finally:
            if mine is not None:
                self._close_links()

    def _write_processes(self) -> None:
        marks = {
            n: kept.child.identity.model_dump()
            for n, kept in self._processes.items()
            if kept.child and kept.child.identity
        }
        self._store("processes.json", marks)

    def _store(self, name: str, value: Any) -> bool:
        """Whether the file was written. A full disk ends no task: what is supervised goes on without the file."""
        try:
            self.state.write(name, value)
        except OSError as error:
            log.error("%s is not written: %s", name, error)
            return False
        return True

    def _process_named(self, name: str) -> SupervisedProcess:
        if name not in self._processes:
            raise NotFound(f"no process is called {name}; there are {', '.join(self._processes)}")
        return self._processes[name]

    async def stop(self, name: str) -> None:
        """Sends SIGTERM, after its deadline SIGKILL; the process stays down until :meth:`start`."""
        kept = self._process_named(name)
        kept.wanted = False
        kept.wake_event.set()
        if kept.child is not None:
            kept.child.signal(signal.SIGTERM)
        if kept.task is None:
            return
        patience = self._stop_timeout_s(kept.spec)
        _, late = await asyncio.wait([kept.task], timeout=patience)
        if late and kept.child is not None:
            log.warning("%s did not end within %g s and is killed", name, patience)
            kept.child.signal(signal.SIGKILL)
        await asyncio.wait([kept.task])
        kept.set_state(ProcessState.STOPPED)

    def _stop_timeout_s(self, program: ProcessSpec) -> float:
        """A longer ``leaveTimeout`` may be in effect since the master was started."""
        if program.role != "master":
            return program.stop_timeout_s
        try:
            leave_ms = read_effective_settings(self.plan.master_configs[program.name]).preferences.leave_timeout
        except BadSettings:
            return program.stop_timeout_s
        return max(program.stop_timeout_s, leave_ms / 1000 + MASTER_STOP_MARGIN_S)

    async def start(self, name: str) -> None:
        """Starts it, even after a fatal exit. Does nothing while it runs."""
        kept = self._process_named(name)
        if kept.task is None or kept.task.done():
            self._start_process(kept)
        else:
            kept.wake_event.set()

    async def kill(self, name: str) -> None:
        """Sends SIGKILL, as in a crash; the process is restarted."""
        kept = self._process_named(name)
        if kept.child is not None:
            kept.child.signal(signal.SIGKILL)

    async def end_stalled(self, name: str, reported_at: float) -> bool:
        """Kills the store of a worker if it was running at ``reported_at`` (seconds since 1970). False for a store of
        another supervisor, and for one that was started since."""
        kept = self._processes.get(name)
        if kept is None or kept.child is None or kept.spec.role != "worker" or reported_at < kept.since:
            return False
        await self.kill(name)
        return True

    # -- masters: their end, and the last incarnation and start

    def _report_down(self, node: str, code: int) -> None:
        """This process has been waited for, so it is certainly gone, which no other master can know (protocol section
        3). Not while everything ends: then no master may continue without another."""
        seen = self._last_seen.get(node)
        if seen is None or self._is_stopping:
            return
        others = {kept.spec.name: kept.spec.url for kept in self._processes.values() if kept.spec.role == "master"}
        others.pop(node)
        proof = report_down(node, seen["birth"], seen["start"], others, self.state, left=code == 0)
        task = asyncio.get_running_loop().create_task(proof, name=f"proof-{node}")
        self._down_reports.add(task)
        task.add_done_callback(self._down_reports.discard)

    def _write_master_config(self, node: str) -> None:
        config = self.plan.master_configs[node]
        seen = self._last_seen.get(node)
        config = config.model_copy(update={"last_seen": LastSeenIncarnation(**seen) if seen else None})
        self.state.write_config(self.state.master(node) / "config.json", config)

    async def _watch_masters(self) -> None:
        poll_all_at = 0.0
        while True:
            all_are_due = time.monotonic() >= poll_all_at
            masters = [kept for kept in self._processes.values() if kept.spec.role == "master" and kept.child]
            new = [k for k in masters if k.child and self._seen_start.get(k.spec.name) != k.child.pid]
            await asyncio.gather(*(self._poll_master(kept) for kept in (masters if all_are_due else new)))
            if all_are_due:
                poll_all_at = time.monotonic() + self._intervals.watch_s
            await asyncio.sleep(self._intervals.watch_new_s)

    async def _poll_master(self, kept: SupervisedProcess) -> None:
        node, child = kept.spec.name, kept.child
        try:
            status = await request_master(self.state, kept.spec.url, STATUS_TIMEOUT_S, lambda m: m.status())
            birth = int(status.birth, 16) if isinstance(status.birth, str) else status.birth
        except (TxLogError, ValueError):
            return  # not known yet: the next poll asks again
        if child is None or kept.child is not child or status.node != node or status.start < 1:
            return
        seen, known = {"birth": birth, "start": status.start}, self._last_seen.get(node)
        if not should_remember(birth, known["birth"] if known else None, status.view.installed):
            if status.state != MasterState.FOUNDING:  # it waits or learns, maybe for long
                self._seen_start[node] = child.pid
            return
        self._seen_start[node] = child.pid
        if known != seen or self._is_unstored:
            self._last_seen[node] = seen
            self._is_unstored = not self._store("seen.json", self._last_seen)

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(self._intervals.rotate_logs_s)
            backups = map(BACKUPS.log_name, self.plan.backup_plans)
            rehearsals = map(REHEARSALS.log_name, self.plan.rehearsal_plans)
            duties = map(duty_log_name, self.plan.duty_configs)
            for name in (*self._processes, *backups, *rehearsals, *duties, "supervisor"):
                try:
                    await asyncio.to_thread(rotate_log, self.state.log(name))
                except OSError as error:
                    log.error("the log of %s is not moved: %s", name, error)

    # -- links

    async def _open_links(self, mine: socket.socket) -> None:
        self._links_reader, self._links_writer = await asyncio.open_connection(sock=mine)
        try:
            await self.push_link_faults()
        except CannotRun as error:
            log.warning("%s", error)

    def _close_links(self) -> None:
        if self._links_writer is not None:
            self._links_writer.close()
        self._links_reader = self._links_writer = None

    async def push_link_faults(self) -> list[dict[str, Any]]:
        """Sends the whole table to the link proxies; returns their traffic by ordered pair."""
        async with self._links_lock:
            reader, writer = self._links_reader, self._links_writer
            if reader is None or writer is None:
                if not self.plan.links:
                    return []
                raise CannotRun("the links' process is not there; it gets this table when it has started again")
            request = next(self._request_ids)
            try:
                writer.write(json.dumps({"id": request, "table": self.links.rows()}).encode() + b"\n")
                async with asyncio.timeout(LINK_PROXY_TIMEOUT_S):
                    while line := await reader.readline():
                        answer = json.loads(line)
                        if answer["id"] == request:
                            links: list[dict[str, Any]] = answer["links"]
                            return links
            except (TimeoutError, ConnectionError):
                pass
            raise CannotRun("the links' process does not answer; it gets this table when it has started again")

    async def change_links(self, change: Callable[[LinkFaultTable], int]) -> int:
        """Changes the table and sends it to the proxies. Returns the number of named directions."""
        count = change(self.links)
        await self.push_link_faults()
        return count

    # -- status

    def describe(self) -> dict[str, Any]:
        """The status, as ``GET /status`` returns it."""
        return {
            "pid": os.getpid(),
            "folder": str(self.state.root),
            "startedAt": self._started_at,
            "repository": self.plan.topology.repository,
            "processes": [self._describe_process(kept) for kept in self._processes.values()],
            "faults": self.links.rows(),
            "backups": self.backups.describe(),
            "rehearsals": self.rehearsals.describe(),
            "duties": self.duties.describe(),
            "repositories": self.repositories.describe(),
        }

    def _describe_process(self, kept: SupervisedProcess) -> dict[str, Any]:
        program = kept.spec
        return {
            "name": program.name,
            "role": program.role,
            "dataCenter": program.data_center,
            "state": kept.state.value,
            "pid": kept.child.pid if kept.child else None,
            "url": program.url,
            "readyPath": program.ready_path,
            "restarts": kept.restarts,
            "exitCode": kept.exit_code,
            "since": kept.since,
            "log": str(self.state.log(program.name)),
            "said": last_lines(self.state.log(program.name), 3) if kept.state is ProcessState.FATAL else [],
        }


__all__ = ["LINK_PROXY_NAME", "ProcessState", "Supervisor", "SupervisorIntervals"]
