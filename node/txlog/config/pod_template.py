"""``podTemplate`` of a manifest: what a platform adds to the pods of TxLog, such as tolerations and an account."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from txlog.config.manifest_model import ManifestModel, cel_rules, expected_error
from txlog.config.resource_specs import RESOURCE_NAME_PATTERN, SecretRef

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
RESERVED_PREFIXES: Final = ("app.kubernetes.io/", "txlog.io/")
"""Prefixes of labels and annotations by which the operator finds its objects."""
RESERVED_VARIABLES: Final = "TXLOG_"
_LABELS_EXPECTED: Final = f"names without the prefixes {' and '.join(RESERVED_PREFIXES)}, which are the operator's"
_VARIABLE_EXPECTED: Final = f"another name; those that begin with {RESERVED_VARIABLES} are the operator's"
_UNRESERVED_LABELS: Final = " && ".join(f"!k.startsWith('{prefix}')" for prefix in RESERVED_PREFIXES)

KubernetesObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object", PRESERVE: True})]
"""A part of a pod as Kubernetes defines it. The API server checks it when the operator applies the pod."""


class EnvironmentVariable(ManifestModel):
    """An environment variable of TxLog's container."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            ("has(self.value) != has(self.valueFrom)", "either value or valueFrom"),
            (f"!self.name.startsWith('{RESERVED_VARIABLES}')", f"name: {_VARIABLE_EXPECTED}"),
        )
    )
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256, description="Name of the variable.")
    value: str | None = Field(default=None, max_length=32768, description="Its value.")
    value_from: KubernetesObject | None = Field(
        default=None, description="Where Kubernetes takes the value from, such as `secretKeyRef`."
    )

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise expected_error("either value or valueFrom", "valueFrom")
        if self.name.startswith(RESERVED_VARIABLES):
            raise expected_error(_VARIABLE_EXPECTED, "name")
        return self


class PodTemplate(ManifestModel):
    """Additions to pods. Has an effect on Kubernetes only. A change restarts the pods, masters one after the other."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (f"!has(self.labels) || self.labels.all(k, {_UNRESERVED_LABELS})", f"labels: {_LABELS_EXPECTED}"),
            (
                f"!has(self.annotations) || self.annotations.all(k, {_UNRESERVED_LABELS})",
                f"annotations: {_LABELS_EXPECTED}",
            ),
        )
    )
    labels: dict[str, str] = Field(default={}, description="More labels of each pod.")
    annotations: dict[str, str] = Field(default={}, description="More annotations of each pod.")
    env: list[EnvironmentVariable] = Field(
        default=[], max_length=64, description="More environment variables of TxLog's containers."
    )
    node_selector: dict[str, str] = Field(default={}, description="Labels that a node must have.")
    tolerations: list[KubernetesObject] = Field(
        default=[], max_length=64, description="Taints of nodes that the pods tolerate."
    )
    affinity: KubernetesObject | None = Field(default=None, description="Affinity to nodes and to other pods.")
    topology_spread_constraints: list[KubernetesObject] = Field(
        default=[],
        max_length=16,
        description="How pods are spread over zones and nodes. Without a `labelSelector` it means the pods of the same "
        "component. By default, masters, stores and executors are spread over nodes where possible.",
    )
    priority_class_name: str | None = Field(
        default=None, pattern=RESOURCE_NAME_PATTERN, description="PriorityClass of the pods."
    )
    service_account_name: str | None = Field(
        default=None,
        pattern=RESOURCE_NAME_PATTERN,
        description="ServiceAccount of the pods, for example one whose annotations grant access to S3. No token of it "
        "is mounted. With `mode: executors` the driver of the pipeline keeps the account of the chart.",
    )
    image_pull_secrets: list[SecretRef] = Field(
        default=[], max_length=16, description="Secrets with which the images are pulled."
    )
    sidecars: list[KubernetesObject] = Field(
        default=[],
        max_length=8,
        description="More containers. They start before TxLog's container and end after it, in Jobs, too.",
    )
    volumes: list[KubernetesObject] = Field(
        default=[], max_length=16, description="Volumes for `sidecars`. Their names begin with `x-`."
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for field, given in (("labels", self.labels), ("annotations", self.annotations)):
            if any(name.startswith(RESERVED_PREFIXES) for name in given):
                raise expected_error(_LABELS_EXPECTED, field)
        for at, sidecar in enumerate(self.sidecars):
            if not isinstance(sidecar.get("name"), str) or not isinstance(sidecar.get("image"), str):
                raise expected_error("a container with a name and an image", "sidecars", at)
        for at, volume in enumerate(self.volumes):
            if not str(volume.get("name", "")).startswith("x-"):
                raise expected_error("a volume whose name begins with x-", "volumes", at)
        return self

    @property
    def is_empty(self) -> bool:
        """Whether it adds nothing."""
        return self == PodTemplate()

    def merged_with(self, specific: PodTemplate) -> PodTemplate:
        """Both: maps and lists are joined, and where both set a value, that of ``specific`` counts."""
        joined: dict[str, Any] = {}
        for name in type(self).model_fields:
            ours, theirs = getattr(self, name), getattr(specific, name)
            if isinstance(ours, dict) and isinstance(theirs, dict) and name != "affinity":
                joined[name] = {**ours, **theirs}
            elif isinstance(ours, list):
                joined[name] = [*ours, *theirs]
            else:
                joined[name] = ours if theirs is None else theirs
        names = {variable.name for variable in specific.env}
        joined["env"] = [*(variable for variable in self.env if variable.name not in names), *specific.env]
        return self.model_copy(update=joined)
