"""Settings that were changed while a master ran: a small file beside its journal, so that they outlive the process.

A live setting is valid until the manifest's value of that key is *changed*: each is stored with the manifest's value at
that time.

A master that was started from a ``cluster.properties`` file has no manifest: its settings are written to that file, and
TxLog's default applies to a missing line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from txlog.config.atomic_file import write_durably
from txlog.config.cluster_properties import read_cluster_properties
from txlog.config.cluster_properties_writer import write_preferences
from txlog.config.preferences import KEYS, Preferences, format_preferences, validate_preferences
from txlog.config.process_config import NodeConfig, StrictModel
from txlog.config.units import format_duration
from txlog.model.errors import BadInput, TxLogError

SETTINGS_FILE = "settings.json"
BYTES_MAX = 64 << 10


class BadSettings(TxLogError):
    """The file cannot be read; no value is guessed."""


class LiveSetting(StrictModel):
    """``value``: as given; ``manifest``: the manifest's value then; ``at``: seconds since 1970."""

    value: str
    manifest: str
    at: float = Field(ge=0)


class _SettingsFile(StrictModel):
    version: int = Field(ge=1, le=1)
    settings: dict[str, LiveSetting]


class EffectiveSettings(NamedTuple):
    """``preferences``: those in effect. ``settings``: live settings by key. ``superseded``: live settings that are no
    longer valid, since the manifest's value was changed, or since they conflict with its current values."""

    preferences: Preferences
    settings: dict[str, LiveSetting]
    superseded: list[str]


def manifest_values(config: NodeConfig) -> dict[str, str]:
    """The manifest's values by key, as text; TxLog's defaults where there is none."""
    return format_preferences(Preferences()) if config.properties_file is not None else _config_values(config)


def _config_values(config: NodeConfig) -> dict[str, str]:
    return {
        "splitRecovery": config.split_recovery,
        "maxPeerLag": format_duration(config.max_peer_lag_ms),
        "noneSplitDelay": format_duration(config.none_split_delay_ms),
        "roundTimeout": format_duration(config.round_timeout_ms),
        "idleInterval": format_duration(config.idle_interval_ms),
        "maxClockSkew": format_duration(config.max_clock_skew_ms),
        "leaveTimeout": format_duration(config.leave_timeout_ms),
        "workerRepair": config.worker_repair,
    }


def with_preferences(config: NodeConfig, preferences: Preferences) -> NodeConfig:
    """The same master with other preferences."""
    return config.model_copy(
        update={
            "split_recovery": preferences.split_recovery,
            "max_peer_lag_ms": preferences.max_peer_lag,
            "none_split_delay_ms": preferences.none_split_delay,
            "round_timeout_ms": preferences.round_timeout,
            "idle_interval_ms": preferences.idle_interval,
            "max_clock_skew_ms": preferences.max_clock_skew,
            "leave_timeout_ms": preferences.leave_timeout,
            "worker_repair": preferences.worker_repair,
        }
    )


def read_effective_settings(config: NodeConfig) -> EffectiveSettings:
    """The settings in effect. :class:`BadSettings` when the file exists and cannot be read."""
    if config.properties_file is not None:
        return _read_from_properties(config.properties_file, manifest_values(config))
    manifest = manifest_values(config)
    kept = _read_settings_file(config.journal_folder / SETTINGS_FILE)
    held = {key: one for key, one in kept.items() if one.manifest == manifest[key]}
    try:
        preferences = validate_preferences({**manifest, **{key: one.value for key, one in held.items()}})
    except BadInput:
        held = {}
        preferences = Preferences.model_construct(**_preference_fields(config))
    return EffectiveSettings(preferences, held, sorted(set(kept) - set(held)))


def _read_from_properties(path: Path, defaults: Mapping[str, str]) -> EffectiveSettings:
    try:
        said = _config_values(read_cluster_properties(path).node)
        at = path.stat().st_mtime
    except (BadInput, OSError) as wrong:
        raise BadSettings(str(wrong)) from None
    own = {
        key: LiveSetting(value=said[key], manifest=defaults[key], at=at) for key in KEYS if said[key] != defaults[key]
    }
    return EffectiveSettings(validate_preferences(said), own, [])


def save_settings(config: NodeConfig, new: EffectiveSettings) -> None:
    """Saves them for the next start; durable on return. ``OSError``, and :class:`BadInput` where a
    ``cluster.properties`` file can no longer be read."""
    if config.properties_file is None:
        write_settings_file(config.journal_folder, new.settings)
    else:
        write_preferences(config.properties_file, format_preferences(new.preferences), manifest_values(config))


def settings_path(config: NodeConfig) -> Path:
    """The file that :func:`save_settings` writes."""
    return config.properties_file or config.journal_folder / SETTINGS_FILE


def _preference_fields(config: NodeConfig) -> dict[str, Any]:
    """The values in the process configuration, which its own model has validated."""
    return {
        "split_recovery": config.split_recovery,
        "max_peer_lag": config.max_peer_lag_ms,
        "none_split_delay": config.none_split_delay_ms,
        "round_timeout": config.round_timeout_ms,
        "idle_interval": config.idle_interval_ms,
        "max_clock_skew": config.max_clock_skew_ms,
        "leave_timeout": config.leave_timeout_ms,
        "worker_repair": config.worker_repair,
    }


def with_changes(
    config: NodeConfig, now: EffectiveSettings, changes: Mapping[str, Any], at: float
) -> EffectiveSettings:
    """``now`` with these changes, by key; None: back to the manifest's value. A value equal to the manifest's is no
    live setting. :class:`BadInput` when they conflict; nothing is changed then."""
    manifest = manifest_values(config)
    wanted = {**manifest, **format_preferences(now.preferences)}
    wanted |= {key: manifest[key] if value is None else value for key, value in changes.items()}
    preferences = validate_preferences(wanted)
    texts = format_preferences(preferences)
    settings = dict(now.settings)
    for key in changes:
        if texts[key] == manifest[key]:
            settings.pop(key, None)
        else:
            settings[key] = LiveSetting(value=texts[key], manifest=manifest[key], at=at)
    return EffectiveSettings(preferences, settings, [])


def write_settings_file(folder: Path, settings: Mapping[str, LiveSetting]) -> None:
    """Atomic, and durable on return. ``OSError``."""
    text = _SettingsFile(version=1, settings=dict(settings)).model_dump_json(indent=1)
    write_durably(folder / SETTINGS_FILE, f"{text}\n".encode())


def _read_settings_file(path: Path) -> dict[str, LiveSetting]:
    try:
        with open(path, "rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as wrong:
        raise BadSettings(f"{path}: {wrong.strerror}") from None
    try:
        if len(raw) > BYTES_MAX:
            raise ValueError("too long")
        found = _SettingsFile.model_validate(json.loads(raw)).settings
        unknown = sorted(set(found) - set(KEYS))
        if unknown:
            raise ValueError(f"no such setting: {unknown[0][:80]!r}")
        return found
    except (ValueError, ValidationError) as wrong:
        said = str(wrong).splitlines()[0]
        raise BadSettings(f"{path}: {said}; remove it to go back to what the manifest says") from None
