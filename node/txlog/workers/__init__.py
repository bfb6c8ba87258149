"""The stores that hold the data of a data centre, one file per engine; requests and answers as data."""

from txlog.workers.base import CAPABILITIES, Adapter
from txlog.workers.fuseki import FusekiAdapter
from txlog.workers.oxigraph import OxigraphAdapter
from txlog.workers.rdf4j import Rdf4jAdapter

ADAPTERS: dict[str, Adapter] = {"oxigraph": OxigraphAdapter(), "fuseki": FusekiAdapter(), "rdf4j": Rdf4jAdapter()}
"""By the engine's name in a manifest. Adapters hold no state, so one of each is enough."""

__all__ = ["ADAPTERS", "CAPABILITIES", "Adapter", "FusekiAdapter", "OxigraphAdapter", "Rdf4jAdapter"]
