"""What a process is told at its start is checked again, whoever wrote the file."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from txlog.config.process_config import NodeConfig

MASTER = {
    "node": "uk-1",
    "data_center": "uk",
    "repository": "demo",
    "port": 7301,
    "journal_folder": "journal",
    "peer_token_file": "token",
    "peers": [{"node": "uk-1", "data_center": "uk", "url": "http://127.0.0.1:7301"}],
}


@pytest.mark.parametrize(
    "times",
    [
        {"round_timeout_ms": 1000},
        {"idle_interval_ms": 2000},
        {"round_timeout_ms": 300, "idle_interval_ms": 300},
        {"round_timeout_ms": 300, "idle_interval_ms": 301},
    ],
)
def test_idle_rounds_that_look_like_silence_are_refused(times: dict[str, int]) -> None:
    with pytest.raises(ValidationError) as caught:
        NodeConfig.model_validate({**MASTER, **times})
    (error,) = caught.value.errors()
    assert error["loc"] == ("idle_interval_ms",)
    assert f"not below round_timeout_ms ({times.get('round_timeout_ms', 2000)})" in error["msg"]


def test_a_wrong_round_timeout_is_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        NodeConfig.model_validate({**MASTER, "round_timeout_ms": 1})
    assert [error["loc"] for error in caught.value.errors()] == [("round_timeout_ms",)]


def test_idle_rounds_within_the_round_timeout_are_taken() -> None:
    assert NodeConfig.model_validate({**MASTER, "round_timeout_ms": 300, "idle_interval_ms": 299}).port == 7301


@pytest.mark.parametrize(("weights", "heavy"), [((1,), "uk-1"), ((1, 1), "uk-1"), ((1, 2, 1), "uk-2"), ((1, 1, 1), "")])
def test_a_master_with_half_of_the_votes_is_refused_where_the_majority_goes_on(
    weights: tuple[int, ...], heavy: str
) -> None:
    peers = [
        {"node": f"uk-{at}", "data_center": "uk", "url": "http://127.0.0.1:1", "weight": weight}
        for at, weight in enumerate(weights, 1)
    ]
    config = {**MASTER, "peers": peers, "split_mode": "Majority"}
    if not heavy:
        assert NodeConfig.model_validate(config).split_mode == "Majority"
        return
    with pytest.raises(ValidationError) as caught:
        NodeConfig.model_validate(config)
    (error,) = caught.value.errors()
    assert error["loc"] == ("split_mode",)
    assert f"{heavy} has" in error["msg"]
