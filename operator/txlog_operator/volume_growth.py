"""Volumes that grow while their pods run: ``storage.size`` of masters, stores and change sets. Pure.

Three steps, each after the one before has taken effect: the claims request the new size; the storage makes it; the
StatefulSet, whose claim template no update may change, is replaced. Its pods stay and belong to the new one. Until
then everything is built with the former size, so that a size which the storage refuses stops nothing else. Masters
restart at the end, one by one: the size bounds their journals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.units import format_quantity, parse_quantity
from txlog_operator.actions import GrowVolume, ReplaceStatefulSet
from txlog_operator.object_names import ObjectNames
from txlog_operator.object_ownership import is_being_deleted
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import KubeObject, change_sets, jobs, masters, workers
from txlog_operator.volume_claims import CLAIM_KIND, claims_of

AT_NEXT_MOUNT: Final = "FileSystemResizePending"
"""The condition of a claim whose storage has grown, and whose file system grows when a pod mounts it again."""

UNREADABLE: Final = 1 << 62
"""Larger than any size, so that no claim is changed."""


@dataclass(frozen=True)
class _Volumes:
    """The volumes of one component. ``wanted``: bytes in the manifest. ``template``: bytes in the StatefulSet, None
    while there is none."""

    component: str
    stateful_set: str
    wanted: int
    template: int | None
    owner: KubeObject | None
    claims: tuple[KubeObject, ...]

    @property
    def smallest(self) -> int | None:
        """The least bytes that a claim or the template requests; None without a StatefulSet."""
        if self.template is None:
            return None
        return min((self.template, *(_requested(each) for each in self.claims)))

    @property
    def small(self) -> list[KubeObject]:
        """The claims that request less than the manifest."""
        return [each for each in self.claims if _requested(each) < self.wanted]

    @property
    def pending(self) -> list[KubeObject]:
        """The claims whose volumes do not have the size of the manifest yet."""
        return [each for each in self.claims if _capacity(each) < self.wanted]


def built_sizes(cluster: TxLogCluster, seen: ClusterObservation) -> dict[str, int]:
    """By component, the size in bytes with which objects are built while another one is not reached."""
    found = {each.component: each.template for each in _all_volumes(cluster, seen) if each.template is not None}
    lone = seen.objects.get((CLAIM_KIND, ObjectNames(cluster).split_backups))
    if lone is not None and (_requested(lone) > cluster.spec.workers.storage.size or not _is_bound(lone)):
        found[jobs.COMPONENT] = _requested(lone)  # a claim without a volume cannot change, and none shrinks
    return found


def requested_sizes(cluster: TxLogCluster, seen: ClusterObservation) -> dict[str, str]:
    """By component, the size that every volume has or requests, for the status."""
    found = {each.component: each.smallest for each in _all_volumes(cluster, seen)}
    return {component: format_quantity(size) for component, size in found.items() if size is not None}


def plan_growth(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[GrowVolume | ReplaceStatefulSet]:
    """The next steps. Only a claim that has a volume can grow; one without gets the size of the template later."""
    for volumes in _all_volumes(cluster, seen):
        if volumes.template is None or volumes.owner is None or volumes.template >= volumes.wanted:
            continue
        size = format_quantity(volumes.wanted)
        for claim in volumes.small:
            yield GrowVolume(claim["metadata"]["name"], claim["metadata"].get("uid"), size)
        if not volumes.small and all(map(_grows_at_next_mount, volumes.pending)):
            reason = f"its volumes have {size}; its pods go on"
            yield ReplaceStatefulSet(volumes.stateful_set, volumes.owner["metadata"].get("uid"), reason)


def growing_volumes(cluster: TxLogCluster, seen: ClusterObservation) -> list[str]:
    """What is not reached yet, in words: one for each claim."""
    found = []
    for volumes in _all_volumes(cluster, seen):
        for claim in volumes.pending:
            has, wants = format_quantity(_capacity(claim)), format_quantity(volumes.wanted)
            why = next((str(each.get("message") or each["type"]) for each in _true_conditions(claim)), "")
            found.append(f"{claim['metadata']['name']} has {has} of {wants}{f' ({why})' if why else ''}")
        if volumes.template is not None and volumes.template < volumes.wanted and not volumes.pending:
            found.append(f"StatefulSet {volumes.stateful_set} is replaced")
    return found


def _all_volumes(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[_Volumes]:
    names, spec = ObjectNames(cluster), cluster.spec
    yield _volumes(cluster, seen, masters.COMPONENT, masters.CLAIM, names.masters, spec.masters.storage.size)
    if not spec.workers.external:
        yield _volumes(cluster, seen, workers.COMPONENT, workers.CLAIM, names.workers, spec.workers.storage.size)
    if spec.change_sets.enabled:
        size = spec.change_sets.storage.size
        yield _volumes(cluster, seen, change_sets.COMPONENT, change_sets.CLAIM, names.change_sets, size)


def _volumes(
    cluster: TxLogCluster, seen: ClusterObservation, component: str, claim: str, stateful_set: str, wanted: int
) -> _Volumes:
    owner = seen.objects.get(("StatefulSet", stateful_set))
    claims = tuple(
        found
        for _, found in claims_of(cluster, seen, component, claim, stateful_set)
        if not is_being_deleted(found) and _is_bound(found)
    )
    template = _requested(owner["spec"]["volumeClaimTemplates"][0]) if owner is not None else None
    return _Volumes(component, stateful_set, wanted, template, None if is_being_deleted(owner) else owner, claims)


def _requested(claim: KubeObject) -> int:
    return _bytes(claim["spec"]["resources"]["requests"]["storage"])


def _is_bound(claim: KubeObject) -> bool:
    return bool(claim.get("status", {}).get("phase") == "Bound")


def _capacity(claim: KubeObject) -> int:
    """Bytes that the volume has; what it requests while it does not tell."""
    reported = claim.get("status", {}).get("capacity", {}).get("storage")
    return _bytes(reported) if reported is not None else _requested(claim)


def _bytes(quantity: object) -> int:
    """In a notation that TxLog does not write, a size is left as it is."""
    try:
        return parse_quantity(quantity)
    except ValueError:
        return UNREADABLE


def _grows_at_next_mount(claim: KubeObject) -> bool:
    return any(each["type"] == AT_NEXT_MOUNT for each in _true_conditions(claim))


def _true_conditions(claim: KubeObject) -> list[KubeObject]:
    return [each for each in claim.get("status", {}).get("conditions") or [] if each["status"] == "True"]
