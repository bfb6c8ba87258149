"""An S3-compatible store as the target. A PUT is atomic there, and durable when it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from txlog.backup.backup_errors import NameTaken, ObjectMissing, TargetDenied, TargetFull, TargetUnreachable
from txlog.backup.stored_object import StoredObject
from txlog.config.process_config import S3Config
from txlog.model.errors import BadInput

RETRIES: Final = 3
RETRY_TIMEOUT_S: Final = 30.0
_DENIED: Final = (PermissionDeniedError, UnauthenticatedError, PermissionError)
_DENIED_WORDS: Final = ("403 Forbidden", "401 Unauthorized", "AccessDenied", "InvalidAccessKeyId")
_FULL_WORDS: Final = ("status code: 507", "InsufficientStorage", "QuotaExceeded", "no free volumes")
_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class S3Target:
    """The client retries a request without an answer for half a minute; that is safe, since every write has a new
    key."""

    def __init__(self, config: S3Config) -> None:
        self._prefix = config.prefix.strip("/")
        self._location = f"s3://{config.bucket}" + (f"/{self._prefix}" if self._prefix else "")
        if config.endpoint:
            self._location += f" at {config.endpoint}"
        options = _read_credentials(config)
        if config.endpoint:
            options["AWS_ENDPOINT_URL"] = config.endpoint
        try:
            self._store = S3Store(
                config.bucket,
                prefix=self._prefix or None,
                config=options,  # type: ignore[arg-type]  # names of the environment, which it takes too
                region=config.region,
                virtual_hosted_style_request=config.endpoint is None,
                client_options={
                    "allow_http": (config.endpoint or "").startswith("http://"),
                    "timeout": timedelta(seconds=config.timeout_s),
                    "connect_timeout": timedelta(seconds=config.connect_s),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)},
            )
        except BaseError as error:
            raise BadInput(f"{self._location} cannot be used: {_first_line(error)}") from error

    @property
    def location(self) -> str:
        return self._location

    def write(self, key: str, data: bytes) -> None:
        # It may be our own object, when the answer to the first attempt was lost.
        if not self.create(key, data) and self.read(key, len(data)) != data:
            raise NameTaken(f"{key} is on {self._location} already; nothing is ever written over")

    def create(self, key: str, data: bytes) -> bool:
        with self._translate_errors("write", key):
            try:
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def read(self, key: str, bytes_max: int) -> bytes:
        with self._translate_errors("read", key):
            try:
                found = obstore.get(self._store, key)
                if found.meta["size"] > bytes_max:
                    return bytes(obstore.get_range(self._store, key, start=0, length=bytes_max + 1))
                return bytes(found.bytes())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise TargetUnreachable(f"{self._location}: there is no such bucket; make it") from None
                raise ObjectMissing(f"{key} is not on {self._location}") from None

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        # The store lists whole folders only, so the prefix is compared here.
        folder = prefix.rpartition("/")[0]
        with self._translate_errors("list", prefix):
            folders = [folder] if folder else obstore.list_with_delimiter(self._store)["common_prefixes"]
        for each in folders:
            if folder or prefix or not each.startswith("_"):
                yield from (found for found in self.list_nested(each) if found.key.startswith(prefix))

    def list_nested(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        with self._translate_errors("list", folder):
            for page in obstore.list(self._store, folder, offset=after or None):
                for each in page:
                    yield StoredObject(each["path"], each["size"], each["last_modified"].timestamp())

    def delete(self, keys: list[str]) -> None:
        with self._translate_errors("delete", ", ".join(keys[:3])):
            for key in keys:
                try:
                    obstore.delete(self._store, key)
                except FileNotFoundError:
                    continue

    @contextmanager
    def _translate_errors(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, PermissionError, OSError) as error:
            text = f"cannot {doing} {key} on {self._location}: {_first_line(error)}"
            if isinstance(error, _DENIED) or any(word in str(error) for word in _DENIED_WORDS):
                raise TargetDenied(f"{text}; see that the credentials are there and may write to the bucket") from error
            if any(word in str(error) for word in _FULL_WORDS):
                raise TargetFull(f"{text}; make room, or delete backups: txlog backup delete") from error
            raise TargetUnreachable(text) from error


def _first_line(error: BaseException) -> str:
    """Without the URL, which is long and comes first: what the server answered must not be cut off."""
    return str(error).strip().split("\n", 1)[0].split(" - ", 1)[-1].strip()[:400]


def _read_credentials(config: S3Config) -> dict[str, str]:
    """The credentials in the folder, if it exists; otherwise obstore reads the environment itself."""
    folder = config.credentials_folder
    if folder is None or not folder.is_dir():
        return {}
    found = {}
    for name in _CREDENTIALS:
        try:
            found[name] = (folder / name).read_text().strip()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BadInput(f"{folder / name} cannot be read: {error.strerror}") from error
    if not found.keys() >= set(_CREDENTIALS[:2]):
        raise BadInput(f"{folder} lacks the files {_CREDENTIALS[0]} and {_CREDENTIALS[1]}")
    return found
