"""Rules for graphs that need a quorum: which change of the manifest becomes an entry of the log, and the condition
``SynchronousQuorum``. Pure.

The rules belong to the log, and every data centre has a manifest with them. So a manifest counts at the moment when it
changes: an operator whose manifest is as it was does not undo what another data centre or a person has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ConditionType
from txlog.config.durability_specs import to_rule_spec
from txlog.supervision.membership import newest_configuration
from txlog_operator.actions import ChangeGraphRules
from txlog_operator.condition_check import ConditionCheck, join_first
from txlog_operator.object_names import short_hash
from txlog_operator.observation import ClusterObservation

CHANGING: Final = "changing"
"""In place of a digest: the manifest has had another list than the log since they last agreed. Also a list that goes
back to the former one is a change then: the log may have taken, or may yet take, the one between."""


def rules_of_manifest(cluster: TxLogCluster) -> list[dict[str, str]]:
    """As the configuration in the log has them."""
    return [to_rule_spec(rule.parse()) for rule in cluster.spec.durability.graphs]


def carried_rules(cluster: TxLogCluster, seen: ClusterObservation, before: str | None) -> str | None:
    """A digest of the manifest's rules, if the log has them now. Else ``before``, that of the last ones that it had, as
    long as the manifest has the same list; then :data:`CHANGING`."""
    wanted = rules_of_manifest(cluster)
    if _rules_of_log(seen) == wanted:
        return short_hash(wanted)
    return before if before in (None, short_hash(wanted)) else CHANGING


def plan_rules(cluster: TxLogCluster, seen: ClusterObservation, carried: str | None) -> Iterator[ChangeGraphRules]:
    """The change that brings changed rules of the manifest into the log. ``carried``: as :func:`carried_rules`, already
    in the status."""
    wanted = rules_of_manifest(cluster)
    if not has_pending_rules(cluster, seen, carried):
        return
    asked = next((node for node, master in seen.reachable_masters.items() if master.status.state == "Joined"), None)
    if asked is not None:
        yield ChangeGraphRules(asked, seen.urls[asked], json.dumps(wanted))


def has_pending_rules(cluster: TxLogCluster, seen: ClusterObservation, carried: str | None) -> bool:
    """Whether changed rules of the manifest are known not to be in the log yet."""
    wanted, found = rules_of_manifest(cluster), _rules_of_log(seen)
    return found not in (None, wanted) and carried not in (None, short_hash(wanted))


def check_quorum(cluster: TxLogCluster, seen: ClusterObservation) -> ConditionCheck:
    """Whether a master of this data centre decides, and each rule has its quorum here."""
    kind = ConditionType.SYNCHRONOUS_QUORUM
    rules, wanted = _rules_of_log(seen), rules_of_manifest(cluster)
    if not rules and not wanted:
        return ConditionCheck(kind, "True", "NoRules", "no graph needs a quorum")
    reports = [master.synchro for master in seen.reachable_masters.values() if master.synchro is not None]
    if rules is None or not reports:
        return ConditionCheck(kind, "Unknown", "NotReported", "no master of this data centre has reported its quorums")
    if not rules:
        text = f"the manifest has {len(wanted)} rules and the log has none: its graphs are written without a quorum"
        return ConditionCheck(kind, "False", "NotInLog", f"{text} (txlog configuration)")
    differs = "" if rules == wanted else "; the manifest has other rules than the log (txlog configuration)"
    deciding = [report for report in reports if report["quorate"]]
    if not deciding:
        here = max(int(report["electorate"]["here"]) for report in reports)
        votes = max(int(report["electorate"]["votes"]) for report in reports)
        text = f"no master here decides, {here} of {votes} votes are here: writes of graphs with a rule are refused"
        return ConditionCheck(kind, "False", "NotQuorate", f"{text}{differs}")
    missed = _missed_rules(min(deciding, key=lambda report: sum(rule["reached"] for rule in report["graphs"])))
    if missed:
        return ConditionCheck(kind, "False", "RuleNotReached", f"{join_first(missed)}{differs}")
    return ConditionCheck(kind, "True", "Reached", f"{len(rules)} rules have their quorum here{differs}")


def _missed_rules(report: Mapping[str, Any]) -> list[str]:
    return [
        f"{rule['match']} needs {rule['needs']} votes ({rule['quorum']}), and {rule['here']} are here"
        for rule in report["graphs"]
        if not rule["reached"]
    ]


def _rules_of_log(seen: ClusterObservation) -> list[dict[str, str]] | None:
    """None where it is not known, also at masters of an older version."""
    now = newest_configuration(master.configuration for master in seen.reachable_masters.values())
    return None if now is None or "graphs" not in now else [dict(rule) for rule in now["graphs"]]
