"""Whether an object is as the operator applied it. Pure.

Fields that the operator sets are put right when they are changed. Fields that others add are theirs under
server-side apply: they stay, and the status names who added them. What the API server or a webhook makes of an apply is
remembered, so that a quantity in other words or a changed value is not applied again in every reconcile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from txlog_operator.object_names import GROUP, short_hash
from txlog_operator.specs.common import FIELD_MANAGER, KubeObject

HASH_ANNOTATION: Final = f"{GROUP}/applied"
VOLATILE_METADATA: Final = ("managedFields", "resourceVersion", "generation")
"""Metadata that changes without a change of what was applied."""
CONTENT_FIELDS: Final = ("f:spec", "f:data")


def with_hash(wanted: KubeObject) -> KubeObject:
    """A copy of ``wanted`` with an annotation that holds its hash. The hash also reveals fields that were removed since
    the last apply."""
    meta = wanted["metadata"]
    notes = {**meta.get("annotations", {}), HASH_ANNOTATION: short_hash(wanted)}
    return {**wanted, "metadata": {**meta, "annotations": notes}}


def hash_of(wanted: KubeObject) -> str:
    """The hash that :func:`with_hash` has put into an object; empty without one."""
    return str((wanted["metadata"].get("annotations") or {}).get(HASH_ANNOTATION, ""))


def matches(found: Any, wanted: Any) -> bool:
    """Whether ``found`` contains everything in ``wanted``; the API server adds its own defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            matches(found.get(key), value) or (value in ({}, [], "") and key not in found)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(matches, found, wanted))
    return bool(found == wanted)


def fingerprint(found: KubeObject) -> str:
    """A hash of everything in an object but its status and volatile metadata."""
    meta = {key: value for key, value in found["metadata"].items() if key not in VOLATILE_METADATA}
    rest = {key: value for key, value in found.items() if key not in ("status", "metadata", "kind", "apiVersion")}
    return short_hash([meta, rest])


def foreign_managers(found: KubeObject) -> list[str]:
    """The field managers, except the operator's, that own fields in the content of an object."""
    return sorted(
        {
            str(each.get("manager"))
            for each in found["metadata"].get("managedFields", ())
            if each.get("manager") != FIELD_MANAGER
            and each.get("subresource") != "status"
            and any(field in each.get("fieldsV1", {}) for field in CONTENT_FIELDS)
        }
    )


class AppliedObjects:
    """What the API server made of each apply, by kind and name. Forgotten at a restart: then each object is applied
    once more."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[str, str]] = {}
        self._versions: dict[tuple[str, str], str | None] = {}

    def record(self, wanted: KubeObject, made: KubeObject) -> None:
        """``made`` is the answer to the apply of ``wanted``."""
        key = (wanted["kind"], wanted["metadata"]["name"])
        self._made[key] = (fingerprint(made), hash_of(wanted))
        self._versions[key] = made["metadata"].get("resourceVersion")

    def unchanged(self, objects: Mapping[tuple[str, str], KubeObject]) -> dict[tuple[str, str], str]:
        """The objects that are still as the API server made them, with the hash of what was applied. Forgets those that
        are gone: each backup has a Job of its own name."""
        self._made = {key: made for key, made in self._made.items() if key in objects}
        self._versions = {key: version for key, version in self._versions.items() if key in objects}
        return {key: self._made[key][1] for key, found in objects.items() if self._is_unchanged(key, found)}

    def _is_unchanged(self, key: tuple[str, str], found: KubeObject) -> bool:
        if key not in self._made:
            return False
        version = found["metadata"].get("resourceVersion")
        if version is None or version != self._versions[key]:  # its status may have changed
            if fingerprint(found) != self._made[key][0]:
                return False
            self._versions[key] = version
        return True
