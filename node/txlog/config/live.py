"""What was set while a master ran: a small file beside its journal, so that it outlives the process.

A live setting holds until the manifest's value of that key is *changed*: each is kept with what the manifest said then.

A master that was started from a ``cluster.properties`` file has no manifest: that file is where they are kept, and what
counts without a line in it is TxLog's default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from txlog.config.durable import write_durably
from txlog.config.preferences import KEYS, Preferences, checked, texts_of
from txlog.config.process import NodeConfig, Strict
from txlog.config.properties import read_cluster_properties, write_preferences
from txlog.config.values import duration_text
from txlog.model.errors import BadInput, TxLogError

FILE = "settings.json"
BYTES_MAX = 64 << 10


class BadSettings(TxLogError):
    """The file cannot be read; nothing is guessed."""


class LiveSetting(Strict):
    """``value`` as it was given; ``manifest``: what the manifest said then; ``at``: seconds since 1970."""

    value: str
    manifest: str
    at: float = Field(ge=0)


class _File(Strict):
    version: int = Field(ge=1, le=1)
    settings: dict[str, LiveSetting]


class Live(NamedTuple):
    """``preferences`` in force; ``settings``: those that were set live, by key; ``dropped``: those that hold no longer,
    since the manifest's value was changed, or since they do not fit to what it says now."""

    preferences: Preferences
    settings: dict[str, LiveSetting]
    dropped: list[str]


def of_manifest(config: NodeConfig) -> dict[str, str]:
    """What the manifest says, by key, as people write it; TxLog's defaults where there is none."""
    return texts_of(Preferences()) if config.properties_file is not None else _given(config)


def _given(config: NodeConfig) -> dict[str, str]:
    return {
        "splitRecovery": config.split_recovery,
        "maxPeerLag": duration_text(config.max_peer_lag_ms),
        "noneSplitDelay": duration_text(config.none_split_delay_ms),
        "roundTimeout": duration_text(config.round_timeout_ms),
        "idleInterval": duration_text(config.idle_interval_ms),
        "maxClockSkew": duration_text(config.max_clock_skew_ms),
        "leaveTimeout": duration_text(config.leave_timeout_ms),
        "workerRepair": config.worker_repair,
    }


def applied(config: NodeConfig, preferences: Preferences) -> NodeConfig:
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


def read_live(config: NodeConfig) -> Live:
    """What holds now. :class:`BadSettings` when the file is there and cannot be read."""
    if config.properties_file is not None:
        return _of_properties(config.properties_file, of_manifest(config))
    manifest = of_manifest(config)
    kept = _read(config.journal_folder / FILE)
    held = {key: one for key, one in kept.items() if one.manifest == manifest[key]}
    try:
        preferences = checked({**manifest, **{key: one.value for key, one in held.items()}})
    except BadInput:
        held = {}
        preferences = Preferences.model_construct(**_unchecked(config))
    return Live(preferences, held, sorted(set(kept) - set(held)))


def _of_properties(path: Path, defaults: Mapping[str, str]) -> Live:
    try:
        said = _given(read_cluster_properties(path).node)
        at = path.stat().st_mtime
    except (BadInput, OSError) as wrong:
        raise BadSettings(str(wrong)) from None
    own = {
        key: LiveSetting(value=said[key], manifest=defaults[key], at=at) for key in KEYS if said[key] != defaults[key]
    }
    return Live(checked(said), own, [])


def keep(config: NodeConfig, new: Live) -> None:
    """Where it is found at the next start. Durable when it returns. ``OSError``, and :class:`BadInput` where a
    ``cluster.properties`` file cannot be read any more."""
    if config.properties_file is None:
        write_live(config.journal_folder, new.settings)
    else:
        write_preferences(config.properties_file, texts_of(new.preferences), of_manifest(config))


def place_of(config: NodeConfig) -> Path:
    """The file that :func:`keep` writes."""
    return config.properties_file or config.journal_folder / FILE


def _unchecked(config: NodeConfig) -> dict[str, Any]:
    """As the process was given them: its own model has judged them."""
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


def changed(config: NodeConfig, now: Live, changes: Mapping[str, Any], at: float) -> Live:
    """``now`` with these changes, by key; None: back to what the manifest says. A value that is the manifest's is no
    live setting. :class:`BadInput` when they do not fit together; nothing is changed then."""
    manifest = of_manifest(config)
    wanted = {**manifest, **texts_of(now.preferences)}
    wanted |= {key: manifest[key] if value is None else value for key, value in changes.items()}
    preferences = checked(wanted)
    texts = texts_of(preferences)
    settings = dict(now.settings)
    for key in changes:
        if texts[key] == manifest[key]:
            settings.pop(key, None)
        else:
            settings[key] = LiveSetting(value=texts[key], manifest=manifest[key], at=at)
    return Live(preferences, settings, [])


def write_live(folder: Path, settings: Mapping[str, LiveSetting]) -> None:
    """Durable when it returns; whole or not at all. ``OSError``."""
    text = _File(version=1, settings=dict(settings)).model_dump_json(indent=1)
    write_durably(folder / FILE, f"{text}\n".encode())


def _read(path: Path) -> dict[str, LiveSetting]:
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
        found = _File.model_validate(json.loads(raw)).settings
        unknown = sorted(set(found) - set(KEYS))
        if unknown:
            raise ValueError(f"no such setting: {unknown[0][:80]!r}")
        return found
    except (ValueError, ValidationError) as wrong:
        said = str(wrong).splitlines()[0]
        raise BadSettings(f"{path}: {said}; remove it to go back to what the manifest says") from None
