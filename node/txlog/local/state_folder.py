"""The one folder in which a local cluster keeps everything (``--state``, by default ``.txlog``)::

txlog-state.json   the mark that this folder is ours, and its format
lock               held by the supervisor as long as it lives; the kernel lets go of it even after kill -9
control.json       how to reach the supervisor: loopback URL, token, process
topology.json      what runs where, for the command line
ports.json         name to port, kept over restarts
workers.json       workers that were added or taken out since the manifests
processes.json     process id and start time of every child, so that leftovers are found
seen.json          the last birth and start seen of every master (protocol section 1)
peer-token         what the masters show each other
own-token          what our own processes show the masters, where a manifest names users
tls/               this cluster's own authority and certificates, where a manifest asks for TLS and brings none
tls-trusted.crt    the authorities whom our own processes believe, where a manifest asks for TLS
logs/NAME.log      what each process says, and NAME.log.1 before it
masters/NODE/      config.json, journal/
workers/NAME/      the store's own files
pipelines/DC/      config.json, scratch/
backups/DC.json    where backups of that data centre go, how many stay
backups.json       when the next is due, how the last one ended
repaired/DC/       what repairs took out of workers and put in
shown/DC/          of workers that went back: the graphs that are not what they had shown
secrets/NAME/      a secretRef's files, put there by hand; users (by txlog user)
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from pydantic import BaseModel, ConfigDict

from txlog.auth import generate_token
from txlog.client.ca_trust import CA_FILE, CaTrust
from txlog.client.credentials import TOKEN_FILE, Credentials
from txlog.local.local_errors import AlreadyRunning, NotOurFolder, NotRunning

FORMAT_VERSION: Final = 1
DEFAULT_FOLDER: Final = Path(".txlog")
USERS_FILE: Final = "users"
"""In the folder of the secret that ``security.users`` names."""
LOCK_WAIT_S: Final = 1.0


def _lock(lock: IO[str], how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _StateModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class MasterLocation(_StateModel):
    node: str
    data_center: str
    url: str


class WorkerLocation(_StateModel):
    name: str
    data_center: str
    url: str
    engine: str
    managed: bool
    serves: bool = True
    """Whether the masters know it: a store that is being filled is none of theirs yet."""


class Topology(_StateModel):
    """What runs where. Masters are in order of precedence."""

    repository: str
    data_centers: list[str]
    masters: list[MasterLocation]
    workers: list[WorkerLocation]

    def masters_of(self, data_center: str) -> list[MasterLocation]:
        return [master for master in self.masters if master.data_center == data_center]


class AddedWorker(_StateModel):
    name: str
    data_center: str
    serves: bool


class WorkerChanges(_StateModel):
    """What was added and taken out since the manifests (``txlog worker``)."""

    added: list[AddedWorker] = []
    removed: list[str] = []

    def with_added(self, name: str, data_center: str, *, serves: bool) -> WorkerChanges:
        added = AddedWorker(name=name, data_center=data_center, serves=serves)
        others = [each for each in self.added if each.name != name]
        return WorkerChanges(added=[*others, added], removed=[each for each in self.removed if each != name])

    def without(self, name: str) -> WorkerChanges:
        others = [each for each in self.added if each.name != name]
        return WorkerChanges(added=others, removed=[*(each for each in self.removed if each != name), name])


class SupervisorEndpoint(_StateModel):
    url: str
    token: str
    pid: int


class StateFolder:
    """Paths and files of one local cluster."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.trust = CaTrust(self.trusted_file)

    @property
    def _format_file(self) -> Path:
        return self.root / "txlog-state.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def token_file(self) -> Path:
        return self.root / "peer-token"

    @property
    def own_token_file(self) -> Path:
        return self.root / "own-token"

    @property
    def own_environment(self) -> dict[str, str]:
        """With which a process of ours is known to the masters, and knows them."""
        known = {CA_FILE: str(self.trusted_file)} if self.trusted_file.exists() else {}
        return {TOKEN_FILE: str(self.own_token_file), **known}

    def own_headers(self) -> dict[str, str]:
        """The same for a request of the supervisor's."""
        return dict(Credentials(self.own_token_file).headers())

    @property
    def trusted_file(self) -> Path:
        return self.root / "tls-trusted.crt"

    @property
    def certificates(self) -> Path:
        """Of this cluster's own making."""
        return self.root / "tls"

    def write_trusted(self, text: str | None) -> None:
        """The authorities whom our own processes believe; None: no master speaks TLS to them."""
        if text is None:
            self.trusted_file.unlink(missing_ok=True)
        elif not self.trusted_file.exists() or self.trusted_file.read_text() != text:
            self._write_text(self.trusted_file, text)

    def master(self, node: str) -> Path:
        return self.root / "masters" / node

    def worker(self, name: str) -> Path:
        return self.root / "workers" / name

    def pipeline(self, data_center: str) -> Path:
        return self.root / "pipelines" / data_center

    def backup(self, data_center: str) -> Path:
        return self.root / "backups" / f"{data_center}.json"

    def duties(self, data_center: str) -> Path:
        return self.root / "duties" / f"{data_center}.json"

    def split_backups(self, data_center: str) -> Path:
        """Where split backups go when the manifest names no target."""
        return self.root / "split-backups" / data_center

    def repair_patches(self, data_center: str) -> Path:
        """What repairs took out of workers and put in, as RDF Patches."""
        return self.root / "repaired" / data_center

    def rejoin_diffs(self, data_center: str) -> Path:
        """What workers that went back had shown, by graph (``txlog split-report``)."""
        return self.root / "shown" / data_center

    def secret(self, name: str) -> Path:
        return self.root / "secrets" / name

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    # -- its life

    @property
    def exists(self) -> bool:
        return self._format_file.is_file()

    def prepare(self) -> None:
        """Make the folder, or recognise it. :class:`NotOurFolder` when something else is in it."""
        if not self.exists:
            if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
                raise NotOurFolder(f"{self.root} holds other files; choose an empty or new folder with --state")
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o700)
            self.write("txlog-state.json", {"format": FORMAT_VERSION})
        found = self.read("txlog-state.json")
        if found != {"format": FORMAT_VERSION}:
            raise NotOurFolder(f"{self.root} was made by another version of TxLog ({found}); choose another --state")
        self.logs.mkdir(exist_ok=True)
        if not self.token_file.exists():
            self._write_text(self.token_file, secrets.token_hex(32) + "\n")
        if not self.own_token_file.exists():
            self._write_text(self.own_token_file, generate_token() + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; :class:`AlreadyRunning` when a supervisor does.

        Whoever asks :attr:`is_locked` shares the lock for a moment, so a refusal is believed after a moment only."""
        until = time.monotonic() + LOCK_WAIT_S
        with open(self.root / "lock", "a") as lock:  # Python's files are not inherited, so no child keeps it
            while not _lock(lock, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    raise AlreadyRunning(
                        f"a cluster already runs with the state folder {self.root}; see txlog status, or end it:"
                        " txlog down"
                    )
                time.sleep(0.01)
            yield

    @property
    def is_locked(self) -> bool:
        """Whether a supervisor lives."""
        if not (self.root / "lock").exists():
            return False
        with open(self.root / "lock") as lock:
            return not _lock(lock, fcntl.LOCK_SH)

    def purge(self) -> None:
        """Remove the folder and everything in it. Only while nothing runs."""
        if not self.exists:
            raise NotOurFolder(f"{self.root} is not a state folder of TxLog, nothing was removed")
        with self.locked():
            shutil.rmtree(self.root)

    # -- its files

    def read(self, name: str, default: Any = None) -> Any:
        """A JSON file of the folder; ``default`` when it is not there or half written by something else."""
        try:
            return json.loads((self.root / name).read_text())
        except (FileNotFoundError, ValueError):
            return default

    def write(self, name: str, value: Any) -> None:
        """Whole or not at all; readable by its owner only, since some hold tokens."""
        self._write_text(self.root / name, json.dumps(value, indent=1) + "\n")

    def write_config(self, path: Path, config: BaseModel) -> None:
        """What differs from the defaults: an older program refuses fields that it does not know (decision 37)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write_text(path, config.model_dump_json(indent=1, exclude_defaults=True) + "\n")

    def _write_text(self, path: Path, text: str) -> None:
        new = path.with_name(path.name + ".new")
        new.touch(mode=0o600)
        new.write_text(text)
        os.replace(new, path)

    def worker_changes(self) -> WorkerChanges:
        return WorkerChanges.model_validate(self.read("workers.json", {}))

    def write_worker_changes(self, changes: WorkerChanges) -> None:
        self.write("workers.json", changes.model_dump())

    def topology(self) -> Topology:
        """What was started last. :class:`NotRunning` when nothing ever was."""
        found = self.read("topology.json")
        if found is None:
            raise NotRunning(self.root)
        return Topology.model_validate(found)

    def control(self) -> SupervisorEndpoint:
        """How to reach the supervisor. :class:`NotRunning` without one."""
        found = self.read("control.json") if self.is_locked else None
        if found is None:
            raise NotRunning(self.root)
        return SupervisorEndpoint.model_validate(found)
