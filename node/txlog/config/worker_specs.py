"""``spec.workers`` of a manifest: the stores of one data centre, and which engines may be together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from txlog.config.manifest_model import (
    NO_DEFAULTS,
    ManifestModel,
    cel_rules,
    expected_error,
    immutable_storage_class,
    list_map,
)
from txlog.config.pod_template import PodTemplate
from txlog.config.resource_specs import ResourceRequirements, SecretRef, StorageSpec
from txlog.config.units import STANDALONE_ENGINES, Engine

VIRTUOSO_NOT_MIXED = (
    "false where a worker is a virtuoso or an rdf4j-as-written; other engines hold 1, 1.0 and 01 in another way"
)
VIRTUOSO_REFUSES_EFFECTS = (
    "refuse where a worker is a virtuoso, which cannot check whether the data that such an update read is unchanged"
)
MIXED_ENGINES_REQUIRED = "true where the workers have several engines, which execute some updates differently"


def check_engines(engines: Collection[str], mixed: bool, non_deterministic: str) -> None:
    """Raises why stores of these engines cannot be the workers of one repository. ``mixed``, ``non_deterministic``: the
    fields ``mixedEngines`` and ``nonDeterministicUpdates`` of the manifest."""
    if mixed and any(engine in STANDALONE_ENGINES for engine in engines):
        raise expected_error(VIRTUOSO_NOT_MIXED, "mixedEngines")
    if "virtuoso" in engines and non_deterministic != "refuse":
        raise expected_error(VIRTUOSO_REFUSES_EFFECTS, "nonDeterministicUpdates")
    if len(set(engines)) > 1 and not mixed:
        raise expected_error(MIXED_ENGINES_REQUIRED, "mixedEngines")


class ExternalWorkerSpec(ManifestModel):
    """A store that TxLog does not start."""

    url: str = Field(pattern=r"^https?://[^/\s?#]+(/[^\s?#]*)?$", description="URL of the store.")
    engine: Engine = Field(default="oxigraph", description="Engine of the store.")
    secret_ref: SecretRef | None = Field(default=None, description="Has no effect yet. The operator rejects it.")


ExternalWorkers = Annotated[
    list[ExternalWorkerSpec] | None,
    Field(
        min_length=1,
        max_length=100,
        description="Stores that TxLog does not start. They exclude all other fields of `workers`.",
        json_schema_extra=list_map("url"),
    ),
]


class WorkersSpec(ManifestModel):
    """The workers of this data centre: stores that TxLog runs, or external ones."""

    # With defaults, the rule below could not distinguish them from what a manifest contains beside external.
    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "!has(self.external) || !(has(self.replicas) || has(self.engine) || has(self.storage)"
                " || has(self.resources) || has(self.podTemplate))",
                "either external or replicas, engine, storage, resources and podTemplate, not both",
            ),
            (
                # A rule of the field itself is not asked when the field comes or goes.
                "has(self.external) || has(oldSelf.external) || has(self.storage) == has(oldSelf.storage)",
                "storage of workers that exist cannot be added or taken away",
            ),
            **{NO_DEFAULTS: True},
        )
    )
    replicas: int = Field(default=1, ge=1, le=100, strict=True, description="Number of stores that TxLog runs.")
    engine: Engine = Field(
        default="oxigraph", description="Engine of these stores. On Kubernetes, TxLog runs `oxigraph` only."
    )
    storage: StorageSpec = Field(
        default=StorageSpec(),
        description="The volume of each store.",
        json_schema_extra=immutable_storage_class("workers that exist"),
    )
    resources: ResourceRequirements = ResourceRequirements()
    pod_template: PodTemplate = Field(default=PodTemplate(), description="Additions to the pods of these stores.")
    external: ExternalWorkers = None

    @model_validator(mode="after")
    def _exactly_one_kind(self) -> Self:
        own = self.model_fields_set & {"replicas", "engine", "storage", "resources", "pod_template"}
        _check_external(self.external, own, "replicas, engine and storage")
        return self

    @property
    def engines(self) -> frozenset[str]:
        """The engines of these workers."""
        return frozenset({each.engine for each in self.external} if self.external else {self.engine})


def _check_external(external: list[ExternalWorkerSpec] | None, own: Collection[str], fields: str) -> None:
    """``own``: fields that a manifest has beside ``external``, ``fields``: those that may be there without it."""
    if external is None:
        return
    if own:
        raise expected_error(f"either external or {fields}, not both ({', '.join(sorted(own))})", "external")
    urls = [worker.url.rstrip("/") for worker in external]
    twice = next((url for url in urls if urls.count(url) > 1), None)
    if twice:
        raise expected_error(f"every worker once; {twice} is there twice", "external")


class RepositoryWorkersSpec(ManifestModel):
    """The workers of one further repository in this data centre."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "!has(self.external) || !(has(self.replicas) || has(self.engine))",
                "either external or replicas and engine, not both",
            ),
            **{NO_DEFAULTS: True},
        )
    )
    replicas: int = Field(
        default=1,
        ge=0,
        le=100,
        strict=True,
        description="Number of stores that TxLog runs. 0: this data centre orders its transactions and holds no data.",
    )
    engine: Engine = Field(default="oxigraph", description="Engine of these stores.")
    external: ExternalWorkers = None

    @model_validator(mode="after")
    def _exactly_one_kind(self) -> Self:
        _check_external(self.external, self.model_fields_set & {"replicas", "engine"}, "replicas and engine")
        return self

    @property
    def count(self) -> int:
        """The number of these workers."""
        return len(self.external) if self.external else self.replicas

    @property
    def engines(self) -> frozenset[str]:
        """The engines of these workers."""
        if self.external:
            return frozenset(each.engine for each in self.external)
        return frozenset({self.engine} if self.replicas else ())
