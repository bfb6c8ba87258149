"""Which transactions the stores of this cluster execute alike: judged before one is logged."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from txlog.config.units import AS_WRITTEN
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.sparql import (
    EFFECT_CONDITION,
    TransactionBody,
    refuse_base_direction,
    refuse_fatal,
    refuse_terms_jena_changes,
    refuse_unportable,
)
from txlog.sparql.analysis.fatal_expressions import JENA, RDF4J
from txlog.sparql.triple_terms import find_triple_term
from txlog.wire.protocol_level import LEVEL_TRIPLE_TERMS
from txlog.workers.canonical_literals import canonical_lines, lines_with_lower_tags
from txlog.workers.union_default_graph import canonical_constants, lower_tags

_STORES_RDF_1_2 = ("", "oxigraph", "fuseki")
"""Engines that store triple terms, and literals with a base direction, as RDF 1.2 means them. RDF4J 4 has RDF-star's
triples in its memory store only. A worker of another master of a mixed cluster may be unknown here, so there
``mixedEngines`` counts as another engine. "" is a worker without a named engine."""


class EngineTraits(NamedTuple):
    """What the engines of the known workers have in common, as far as it decides what they execute alike."""

    engines: tuple[str, ...]
    has_jena: bool
    keeps_forms: bool
    """A worker holds literals as they were sent."""
    mixes_forms: bool
    """Only some workers do. The manifests of one data centre cannot bring that about, but those of two can."""
    end_requests: frozenset[str]
    """Engines that end a request at an error in an expression."""


@lru_cache(maxsize=64)
def _traits_of(engines: tuple[str, ...]) -> EngineTraits:
    kept = {engine == AS_WRITTEN for engine in engines}
    ending = {RDF4J if engine == AS_WRITTEN else engine for engine in engines} & {JENA, RDF4J}
    return EngineTraits(engines, JENA in engines, True in kept, len(kept) > 1, frozenset(ending))


class PortabilityRule:
    """The rule of one master; it follows the workers that are added and removed while it runs."""

    def __init__(self, site: MasterContext) -> None:
        self._site = site
        self._mixed = site.config.mixed_engines
        self._workers = site.registry.known
        self._literals = site.literals

    def check(self, prepared: TransactionBody, traits: EngineTraits | None = None) -> TransactionBody:
        """The same transaction. Raises :class:`~txlog.model.errors.NotDeterministic` where several engines may differ
        in it, and :class:`~txlog.model.errors.BadInput` for a term that not every engine of the cluster stores. A
        thread gives the ``traits`` that the loop had."""
        traits = traits or self.traits()
        self._check_terms(prepared.kind, prepared.payload, traits)
        if self._mixed or traits.mixes_forms:
            return refuse_unportable(prepared)
        return refuse_fatal(prepared, traits.end_requests) if traits.end_requests else prepared

    def check_terms(self, kind: int, payload: bytes, traits: EngineTraits | None = None) -> None:
        """The check of terms alone: of quads or of an update."""
        self._check_terms(kind, payload, traits or self.traits())

    def _check_terms(self, kind: int, payload: bytes, traits: EngineTraits) -> None:
        if b"--" in payload and not self._stores_rdf_1_2(traits.engines):
            refuse_base_direction(kind, payload)
        if found := find_triple_term(kind, payload):
            self._check_triple_terms(found, traits.engines)
        if self._mixed or traits.has_jena:
            refuse_terms_jena_changes(payload)
        if kind == KIND_UPDATE and EFFECT_CONDITION.encode() in payload and traits.keeps_forms:
            raise BadInput(
                f"MALFORMED QUERY: a store of {AS_WRITTEN} takes this for an update that another master has evaluated; "
                f"write it with other spaces or names: {EFFECT_CONDITION}"
            )
        if traits.mixes_forms and _has_other_forms(kind, payload):
            raise BadInput(
                f"MALFORMED DATA: a literal in another form than the canonical one (01, 1.10, +00:00, xsd:int): the "
                f"workers of some data centres are {AS_WRITTEN} and would keep it, and others would not; give all "
                "workers of the cluster that engine, or send the canonical form"
            )

    def check_effects(self) -> None:
        """Raises :class:`~txlog.model.errors.BadInput` where the stores of the cluster would execute an effect that is
        computed here on literals of two forms."""
        if self.traits().mixes_forms:
            raise BadInput(
                f"an update that is evaluated once: the workers of some data centres are {AS_WRITTEN} and others are "
                "not, so they hold what it looks at in two forms; give all workers of the cluster that engine"
            )

    def _check_triple_terms(self, what: str, engines: tuple[str, ...]) -> None:
        if lacking := self._find_lacking(engines):
            raise BadInput(
                f"MALFORMED DATA: {what} (RDF 1.2): {lacking} of this cluster does not know it; "
                "name the triple by an IRI"
            )
        if older := self._site.status.older_masters(LEVEL_TRIPLE_TERMS):
            text = f"{what} (RDF 1.2) is taken when {', '.join(older)} is updated: its pipeline cannot read it"
            raise Unavailable("OlderMaster", text)

    def _stores_rdf_1_2(self, engines: tuple[str, ...]) -> bool:
        return not self._find_lacking(engines)

    def lacking_engine(self) -> str:
        """An engine of this cluster that does not store the terms of RDF 1.2, for people; "" when all do."""
        return self._find_lacking(self._workers.engines())

    def _find_lacking(self, engines: tuple[str, ...]) -> str:
        lacking = next((engine for engine in engines if engine not in _STORES_RDF_1_2), "")
        if not lacking and self._mixed and (self._site.other_nodes or not engines):
            return "an engine that mixedEngines allows"
        return lacking

    def traits(self) -> EngineTraits:
        """The traits now. Only the loop may call this: it changes the workers."""
        traits = _traits_of(self._workers.engines())
        return traits._replace(mixes_forms=True) if self._literals.contradicts_cluster else traits


def _has_other_forms(kind: int, payload: bytes) -> bool:
    if kind == KIND_QUADS:
        return canonical_lines(payload) != lines_with_lower_tags(payload)
    if kind != KIND_UPDATE:
        return False
    text = lower_tags(payload.decode())
    return canonical_constants(text) != text
