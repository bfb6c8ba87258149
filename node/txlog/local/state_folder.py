"""The one folder in which a local cluster keeps everything (``--state``, by default ``.txlog``)::

txlog-state.json   the mark that this folder is ours, and its format
lock               locked while the supervisor runs; the kernel releases it even after kill -9
control.json       how to reach the supervisor: loopback URL, token, process
topology.json      what runs where, for the command line
ports.json         name to port, kept over restarts
workers.json       workers that were added or removed since the manifests were written
repositories.json  further repositories that the manifests name or have named, and their stores
processes.json     process id and start time of every child, so that leftovers are found
seen.json          the last incarnation and start seen of every master (protocol section 1)
peer-token         the token that masters present to each other
own-token          the token of local processes for the masters, where a manifest names users
tls/               the generated authority and certificates, where a manifest requires TLS and supplies none
tls-trusted.crt    the authorities that local processes trust, where a manifest requires TLS
logs/NAME.log      the output of each process; NAME.log.1 is older
masters/NODE/      config.json, journal/
workers/NAME/      the store's own files
pipelines/DC/      config.json, scratch/
backups/DC.json    where backups of that data centre go, how many stay
backups.json       when the next is due, how the last one ended
rehearsals/        DC.json, and beside it rehearsals.json: the same of rehearsed recoveries
archivers/DC.json  the archiver of that data centre
capture/DC/        of its change sets: config.json, store/
repaired/DC/       quads that repairs removed from workers and added
shown/DC/          of restored workers: the graphs that differ from what they had served
DC.REPOSITORY      in place of DC: the same of a further repository's duties
secrets/NAME/      a secretRef's files, supplied by the operator; users (by txlog user)
"""

from __future__ import annotations

import fcntl
import json
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
from txlog.config.atomic_file import write_atomically
from txlog.local.local_errors import AlreadyRunning, NotOurFolder, NotRunning

FORMAT_VERSION: Final = 1
DEFAULT_FOLDER: Final = Path(".txlog")
USERS_FILE: Final = "users"
"""The file in the folder of the Secret that ``security.users`` names."""
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
    """A master of the topology, and where it is reached."""

    node: str
    data_center: str
    url: str


class WorkerLocation(_StateModel):
    """A worker of the topology, and where its store is reached. ``managed``: a process of this machine."""

    name: str
    data_center: str
    url: str
    engine: str
    managed: bool
    serves: bool = True
    """Whether the masters know it: a store that is being filled is not their worker yet."""
    repository: str = ""
    """The further repository whose worker it is; empty for the first one."""


class Topology(_StateModel):
    """What runs where. Masters are in order of precedence. ``repository``, ``workers``: the first repository.
    ``repository_workers``: those of all further ones."""

    repository: str
    data_centers: list[str]
    masters: list[MasterLocation]
    workers: list[WorkerLocation]
    repository_workers: list[WorkerLocation] = []

    def masters_of(self, data_center: str) -> list[MasterLocation]:
        """The masters of that data centre."""
        return [master for master in self.masters if master.data_center == data_center]

    def master_urls(self, data_center: str) -> list[str]:
        """Their URLs."""
        return [master.url for master in self.masters_of(data_center)]


class AddedWorker(_StateModel):
    """A worker that was added since the manifests were written."""

    name: str
    data_center: str
    serves: bool


class WorkerChanges(_StateModel):
    """Workers that were added and removed since the manifests were written (``txlog worker``)."""

    added: list[AddedWorker] = []
    removed: list[str] = []

    def with_added(self, name: str, data_center: str, *, serves: bool) -> WorkerChanges:
        """These changes and the added worker."""
        added = AddedWorker(name=name, data_center=data_center, serves=serves)
        others = [each for each in self.added if each.name != name]
        return WorkerChanges(added=[*others, added], removed=[each for each in self.removed if each != name])

    def without(self, name: str) -> WorkerChanges:
        """These changes with that worker among the removed ones."""
        others = [each for each in self.added if each.name != name]
        return WorkerChanges(added=others, removed=[*(each for each in self.removed if each != name), name])


class SupervisorEndpoint(_StateModel):
    """How to reach the supervisor: the content of ``control.json``."""

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
        """The folder of all log files."""
        return self.root / "logs"

    @property
    def token_file(self) -> Path:
        """The secret that all masters share."""
        return self.root / "peer-token"

    @property
    def own_token_file(self) -> Path:
        """The token of the supervisor, the pipelines and the jobs, for masters with users."""
        return self.root / "own-token"

    @property
    def own_environment(self) -> dict[str, str]:
        """Environment of a local process with its credentials for the masters and the trusted authorities."""
        known = {CA_FILE: str(self.trusted_file)} if self.trusted_file.exists() else {}
        return {TOKEN_FILE: str(self.own_token_file), **known}

    def own_credentials(self) -> Credentials:
        """The same credentials for a request of the supervisor."""
        return Credentials(self.own_token_file)

    @property
    def trusted_file(self) -> Path:
        """The authorities that local processes trust; exists only where a master uses TLS for clients."""
        return self.root / "tls-trusted.crt"

    @property
    def certificates(self) -> Path:
        """The folder of the generated certificates."""
        return self.root / "tls"

    def write_trusted(self, text: str | None) -> None:
        """Writes the authorities that local processes trust; None: no master uses TLS for them."""
        if text is None:
            self.trusted_file.unlink(missing_ok=True)
        elif not self.trusted_file.exists() or self.trusted_file.read_text() != text:
            write_atomically(self.trusted_file, text.encode(), 0o600)

    def master(self, node: str) -> Path:
        """The folder of a master."""
        return self.root / "masters" / node

    def worker(self, name: str) -> Path:
        """The folder of a worker's store."""
        return self.root / "workers" / name

    def pipeline(self, data_center: str) -> Path:
        """The folder of a data centre's pipeline."""
        return self.root / "pipelines" / data_center

    def backup(self, data_center: str) -> Path:
        """The configuration of a data centre's backup jobs."""
        return self.root / "backups" / f"{data_center}.json"

    def archiver(self, data_center: str) -> Path:
        """The configuration of a data centre's archiver."""
        return self.root / "archivers" / f"{data_center}.json"

    def change_sets(self, data_center: str) -> Path:
        """The folder of a data centre's change sets."""
        return self.root / "capture" / data_center

    def sites(self, data_center: str) -> Path:
        """The folder of a data centre's links from other sites."""
        return self.root / "sites" / data_center

    def rehearsal(self, data_center: str) -> Path:
        """The configuration of a data centre's rehearsals."""
        return self.root / "rehearsals" / f"{data_center}.json"

    def duties(self, data_center: str) -> Path:
        """The configuration of a data centre's duty jobs."""
        return self.root / "duties" / f"{data_center}.json"

    def split_backups(self, data_center: str) -> Path:
        """Where split backups go when the manifest names no target."""
        return self.root / "split-backups" / data_center

    def repair_patches(self, data_center: str) -> Path:
        """What repairs removed from workers and added, as RDF Patches."""
        return self.root / "repaired" / data_center

    def rejoin_diffs(self, data_center: str) -> Path:
        """What restored workers had served, by graph (``txlog split-report``)."""
        return self.root / "shown" / data_center

    def secret(self, name: str) -> Path:
        """The folder with the files of a ``secretRef``."""
        return self.root / "secrets" / name

    def log(self, name: str) -> Path:
        """The log file of a process."""
        return self.logs / f"{name}.log"

    # -- lifecycle

    @property
    def exists(self) -> bool:
        """Whether the folder has the mark of a state folder."""
        return self._format_file.is_file()

    def prepare(self) -> None:
        """Creates the folder, or recognises it. :class:`NotOurFolder` when it has other content."""
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
            write_atomically(self.token_file, (secrets.token_hex(32) + "\n").encode(), 0o600)
        if not self.own_token_file.exists():
            write_atomically(self.own_token_file, (generate_token() + "\n").encode(), 0o600)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder; :class:`AlreadyRunning` when a supervisor has locked it.

        A caller of :attr:`is_locked` takes a shared lock for a moment, so only a repeated failure counts.
        """
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
        """Whether a supervisor runs."""
        if not (self.root / "lock").exists():
            return False
        with open(self.root / "lock") as lock:
            return not _lock(lock, fcntl.LOCK_SH)

    def purge(self) -> None:
        """Removes the folder with all content. Only while nothing runs."""
        if not self.exists:
            raise NotOurFolder(f"{self.root} is not a state folder of TxLog, nothing was removed")
        with self.locked():
            shutil.rmtree(self.root)

    # -- files

    def read(self, name: str, default: Any = None) -> Any:
        """A JSON file of the folder; ``default`` when it does not exist or is not valid JSON."""
        try:
            return json.loads((self.root / name).read_text())
        except (FileNotFoundError, ValueError):
            return default

    def write(self, name: str, value: Any) -> None:
        """Atomic; only the owner can read the file, since some contain tokens."""
        write_atomically(self.root / name, (json.dumps(value, indent=1) + "\n").encode(), 0o600)

    def write_config(self, path: Path, config: BaseModel) -> None:
        """Writes only what differs from the defaults: an older program refuses fields that it does not know (decision
        37)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (config.model_dump_json(indent=1, exclude_defaults=True) + "\n").encode(), 0o600)

    def worker_changes(self) -> WorkerChanges:
        """The stored differences from the manifests; none without the file."""
        return WorkerChanges.model_validate(self.read("workers.json", {}))

    def write_worker_changes(self, changes: WorkerChanges) -> None:
        """Stores the differences from the manifests."""
        self.write("workers.json", changes.model_dump())

    def topology(self) -> Topology:
        """The topology of the last start. :class:`NotRunning` when there was none."""
        found = self.read("topology.json")
        if found is None:
            raise NotRunning(self.root)
        return Topology.model_validate(found)

    def control(self) -> SupervisorEndpoint:
        """The supervisor's URL and token. :class:`NotRunning` without one."""
        found = self.read("control.json") if self.is_locked else None
        if found is None:
            raise NotRunning(self.root)
        return SupervisorEndpoint.model_validate(found)
