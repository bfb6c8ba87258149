"""The configuration with which a client of RDF4J creates a repository: what of it a cluster can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import pyoxigraph as ox

from txlog.model.errors import BadInput, Unsupported
from txlog.server.frontdoor.result_formats import BINARY, RDF_ALIASES
from txlog.sparql.formats.rdf4j_binary import read_rdf
from txlog.sparql.formats.rdf_json import read_rdf_json

_OLD: Final = "http://www.openrdf.org/config/"
_NEW: Final = "tag:rdf4j.org,2023:config/"
_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_LABEL: Final = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#label")
_REPOSITORY: Final = (f"{_OLD}repository#Repository", f"{_NEW}Repository")
_ID: Final = (f"{_OLD}repository#repositoryID", f"{_NEW}rep.id")
_REPOSITORY_TYPE: Final = (f"{_OLD}repository#repositoryType", f"{_NEW}rep.type")
_SAIL_TYPE: Final = (f"{_OLD}sail#sailType", f"{_NEW}sail.type")
_STORAGE: Final = frozenset({"SailRepository"})
_SAILS: Final = frozenset({"MemoryStore", "NativeStore", "LmdbStore"})
"""They store statements and do nothing else. Another sail would be a promise that no worker keeps."""
_PREFIXES: Final = ("openrdf", "rdf4j")
_FORMATS: Final = "Turtle, N-Triples, N-Quads, TriG, RDF/XML, JSON-LD, RDF/JSON or binary RDF"
_OWN_PARSERS: Final[dict[str, Callable[[bytes], Iterable[ox.Quad]]]] = {
    BINARY: read_rdf,  # RDF4J's clients may send it
    "application/rdf+json": read_rdf_json,
}


class ClientRepositoryConfig(NamedTuple):
    """``title``: the label, empty without one."""

    name: str
    title: str


def parse_repository_config(body: bytes, media_type: str, name: str) -> ClientRepositoryConfig:
    """The configuration of the repository with this name, in either vocabulary. :class:`BadInput` names what is missing
    or means more than storage, :class:`Unsupported` another format."""
    statements = _parse(body, media_type)
    repositories = {one.subject for one in statements if one.predicate == _TYPE and _is(one.object, _REPOSITORY)}
    repositories |= {one.subject for one in statements if _is(one.predicate, _ID)}
    if len(repositories) != 1:
        raise BadInput(f"expected the configuration of one repository, found {len(repositories)}")
    [subject] = repositories
    ids = {_text(one.object) for one in statements if one.subject == subject and _is(one.predicate, _ID)}
    if ids != {name}:
        raise BadInput(f"the configuration is of {', '.join(sorted(ids))[:80] or 'no id'}, the path of {name[:80]}")
    _check_types(statements)
    labels = [_text(one.object) for one in statements if one.subject == subject and one.predicate == _LABEL]
    return ClientRepositoryConfig(name, labels[0] if labels else "")


def _parse(body: bytes, media_type: str) -> list[ox.Quad]:
    media = media_type.partition(";")[0].strip().lower() or "text/turtle"
    own, form = _OWN_PARSERS.get(media), ox.RdfFormat.from_media_type(RDF_ALIASES.get(media, media))
    if own is None and form is None:
        raise Unsupported(f"Content-Type {media[:80]}: a configuration is {_FORMATS}")
    try:
        if own is not None:
            return list(own(body))
        return list(ox.parse(body, form, base_iri="urn:config"))
    except (SyntaxError, ValueError) as wrong:
        raise BadInput(f"the configuration is not valid {media}: {wrong}") from None


def _check_types(statements: list[ox.Quad]) -> None:
    """Every type that the configuration has, also of what a sail delegates to."""
    types = [_text(one.object) for one in statements if _is(one.predicate, _REPOSITORY_TYPE)]
    sails = [_text(one.object) for one in statements if _is(one.predicate, _SAIL_TYPE)]
    if not types:
        raise BadInput("the configuration has no repository type; expected openrdf:SailRepository")
    for kind, found, known in (("repository", types, _STORAGE), ("sail", sails, _SAILS)):
        for text in found:
            prefix, _, local = text.partition(":")
            if prefix not in _PREFIXES or local not in known:
                expected = ", ".join(f"openrdf:{one}" for one in sorted(known))
                raise BadInput(f"{kind} type {text[:80]} means more than storage; expected one of {expected}")
    if not sails:
        raise BadInput("the configuration has no sail type; expected openrdf:MemoryStore or another store")


def _is(term: object, iris: tuple[str, str]) -> bool:
    return isinstance(term, ox.NamedNode) and term.value in iris


def _text(term: object) -> str:
    return term.value if isinstance(term, ox.NamedNode | ox.Literal) else str(term)
