"""The first master of the rehearsed cluster, as a process of its own: does it take writes, and does it know the old
idempotency keys?"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from txlog.client import MasterClient
from txlog.client.credentials import Credentials
from txlog.client.master_client import SPARQL_UPDATE
from txlog.config.process_config import NodeConfig
from txlog.model.bulk_entry import BULK_KEY_PREFIX
from txlog.model.durability import Durability
from txlog.model.errors import KeyTaken, TxLogError
from txlog.rehearsal.rehearsal_errors import KeyForgotten, NoScratchMaster
from txlog.rehearsal.scratch_store import run_beside

START_S: Final = 120.0
ANSWER_S: Final = 30.0
_POLL_S: Final = 0.1
_LOG_CHARS: Final = 500
_UPDATE: Final = b"INSERT DATA { GRAPH <urn:rehearsal> { <urn:rehearsal> <urn:rehearsal> <urn:rehearsal> } }"
_OTHER_UPDATE: Final = b"INSERT DATA { GRAPH <urn:rehearsal> { <urn:rehearsal> <urn:rehearsal> <urn:another> } }"


@contextmanager
def scratch_master_process(master: NodeConfig, folder: Path) -> Iterator[MasterClient]:
    """The master, once it is ready. It has a token of its own, and no secret of the rehearsed cluster.
    :class:`NoScratchMaster` when it does not become ready."""
    master.peer_token_file.write_text(secrets.token_hex(32) + "\n")
    config, log = folder / "master.json", folder / "master.log"
    config.write_text(master.model_dump_json())
    command = [sys.executable, "-m", "txlog.server", "--config", str(config)]
    url = f"http://127.0.0.1:{master.port}"
    with run_beside(command, log) as process, MasterClient(url, ANSWER_S, credentials=Credentials(None)) as client:
        _wait_until_ready(client, process, log)
        yield client


def write_first(client: MasterClient, repository: str) -> str:
    """A transaction under a new key, once it is ``synced``. Returns the key. Raises what the master raises."""
    key = f"rehearsal-{secrets.token_hex(8)}"
    first = client.write(repository, _UPDATE, SPARQL_UPDATE, key=key, durability=Durability.SYNCED, wait_s=ANSWER_S)
    again = client.write(repository, _UPDATE, SPARQL_UPDATE, key=key, durability=Durability.SYNCED, wait_s=ANSWER_S)
    if first.txid is None or first.durability is None or first.txid != again.txid:
        raise KeyForgotten(f"a new transaction got the ids {first.txid} and {again.txid} under one key")
    return key


def find_repeatable(keys: Iterable[str]) -> str | None:
    """The last of the archived keys that a client may repeat; None where there is none. A master refuses the keys of
    bulk loads to every client, so they show nothing."""
    return next((key for key in reversed(list(keys)) if not key.startswith(BULK_KEY_PREFIX)), None)


def refuse_forgotten(client: MasterClient, repository: str, key: str) -> None:
    """:class:`KeyForgotten` unless an archived key still counts: another transaction under it has to be refused."""
    try:
        taken = client.write(
            repository, _OTHER_UPDATE, SPARQL_UPDATE, key=key, durability=Durability.ACCEPTED, wait_s=ANSWER_S
        )
    except KeyTaken:
        return
    raise KeyForgotten(
        f"the new cluster took another transaction ({taken.txid}) under the archived key {key[:100]!r}: what a client "
        "repeats after the recovery would be executed twice"
    )


def _wait_until_ready(client: MasterClient, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while not _is_ready(client):
        if process.poll() is not None or time.monotonic() > until:
            last = log.read_text("utf-8", "replace")[-_LOG_CHARS:].strip()
            raise NoScratchMaster(f"the throw-away master does not become ready; its log ends: {last}")
        time.sleep(_POLL_S)


def _is_ready(client: MasterClient) -> bool:
    try:
        return client.health("ready")
    except TxLogError:
        return False
