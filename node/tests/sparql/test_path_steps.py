"""Negated sets and alternatives of paths: an Oxigraph on disk and one in memory find the same by what is logged."""

from __future__ import annotations

import pyoxigraph
import pytest

from txlog.sparql import prepare_update

# The stored form of -1 and of 255 ends with the byte 255.
DATA = """
<urn:n1> <urn:p1> -1 , 255 , 0.5 , <urn:n2> .
<urn:n2> <urn:p1> -1 , <urn:n3> ; <urn:p2> 0.5 , 1e0 , 300 , 255 .
<urn:n3> <urn:p2> 0.5 ; <urn:p3> 256 ; a <urn:n1> .
"""
ENDS = "?z <urn:p1> ?o . ?s {} ?o"
PATHS = (
    *("!<urn:p1>", "!a", "!^<urn:p1>", "!(a|^<urn:p3>)", "^!a", "<urn:p2>|<urn:p3>", "<urn:p3>|!<urn:p2>"),
    *("(<urn:p1>/<urn:p2>)|<urn:p2>", "<urn:p1>/!<urn:p3>", "(^<urn:p3>|<urn:p2>)"),
)


def _logged(text: str) -> str:
    return prepare_update(text, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 7, all_graphs=True).payload.decode()


def _found(store: pyoxigraph.Store, update: str) -> set[str]:
    store.load(DATA.encode(), format=pyoxigraph.RdfFormat.TURTLE)
    store.update("ADD DEFAULT TO <urn:g>")
    store.update(update)
    found = {f"{quad.subject} {quad.object}" for quad in store if quad.predicate.value == "urn:x"}
    store.clear()
    return found


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> pyoxigraph.Store:
    return pyoxigraph.Store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "update",
    [
        "INSERT {{ ?s <urn:x> ?o }} WHERE {{ {} }}",
        "INSERT {{ ?s <urn:x> ?o }} WHERE {{ GRAPH <urn:g> {{ {} }} }}",
        "INSERT {{ ?s <urn:x> ?o }} WHERE {{ GRAPH ?graph {{ {} }} }}",
        "WITH <urn:g> INSERT {{ ?s <urn:x> ?o }} WHERE {{ {} FILTER(!isBLANK(?s)) }}",
        "INSERT {{ ?s <urn:x> ?o }} USING <urn:g> WHERE {{ {} }}",
        "INSERT {{ ?s <urn:x> ?o }} WHERE {{ {{ SELECT DISTINCT ?s ?o {{ GRAPH <urn:g> {{ {} }} }} }} }}",
    ],
)
def test_both_find_the_same(on_disk: pyoxigraph.Store, update: str, path: str) -> None:
    text = update.format(ENDS.format(path))
    logged = _logged(text)
    assert f" {path} " not in logged
    memory = _found(pyoxigraph.Store(), logged)
    assert _found(on_disk, logged) == memory
    if "GRAPH" in text or "<urn:g>" in text:
        assert memory == _found(pyoxigraph.Store(), text), "the meaning is the client's"


def test_without_the_rule_they_would_differ(on_disk: pyoxigraph.Store) -> None:
    text = f"WITH <urn:g> INSERT {{ ?s <urn:x> ?o }} WHERE {{ {ENDS.format('!<urn:p1>')} }}"
    assert _found(on_disk, text) != _found(pyoxigraph.Store(), text)


@pytest.mark.parametrize(
    "where",
    [
        "GRAPH <urn:g> { ?s <urn:p1>/<urn:p2> ?o . ?o ^<urn:p1> ?s }",
        "GRAPH <urn:g> { ?s a ?c . ?s (<urn:p1>|<urn:p2>)* ?o }",
        "GRAPH <urn:g> { ?s <urn:p1> ?o FILTER(!(?o = 1 || ?o = 2)) }",
        "{ SELECT DISTINCT * { GRAPH <urn:g> { ?s !<urn:p1> ?o } } }",
    ],
)
def test_other_patterns_in_one_graph_stay_as_they_are(where: str) -> None:
    text = f"INSERT {{ ?s <urn:x> ?o }} WHERE {{ {where} }}"
    assert _logged(text) == text
