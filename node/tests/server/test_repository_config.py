"""RDF4J's configuration of a repository: both vocabularies, any form, and what means more than storage."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyoxigraph as ox
import pytest

from txlog.model.errors import BadInput, Unsupported
from txlog.server.frontdoor.repository_config import parse_repository_config
from txlog.server.frontdoor.result_formats import BINARY
from txlog.sparql.formats.rdf4j_binary import write_rdf
from txlog.sparql.formats.rdf_json import write_rdf_json

OLD = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix rep: <http://www.openrdf.org/config/repository#> .
@prefix sr: <http://www.openrdf.org/config/repository/sail#> .
@prefix sail: <http://www.openrdf.org/config/sail#> .
[] a rep:Repository ; rep:repositoryID "stock" ; rdfs:label "Stock of all" ;
   rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ;
   sr:sailImpl [ sail:sailType "openrdf:MemoryStore" ] ] .
"""
NEW = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix config: <tag:rdf4j.org,2023:config/> .
[] a config:Repository ; config:rep.id "stock" ; rdfs:label "Stock of all" ;
   config:rep.impl [ config:rep.type "openrdf:SailRepository" ;
   config:sail.impl [ config:sail.type "rdf4j:LmdbStore" ] ] .
"""
FORMS = [ox.RdfFormat.TURTLE, ox.RdfFormat.RDF_XML, ox.RdfFormat.N_TRIPLES, ox.RdfFormat.JSON_LD, ox.RdfFormat.TRIG]


@pytest.mark.parametrize("text", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_it_is_read_in_either_vocabulary_and_any_form(text: str, form: ox.RdfFormat) -> None:
    body = ox.serialize(ox.parse(text, ox.RdfFormat.TURTLE), format=form)
    assert body is not None
    media = f"{form.media_type}; charset=utf-8"
    assert parse_repository_config(body, media, "stock") == ("stock", "Stock of all")


@pytest.mark.parametrize(("media", "write"), [(BINARY, write_rdf), ("application/rdf+json", write_rdf_json)])
def test_it_is_read_in_the_forms_of_rdf4j(media: str, write: Callable[[list[ox.Quad], io.BytesIO], None]) -> None:
    out = io.BytesIO()
    write(list(ox.parse(OLD, ox.RdfFormat.TURTLE)), out)
    assert parse_repository_config(out.getvalue(), media, "stock") == ("stock", "Stock of all")
    for torn in (out.getvalue()[:40], b"", b"\0\1\2"):
        with pytest.raises(BadInput):
            parse_repository_config(torn, media, "stock")


def test_turtle_is_what_has_no_media_type() -> None:
    assert parse_repository_config(OLD.replace("rdfs:label", "rdfs:comment").encode(), "", "stock").title == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the configuration of one repository, found 0"),
        ("<urn:a> <urn:b> <urn:c> .", "found 0"),
        (OLD + NEW.replace('"stock"', '"other"'), "found 2"),
        (OLD.replace('"stock"', '"other"'), "the configuration is of other, the path of stock"),
        (OLD.replace('rep:repositoryID "stock" ;', ""), "the configuration is of no id"),
        (OLD.replace('rep:repositoryType "openrdf:SailRepository" ;', ""), "no repository type"),
        (OLD.replace('sail:sailType "openrdf:MemoryStore"', ""), "no sail type"),
        (OLD.replace("MemoryStore", "ShaclSail"), "sail type openrdf:ShaclSail means more than storage"),
        (OLD.replace("MemoryStore", "ForwardChainingRDFSInferencer"), "means more than storage"),
        (OLD.replace("MemoryStore", "LuceneSail"), "means more than storage"),
        (OLD.replace("openrdf:MemoryStore", "graphdb:MemoryStore"), "means more than storage"),
        (OLD.replace("SailRepository", "HTTPRepository"), "repository type openrdf:HTTPRepository means more"),
        (OLD.replace("SailRepository", "FedXRepository"), "means more than storage"),
        (NEW.replace("rdf4j:LmdbStore", "rdf4j:ShaclSail"), "means more than storage"),
        (
            OLD.replace(
                'sail:sailType "openrdf:MemoryStore"',
                'sail:sailType "openrdf:MemoryStore" ; sail:delegate [ sail:sailType "openrdf:ShaclSail" ]',
            ),
            "ShaclSail means more",
        ),
        ("nonsense", "is not valid text/turtle"),
    ],
)
def test_what_a_cluster_cannot_do_is_named(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_repository_config(text.encode(), "text/turtle", "stock")


def test_another_format_is_refused() -> None:
    with pytest.raises(Unsupported, match="image/png"):
        parse_repository_config(b"x", "image/png", "stock")
