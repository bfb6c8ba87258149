"""``spec.changeSets`` of a manifest: whether this data centre makes change sets, and how long it keeps them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from txlog.config.manifest_model import ManifestModel, immutable_storage_class
from txlog.config.resource_specs import ResourceRequirements, StorageSpec
from txlog.config.units import Duration, duration_within

NEEDS_OXIGRAPH = (
    "false where workers are not Oxigraph, which may execute an update differently. With mixedEngines one of them must "
    "be an Oxigraph, whose data is the first data"
)
NEEDS_ONE_ORDER = "false with splitRecovery: None, where workers execute what the log does not say"


class ChangeSetsPolicy(ManifestModel):
    """The change sets of this data centre: the quads that each entry of the log really deleted and added."""

    enabled: bool = Field(
        default=False,
        strict=True,
        description="Whether a process makes change sets, for `txlog watch --updates quads`. It holds the data once "
        "more.",
    )
    keep: Annotated[Duration, AfterValidator(duration_within("1m", "520w"))] = Field(
        default=24 * 3_600_000, description="How long change sets are kept at least."
    )
    storage: StorageSpec = Field(
        default=StorageSpec(),
        description="The volume of the store and its change log.",
        json_schema_extra=immutable_storage_class("change sets that exist"),
    )
    resources: ResourceRequirements = ResourceRequirements()
