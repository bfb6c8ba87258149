"""Settings by every spelling, files of them, and what outlives a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from txlog.config.live_settings import (
    SETTINGS_FILE,
    BadSettings,
    manifest_values,
    read_effective_settings,
    with_changes,
    with_preferences,
    write_settings_file,
)
from txlog.config.preferences import (
    KEYS,
    format_preferences,
    property_name,
    read_changes,
    read_properties,
    validate_preferences,
)
from txlog.config.process_config import NodeConfig
from txlog.model.errors import BadInput


def master(folder: Path, **more: Any) -> NodeConfig:
    return NodeConfig.model_validate(
        {
            "node": "uk-1",
            "data_center": "uk",
            "repository": "demo",
            "port": 7301,
            "journal_folder": str(folder),
            "peer_token_file": "/token",
            "peers": [{"node": "uk-1", "data_center": "uk", "url": "http://a"}],
            **more,
        }
    )


@pytest.mark.parametrize("name", ["maxPeerLag", "max-peer-lag", "MaxPeerLag"])
def test_each_spelling_names_the_same(name: str) -> None:
    assert read_changes({name: " 30s "}) == {"maxPeerLag": "30s"}


def test_every_key_has_its_properties_spelling() -> None:
    assert [property_name(key) for key in KEYS] == [
        "split-recovery",
        "max-peer-lag",
        "none-split-delay",
        "round-timeout",
        "idle-interval",
        "max-clock-skew",
        "leave-timeout",
        "worker-repair",
    ]
    assert format_preferences(validate_preferences({}))["roundTimeout"] == "2s"


@pytest.mark.parametrize("value", ["Simple", "simple", "SIMPLE", "sImPlE"])
def test_a_strategy_in_any_letter_case(value: str) -> None:
    assert validate_preferences({"splitRecovery": value}).split_recovery == "Simple"


@pytest.mark.parametrize("value", ["Manual", "manual", "MANUAL"])
def test_by_whom_a_worker_is_repaired_in_any_letter_case(value: str) -> None:
    assert validate_preferences({"workerRepair": value}).worker_repair == "manual"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "nothing to set; there are splitRecovery"),
        ({"maxPeerLags": "1s"}, "'maxPeerLags'; did you mean maxPeerLag?"),
        ({"zzz": "1s"}, "no such setting: 'zzz'; there are splitRecovery, maxPeerLag"),
        ({"maxPeerLag": "1s", "max-peer-lag": "2s"}, "maxPeerLag is there twice"),
        ({"splitMode": "Majority"}, "splitMode cannot be set while masters run"),
        ({"keyRetention": "1h"}, "keyRetention cannot be set while masters run"),
        ({"node-id": "x"}, "node-id cannot be set while masters run"),
        ({"peer.1.url": "x"}, "peer.1.url cannot be set while masters run"),
    ],
)
def test_names_that_are_none_are_refused_with_those_there_are(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_changes(changes)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"splitRecovery": "clever"}, "splitRecovery is 'clever'; expected None, Simple or Smart"),
        ({"splitRecovery": 7}, "splitRecovery is '7'; expected None, Simple or Smart"),
        ({"workerRepair": "now"}, "workerRepair is 'now'; expected auto or manual"),
        ({"workerRepair": True}, "workerRepair is 'True'; expected auto or manual"),
        ({"maxPeerLag": "60"}, "maxPeerLag is '60'; expected a duration: a whole number and one of ms, s"),
        ({"maxPeerLag": 60}, "maxPeerLag is '60'; expected a duration"),
        ({"maxPeerLag": "-1s"}, "maxPeerLag is '-1s'; expected a duration"),
        ({"maxPeerLag": "1.5s"}, "maxPeerLag is '1.5s'; expected a duration"),
        ({"maxPeerLag": "999ms"}, "maxPeerLag is '999ms'; expected a duration from 1s to 1w"),
        ({"maxPeerLag": ""}, "maxPeerLag is ''; expected a duration"),
        ({"noneSplitDelay": "8d"}, "noneSplitDelay is '8d'; expected a duration from 1s to 1w"),
        ({"roundTimeout": "49ms"}, "roundTimeout is '49ms'; expected a duration from 50ms to 1m"),
        ({"idleInterval": "9ms"}, "idleInterval is '9ms'; expected a duration from 10ms to 1m"),
        ({"maxClockSkew": "2h"}, "maxClockSkew is '2h'; expected a duration from 0 to 1h"),
        ({"leaveTimeout": "11m"}, "leaveTimeout is '11m'; expected a duration from 0 to 10m"),
        ({"leaveTimeout": True}, "leaveTimeout is 'True'; expected a duration"),
        ({"leaveTimeout": ["1s"]}, "expected a duration"),
        ({"idleInterval": "2s"}, "idleInterval is '2s'; expected a duration below roundTimeout (2s)"),
        ({"roundTimeout": "1s"}, "idleInterval is '1s'; expected a duration below roundTimeout (1s)"),
        ({"maxPeerLag": "2s"}, "roundTimeout is '2s'; expected a duration below maxPeerLag"),
        ({"maxPeerLag": "9", "leaveTimeout": "x"}, "; leaveTimeout is 'x'; expected a duration"),
    ],
)
def test_values_that_are_none_or_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    config = master(tmp_path)
    with pytest.raises(BadInput) as caught:
        with_changes(config, read_effective_settings(config), read_changes(changes), 1.0)
    assert said in str(caught.value)
    assert not (tmp_path / SETTINGS_FILE).exists()


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = """
# a comment
! another = one
node-id = uk-1
peer.1.url: http://us.example.net/repositories/x
split-recovery=simple
max-peer-lag : 30s
round-timeout 1s
idle-interval=\\
    200ms
"""
    found, placed = read_properties(text, "cluster.properties")
    assert found == {"splitRecovery": "simple", "maxPeerLag": "30s", "roundTimeout": "1s", "idleInterval": "200ms"}
    assert placed == ["node-id", "peer.1.url"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: nothing in it can be set; there are split-recovery, max-peer-lag"),
        ("node-id=a\n", "f: nothing in it can be set"),
        ("\nmax-per-lag=1s\n", "f:2: no such setting: 'max-per-lag'; did you mean max-peer-lag?"),
        ("max-peer-lag=1s\nMaxPeerLag=2s\n", "f:2: maxPeerLag is there twice"),
        ("max-peer-lag=\n", "f:1: max-peer-lag has no value; expected max-peer-lag=VALUE"),
        ("max-peer-lag", "f:1: max-peer-lag has no value"),
        ("=1s", "f:1: no such setting: '=1s'"),
    ],
)
def test_a_properties_file_with_a_mistake_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_properties(text, "f")
    assert str(caught.value).startswith(said)


def test_a_live_setting_holds_until_the_manifest_says_something_else(tmp_path: Path) -> None:
    config = master(tmp_path, max_peer_lag_ms=60_000)
    live = with_changes(config, read_effective_settings(config), {"maxPeerLag": "30s", "splitRecovery": "simple"}, 5.0)
    write_settings_file(tmp_path, live.settings)
    again = read_effective_settings(config)
    assert again == live
    assert with_preferences(config, again.preferences).max_peer_lag_ms == 30_000
    assert with_preferences(config, again.preferences).split_recovery == "Simple"

    other = master(tmp_path, max_peer_lag_ms=90_000)
    after = read_effective_settings(other)
    assert (after.preferences.max_peer_lag, after.superseded) == (90_000, ["maxPeerLag"])
    assert after.preferences.split_recovery == "Simple", "the other key's value is the same in the manifest"


def test_what_the_manifest_says_is_no_live_setting(tmp_path: Path) -> None:
    config = master(tmp_path)
    live = with_changes(config, read_effective_settings(config), {"maxPeerLag": "30s", "leaveTimeout": "1s"}, 5.0)
    assert list(live.settings) == ["maxPeerLag", "leaveTimeout"]
    back = with_changes(config, live, {"maxPeerLag": "1m", "leaveTimeout": None}, 6.0)
    assert back.settings == {}
    assert format_preferences(back.preferences) == manifest_values(config)


def test_live_times_that_no_longer_fit_the_manifest_are_dropped(tmp_path: Path) -> None:
    config = master(tmp_path)
    write_settings_file(
        tmp_path, with_changes(config, read_effective_settings(config), {"idleInterval": "1900ms"}, 5.0).settings
    )
    other = master(tmp_path, round_timeout_ms=1500)
    found = read_effective_settings(other)
    assert (found.preferences.idle_interval, found.preferences.round_timeout) == (1000, 1500)
    assert found.superseded == ["idleInterval"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        json.dumps({"version": 2, "settings": {}}),
        json.dumps({"version": 1, "settings": {"zzz": {"value": "1s", "manifest": "1s", "at": 1}}}),
        json.dumps({"version": 1, "settings": {"maxPeerLag": {"value": 1, "manifest": "1s", "at": 1}}}),
        json.dumps({"version": 1, "settings": {"maxPeerLag": "1s"}}),
        " " * 70_000,
    ],
)
def test_a_file_that_cannot_be_read_is_no_reason_to_guess(tmp_path: Path, text: str) -> None:
    (tmp_path / SETTINGS_FILE).write_text(text)
    with pytest.raises(BadSettings, match="remove it to go back to what the manifest says"):
        read_effective_settings(master(tmp_path))
