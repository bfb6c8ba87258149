"""Parts that several sections of a manifest share: Secrets, resources of pods, volumes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from txlog.config.manifest_model import ManifestModel
from txlog.config.units import Quantity, ResourceQuantity, size_within

RESOURCE_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
"""Of a Secret or a claim of Kubernetes."""


class SecretRef(ManifestModel):
    """A Secret of the same namespace."""

    name: str = Field(pattern=RESOURCE_NAME_PATTERN, description="Name of the Secret.")


class ResourceRequirements(ManifestModel):
    """Resources of each pod. Has an effect on Kubernetes only."""

    requests: dict[str, ResourceQuantity] = Field(
        default={}, description="Resources that the scheduler reserves, such as `cpu` and `memory`."
    )
    limits: dict[str, ResourceQuantity] = Field(default={}, description="The most that a pod may use of each resource.")


class StorageSpec(ManifestModel):
    """The volume of each process."""

    size: Annotated[Quantity, AfterValidator(size_within("64Mi"))] = Field(
        default=20 << 30, description="Size of each volume. With `txlog up` it limits the journals of masters only."
    )
    storage_class_name: str | None = Field(
        default=None, min_length=1, description="Storage class of the volumes. By default, Kubernetes chooses it."
    )
