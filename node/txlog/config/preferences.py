"""The preferences of each master: how it recovers from a split, the times for that, and whether a worker that
differs is repaired automatically. They are in the manifest, and ``txlog set`` changes them while the master runs.
Settings that decide what an entry of the log means are not among them.

Each has three spellings: that of the manifest (``maxPeerLag``), of a ``cluster.properties`` file (``max-peer-lag``),
and of the attribute it once was (``MaxPeerLag``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from txlog.config.manifest_model import ManifestModel, expected_error
from txlog.config.units import Duration, duration_within, format_duration
from txlog.model.errors import BadInput

SPLIT_RECOVERY_PATTERN = "^(?i)(none|simple|smart)$"
SPLIT_RECOVERY_CHOICES = "None, Simple or Smart"
WORKER_REPAIR_PATTERN = "^(?i)(auto|manual)$"
CHOICES = {"splitRecovery": SPLIT_RECOVERY_CHOICES, "workerRepair": "auto or manual"}
"""What is one of a few words, by key."""
MANIFEST_VALUE = "manifest"
"""In the place of a value: what the manifest says."""
_LOOKS_SILENT = "else a peer with nothing to do looks silent"


def _lowercase(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _normalise_strategy(value: object) -> object:
    return value.capitalize() if isinstance(value, str) and value.lower() in ("none", "simple", "smart") else value


class Preferences(ManifestModel):
    """Of one master. Durations in milliseconds."""

    split_recovery: Annotated[str, BeforeValidator(_normalise_strategy)] = Field(
        default="Smart",
        pattern=SPLIT_RECOVERY_PATTERN,
        description="How branches are merged. `Simple`: in stamp order. `Smart`: the winner's branch first. `None`: as "
        "`Smart`, but without backups, and workers are not restored. A view uses the safest value of its members: "
        "`Simple`, then `Smart`, then `None`.",
    )
    max_peer_lag: Annotated[Duration, AfterValidator(duration_within("1s", "1w"))] = Field(
        default=60_000,
        description="With `splitMode: Continue`: how long a member is silent until the others continue without it. "
        "They need a "
        "split backup.",
    )
    none_split_delay: Annotated[Duration, AfterValidator(duration_within("1s", "1w"))] = Field(
        default=10_000, description="The same with `splitRecovery: None`, which needs no split backup."
    )
    round_timeout: Annotated[Duration, AfterValidator(duration_within("50ms", "1m"))] = Field(
        default=2000,
        description="How long a member is silent until it is suspected. The order of new writes then waits.",
    )
    idle_interval: Annotated[Duration, AfterValidator(duration_within("10ms", "1m"))] = Field(
        default=1000, description="Time between two messages of a master to its peers while nothing waits."
    )
    max_clock_skew: Annotated[Duration, AfterValidator(duration_within("0", "1h"))] = Field(
        default=60_000, description="A master whose clock is further ahead of the others does not use it for stamps."
    )
    leave_timeout: Annotated[Duration, AfterValidator(duration_within("0", "10m"))] = Field(
        default=5000,
        description="How long a stopping master waits until the other members hold everything that it accepted.",
    )
    worker_repair: Annotated[str, BeforeValidator(_lowercase)] = Field(
        default="auto",
        pattern=WORKER_REPAIR_PATTERN,
        description="Repair of a worker with wrong content. `auto`: TxLog copies the differing graphs from a correct "
        "worker. "
        "`manual`: an operator runs `txlog worker repair`.",
    )

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if self.idle_interval >= self.round_timeout:
            if {"idle_interval", "round_timeout"} & self.model_fields_set == {"round_timeout"}:
                idle = format_duration(self.idle_interval)
                raise expected_error(
                    f"a duration above idleInterval ({idle} unless given), {_LOOKS_SILENT}", "roundTimeout"
                )
            timeout = format_duration(self.round_timeout)
            raise expected_error(f"a duration below roundTimeout ({timeout}), {_LOOKS_SILENT}", "idleInterval")
        if self.round_timeout >= self.max_peer_lag:
            raise expected_error("a duration below maxPeerLag", "roundTimeout")
        return self


KEYS: tuple[str, ...] = tuple(str(field.alias) for field in Preferences.model_fields.values())
"""As in the manifest."""


class SettingFields(NamedTuple):
    """One setting that can change while masters run: its field in :class:`Preferences`, which declares its key, its
    default and its valid values; its field in :class:`~txlog.config.process_config.NodeConfig`; and its field in the
    core's settings, None for a setting that the core does not use."""

    preference: str
    config: str
    protocol: str | None


SETTING_FIELDS: Final = (
    SettingFields("split_recovery", "split_recovery", "strategy"),
    SettingFields("max_peer_lag", "max_peer_lag_ms", "max_peer_lag_ms"),
    SettingFields("none_split_delay", "none_split_delay_ms", "none_split_delay_ms"),
    SettingFields("round_timeout", "round_timeout_ms", "round_timeout_ms"),
    SettingFields("idle_interval", "idle_interval_ms", "idle_interval_ms"),
    SettingFields("max_clock_skew", "max_clock_skew_ms", "max_clock_skew_ms"),
    SettingFields("leave_timeout", "leave_timeout_ms", None),
    SettingFields("worker_repair", "worker_repair", None),
)
"""Every setting of :class:`Preferences`; durations are in milliseconds everywhere."""
_MANIFEST_ONLY = re.compile(
    r"node-?id|master-?url|(peer|worker)(\.|s$).*|split-?mode|key-?retention|vote-?weight|repository|data-?center"
    r"|listen-?address|journal-?folder|storage-?size|log-?keep|log-?max-?size|write-?timeout|durability|(peer-?)?tls-?folder"
    r"|peer-?port|(peer-?token|own-?token|users)-?file|non-?deterministic-?updates|mixed-?engines|run-?pipeline|load-?(sources|networks)"
    r"|updates-?without-?graph|cors-?origins|keys-?max|execution-?timeout|closed-?connections"
    r"|mode|read-?only|auto-?replication|net-?speed-?bits-?per-?sec|full-?replication-?time-?factor"
    r"|min-?time-?to-?consider-?full-?replication-?s|protect-?single-?worker|master-?replication-?port",
    re.I,
)
"""Also in such files (:mod:`txlog.config.cluster_properties`), but the same for all masters, or who they are, or of a
start."""


def config_fields(preferences: Preferences) -> dict[str, Any]:
    """The fields of a process configuration that preferences decide, with their values."""
    return {each.config: getattr(preferences, each.preference) for each in SETTING_FIELDS}


def property_name(key: str) -> str:
    """As in ``cluster.properties``: camel case mapped to hyphens."""
    return re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", key)


_KEY_BY_NAME = {name: key for key in KEYS for name in (key, property_name(key), key[0].upper() + key[1:])}


def is_manifest_only(name: str) -> bool:
    """Whether this is a known name of what only manifests say."""
    return _MANIFEST_ONLY.fullmatch(name) is not None


def preference_key(name: str) -> str:
    """The key of any of its spellings. :class:`BadInput` says which there are."""
    if name in _KEY_BY_NAME:
        return _KEY_BY_NAME[name]
    if is_manifest_only(name):
        raise BadInput(f"{name[:80]} cannot be set while masters run: it is what they are started with")
    close = difflib.get_close_matches(name, _KEY_BY_NAME, n=1)
    there = f"did you mean {close[0]}?" if close else f"there are {', '.join(KEYS)}"
    raise BadInput(f"no such setting: {name[:80]!r}; {there}")


def read_changes(pairs: Mapping[str, Any] | list[tuple[str, Any]]) -> dict[str, Any]:
    """By key. A value of None, or the word ``manifest``, is kept as None: what the manifest says."""
    found: dict[str, Any] = {}
    for name, value in pairs.items() if isinstance(pairs, Mapping) else pairs:
        key = preference_key(name)
        if key in found:
            raise BadInput(f"{key} is there twice; give it once")
        text = value.strip() if isinstance(value, str) else value
        found[key] = None if text == MANIFEST_VALUE else text
    if not found:
        raise BadInput(f"nothing to set; there are {', '.join(KEYS)}")
    return found


def format_preferences(preferences: Preferences) -> dict[str, str]:
    """Each value as people write it, by key."""
    return {key: str(value) for key, value in preferences.model_dump(by_alias=True).items() if key in KEYS}


def validate_preferences(values: Mapping[str, Any]) -> Preferences:
    """All of them together. :class:`BadInput` names what does not fit, and what would."""
    try:
        return Preferences.model_validate(dict(values))
    except ValidationError as wrong:
        raise BadInput("; ".join(_format_error(dict(error), values) for error in wrong.errors())) from None


def describe_error(error: dict[str, Any]) -> tuple[str, str]:
    """Of a validation of :class:`Preferences`: the key that is wrong, and what is expected."""
    context = error.get("ctx", {})
    key = str((*error["loc"], *context.get("at", ()))[0])
    return key, str(CHOICES.get(key) or context.get("what") or context.get("error") or error["msg"])


def _format_error(error: dict[str, Any], values: Mapping[str, Any]) -> str:
    key, what = describe_error(error)
    return f"{key} is {str(values.get(key))[:60]!r}; expected {what}"


# cluster.properties


def read_properties(text: str, name: str) -> tuple[dict[str, Any], list[str]]:
    """The settings in such a file, and the names in it that only manifests say. :class:`BadInput` with the line of what
    is neither, of what is there twice and of what has no value."""
    found: dict[str, Any] = {}
    placed: list[str] = []
    for line, _, said, value in parse_property_lines(text):
        if is_manifest_only(said):
            placed.append(said)
            continue
        try:
            key = preference_key(said)
        except BadInput as wrong:
            raise BadInput(f"{name}:{line}: {wrong}") from None
        if key in found:
            raise BadInput(f"{name}:{line}: {key} is there twice; give it once")
        if not value:
            raise BadInput(f"{name}:{line}: {said} has no value; expected {said}=VALUE")
        found[key] = None if value == MANIFEST_VALUE else value
    if not found:
        raise BadInput(f"{name}: nothing in it can be set; there are {', '.join(map(property_name, KEYS))}")
    return found, placed


class PropertyLine(NamedTuple):
    """``first_line``, ``last_line``: its lines, from 1; several where a backslash ends one."""

    first_line: int
    last_line: int
    name: str
    value: str


def parse_property_lines(text: str) -> list[PropertyLine]:
    """As Java reads a properties file; escapes are not needed in any of ours."""
    found: list[PropertyLine] = []
    held, began, number = "", 0, 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not held and (not line or line[0] in "#!"):
            continue
        began = began if held else number
        if len(line) - len(line.rstrip("\\")) & 1:
            held += line[:-1]
            continue
        found.append(PropertyLine(began, number, *_split_line(held + line)))
        held = ""
    return [*found, PropertyLine(began, number, *_split_line(held))] if held else found


def _split_line(line: str) -> tuple[str, str]:
    parts = re.match(r"([^\s=:]+)\s*[=:]?\s*(.*)", line)
    return (parts[1], parts[2].strip()) if parts else (line, "")
