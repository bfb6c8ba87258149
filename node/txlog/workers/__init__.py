"""Adapters for the stores of a data centre, one file per engine; requests and responses as data."""

from txlog.workers.adapter import CAPABILITIES, Adapter
from txlog.workers.fuseki import FusekiAdapter
from txlog.workers.oxigraph import OxigraphAdapter
from txlog.workers.rdf4j import Rdf4jAdapter
from txlog.workers.virtuoso import VirtuosoAdapter

ADAPTERS: dict[str, Adapter] = {
    each.engine: each for each in (OxigraphAdapter(), FusekiAdapter(), Rdf4jAdapter(), VirtuosoAdapter())
}
"""The adapters by the engine's name in a manifest. Adapters have no state, so one of each is enough."""

__all__ = ["ADAPTERS", "CAPABILITIES", "Adapter", "FusekiAdapter", "OxigraphAdapter", "Rdf4jAdapter", "VirtuosoAdapter"]
