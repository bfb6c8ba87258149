"""The journal folders of further logs, and the file that lists them: ``logs/NUMBER/`` and ``logs.json`` in the folder
of the first log's journal.

The file has the birth and the last start of each journal. It is replaced durably before a folder is made, and at each
start of a log. So a folder that is lost or older than the file is noticed, and that log alone learns or is refused.
What shows that it is lost or older stays in the file, so the next start notices it, too. A program that knows one log
passes over both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from txlog.config.atomic_file import sync_folder, write_durably
from txlog.config.process_config import LastSeenIncarnation, StrictModel
from txlog.model.errors import TxLogError

LOGS_FOLDER: Final = "logs"
LOGS_FILE: Final = "logs.json"
BYTES_MAX: Final = 1 << 20


class BadLogsFile(TxLogError):
    """``logs.json`` cannot be used, so no further log is opened. ``reason``: a stable word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class KnownLog(StrictModel):
    """One further log. ``birth``, ``start``: of its journal; 0 until it was opened once. ``cluster_id``: empty until
    the log is founded. ``refused``: the last start of an older journal with this birth; 0 without one. Each opening
    raises the start of a journal, also of one that is refused: this tells it from the journal that is listed."""

    number: int = Field(ge=1)
    name: str
    cluster_id: str = ""
    birth: int = Field(default=0, ge=0)
    start: int = Field(default=0, ge=0)
    refused: int = Field(default=0, ge=0)

    def is_older(self, birth: int, start: int) -> bool:
        """Whether a journal with this birth, opened for this start, is older than the listed one."""
        if birth != self.birth:
            return False
        return start <= self.start or self.start <= self.refused >= start - 1


class _LogsFile(StrictModel):
    version: int = Field(ge=1, le=1)
    node: str
    birth: int = Field(description="of the first log's journal, so of this process")
    logs: list[KnownLog]


class LogFolders:
    """The further logs of one master by number. ``folder``: of the first log's journal, which has this ``birth``.
    :class:`BadLogsFile` when the file is missing beside folders, cannot be read, or is another master's."""

    def __init__(self, folder: Path, node: str, birth: int) -> None:
        self._folder = folder
        self._path = folder / LOGS_FILE
        self._node = node
        self._birth = birth
        self.logs: dict[int, KnownLog] = {one.number: one for one in self._read()}

    def folder(self, number: int) -> Path:
        """Where the journal of this log is."""
        return self._folder / LOGS_FOLDER / str(number)

    def last_seen(self, number: int) -> LastSeenIncarnation | None:
        """The journal of this log at its last start; None if it had none yet."""
        known = self.logs.get(number)
        return LastSeenIncarnation(birth=known.birth, start=known.start) if known and known.birth else None

    def unknown_folders(self) -> list[str]:
        """Folders that no log of the file has. They are left as they are."""
        return [name for name in self._numbers() if int(name) not in self.logs]

    def keep(self, log: KnownLog) -> None:
        """Lists a log, or what has changed of it. Durable on return. ``OSError``."""
        if self.logs.get(log.number) != log:
            self._write({**self.logs, log.number: log})

    def discard(self, number: int) -> Path | None:
        """Takes a removed log from the list, and keeps its journal under a name that is free. Durable on return.
        Returns the new folder; None if there was none."""
        old, new = self.folder(number), self._removed_folder(number)
        found = old.is_dir()
        if found:
            os.replace(old, new)
            sync_folder(new.parent)
        self._write({known: one for known, one in self.logs.items() if known != number})
        return new if found else None

    def _removed_folder(self, number: int) -> Path:
        path, copy = self._folder / LOGS_FOLDER / f"removed-{number}", 1
        while path.exists():
            copy += 1
            path = path.with_name(f"removed-{number}-{copy}")
        return path

    def _write(self, logs: dict[int, KnownLog]) -> None:
        file = _LogsFile(version=1, node=self._node, birth=self._birth, logs=list(logs.values()))
        write_durably(self._path, f"{file.model_dump_json(indent=1, exclude_defaults=True)}\n".encode())
        self.logs = logs

    def _numbers(self) -> list[str]:
        folder = self._folder / LOGS_FOLDER
        if not folder.is_dir():
            return []
        return sorted(one.name for one in folder.iterdir() if one.is_dir() and one.name.isdecimal())

    def _read(self) -> list[KnownLog]:
        remedy = f"move {self._folder / LOGS_FOLDER} and {LOGS_FILE} away: their logs come back from the other masters"
        try:
            raw = self._path.read_bytes() if self._path.stat().st_size <= BYTES_MAX else b""
        except FileNotFoundError:
            if numbers := self._numbers():
                raise BadLogsFile(
                    "LogsFileMissing", f"{self._path} is missing beside the logs {', '.join(numbers)}; {remedy}"
                ) from None
            return []
        except OSError as wrong:
            raise BadLogsFile("LogsFileDamaged", f"{self._path}: {wrong.strerror}; {remedy}") from None
        try:
            found = _LogsFile.model_validate_json(raw)
        except ValidationError as wrong:
            what = str(wrong).splitlines()[0]
            raise BadLogsFile("LogsFileDamaged", f"{self._path}: {what}; {remedy}") from None
        if (found.node, found.birth) != (self._node, self._birth):
            raise BadLogsFile(
                "LogsFileOfAnother",
                f"{self._path} is of {found.node} with the journal {found.birth:016x}, this is {self._node} with "
                f"{self._birth:016x}; {remedy}",
            )
        return found.logs
