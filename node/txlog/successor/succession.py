"""Founds the successor of a lost cluster: reads and proves the archive, takes the claim, writes one journal.

Each step can be repeated. ``recovery.json`` beside the journal is written first, so a recovery that broke off goes on
with its own claim and birth. The journal appears whole, by a rename.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, engine_with_form, plan_restore, read_timelines
from txlog.archive.restore_plan import RestorePlan
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_retention import hold_stream
from txlog.backup.target import BackupTarget
from txlog.config.atomic_file import sync_folder, write_durably
from txlog.config.process_config import NodeConfig, WorkerConfig
from txlog.config.units import AS_WRITTEN
from txlog.journal import Journal, OsVfs
from txlog.model.configuration import Configuration, Master
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.records import Record
from txlog.successor.first_records import FirstMaster, first_records
from txlog.successor.inheritance import Inheritance, read_inheritance
from txlog.successor.recovery_claim import Claim, find_claim, take_claim
from txlog.successor.successor_errors import OtherFounder, StillThere

MEMORY_FILE: Final = "recovery.json"
"""Beside the journal: what this recovery began with."""
LOST_FILE: Final = "lost-transactions.json"
"""Beside the journal: the archived transactions that the new cluster does not have, as spans."""


class SuccessionRequest(NamedTuple):
    """``master``: the first configured master, whose journal is written. ``target``: where ``reader``'s stream is, for
    the claim. ``is_copy``: a cluster elsewhere that takes no other one's place, so it takes no claim. ``supersede``:
    the number of an earlier recovery's claim that this one replaces. ``on_step``: called with the name of each step."""

    master: NodeConfig
    target: BackupTarget
    reader: StreamReader
    restore: MomentRequest
    is_copy: bool = False
    supersede: int | None = None
    without_older_keys: bool = False
    on_step: Callable[[str], None] = lambda _: None

    @property
    def memory(self) -> Path:
        """The file of what this recovery began with."""
        return self.master.journal_folder.with_name(MEMORY_FILE)


class Succession(NamedTuple):
    """``inherited``: None where the journal existed already."""

    claim: Claim
    plan: RestorePlan
    inherited: Inheritance | None


class _Memory(msgspec.Struct, frozen=True):
    """``recovery.json``. ``claim``: None before the first one was taken."""

    token: str
    birth: str
    stream: str
    moment: str
    is_copy: bool
    claim: Claim | None = None


def plan_succession(request: SuccessionRequest) -> tuple[RestorePlan, Inheritance]:
    """What :func:`found_successor` would take over; nothing is written."""
    return _read(request, request.restore)


def found_successor(request: SuccessionRequest) -> Succession:
    """The journal of the first master is durable on return. A repeated call finds it.

    Raises, without any change: what a restore's plan raises,
    :class:`~txlog.successor.successor_errors.AlreadyRecovered`,
    :class:`~txlog.successor.successor_errors.KeysUnknown`, :class:`StillThere` for a journal that no recovery wrote,
    :class:`OtherFounder` where this folder has begun another recovery."""
    with hold_stream(request.reader.stream):
        return _found(request)


def _found(request: SuccessionRequest) -> Succession:
    journal = request.master.journal_folder
    memory = _begin(request)
    claim = memory.claim or _known_claim(request, memory)
    restore = request.restore
    if claim is not None:  # what was promised once is kept, also if the archive has grown since
        restore = restore._replace(moment=parse_moment(f"position:{claim.index}:{claim.hash}"))
    if claim is not None and has_journal(journal):
        return Succession(claim, plan_restore(request.reader, restore), None)
    request.on_step("reading the archive")
    plan, inherited = _read(request, restore)
    first = _first_master(request, int(memory.birth, 16))
    wanted = Claim(
        memory.token,
        request.restore.moment.text,
        plan.place.index,
        plan.place.hash.hex(),
        first.cluster.hex(),
        first.node,
        memory.birth,
    )
    if not request.is_copy:
        request.on_step("taking the claim")
        claim = take_claim(request.target, request.reader.stream.id, wanted, request.supersede)
    claim = claim or wanted
    if claim.successor != wanted.successor:
        raise OtherFounder(
            f"this recovery began as cluster {claim.successor} of {claim.node}; the manifests now make "
            f"{wanted.successor} of {wanted.node}: put the peers back, or begin again with --supersede in a new folder"
        )
    _write(request.memory, msgspec.structs.replace(memory, claim=claim))
    _write(journal.with_name(LOST_FILE), inherited.lost)
    request.on_step("writing the journal")
    write_journal(request.master, first.birth, first_records(inherited, first))
    return Succession(claim, plan, inherited)


def has_journal(folder: Path) -> bool:
    """Whether a master has begun a journal there."""
    return folder.is_dir() and any(folder.iterdir())


def refuse_survivors(journals: Mapping[str, Path], *, without: Sequence[str]) -> list[Path]:
    """The journals that masters have, by node, of which each has to be named in ``without``; these are to be set
    aside. :class:`StillThere` names the others."""
    found = {node: folder for node, folder in journals.items() if has_journal(folder)}
    kept = [node for node in found if node not in without]
    if kept:
        raise StillThere(
            f"{', '.join(kept)} still has a journal, so not everything is lost: start the cluster with it. If its data "
            f"is to be given up, name it: {' '.join(f'--without {node}' for node in kept)}"
        )
    return list(found.values())


def set_aside(journal: Path) -> Path:
    """Renames a journal that is given up, so that nothing of it is deleted. Returns its new place."""
    number = 1
    while (place := journal.with_name(f"{journal.name}.given-up-{number}")).exists():
        number += 1
    journal.rename(place)
    return place


def write_journal(master: NodeConfig, birth: int, records: Sequence[Record]) -> None:
    """A journal with these records. It is at its place, whole and durable, on return."""
    folder = master.journal_folder
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    files = OsVfs(new, master.journal_bytes_max)
    journal, _ = Journal.open(files, node=master.node, draw_birth=lambda: birth, segment_bytes=master.segment_bytes)
    try:
        for record in records:
            journal.append(record)
        journal.sync()
    finally:
        journal.close()
    if folder.is_dir():
        folder.rmdir()  # empty: a master that has a journal was refused before
    new.rename(folder)
    sync_folder(folder.parent)


def _read(request: SuccessionRequest, restore: MomentRequest) -> tuple[RestorePlan, Inheritance]:
    reader, retention_ms = request.reader, request.master.key_retention_ms
    if reader.skips_fault is not None and not request.is_copy:
        raise reader.skips_fault  # the new cluster would lack namespaces, and nothing would tell

    def read() -> tuple[RestorePlan, Inheritance]:
        plan = plan_restore(reader, restore)
        timelines = read_timelines(reader, restore)
        found = read_inheritance(
            timelines, plan, reader.read, retention_ms, without_older_keys=request.without_older_keys
        )
        return plan, found

    return reader.with_sound_files(read)


def _begin(request: SuccessionRequest) -> _Memory:
    stream, moment = request.reader.stream.id.folder, request.restore.moment.text
    try:
        memory = msgspec.json.decode(request.memory.read_bytes(), type=_Memory)
    except FileNotFoundError:
        if has_journal(request.master.journal_folder):
            raise StillThere(
                f"{request.master.journal_folder} holds a journal that no recovery wrote: not everything is lost"
            ) from None
        memory = _Memory(secrets.token_hex(16), f"{secrets.randbits(64):016x}", stream, moment, request.is_copy)
        _write(request.memory, memory)
        return memory
    except DECODE_ERRORS as error:
        raise OtherFounder(f"{request.memory} cannot be read: {error}; begin in a new folder") from None
    if (memory.stream, memory.moment, memory.is_copy) != (stream, moment, request.is_copy):
        raise OtherFounder(
            f"{request.memory}: this folder was recovered from {memory.stream} to {memory.moment}"
            f"{' as a copy' if memory.is_copy else ''}; use another --state for another recovery"
        )
    return memory


def _known_claim(request: SuccessionRequest, memory: _Memory) -> Claim | None:
    """This recovery's own claim, if it broke off after it was written."""
    if request.is_copy:
        return None
    found = find_claim(request.target, request.reader.stream.id)
    return found.claim if found is not None and found.claim.token == memory.token else None


def recovered_engine(master: NodeConfig, reader: StreamReader, restore: MomentRequest, worker: WorkerConfig) -> str:
    """The engine of a store of the new cluster, with the form in which the lost one held literals. ``master``: one of
    the store's data centre."""
    if not master.can_keep_literals or master.names_as_written:
        return worker.engine
    return engine_with_form(reader, restore.backups, worker.engine)


def _first_master(request: SuccessionRequest, birth: int) -> FirstMaster:
    master = request.master
    masters = [Master(peer.node, peer.data_center, peer.weight) for peer in master.peers]
    engines = [recovered_engine(master, request.reader, request.restore, worker) for worker in master.workers]
    configuration = Configuration(
        masters,
        master.split_mode == "Majority",
        master.key_retention_ms,
        keeps_literals=AS_WRITTEN in engines,
        graphs=[rule.parse() for rule in master.graphs],
    )
    return FirstMaster(master.node, birth, configuration, master.split_recovery)


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, json.dumps(msgspec.to_builtins(value), indent=1).encode() + b"\n")
