"""Shared by all models of a manifest."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

CEL_RULES = "x-kubernetes-validations"
NO_DEFAULTS = "x-no-defaults"
"""Only for the schema generator: the API server must not fill in defaults here."""


def expected_error(what: str, *at: str | int) -> PydanticCustomError:
    """An error of a rule over several fields: what is expected, and the field (below this one) that is wrong."""
    return PydanticCustomError("expected", "{what}", {"what": what, "at": at})


def cel_rules(*pairs: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Rules in CEL that the API server checks, each with its message; ``more``: other keywords of the schema."""
    return {CEL_RULES: [{"rule": rule, "message": message} for rule, message in pairs], **more}


def immutable(what: str) -> dict[str, Any]:
    """Keywords of a field that an update cannot change; ``what`` names it in the error."""
    return cel_rules(("self == oldSelf", f"{what} cannot be changed"))


def immutable_storage_class(what: str) -> dict[str, Any]:
    """Keywords of a volume whose size alone may change; ``what`` names whose it is in the error."""
    return cel_rules(
        (
            "has(self.storageClassName) == has(oldSelf.storageClassName)"
            " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
            f"storage class of {what} cannot be changed",
        )
    )


def list_map(*keys: str) -> dict[str, Any]:
    """A list whose elements are identified by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


class ManifestModel(BaseModel):
    """camelCase in the manifest; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)
