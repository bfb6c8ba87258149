"""What all models of a manifest share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


def expected(what: str, *at: str | int) -> PydanticCustomError:
    """An error of a rule over several fields: what is expected, and the field (below this one) that is to blame."""
    return PydanticCustomError("expected", "{what}", {"what": what, "at": at})


class Shape(BaseModel):
    """camelCase outside, an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)
