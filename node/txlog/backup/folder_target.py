"""A folder as the target: an object is a file, which is synced before it is linked to its name."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from txlog.backup.backup_errors import NameTaken, ObjectMissing, TargetDenied, TargetFull, TargetUnreachable
from txlog.backup.stored_object import StoredObject
from txlog.config.atomic_file import sync_folder

_TEMPORARY_SUFFIX = ".new"
"""Suffix of a file that is still being written."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""A file system without hard links answers one of these."""


class FolderTarget:
    """``root`` must exist: creating it on demand would hide an unmounted volume."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._durable: set[Path] = set()

    @property
    def location(self) -> str:
        return str(self._root)

    def write(self, key: str, data: bytes) -> None:
        if not self.create(key, data):
            raise NameTaken(f"{self._root / key} is there already; nothing is ever written over")

    def create(self, key: str, data: bytes) -> bool:
        path = self._root / key
        # Two writers of one key must not write into one file.
        new = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_TEMPORARY_SUFFIX}")
        with self._translate_errors("write", key):
            self._require_root()
            self._make_folder(path.parent)
            if path.exists():
                # Who made it may have been killed before its name was durable, or could not make it so.
                sync_folder(path.parent)
                return False
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
                os.fsync(file)
                # Verification must read from the disk, not from the page cache of the write.
                with suppress(OSError, AttributeError):
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                with suppress(OSError):
                    os.unlink(new)  # a full disk gets its room back
                raise
            finally:
                os.close(file)
            created = _link(new, path)
            sync_folder(path.parent)
        return created

    def _require_root(self) -> None:
        if not self._root.is_dir():
            raise TargetUnreachable(f"{self._root} is no folder; make it, or mount it")

    def _make_folder(self, folder: Path) -> None:
        if folder == self._root or (folder in self._durable and folder.is_dir()):
            return
        self._make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
        sync_folder(folder.parent)
        self._durable.add(folder)

    def read(self, key: str, bytes_max: int) -> bytes:
        with self._translate_errors("read", key):
            try:
                with open(self._root / key, "rb") as file:
                    return file.read(bytes_max + 1)
            except (FileNotFoundError, NotADirectoryError):
                self._require_root()
                raise ObjectMissing(f"{self._root / key} is not there") from None

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        with self._translate_errors("list", prefix):
            self._require_root()
            for folder in sorted(self._root.iterdir()):
                if not folder.is_dir() or folder.is_symlink() or (not prefix and folder.name.startswith("_")):
                    continue
                for file in sorted(folder.iterdir()):
                    key = f"{folder.name}/{file.name}"
                    if key.startswith(prefix) and file.is_file():
                        yield _stored(key, file)

    def list_nested(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        with self._translate_errors("list", folder):
            self._require_root()
            for parent, folders, files in os.walk(self._root / folder, onerror=_raise_unless_missing):
                folders.sort()
                for name in sorted(files):
                    path = Path(parent, name)
                    key = path.relative_to(self._root).as_posix()
                    if key > after and path.is_file():
                        yield _stored(key, path)

    def delete(self, keys: list[str]) -> None:
        with self._translate_errors("delete", ", ".join(keys[:3])):
            folders = set()
            for key in keys:
                (self._root / key).unlink(missing_ok=True)
                folders.add((self._root / key).parent)
            for folder in folders:
                if not folder.is_dir():
                    continue
                sync_folder(folder)
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()
            if self._root.is_dir():
                sync_folder(self._root)

    @contextmanager
    def _translate_errors(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _raise_target_error(self._root, doing, key, error)


def _stored(key: str, file: Path) -> StoredObject:
    seen = file.stat()
    return StoredObject(key, seen.st_size, seen.st_mtime)


def _link(new: Path, path: Path) -> bool:
    """Gives the file ``new`` its name, unless there is a file of that name: a rename would replace it."""
    try:
        os.link(new, path)
    except FileExistsError:
        os.unlink(new)
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            os.unlink(new)
            return False
        os.rename(new, path)
        return True
    os.unlink(new)
    return True


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _raise_target_error(root: Path, doing: str, key: str, error: OSError) -> NoReturn:
    text = f"cannot {doing} {key} in {root}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise TargetFull(f"{text}; make room, or delete backups: txlog backup delete") from error
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        raise TargetDenied(f"{text}; let the user of this process write there") from error
    raise TargetUnreachable(text) from error
