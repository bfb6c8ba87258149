"""Settings changed while a cluster runs, as an operator does it: `txlog set`, `txlog get`."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from e2e.lib.cluster.supervised import SupervisedCluster, supervised_up
from txlog.cli.main import app, handle_errors
from txlog.client import MasterClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def run(masters: SupervisedCluster, *words: str) -> tuple[int, str]:
    """Exit code, and what was said. In this process: the start of another costs more than the commands."""
    with (
        patch.dict(os.environ),  # a command with --state sets the file of the token, for its own process
        redirect_stdout(StringIO()) as output,
        redirect_stderr(StringIO()) as errors,
        pytest.raises(SystemExit) as end,
    ):
        handle_errors(partial(app, [*words, "--state", str(masters.state.root)]))
    return int(end.value.code or 0), output.getvalue() + errors.getvalue().replace("\n", " ")


def settings(masters: SupervisedCluster, node: str) -> dict[str, tuple[str, str]]:
    with MasterClient(masters.nodes[node], 5.0) as master:
        return {one["key"]: (one["value"], one["source"]) for one in master.settings()["settings"]}


def strategies(masters: SupervisedCluster) -> dict[str, str]:
    return {node: masters.status(node).view.split_recovery or "" for node in masters.nodes}


def told(masters: SupervisedCluster, *words: str) -> dict[str, Any]:
    code, said = run(masters, *words, "--json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def test_a_strategy_is_set_live_refused_while_a_master_is_paused_and_outlives_everything(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with supervised_up(folder) as masters:
        first = masters.status("uk-1").view.number
        assert set(strategies(masters).values()) == {"Smart"}
        answer = told(masters, "set", "splitRecovery", "sIMPLE", "max-peer-lag=90s")
        assert (answer["took"], answer["failed"]) == (["uk-1", "uk-2", "us-1"], {})
        assert answer["splitRecovery"] == "Simple", "it has waited for the view"
        assert set(strategies(masters).values()) == {"Simple"}
        number = masters.status("uk-1").view.number
        assert number != first
        assert masters.is_joined()

        lost = "us-1"
        pid = masters.pids()[lost]
        os.kill(pid, signal.SIGSTOP)
        try:
            code, said = run(masters, "set", "splitRecovery", "Smart", "leaveTimeout", "2s")
            assert code == 1
            assert "nothing was changed: splitRecovery" in said
            for node in ("uk-1", "uk-2"):
                assert settings(masters, node)["splitRecovery"] == ("Simple", "live")
                assert settings(masters, node)["leaveTimeout"] == ("5s", "manifest")
            until = time.monotonic() + 30
            while masters.status("uk-1").state != "Suspected":
                assert time.monotonic() < until
                time.sleep(0.1)
            code, said = run(masters, "set", "split-recovery", "smart")
            assert (code, "uk-1 is Suspected" in said) == (1, True), said
            code, said = run(masters, "set", "leaveTimeout", "2s", "--json")
            answer = json.loads(said)
            assert (code, answer["took"], list(answer["failed"])) == (1, ["uk-1", "uk-2"], [lost])
        finally:
            os.kill(pid, signal.SIGCONT)
        masters.wait_joined()
        assert set(strategies(masters).values()) == {"Simple"}
        assert told(masters, "set", "leaveTimeout", "2s")["took"] == ["uk-1", "uk-2", "us-1"]

        masters.wait_seen("uk-2")
        gone = masters.kill("uk-2")
        until = time.monotonic() + 60
        while masters.pids().get("uk-2", gone) == gone:
            assert time.monotonic() < until
            time.sleep(0.1)
        masters.wait_joined()
        assert settings(masters, "uk-2")["splitRecovery"] == ("Simple", "live")
    with supervised_up(folder, purge=False) as masters:
        assert {settings(masters, node)["maxPeerLag"] for node in masters.nodes} == {("90s", "live")}
        assert set(strategies(masters).values()) == {"Simple"}
        told(masters, "set", "splitRecovery", "manifest")
        assert set(strategies(masters).values()) == {"Smart"}
        answer = told(masters, "get", "split-recovery")
        assert {(one["value"], one["source"]) for one in answer["settings"]} == {("Smart", "manifest")}


def test_bad_input_changes_nothing_and_says_what_would_do(tmp_path: Path) -> None:
    with supervised_up(tmp_path / "state") as masters:
        before = {node: settings(masters, node) for node in masters.nodes}
        for words, said in (
            (["splitRecovery", "clever"], "expected None, Simple or Smart"),
            (["maxPeerLag", "60"], "expected a duration"),
            (["maxPeerLag"], "maxPeerLag has no value"),
            ([], "nothing to set; there are splitRecovery"),
            (["maxPeerLags", "1s"], "did you mean maxPeerLag?"),
            (["splitMode", "Majority"], "what they are started with"),
            (["idleInterval", "2s"], "expected a duration below roundTimeout (2s)"),
            (["leaveTimeout", "1s", "roundTimeout", "1s"], "expected a duration below roundTimeout (1s)"),
            (["-f", str(tmp_path / "none")], "cannot be read"),
            (["-f", str(tmp_path / "none"), "leaveTimeout", "1s"], "not both"),
        ):
            code, found = run(masters, "set", *words)
            assert code == 1, (words, found)
            assert said in " ".join(found.split()), (words, found)
        file = tmp_path / "cluster.properties"
        file.write_text("node-id=uk-1\nleave-timeout=3s\nmax-pear-lag=1s\n")
        code, found = run(masters, "set", "-f", str(file))
        assert (code, "cluster.properties:3: no such setting" in found) == (1, True), found
        assert {node: settings(masters, node) for node in masters.nodes} == before

        file.write_text("# as it was\nnode-id=uk-1\nleave-timeout=3s\n")
        answer = told(masters, "set", "--file", str(file))
        assert (answer["took"], answer["passedOver"]) == (["uk-1", "uk-2", "us-1"], ["node-id"])
        assert {settings(masters, node)["leaveTimeout"] for node in masters.nodes} == {("3s", "live")}
