"""``spec.durability`` of a manifest: levels of writes, and graphs whose transactions need a quorum."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from txlog.config.manifest_model import ManifestModel
from txlog.config.units import Duration, Quantity, duration_within, format_duration, size_within
from txlog.model.durability import Durability
from txlog.model.quorum import format_quorum
from txlog.model.synchronous import (
    GRAPH_RULES_MAX,
    MATCH_CHARACTERS_MAX,
    TIMEOUT_MS_DEFAULT,
    GraphRule,
    parse_rule,
)

QUEUE_TRANSACTIONS: Final = (1, 1_000_000)
"""The least and the largest ``synchronousQueue.transactions``."""


class GraphRuleSpec(ManifestModel):
    """A rule: transactions that may write such a graph take effect only where a quorum of the masters holds them."""

    match: str = Field(
        max_length=MATCH_CHARACTERS_MAX,
        description="IRI of a graph, a prefix of such IRIs with `*` at the end, or `default` for the default graph.",
    )
    quorum: str = Field(
        default="N/2+1",
        max_length=200,
        description="Votes that must hold a transaction: `N/2+1`, `N-1`, `all`, a number, `D/2+1` or `D`, joined with "
        "`&`. N counts votes, D data centres.",
    )
    timeout: Duration = Field(
        default=TIMEOUT_MS_DEFAULT,
        description="How long a transaction may stay undecided and still take effect, 100ms to 24h. `0`: for ever.",
    )

    def parse(self) -> GraphRule:
        """The rule. :class:`BadInput` names the part that is wrong."""
        return parse_rule(self.match, self.quorum, self.timeout)


class SynchronousQueueSpec(ManifestModel):
    """How much of its own a master may leave undecided; above it, synchronous writes get 503 `SynchroFull`."""

    transactions: int = Field(
        default=10_000,
        ge=QUEUE_TRANSACTIONS[0],
        le=QUEUE_TRANSACTIONS[1],
        strict=True,
        description="Undecided transactions of one master.",
    )
    bytes: Annotated[Quantity, AfterValidator(size_within("1Mi"))] = Field(
        default=64 << 20, description="Bytes of their payloads."
    )


class DurabilityDefaults(ManifestModel):
    """The durability level of writes that choose none, how long they wait for it, and graphs that need a quorum."""

    default: Durability = Field(
        default=Durability.APPLIED, description="Durability level of a write without the header `TxLog-Durability`."
    )
    write_timeout: Annotated[Duration, AfterValidator(duration_within("100ms", "10m"))] = Field(
        default=30_000, description="How long a write waits for its level. Then the answer is 202."
    )
    graphs: list[GraphRuleSpec] = Field(
        default=[],
        max_length=GRAPH_RULES_MAX,
        description="Graphs whose transactions are synchronous. The same list in every data centre. It counts when the "
        "cluster is bootstrapped. Later a change of the list becomes an entry of the log; with `txlog up`, "
        "`txlog configuration --graphs` changes it.",
    )
    synchronous_queue: SynchronousQueueSpec = Field(
        default=SynchronousQueueSpec(), description="Bounds on undecided synchronous transactions of one master."
    )


def to_rule_spec(rule: GraphRule) -> dict[str, str]:
    """A rule as a manifest and the API have it."""
    return {"match": rule.match, "quorum": format_quorum(rule.quorum), "timeout": format_duration(rule.timeout_ms)}
