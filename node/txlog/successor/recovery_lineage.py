"""Whose place a cluster has taken, by the claims on a target."""

from __future__ import annotations

from typing import NamedTuple

from txlog.archive.stream import Stream, find_streams
from txlog.backup.target import BackupTarget
from txlog.successor.recovery_claim import Claim, list_claims
from txlog.successor.successor_errors import NotASuccessor


class Lineage(NamedTuple):
    """``claim``: of the new cluster. ``stream``: the archive from which it was founded. ``streams``: all archives of
    the lost cluster on the target. ``predecessors``: the ids of the lost cluster, and of those that had taken its place
    before and were replaced."""

    claim: Claim
    stream: Stream
    streams: list[Stream]
    predecessors: frozenset[bytes]


def find_lineage(target: BackupTarget, cluster: bytes) -> Lineage:
    """By the claim that is in force. :class:`NotASuccessor` for a cluster that has none there, and for one that another
    one has replaced. Raises what :func:`~txlog.successor.recovery_claim.list_claims` raises."""
    streams = find_streams(target)
    for stream in streams:
        claims = list_claims(target, stream.id)
        if any(each.claim.successor == cluster.hex() for each in claims):
            newest = claims[-1].claim
            if newest.successor != cluster.hex():
                raise NotASuccessor(
                    f"the cluster {newest.successor} has replaced {cluster.hex()} as the successor of "
                    f"{stream.id.cluster.hex()}: rescue into that one"
                )
            lost = stream.id.cluster
            replaced = {bytes.fromhex(each.claim.successor) for each in claims[:-1]}
            own = [each for each in streams if each.id.cluster == lost]
            return Lineage(newest, stream, own, frozenset({lost, *replaced}))
    raise NotASuccessor(
        f"no archive on {target.location} says that the cluster {cluster.hex()} has taken another one's place: name "
        "the target of the lost cluster's archive, and a master of its successor (a copy takes no place)"
    )
