"""``spec.pipeline``: the Spark application of a data centre."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from txlog.config.manifest_model import ManifestModel, cel_rules, expected_error
from txlog.config.pod_template import PodTemplate
from txlog.config.resource_specs import ResourceRequirements
from txlog.config.units import CpuQuantity, Quantity, size_within

_EXECUTOR_FIELDS = {"executors": "executors", "executor_cores": "executorCores", "executor_cpu": "executorCpu"} | {
    "executor_memory": "executorMemory"
}
"""Fields of :class:`PipelineSpec` that say something of executors, as they are written."""


class PipelineSpec(ManifestModel):
    """The Spark application of this data centre. ``txlog up`` runs each mode as one local process."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            *(
                (
                    f"self.mode == 'executors' || !has(self.{name})",
                    f"no {name} with mode: local; remove it, or set mode: executors",
                )
                for name in _EXECUTOR_FIELDS.values()
            )
        )
    )
    mode: Literal["executors", "local"] = Field(
        default="local",
        description="`local`: one pod executes everything. `executors`: Spark creates further pods and runs tasks in "
        "them.",
    )
    executors: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        strict=True,
        description="Number of executor pods, by default 2. Has an effect on Kubernetes only.",
    )
    executor_cores: int | None = Field(
        default=None,
        ge=1,
        le=256,
        strict=True,
        description="Tasks that one executor runs at once, by default as many as the workers need. May exceed its "
        "processors, since tasks mostly wait for stores.",
    )
    executor_cpu: CpuQuantity | None = Field(
        default=None,
        description="Processor request of each executor pod, by default `250m`. Has an effect on Kubernetes only.",
    )
    executor_memory: Annotated[Quantity, AfterValidator(size_within("1Gi", "256Gi"))] | None = Field(
        default=None,
        description="Memory request and limit of each executor pod, by default `1536Mi`. Has an effect on Kubernetes "
        "only.",
    )
    resources: ResourceRequirements = Field(
        default=ResourceRequirements(),
        description="Resources of the driver pod. With `mode: local` it is the only pod.",
    )
    pod_template: PodTemplate = Field(
        default=PodTemplate(), description="Additions to the pods of the driver and of executors."
    )

    @model_validator(mode="after")
    def _check_executor_fields(self) -> Self:
        for field, name in _EXECUTOR_FIELDS.items():
            if self.mode == "local" and getattr(self, field) is not None:
                raise expected_error(f"no {name} with mode: local; remove it, or set mode: executors", name)
        return self
