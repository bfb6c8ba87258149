"""A small body that would come to a flood is refused before it is one."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from functools import partial

import pytest

from e2e.lib.host_metrics import memory_growth_mb
from txlog.model.errors import BadInput, TooLarge
from txlog.sparql import prepare_rdf, prepare_update
from txlog.sparql.expansion_limit import EXPANDED_BYTES_MAX, PARSED_BYTES_MAX
from txlog.sparql.formats.rdf4j_transaction_xml import prepare_rdf_transaction
from txlog.sparql.rdf_upload import prepare_lines
from txlog.sparql.rewrite.bound_parameters import UpdateGraphs, apply_limits, apply_parameters, bind_query
from txlog.sparql.rewrite.read_query import hide_system_graphs

LONG = "urn:" + "x" * 40_000
MANY = 1000
NOW = "2026-01-01T00:00:00.000Z"
MEMORY_MAX_MB = 4 * EXPANDED_BYTES_MAX / 1e6


def draw() -> int:
    return 1


def update(text: str) -> int:
    return len(prepare_update(text, base=None, now=NOW, draw=draw).payload)


def upload(body: bytes, media: str, *contexts: str) -> int:
    return len(prepare_rdf(body, media, base=None, contexts=list(contexts), draw=draw).payload)


def _objects(count: int) -> str:
    return ",".join(str(number) for number in range(count))


def _binary(count: int) -> bytes:
    wide = LONG.encode("utf-16-be")
    declared = b"\x03" + struct.pack(">i", 7) + b"\x01" + struct.pack(">i", len(LONG)) + wide
    reference = b"\x06" + struct.pack(">i", 7)
    return b"BRDF" + struct.pack(">i", 1) + declared + (b"\x01" + reference * 3 + b"\x00") * count + b"\x7f"


def _json(count: int) -> bytes:
    values = ",".join(f'{{"value":"{n}","type":"literal"}}' for n in range(count))
    return f'{{"{LONG}":{{"urn:p":[{values}]}}}}'.encode()


def _trix(count: int) -> bytes:
    triple = "<triple><uri>urn:a</uri><uri>urn:b</uri><plainLiteral>{}</plainLiteral></triple>"
    triples = "".join(triple.format(n) for n in range(count))
    return f"<TriX><graph><uri>{LONG}</uri>{triples}</graph></TriX>".encode()


def _transaction(count: int) -> bytes:
    graphs = "".join(f"<uri>urn:{n}</uri>" for n in range(count))
    add = f"<add><uri>urn:a</uri><uri>urn:b</uri><uri>{LONG}</uri><contexts>{graphs}</contexts></add>"
    return f"<transaction>{add}</transaction>".encode()


FLOODS = {
    "objects in Turtle": lambda n: upload(f"<{LONG}> <urn:p> {_objects(n)} .".encode(), "text/turtle"),
    "a prefix in TriG": lambda n: upload(
        f"@prefix p: <{LONG}> . {{ {' '.join(f'p:{i} p:a p:b .' for i in range(n))} }}".encode(), "application/trig"
    ),
    "contexts": lambda n: upload(
        f"<urn:s> <urn:p> <{LONG}> .".encode(), "text/turtle", *[f"<urn:{i}>" for i in range(n)]
    ),
    "binary RDF": lambda n: upload(_binary(n), "application/x-binary-rdf"),
    "RDF/JSON": lambda n: upload(_json(n), "application/rdf+json"),
    "TriX": lambda n: upload(_trix(n), "application/trix"),
    "a transaction in XML": lambda n: len(
        prepare_rdf_transaction(_transaction(n), now=NOW, draw=draw).prepared.payload
    ),
    "INSERT DATA": lambda n: update(f"INSERT DATA {{ <{LONG}> <urn:p> {_objects(n)} }}"),
    "INSERT DATA twice": lambda n: update(
        f"PREFIX p: <{LONG}> " + ";".join(f"INSERT DATA {{ p:{i} <urn:p> 1 }}" for i in range(n))
    ),
    "a prefix in an update": lambda n: update(
        f"PREFIX p: <{LONG}> INSERT {{ {' '.join(f'?s p:{i} ?o .' for i in range(n))} }} WHERE {{ ?s ?p ?o }}"
    ),
    "a base in an update": lambda n: update(
        f"BASE <{LONG.replace('urn:', 'http://x/')}/> "
        f"INSERT {{ {' '.join(f'?s <p{i}> ?o .' for i in range(n))} }} WHERE {{ ?s ?p ?o }}"
    ),
    "a binding": lambda n: len(bind_query("SELECT * " + "{ ?x ?y ?z " * n + "}" * n, {"x": f"<{LONG}>"})),
    "graphs to insert into": lambda n: len(
        apply_parameters(
            f"DELETE {{ <urn:a> <urn:b> <{LONG}> }} WHERE {{ }}",
            {},
            UpdateGraphs(remove=[f"urn:{i}" for i in range(n)]),
        )
    ),
}


def measure_floods() -> dict[str, float]:
    """How far each flood brought the memory of this process until it was refused."""

    def refused(kind: str) -> None:
        with pytest.raises(TooLarge, match="send it in parts"):
            FLOODS[kind](MANY)

    return {kind: memory_growth_mb(partial(refused, kind)) for kind in FLOODS}


@pytest.fixture(scope="module")
def growth_mb() -> dict[str, float]:
    """Measured in a process of its own: in this one, other tests have left threads and pieces of memory."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    measured = subprocess.run(
        [sys.executable, __file__], check=True, capture_output=True, text=True, timeout=120, env=environment
    )
    found: dict[str, float] = json.loads(measured.stdout)
    return found


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_is_refused_and_a_little_of_the_same_is_not(kind: str, growth_mb: dict[str, float]) -> None:
    assert growth_mb[kind] < MEMORY_MAX_MB
    assert len(LONG) < FLOODS[kind](3) < 20 * len(LONG)


def test_a_query_with_a_long_base_is_bounded() -> None:
    names = " ".join(f"?s <p{n}> ?o ." for n in range(MANY))
    with pytest.raises(TooLarge):
        hide_system_graphs(f"BASE <http://x/{LONG[4:]}/> CONSTRUCT {{ {names} }} WHERE {{ GRAPH ?g {{}} }}")


def test_many_operations_under_many_prefixes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each INSERT DATA is read with all prefixes before it. Under a sixteenth of the bound: reading up to the whole one
    takes half a minute."""
    assert PARSED_BYTES_MAX == 256 << 20
    monkeypatch.setattr("txlog.sparql.update_normaliser.PARSED_BYTES_MAX", PARSED_BYTES_MAX // 16)
    prefixes = " ".join(f"PREFIX p{n}: <urn:{n}:>" for n in range(20_000))
    with pytest.raises(TooLarge):
        update(prefixes + ";".join(["INSERT DATA { p1:a p2:b 1 }"] * MANY))
    assert update(prefixes + ";".join(["INSERT DATA { p1:a p2:b 1 }"] * 3)) < 100


def test_what_is_large_in_itself_may_be() -> None:
    body = b"".join(b'<urn:s%d> <urn:p> "%s" .\n' % (n, b"\\u00e9" * 200) for n in range(15_000))
    assert len(body) > EXPANDED_BYTES_MAX
    assert upload(body, "application/n-quads") > 6_000_000
    assert len(prepare_lines(body, draw=draw).payload) > 6_000_000


def test_text_between_elements_costs_no_more_than_its_length() -> None:
    """Put together piece by piece it would take minutes."""
    body = b"<transaction>" + b"xx<a/>" * 400_000 + b"</transaction>"
    with pytest.raises(BadInput, match="<a> is no operation"):
        prepare_rdf_transaction(body, now=NOW, draw=draw)


def test_a_limit_of_very_many_digits_is_no_number() -> None:
    assert "LIMIT 5" in apply_limits("SELECT * { ?s ?p ?o } LIMIT 10", limit=5)
    with pytest.raises(BadInput, match="at most 19 digits"):
        apply_limits("SELECT * { ?s ?p ?o } LIMIT " + "9" * 5000, limit=5)


@pytest.mark.parametrize("end", ["BIND", "FILTER", "BIND }", "FILTER }"])
def test_an_update_that_ends_in_the_middle_of_a_pattern_is_malformed(end: str) -> None:
    with pytest.raises(BadInput):
        prepare_update(f"INSERT {{ <a:s> <a:p> ?x }} WHERE {{ {end}", base=None, now=NOW, draw=lambda: 7)


if __name__ == "__main__":
    print(json.dumps(measure_floods()))
