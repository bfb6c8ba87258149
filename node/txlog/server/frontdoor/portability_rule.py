"""Which transactions the stores of this cluster execute alike: judged before one is logged."""

from __future__ import annotations

from txlog.config.units import AS_WRITTEN
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput
from txlog.runtime.master_context import MasterContext
from txlog.sparql import TransactionBody, refuse_base_direction, refuse_terms_jena_changes, refuse_unportable
from txlog.workers.canonical_literals import canonical_lines, lines_with_lower_tags
from txlog.workers.union_default_graph import canonical_constants, lower_tags

_STORES_BASE_DIRECTION = ("", "oxigraph")
"""Engines that store a literal with a base direction as RDF 1.2 means it. A worker of another master of a mixed
cluster may be unknown here, so ``mixedEngines`` counts as another engine. "" is a worker without a named engine."""
_JENA = ("fuseki",)


class PortabilityRule:
    """The rule of one master; it follows the workers that are added and removed while it runs."""

    def __init__(self, site: MasterContext) -> None:
        self._mixed = site.config.mixed_engines
        self._workers = site.registry.known

    def check(self, prepared: TransactionBody) -> TransactionBody:
        """The same transaction. Raises :class:`~txlog.model.errors.NotDeterministic` where several engines may differ
        in it, and :class:`~txlog.model.errors.BadInput` for a term that not every engine of the cluster stores."""
        self.check_terms(prepared.kind, prepared.payload)
        return refuse_unportable(prepared) if self._mixed or self._mixes_forms() else prepared

    def check_terms(self, kind: int, payload: bytes) -> None:
        """The check of terms alone: of quads or of an update."""
        if b"--" in payload and not self._stores_base_direction():
            refuse_base_direction(kind, payload)
        if self._has_jena():
            refuse_terms_jena_changes(payload)
        if self._mixes_forms() and _has_other_forms(kind, payload):
            raise BadInput(
                f"MALFORMED DATA: a literal in another form than the canonical one (01, 1.10, +00:00, xsd:int): the "
                f"workers of some data centres are {AS_WRITTEN} and would keep it, and others would not; give all "
                "workers of the cluster that engine, or send the canonical form"
            )

    def _stores_base_direction(self) -> bool:
        return not self._mixed and all(worker.engine in _STORES_BASE_DIRECTION for _, worker in self._workers.all())

    def _mixes_forms(self) -> bool:
        """Whether only some workers hold literals as they were sent. The manifests of one data centre cannot do that,
        but those of two can."""
        kept = {worker.engine == AS_WRITTEN for _, worker in self._workers.all()}
        return len(kept) > 1

    def _has_jena(self) -> bool:
        return self._mixed or any(worker.engine in _JENA for _, worker in self._workers.all())


def _has_other_forms(kind: int, payload: bytes) -> bool:
    if kind == KIND_QUADS:
        return canonical_lines(payload) != lines_with_lower_tags(payload)
    if kind != KIND_UPDATE:
        return False
    text = lower_tags(payload.decode())
    return canonical_constants(text) != text
