"""``spec.durability.graphs`` and ``synchronousQueue``: what is accepted, refused, and given to masters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from txlog.config.cluster import TxLogCluster
from txlog.config.durability_specs import GraphRuleSpec, to_rule_spec
from txlog.config.graph_rules_file import read_graph_rules
from txlog.config.process_config_builder import build_node_config
from txlog.model.configuration import Configuration, ConfigurationChange, Master, apply_configuration_change
from txlog.model.configuration import encode_configuration_change as encode
from txlog.model.errors import BadInput
from txlog.model.quorum import Quorum, QuorumForm, QuorumTerm
from txlog.model.synchronous import GraphRule, parse_rule

LEGAL = {"match": "http://ex.org/legal", "quorum": "D/2+1 & all"}
ACCOUNTS = {"match": "http://ex.org/accounts/*", "timeout": "10s"}


def cluster(peers: list[dict[str, Any]] | None = None, **spec: Any) -> TxLogCluster:
    peers = peers or [{"name": "uk", "masters": 3, "address": "uk-{index}.example.net"}]
    return TxLogCluster.model_validate(
        {
            "apiVersion": "txlog.io/v1alpha1",
            "kind": "TxLogCluster",
            "metadata": {"name": "catalogue"},
            "spec": {"dataCenter": "uk", "peers": peers, **spec},
        }
    )


def test_rules_reach_the_masters() -> None:
    given = cluster(durability={"graphs": [ACCOUNTS, LEGAL], "synchronousQueue": {"transactions": 5, "bytes": "1Mi"}})
    found = build_node_config(
        given,
        "uk-1",
        url_of=lambda peer, index: "http://127.0.0.1:7300",
        port=7300,
        journal_folder=Path("/journal"),
        token_file=Path("/token"),
        workers=[],
    )
    assert [rule.parse() for rule in found.graphs] == [
        parse_rule("http://ex.org/accounts/*", "N/2+1", 10_000),
        parse_rule("http://ex.org/legal", "all&D/2+1"),
    ]
    assert (found.limits.synchronous_transactions, found.limits.synchronous_bytes) == (5, 1 << 20)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([{"match": "http://ex.org/g", "quorum": "N/2"}], "expected N/2\\+1"),
        ([{"match": "http://ex.org/g", "quorum": "2*N"}], "is no quorum"),
        ([{"match": "http://ex.org/g", "quorum": "0"}], "is no quorum"),
        ([{"match": "http://ex.org/g", "quorum": "D+1"}], "is no quorum"),
        ([{"match": "http://ex.org/g", "quorum": "1"}], "less than half of 3 votes; the least is 2"),
        ([LEGAL, LEGAL], "two rules match http://ex.org/legal"),
        ([{"match": "ex.org/g"}], "IRI with its scheme"),
        ([{"match": "http://*/g"}], "at the end only"),
        ([{"match": "urn:txlog:system:x"}], "belong to TxLog"),
        ([{"match": "http://ex.org/g", "timeout": "99ms"}], "100ms to 24h"),
        ([{"match": "http://ex.org/g", "timeout": "25h"}], "100ms to 24h"),
        ([{"match": "http://ex.org/g", "timeout": "10"}], "a duration"),
        ([{"match": "http://ex.org/g", "what": 1}], "Extra inputs"),
        ([{}], "Field required"),
    ],
)
def test_bad_rules(rules: list[dict[str, Any]], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        cluster(durability={"graphs": rules})


def test_rules_that_do_not_fit_the_cluster() -> None:
    with pytest.raises(ValidationError, match="splitRecovery None has none"):
        cluster(durability={"graphs": [LEGAL]}, splitRecovery="None")
    peers = [
        {"name": "uk", "masters": 1, "address": "uk.example.net", "voteWeight": 2},
        {"name": "us", "masters": 2, "address": "us-{index}.example.net"},
    ]
    with pytest.raises(ValidationError, match="uk-1 has 2 of 4 votes"):
        cluster(peers, durability={"graphs": [LEGAL]})


@pytest.mark.parametrize("queue", [{"transactions": 0}, {"transactions": 1_000_001}, {"bytes": "1Ki"}, {"entries": 1}])
def test_bad_bounds_of_the_queue(queue: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="synchronousQueue"):
        cluster(durability={"synchronousQueue": queue})


def test_a_file_of_rules(tmp_path: Path) -> None:
    file = tmp_path / "graphs.yaml"
    file.write_text("- {match: 'http://ex.org/a/*', quorum: all, timeout: 1m}\n- match: default\n")
    assert read_graph_rules(file) == [
        {"match": "http://ex.org/a/*", "quorum": "all", "timeout": "1m"},
        {"match": "default", "quorum": "N/2+1", "timeout": "30s"},
    ]
    file.write_text("[]")
    assert read_graph_rules(file) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# - {match: x:a}\n",
        "null",
        "{",
        "match: x",
        "- 7",
        "- {match: x:a, quorum: N/2}",
        "- {match: x:a, timeout: 7}",
        "\x00",
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "graphs.yaml"
    file.write_text(text)
    with pytest.raises(BadInput):
        read_graph_rules(file)
    with pytest.raises(BadInput, match="missing"):
        read_graph_rules(tmp_path / "missing")


THREE = [Master(f"uk-{number}", "uk", 1) for number in (1, 2, 3)]


def changed(*rules: GraphRule, masters: list[Master] = THREE) -> Configuration | None:
    now = Configuration(THREE, False, 1000)
    wanted = Configuration(masters, False, 1000, graphs=list(rules))
    return apply_configuration_change(now, encode(ConfigurationChange((1, 1, "uk-1"), 0, wanted)), lambda _: True)


def test_rules_are_configuration() -> None:
    rules = [GraphRuleSpec(match="default", quorum="D").parse(), parse_rule("http://ex.org/a/*", "3&D/2+1", 0)]
    found = changed(*rules)
    assert found is not None
    assert (found.graphs, found.version) == (rules, 1)
    assert to_rule_spec(found.graphs[1]) == {"match": "http://ex.org/a/*", "quorum": "3&D/2+1", "timeout": "0"}


def test_a_number_that_became_too_low_stays() -> None:
    """Otherwise no master could be added: 3 of 5 votes is most of them, and 3 of 7 counts as 4."""
    assert changed(parse_rule("x:a", "1")) is not None


@pytest.mark.parametrize(
    "rule",
    [
        GraphRule("no iri"),
        GraphRule("x:a", timeout_ms=1),
        GraphRule("x:a", Quorum((QuorumTerm(QuorumForm.ALL), QuorumTerm(QuorumForm.MAJORITY)))),
        GraphRule("x:a", Quorum(())),
    ],
)
def test_rules_that_no_master_makes_take_no_effect(rule: GraphRule) -> None:
    assert changed(rule) is None


def test_a_configuration_of_an_older_program_has_no_rules() -> None:
    found = changed(masters=THREE[:2])
    assert found is not None
    assert found.graphs == []
    heavy = [*THREE[:2], Master("uk-3", "uk", 2)]
    assert changed(parse_rule("x:a"), masters=heavy) is None, "half of all votes"
    assert changed(masters=heavy) is not None
