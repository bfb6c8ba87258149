"""What clients bring, and the list of members that all masters are configured with."""

from __future__ import annotations

from txlog.model.entry import KIND_UPDATE
from txlog.model.hashes import content_hash
from txlog.protocol.events import ConfiguredMember, Submission
from txlog_simulation.run_plan import DATA_CENTRES


def build_submission(text: str, key: str, kind: int = KIND_UPDATE) -> Submission:
    """A transaction as the front door hands it in."""
    payload = text.encode()
    return Submission(kind, key, payload, content_hash(kind, key, payload))


def configured_members(
    plan_members: int, centres: tuple[int, ...], weights: tuple[int, ...], names: list[str]
) -> tuple[ConfiguredMember, ...]:
    """The list of members, the same at every master."""
    return tuple(ConfiguredMember(names[i], DATA_CENTRES[centres[i]], weights[i]) for i in range(plan_members))
