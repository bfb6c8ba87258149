"""Which transactions the stores of this cluster execute alike: judged before one is logged."""

from __future__ import annotations

from txlog.model.errors import BadInput, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.sparql import TransactionBody, refuse_base_direction, refuse_terms_jena_changes, refuse_unportable
from txlog.sparql.triple_terms import find_triple_term
from txlog.wire.protocol_level import LEVEL_TRIPLE_TERMS

_STORES_RDF_1_2 = ("", "oxigraph", "fuseki")
"""Engines that store triple terms, and literals with a base direction, as RDF 1.2 means them. RDF4J 4 has RDF-star's
triples in its memory store only. A worker of another master of a mixed cluster may be unknown here, so there
``mixedEngines`` counts as another engine. "" is a worker without a named engine."""
_JENA = ("fuseki",)


class PortabilityRule:
    """The rule of one master; it follows the workers that are added and removed while it runs."""

    def __init__(self, site: MasterContext) -> None:
        self._site = site
        self._mixed = site.config.mixed_engines
        self._workers = site.registry.known

    def check(self, prepared: TransactionBody) -> TransactionBody:
        """The same transaction. Raises :class:`~txlog.model.errors.NotDeterministic` where several engines may differ
        in it, and :class:`~txlog.model.errors.BadInput` for a term that not every engine of the cluster stores."""
        self.check_terms(prepared.kind, prepared.payload)
        return refuse_unportable(prepared) if self._mixed else prepared

    def check_terms(self, kind: int, payload: bytes) -> None:
        """The check of terms alone: of quads or of an update."""
        if b"--" in payload and not self._stores_rdf_1_2():
            refuse_base_direction(kind, payload)
        if found := find_triple_term(kind, payload):
            self._check_triple_terms(found)
        if self._has_jena():
            refuse_terms_jena_changes(payload)

    def _check_triple_terms(self, what: str) -> None:
        if lacking := self.lacking_engine():
            raise BadInput(
                f"MALFORMED DATA: {what} (RDF 1.2): {lacking} of this cluster does not know it; "
                "name the triple by an IRI"
            )
        if older := self._site.status.older_masters(LEVEL_TRIPLE_TERMS):
            text = f"{what} (RDF 1.2) is taken when {', '.join(older)} is updated: its pipeline cannot read it"
            raise Unavailable("OlderMaster", text)

    def _stores_rdf_1_2(self) -> bool:
        return not self.lacking_engine()

    def lacking_engine(self) -> str:
        """An engine of this cluster that does not store the terms of RDF 1.2, for people; "" when all do."""
        engines = [worker.engine for _, worker in self._workers.all()]
        lacking = next((engine for engine in engines if engine not in _STORES_RDF_1_2), "")
        if not lacking and self._mixed and (self._site.other_nodes or not engines):
            return "an engine that mixedEngines allows"
        return lacking

    def _has_jena(self) -> bool:
        return self._mixed or any(worker.engine in _JENA for _, worker in self._workers.all())
