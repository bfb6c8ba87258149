"""Options that several commands share, declared once.

A command takes a group of options as one parameter, annotated with its dataclass. :func:`with_groups` shows typer the
fields of the dataclass in place of that parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit

import typer

from txlog.backup import BackupTarget, open_target
from txlog.config.process_config import INCREMENTS_DEFAULT, BackupJobConfig, FolderConfig, S3Config, TargetConfig
from txlog.config.units import parse_duration
from txlog.local.state_folder import DEFAULT_FOLDER, StateFolder
from txlog.model.errors import BadInput

StateOption = Annotated[Path, typer.Option("--state", help="the state folder of the local cluster", show_default=True)]
MasterOption = Annotated[
    list[str] | None, typer.Option("--master", help="URL of a master. Default: from the state folder")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
YesOption = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]
DataCenterOption = Annotated[str | None, typer.Option("--data-center", help="default: the first one")]
EndpointOption = Annotated[str | None, typer.Option("--endpoint", help="URL of an S3-compatible object store")]


def option_ms(option: str, text: str) -> int:
    """The duration that an option has, in milliseconds. :class:`BadInput` names the option."""
    try:
        return parse_duration(text)
    except ValueError as wrong:
        raise BadInput(f"{option} {text[:20]}: expected {wrong}") from None


def confirm(yes: bool, question: str) -> None:
    """Asks on the terminal, unless ``yes``; another answer ends the command with exit code 1."""
    if not yes:
        typer.confirm(question, abort=True)


@dataclass(frozen=True)
class LocalOptions:
    """The state folder of a cluster on this machine, and the form of the output."""

    state: StateOption = DEFAULT_FOLDER
    json: JsonOption = False

    @property
    def folder(self) -> StateFolder:
        """The state folder, which need not exist."""
        return StateFolder(self.state)


@dataclass(frozen=True)
class ClusterOptions:
    """The masters that a command asks, and the form of its output."""

    state: StateOption = DEFAULT_FOLDER
    master: MasterOption = None
    json: JsonOption = False


@dataclass(frozen=True)
class TargetOptions:
    """Where backups are."""

    target: Annotated[str | None, typer.Option(help="FOLDER or s3://BUCKET/PREFIX. Default: the manifest's")] = None
    endpoint: EndpointOption = None
    credentials: Annotated[
        Path | None,
        typer.Option(help="folder with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; default: the environment"),
    ] = None

    def open(self, state: Path, data_center: str | None = None, repository: str | None = None) -> BackupTarget:
        """The target that the options name. Without ``--target`` it is that of the data centre's manifest, by default
        of the first data centre that has one. ``repository``: the part of a further one. :class:`BadInput` when there
        is none."""
        return open_target(self._find_config(state, data_center).model_copy(update={"repository": repository}))

    def _find_config(self, state: Path, data_center: str | None) -> TargetConfig:
        if self.target is not None:
            return self.to_config(self.target)
        folder = StateFolder(state)
        names = [data_center] if data_center else folder.topology().data_centers if folder.exists else []
        for name in names:
            job = _backup_job(folder, name)
            if job is not None:
                return job.target
        raise BadInput(
            "no target: the manifest has no spec.backup; name one with --target FOLDER or s3://BUCKET/PREFIX"
        )

    def is_of_manifest(self, state: Path, data_center: str) -> bool:
        """Whether the options name the target of the data centre's manifest, as far as the state folder knows it. What
        lies elsewhere must not replace what the masters know of that target."""
        job = _backup_job(StateFolder(state), data_center)
        if job is None or self.target is None:
            return job is not None
        return open_target(job.target).location == open_target(self.to_config(self.target)).location

    def chain_bounds(self, state: Path, data_center: str) -> tuple[int, int]:
        """How many incremental backups may follow a full one, and how many merges in a row, as the data centre's
        manifest says."""
        job = _backup_job(StateFolder(state), data_center)
        return (job.chain, job.merges) if job is not None else (INCREMENTS_DEFAULT, 0)

    def to_config(self, text: str) -> TargetConfig:
        """The configuration of a target as ``--target`` names it. :class:`BadInput` for another form."""
        if text.startswith("s3://"):
            parts = urlsplit(text)
            if not parts.netloc:
                raise BadInput(f"--target {text}: expected s3://BUCKET or s3://BUCKET/PREFIX")
            prefix = parts.path.strip("/")
            return S3Config(
                bucket=parts.netloc, prefix=prefix, endpoint=self.endpoint, credentials_folder=self.credentials
            )
        if "://" in text:
            raise BadInput(f"--target {text}: expected a folder or s3://BUCKET/PREFIX")
        return FolderConfig(folder=Path(text))


def _backup_job(folder: StateFolder, data_center: str) -> BackupJobConfig | None:
    """As the data centre's manifest has it; None where the state folder does not know it."""
    path = folder.backup(data_center)
    return BackupJobConfig.model_validate_json(path.read_bytes()) if path.is_file() else None


def _refuse_all(options: object, needed: str) -> None:
    """:class:`BadInput` that names the first of these options that is given; what it needs is missing."""
    given = [name for name, value in vars(options).items() if value]
    if given:
        option = "cluster" if given[0] == "cluster_id" else given[0].rstrip("_").replace("_", "-")
        raise BadInput(f"--{option} needs {needed}")


def _with_to(name: str, help_text: str) -> Any:
    return typer.Option(name, help=f"with --to: {help_text}")


def _with_archive(name: str, help_text: str) -> Any:
    return typer.Option(name, help=f"with --from-archive: {help_text}")


@dataclass(frozen=True)
class MomentOptions:
    """A moment of the log to restore to, and how the archive is read."""

    to: Annotated[
        str | None,
        typer.Option(
            help="a moment instead of BACKUP: latest, time:RFC3339, position:INDEX:HASH, point:NAME, TXID, before:TXID"
        ),
    ] = None
    dry_run: Annotated[bool, _with_to("--dry-run", "show what would be restored, from what")] = False
    base: Annotated[str | None, _with_to("--base", "this backup, or `empty`; default: the newest that fits")] = None
    backups: Annotated[str | None, _with_to("--backups", "the target of the backups; default: --target")] = None
    timeline: Annotated[str | None, _with_to("--timeline", "a branch, by its view or end INDEX:HASH")] = None
    data_center: Annotated[str | None, _with_to("--data-center", "whose archive; default: the only one")] = None
    cluster_id: Annotated[str | None, _with_to("--cluster", "the cluster's id in hexadecimal digits")] = None

    def refuse_without_moment(self) -> None:
        """:class:`BadInput` for options that have a meaning with ``--to`` alone."""
        if self.to is None:
            _refuse_all(self, "--to MOMENT")


@dataclass(frozen=True)
class SuccessionOptions:
    """A new cluster from the archive of a lost one."""

    from_archive: Annotated[
        str | None,
        typer.Option(help="found a new cluster from this archive: FOLDER or s3://BUCKET/PREFIX; see --to"),
    ] = None
    to: Annotated[str | None, _with_archive("--to", "a moment as of txlog restore; default: latest")] = None
    as_: Annotated[
        str | None,
        _with_archive("--as", "`successor` takes the place of the lost cluster, `copy` does not; default: successor"),
    ] = None
    dry_run: Annotated[bool, _with_archive("--dry-run", "show what would be founded")] = False
    without: Annotated[
        list[str] | None, _with_archive("--without", "give up the journal that this master still has")
    ] = None
    without_older_keys: Annotated[
        bool, _with_archive("--without-older-keys", "also where younger idempotency keys are not archived")
    ] = False
    supersede: Annotated[int | None, _with_archive("--supersede", "replace the recovery of this number")] = None
    base: Annotated[str | None, _with_archive("--base", "as of txlog restore")] = None
    backups: Annotated[str | None, _with_archive("--backups", "as of txlog restore")] = None
    timeline: Annotated[str | None, _with_archive("--timeline", "as of txlog restore")] = None
    data_center: Annotated[str | None, _with_archive("--data-center", "whose archive; default: the only one")] = None
    cluster_id: Annotated[str | None, _with_archive("--cluster", "the lost cluster's id in hexadecimal digits")] = None
    endpoint: EndpointOption = None
    credentials: Annotated[
        Path | None, typer.Option(help="folder with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    ] = None

    @property
    def is_copy(self) -> bool:
        """Whether the lost cluster's place is not taken. :class:`BadInput` for another word."""
        if self.as_ not in (None, "successor", "copy"):
            raise BadInput(f"--as {self.as_[:40]!r}: expected successor or copy")
        return self.as_ == "copy"

    def refuse_without_archive(self) -> None:
        """:class:`BadInput` for options that have a meaning with ``--from-archive`` alone."""
        if self.from_archive is None:
            _refuse_all(self, "--from-archive TARGET")

    def open(self, target: str) -> BackupTarget:
        """The archive, or the target of its backups."""
        return TargetOptions(target, self.endpoint, self.credentials).open(DEFAULT_FOLDER)


GROUPS = (LocalOptions, ClusterOptions, TargetOptions, MomentOptions, SuccessionOptions)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: each parameter that is annotated with one of :data:`GROUPS` becomes the options of
    that group. All other parameters stay as they are."""
    hints = get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in inspect.signature(command).parameters.values():
        if hints[parameter.name] not in GROUPS:
            shown.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        group = groups[parameter.name] = hints[parameter.name]
        types = get_type_hints(group, include_extras=True)
        shown += [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name]
            )
            for each in fields(group)
        ]

    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shown]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def register(app: typer.Typer, name: str | None = None, **settings: Any) -> Callable[..., Any]:
    """Decorator: adds a command to an application, with its groups of options. ``settings``: as of
    :meth:`typer.Typer.command`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        app.command(name or command.__name__.replace("_", "-"), **settings)(with_groups(command))
        return command

    return add
