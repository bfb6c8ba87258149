"""Adapters for the stores of a data centre, one file per engine; requests and responses as data."""

from txlog.config.units import AS_WRITTEN
from txlog.workers.adapter import CAPABILITIES, Adapter
from txlog.workers.fuseki import FusekiAdapter
from txlog.workers.oxigraph import OxigraphAdapter
from txlog.workers.rdf4j import Rdf4jAdapter
from txlog.workers.virtuoso import VirtuosoAdapter

_ALL = (OxigraphAdapter(), FusekiAdapter(), Rdf4jAdapter(), VirtuosoAdapter(), Rdf4jAdapter(AS_WRITTEN))
ADAPTERS: dict[str, Adapter] = {each.engine: each for each in _ALL}
"""The adapters by the engine's name in a manifest. Adapters have no state, so one of each is enough."""

__all__ = ["ADAPTERS", "CAPABILITIES", "Adapter", "FusekiAdapter", "OxigraphAdapter", "Rdf4jAdapter", "VirtuosoAdapter"]
