"""A throw-away store of an engine, on a loopback port, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.pinned_snapshot import POLL_S, read_system_graphs
from txlog.client.ca_trust import CA_FILE
from txlog.client.credentials import TOKEN_FILE
from txlog.config.units import server_of_engine
from txlog.local.child_process import end_with_parent
from txlog.local.engines.fuseki_server import DATASET, fuseki_command, obtain_fuseki
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.rdf4j_server import REPOSITORY_PATH, obtain_rdf4j, prepare_rdf4j, rdf4j_command
from txlog.local.engines.virtuoso_server import obtain_virtuoso, prepare_virtuoso, virtuoso_command
from txlog.local.local_errors import CannotRun
from txlog.model.errors import WorkerFault
from txlog.rehearsal.rehearsal_errors import NoScratchStore
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

START_S: Final = 120.0
STOP_S: Final = 10.0
READ_TIMEOUT_S: Final = 600.0
_SECRETS: Final = (TOKEN_FILE, CA_FILE, "AWS_")
"""Names in the environment begin so, which no throw-away process gets."""
_LOG_CHARS: Final = 500


@contextmanager
def scratch_store(engine: str, folder: Path, start_s: float = START_S) -> Iterator[RestoreTarget]:
    """An empty store; its process ends with the context, and with this process. ``folder`` exists; its content is the
    caller's to delete. :class:`NoScratchStore` when it cannot be started."""
    port = free_loopback_port()
    data = folder / "store"
    data.mkdir(exist_ok=True)
    log = folder / "store.log"
    try:
        command = _COMMANDS[server_of_engine(engine)](data, port, folder)
    except CannotRun as error:
        raise NoScratchStore(f"a throw-away store of {engine}: {error}") from None
    with run_beside(command, log), HttpTransport(f"http://127.0.0.1:{port}{_path(engine)}", READ_TIMEOUT_S) as store:
        into = RestoreTarget("the throw-away store", ADAPTERS[engine], store)
        _wait_until_answers(into, log, start_s)
        yield into


@contextmanager
def run_beside(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the context: it is asked to, then killed with its group."""
    parent = os.getpid()
    with open(log, "ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if not name.startswith(_SECRETS)},
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_loopback_port() -> int:
    """A port that is free now."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_answers(into: RestoreTarget, log: Path, start_s: float) -> None:
    until = time.monotonic() + start_s
    while True:
        try:
            read_system_graphs(into.adapter, into.transport)
        except WorkerFault as error:
            if time.monotonic() > until:
                last = log.read_text("utf-8", "replace")[-_LOG_CHARS:].strip()
                raise NoScratchStore(f"the throw-away store does not answer: {error}; its log ends: {last}") from None
            time.sleep(POLL_S)
        else:
            return


def _path(engine: str) -> str:
    return {"fuseki": f"/{DATASET}", "rdf4j": REPOSITORY_PATH}.get(server_of_engine(engine), "")


def _oxigraph(data: Path, port: int, _: Path) -> tuple[str, ...]:
    beside = Path(sys.executable).parent / "oxigraph"
    program = str(beside) if beside.exists() else shutil.which("oxigraph")
    if program is None:
        raise CannotRun("no program oxigraph beside this Python or on the PATH; install it: pip install oxigraph")
    return (program, "serve", "-l", str(data), "-b", f"127.0.0.1:{port}")


def _fuseki(data: Path, port: int, folder: Path) -> tuple[str, ...]:
    return fuseki_command(obtain_fuseki(), obtain_java_home(folder / "java"), data, port)


def _rdf4j(data: Path, port: int, folder: Path) -> tuple[str, ...]:
    prepare_rdf4j(data)
    return rdf4j_command(obtain_rdf4j(folder / "rdf4j"), obtain_java_home(folder / "java"), data, port)


def _virtuoso(data: Path, port: int, _: Path) -> tuple[str, ...]:
    prepare_virtuoso(data, port)
    return virtuoso_command(obtain_virtuoso(), data)


_COMMANDS: Final[dict[str, Callable[[Path, int, Path], tuple[str, ...]]]] = {
    "oxigraph": _oxigraph,
    "fuseki": _fuseki,
    "rdf4j": _rdf4j,
    "virtuoso": _virtuoso,
}
