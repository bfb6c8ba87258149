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
from txlog.config.preferences import (
    KEYS,
    SETTING_FIELDS,
    Preferences,
    config_fields,
    format_preferences,
    validate_preferences,
)
from txlog.config.process_config import NodeConfig, StrictModel
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
    return format_preferences(Preferences() if config.properties_file is not None else _preferences_of(config))


def _preferences_of(config: NodeConfig) -> Preferences:
    """The values in the process configuration, which its own model has validated."""
    return Preferences.model_construct(**{each.preference: getattr(config, each.config) for each in SETTING_FIELDS})


def protocol_fields(config: NodeConfig) -> dict[str, Any]:
    """The fields of the core's settings that preferences decide, with their values."""
    return {each.protocol: getattr(config, each.config) for each in SETTING_FIELDS if each.protocol is not None}


def with_preferences(config: NodeConfig, preferences: Preferences) -> NodeConfig:
    """The same master with other preferences."""
    return config.model_copy(update=config_fields(preferences))


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
        preferences = _preferences_of(config)
    return EffectiveSettings(preferences, held, sorted(set(kept) - set(held)))


def _read_from_properties(path: Path, defaults: Mapping[str, str]) -> EffectiveSettings:
    try:
        values = format_preferences(_preferences_of(read_cluster_properties(path).node))
        at = path.stat().st_mtime
    except (BadInput, OSError) as wrong:
        raise BadSettings(str(wrong)) from None
    different = [key for key in KEYS if values[key] != defaults[key]]
    own = {key: LiveSetting(value=values[key], manifest=defaults[key], at=at) for key in different}
    return EffectiveSettings(validate_preferences(values), own, [])


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
