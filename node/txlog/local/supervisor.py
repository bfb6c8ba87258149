"""Keeps the processes of a local cluster running: what dies is started again, at once and then with growing pauses.

A process that ends with the exit code of :class:`~txlog.model.errors.Fatal` said by name that it must not go on; it
stays down and is shown, until somebody starts it. A master is told, at each start, the last birth and start that
were seen of it, which the supervisor asks for at ``/txlog/status`` and keeps on disk.

Everything stands in one state folder (:mod:`txlog.local.state`). On Linux the children die with the supervisor,
also with one that was killed by ``kill -9``; elsewhere, and for whatever slipped through, the next supervisor of
the folder ends what the last one left, recognised by process id *and* start time.
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
from urllib.parse import urlsplit

import aiohttp

from txlog.config.live_settings import BadSettings, read_effective_settings
from txlog.config.process_config import FolderConfig, LastSeenIncarnation
from txlog.config.process_config_builder import MASTER_STOP_MARGIN_S
from txlog.local import duties as performing
from txlog.local import identity
from txlog.local.asking import session as session_of
from txlog.local.backups import Backups, log_name
from txlog.local.child import Child
from txlog.local.duties import Duties
from txlog.local.faults import CannotRun
from txlog.local.identity import ProcessMark
from txlog.local.links import LinkTable
from txlog.local.logs import bound_log, last_lines
from txlog.local.naming import name_new_masters
from txlog.local.plan import LINKS, Plan, Program
from txlog.local.proving import prove_down
from txlog.local.rdf4j import prepare_rdf4j
from txlog.local.state import StateFolder
from txlog.local.virtuoso import prepare_virtuoso
from txlog.model.errors import Fatal, NotFound

log = logging.getLogger("txlog.local")

STOP_ORDER: Final = ("pipeline", "master", "worker", "links")
"""Readers before what they read; each group ends together."""
LINKS_ANSWER_S: Final = 10.0


@dataclass(frozen=True)
class Pace:
    """Seconds. A process that has lived for ``steady`` starts with no pause again; ``watch_new`` is how often a
    master is asked for its birth until it has told it, ``watch`` how often then."""

    first: float = 0.2
    most: float = 10.0
    steady: float = 10.0
    watch_new: float = 0.5
    watch: float = 10.0
    logs: float = 5.0


class State(StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    WAITING = "Waiting"
    """It died, and is started again soon."""
    FATAL = "Fatal"
    """It ended by name and is not started again by itself."""
    STOPPED = "Stopped"
    """Somebody stopped it."""


@dataclass
class Kept:
    """What is known of one process."""

    program: Program
    state: State = State.STOPPED
    child: Child | None = None
    restarts: int = 0
    exit_code: int | None = None
    since: float = field(default_factory=time.time)
    wanted: bool = True
    keeper: asyncio.Task[None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, state: State) -> None:
        self.state, self.since = state, time.time()


class Supervisor:
    """Of one plan in one state folder, whose lock the caller holds."""

    def __init__(self, plan: Plan, state: StateFolder, pace: Pace | None = None) -> None:
        self.plan = plan
        self.state = state
        self.links = LinkTable(plan.topology)
        self.backups = Backups(plan.backups, state)
        self.duties = Duties(plan.duties, state)
        self._pace = pace or Pace()
        self._kept = {program.name: Kept(program) for program in plan.programs}
        self._seen: dict[str, dict[str, int]] = state.read("seen.json", {})
        self._seen_start: dict[str, int] = {}  # process id whose birth and start have been heard
        self._links_reader: asyncio.StreamReader | None = None
        self._links_writer: asyncio.StreamWriter | None = None
        self._links_lock = asyncio.Lock()
        self._orders = itertools.count(1)
        self._started_at = time.time()
        self._ending = False
        self._proofs: set[asyncio.Task[None]] = set()

    # -- its life

    async def run(self, stop: asyncio.Event) -> None:
        """Clean up what an earlier one left, start everything, keep it running until ``stop``, end everything."""
        left = self._marks()
        if left:
            ended = await asyncio.to_thread(identity.end, left, 10.0)
            if ended:
                log.warning("ended %d processes that an earlier supervisor had left", len(ended))
        self._write_configs()
        watchers = [asyncio.create_task(self._watch_masters()), asyncio.create_task(self._watch_logs())]
        watchers.insert(0, asyncio.create_task(self._name_masters()))
        watchers += [asyncio.create_task(self.backups.run()), asyncio.create_task(self.duties.run())]
        try:
            for kept in self._kept.values():
                self._begin(kept)
            await stop.wait()
        finally:
            self._ending = True
            for task in (*watchers, *self._proofs):
                task.cancel()
            await asyncio.wait(watchers[-2:])  # a backup under way ends before what it reads from
            await self._stop_all()
            await asyncio.gather(*watchers, *self._proofs, return_exceptions=True)
            self.state.write("processes.json", {})

    async def _name_masters(self) -> None:
        config = next(iter(self.plan.nodes.values()), None)
        if config is not None:
            await name_new_masters(config.peers, {m.node: m.url for m in self.plan.topology.masters}, self.state)

    def _marks(self) -> list[ProcessMark]:
        found: dict[str, Any] = self.state.read("processes.json", {})
        return [ProcessMark.model_validate(mark) for mark in found.values()]

    def _write_configs(self) -> None:
        for name, pipeline in self.plan.pipelines.items():
            pipeline.scratch_folder.mkdir(parents=True, exist_ok=True)
            self.state.write_config(self.state.pipeline(self._kept[name].program.data_center) / "config.json", pipeline)
        for worker in self.plan.topology.workers:
            if worker.managed:
                self.state.worker(worker.name).mkdir(parents=True, exist_ok=True)
                if worker.engine == "rdf4j":
                    prepare_rdf4j(self.state.worker(worker.name))
                elif worker.engine == "virtuoso":
                    prepare_virtuoso(self.state.worker(worker.name), urlsplit(worker.url).port or 0)
        for data_center, backup in self.plan.backups.items():
            self.state.write_config(self.state.backup(data_center), backup.config)
        for data_center, duties in self.plan.duties.items():
            self.state.write_config(self.state.duties(data_center), duties)
            if isinstance(duties.target, FolderConfig) and duties.target.folder == self.state.split_backups(
                data_center
            ):
                duties.target.folder.mkdir(parents=True, exist_ok=True)
        self.state.write("links.json", [link.model_dump() for link in self.plan.links])
        self.state.write("topology.json", self.plan.topology.model_dump())

    async def _stop_all(self) -> None:
        for role in STOP_ORDER:
            group = [name for name, kept in self._kept.items() if kept.program.role == role]
            await asyncio.gather(*(self.stop(name) for name in group))

    # -- another plan

    def prepare(self, plan: Plan) -> None:
        """What is started from now on is started as this plan says; what runs, runs on as it was started."""
        self.plan = plan
        self._write_configs()

    async def follow(self, plan: Plan) -> None:
        """Start what is new in this plan, stop what it lacks; the others run on, see :meth:`prepare`."""
        self.prepare(plan)
        wanted = {program.name for program in plan.programs}
        for name in [name for name in self._kept if name not in wanted]:
            await self.stop(name)
            del self._kept[name]
        for program in plan.programs:
            if program.name not in self._kept:
                self._kept[program.name] = Kept(program)
                self._begin(self._kept[program.name])
        self._write_processes()

    # -- one process

    def _begin(self, kept: Kept) -> None:
        kept.wanted = True
        kept.wake.clear()
        kept.keeper = asyncio.create_task(self._keep(kept))

    async def _keep(self, kept: Kept) -> None:
        """Start it until it is no longer wanted."""
        pause = 0.0
        while kept.wanted:
            if pause:
                kept.enter(State.WAITING)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(kept.wake.wait(), pause)
                kept.wake.clear()
                if not kept.wanted:
                    break
            began = time.monotonic()
            code = await self._once(kept)
            kept.child = None
            kept.exit_code = code
            self._write_processes()
            if kept.program.role == "master":
                self._prove(kept.program.name, code)
            if not kept.wanted:
                break
            if code == Fatal.EXIT_CODE:
                kept.enter(State.FATAL)
                said = " | ".join(last_lines(self.state.log(kept.program.name), 3))
                log.error("%s ended for good: %s", kept.program.name, said)
                return
            kept.restarts += 1
            lived = time.monotonic() - began
            # Somebody whose process was killed once wants it back now; only what keeps dying waits.
            pause = 0.0 if lived >= self._pace.steady else min(self._pace.most, max(self._pace.first, pause * 2))
            log.warning("%s ended with %s, starts again in %.1f s", kept.program.name, code, pause)
        kept.enter(State.STOPPED)

    async def _once(self, kept: Kept) -> int:
        program = kept.program
        mine: socket.socket | None = None
        theirs: socket.socket | None = None
        command = program.command
        if program.role == "master":
            self._write_node(program.name)
        if program.role == "links":
            mine, theirs = socket.socketpair()
            command = (*command, "--control-fd", str(theirs.fileno()))
        kept.enter(State.STARTING)
        try:
            kept.child = Child(command, program.environment, self.state.log(program.name), theirs)
        except OSError as error:
            log.error("%s cannot be started: %s", program.name, error)
            return 127
        finally:
            if theirs is not None:
                theirs.close()
        kept.enter(State.RUNNING)
        self._write_processes()
        if mine is not None:
            await self._open_links(mine)
        try:
            return await kept.child.wait()
        finally:
            if mine is not None:
                self._close_links()

    def _write_processes(self) -> None:
        marks = {n: kept.child.mark.model_dump() for n, kept in self._kept.items() if kept.child and kept.child.mark}
        self.state.write("processes.json", marks)

    def _kept_named(self, name: str) -> Kept:
        if name not in self._kept:
            raise NotFound(f"no process is called {name}; there are {', '.join(self._kept)}")
        return self._kept[name]

    async def stop(self, name: str) -> None:
        """SIGTERM, after its deadline SIGKILL; it stays down until :meth:`start`."""
        kept = self._kept_named(name)
        kept.wanted = False
        kept.wake.set()
        if kept.child is not None:
            kept.child.signal(signal.SIGTERM)
        if kept.keeper is None:
            return
        patience = self._stop_s(kept.program)
        _, late = await asyncio.wait([kept.keeper], timeout=patience)
        if late and kept.child is not None:
            log.warning("%s did not end within %g s and is killed", name, patience)
            kept.child.signal(signal.SIGKILL)
        await asyncio.wait([kept.keeper])
        kept.enter(State.STOPPED)

    def _stop_s(self, program: Program) -> float:
        """A longer ``leaveTimeout`` may have been set since the master was started."""
        if program.role != "master":
            return program.stop_s
        try:
            leave_ms = read_effective_settings(self.plan.nodes[program.name]).preferences.leave_timeout
        except BadSettings:
            return program.stop_s
        return max(program.stop_s, leave_ms / 1000 + MASTER_STOP_MARGIN_S)

    async def start(self, name: str) -> None:
        """Also what stopped for good. Nothing when it runs."""
        kept = self._kept_named(name)
        if kept.keeper is None or kept.keeper.done():
            self._begin(kept)
        else:
            kept.wake.set()

    async def kill(self, name: str) -> None:
        """SIGKILL, as a crash would; it is started again."""
        kept = self._kept_named(name)
        if kept.child is not None:
            kept.child.signal(signal.SIGKILL)

    # -- masters: their end, and the last birth and start

    def _prove(self, node: str, code: int) -> None:
        """This process has been waited for: it is gone for certain, which no other master can know (protocol section
        3). Not while everything ends: then nobody shall let anybody go."""
        seen = self._seen.get(node)
        if seen is None or self._ending:
            return
        others = {kept.program.name: kept.program.url for kept in self._kept.values() if kept.program.role == "master"}
        others.pop(node)
        proof = prove_down(node, seen["birth"], seen["start"], others, self.state, left=code == 0)
        task = asyncio.get_running_loop().create_task(proof, name=f"proof-{node}")
        self._proofs.add(task)
        task.add_done_callback(self._proofs.discard)

    def _write_node(self, node: str) -> None:
        config = self.plan.nodes[node]
        seen = self._seen.get(node)
        config = config.model_copy(update={"last_seen": LastSeenIncarnation(**seen) if seen else None})
        self.state.write_config(self.state.master(node) / "config.json", config)

    async def _watch_masters(self) -> None:
        async with session_of(self.state, 2.0) as session:
            next_look = 0.0
            while True:
                everybody = time.monotonic() >= next_look
                masters = [kept for kept in self._kept.values() if kept.program.role == "master" and kept.child]
                new = [k for k in masters if k.child and self._seen_start.get(k.program.name) != k.child.pid]
                await asyncio.gather(*(self._look(session, kept) for kept in (masters if everybody else new)))
                if everybody:
                    next_look = time.monotonic() + self._pace.watch
                await asyncio.sleep(self._pace.watch_new)

    async def _look(self, session: aiohttp.ClientSession, kept: Kept) -> None:
        node, child = kept.program.name, kept.child
        try:
            async with session.get(f"{kept.program.url}/txlog/status") as answer:
                status = await answer.json()
            birth, start = status["birth"], int(status["start"])
            seen = {"birth": int(birth, 16) if isinstance(birth, str) else int(birth), "start": start}
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
            return  # unknown is not wrong: it is asked again
        if child is None or kept.child is not child or status.get("node") != node or start < 1:
            return
        self._seen_start[node] = child.pid
        if self._seen.get(node) != seen:
            self._seen[node] = seen
            self.state.write("seen.json", self._seen)

    async def _watch_logs(self) -> None:
        while True:
            await asyncio.sleep(self._pace.logs)
            for name in list(self._kept):
                await asyncio.to_thread(bound_log, self.state.log(name))
            for data_center in self.plan.backups:
                await asyncio.to_thread(bound_log, self.state.log(log_name(data_center)))
            for data_center in self.plan.duties:
                await asyncio.to_thread(bound_log, self.state.log(performing.log_name(data_center)))
            await asyncio.to_thread(bound_log, self.state.log("supervisor"))

    # -- links

    async def _open_links(self, mine: socket.socket) -> None:
        self._links_reader, self._links_writer = await asyncio.open_connection(sock=mine)
        try:
            await self.tell_links()
        except CannotRun as error:
            log.warning("%s", error)

    def _close_links(self) -> None:
        if self._links_writer is not None:
            self._links_writer.close()
        self._links_reader = self._links_writer = None

    async def tell_links(self) -> list[dict[str, Any]]:
        """Give the link proxies the whole table; returns what they carry, by ordered pair."""
        async with self._links_lock:
            reader, writer = self._links_reader, self._links_writer
            if reader is None or writer is None:
                if not self.plan.links:
                    return []
                raise CannotRun("the links' process is not there; it gets this table when it has started again")
            order = next(self._orders)
            try:
                writer.write(json.dumps({"id": order, "table": self.links.rows()}).encode() + b"\n")
                async with asyncio.timeout(LINKS_ANSWER_S):
                    while line := await reader.readline():
                        answer = json.loads(line)
                        if answer["id"] == order:
                            links: list[dict[str, Any]] = answer["links"]
                            return links
            except (TimeoutError, ConnectionError):
                pass
            raise CannotRun("the links' process does not answer; it gets this table when it has started again")

    async def change_links(self, change: Callable[[LinkTable], int]) -> int:
        """Change the table, and have it in force. Returns how many directions were named."""
        count = change(self.links)
        await self.tell_links()
        return count

    # -- for people and machines

    def describe(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "folder": str(self.state.root),
            "startedAt": self._started_at,
            "repository": self.plan.topology.repository,
            "processes": [self._describe(kept) for kept in self._kept.values()],
            "faults": self.links.rows(),
            "backups": self.backups.describe(),
            "duties": self.duties.describe(),
        }

    def _describe(self, kept: Kept) -> dict[str, Any]:
        program = kept.program
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
            "said": last_lines(self.state.log(program.name), 3) if kept.state is State.FATAL else [],
        }


__all__ = ["LINKS", "Pace", "State", "Supervisor"]
