"""Obtains and starts an OpenLink Virtuoso: the server of Debian's packages, unpacked, not installed.

It listens on loopback for HTTP only; SQL uses a socket in the file system. At each start it reads
``workers/virtuoso.sql``, which makes it a worker.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import Final

from txlog.config.atomic_file import write_atomically
from txlog.local.engines.deb_packages import library_path, unpack_packages
from txlog.workers.virtuoso import PROCEDURES

DEBIAN_PACKAGES: Final = ("virtuoso-opensource-7-bin", "libminizip1", "libpcre3")
"""The server, and those of its libraries that are not on every machine."""
SERVER_PROGRAM: Final = "usr/bin/virtuoso-t"
READY_PATH: Final = "/txlog/version"
"""Answers after the procedures were created."""
BUFFER_PAGES: Final = 40_000
"""Pages of 8 KiB in its buffer pool; with them it needs about 450 MiB."""
_INI: Final = """\
[Database]
DatabaseFile = {folder}/virtuoso.db
ErrorLogFile = {folder}/virtuoso.log
LockFile = {folder}/virtuoso.lck
TransactionFile = {folder}/virtuoso.trx
xa_persistent_file = {folder}/virtuoso.pxa
FileExtend = 200
MaxCheckpointRemap = 2000

[TempDatabase]
DatabaseFile = {folder}/virtuoso-temp.db
TransactionFile = {folder}/virtuoso-temp.trx
MaxCheckpointRemap = 2000

[Parameters]
ServerPort = {port}
DisableTcpSocket = 1
CaseMode = 2
DefaultIsolation = 2
CheckpointInterval = 60
CheckpointAuditTrail = 0
SchedulerInterval = 1
NumberOfBuffers = {buffers}
MaxDirtyBuffers = {dirty}
DirsAllowed =

[HTTPServer]
ServerPort = 127.0.0.1:{port}
ServerThreads = 16
KeepAliveTimeout = 60
"""


def obtain_virtuoso() -> Path:
    """The server from PATH, else from Debian's packages, unpacked once in the user's cache.
    :class:`~txlog.local.local_errors.CannotRun` as :func:`txlog.local.engines.deb_packages.unpack_packages`."""
    installed = shutil.which("virtuoso-t")
    return (
        Path(installed) if installed else unpack_packages("virtuoso", DEBIAN_PACKAGES, SERVER_PROGRAM) / SERVER_PROGRAM
    )


def prepare_virtuoso(folder: Path, port: int, *, buffers: int = BUFFER_PAGES) -> None:
    """Prepares a folder for :func:`virtuoso_command`: the settings, and the script of each start. ``dba`` gets a random
    password that is not stored: every user of this machine can open the SQL socket."""
    folder.mkdir(parents=True, exist_ok=True)
    ini = _INI.format(folder=folder, port=port, buffers=buffers, dirty=buffers * 3 // 4)
    at_start = f"{PROCEDURES.read_text()}\nuser_set_password ('dba', '{secrets.token_hex(32)}');\n"
    for name, text in (("virtuoso.ini", ini), ("autoexec.isql", at_start)):
        write_atomically(folder / name, text.encode(), 0o600)


def virtuoso_command(program: Path, folder: Path) -> tuple[str, ...]:
    """The process that serves a folder of :func:`prepare_virtuoso` at its loopback port. It reads ``autoexec.isql`` of
    its working folder."""
    paths = (
        [f"LD_LIBRARY_PATH={found}"]
        if (found := library_path(program.parents[2])) and program.parts[1] != "usr"
        else []
    )
    return ("env", f"--chdir={folder}", *paths, str(program), "+foreground", "+configfile", "virtuoso.ini")
