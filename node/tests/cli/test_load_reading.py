import gzip
import http.server
import re
import threading
from functools import partial
from pathlib import Path

import pyoxigraph
import pytest
from pyoxigraph import RdfFormat

from txlog.cli import rdf_chunks
from txlog.cli.rdf_chunks import RdfChunk, open_source, read_chunks
from txlog.model.errors import BadInput, Unavailable, Unsupported


def chunks(path: Path | str, quads: int = 1000, graph: str | None = None) -> list[RdfChunk]:
    with open_source(str(path)) as source:
        return list(read_chunks(source, quads, graph))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def terms(found: list[RdfChunk]) -> list[pyoxigraph.Quad]:
    return list(pyoxigraph.parse("".join(chunk.text for chunk in found), RdfFormat.N_QUADS))


LINES = "".join(f'<http://e/s{n}> <http://e/p> "{n}" .\n' for n in range(25))


@pytest.mark.parametrize("name", ["a.nt", "a.nq", "a.nt.gz", "a.ttl", "a.trig.gz"])
def test_every_format_gives_the_same_chunks(tmp_path: Path, name: str) -> None:
    found = chunks(write(tmp_path, name, LINES), 10)
    assert [(chunk.number, chunk.quads) for chunk in found] == [(1, 10), (2, 10), (3, 5)]
    assert "".join(chunk.text for chunk in found) == LINES


def test_comments_and_empty_lines_are_left_out_and_lines_are_known(tmp_path: Path) -> None:
    text = '# head\n\n  <http://e/s> <http://e/p> "# no comment" .\r\n<http://e/s> <http://e/p> "2" . # tail'
    found = chunks(write(tmp_path, "a.nt", text), 1)
    assert [chunk.line for chunk in found] == [3, 4]
    assert [str(quad.object) for quad in terms(found)] == ['"# no comment"', '"2"']


BLANK_NT = """\
_:a <http://e/p> "a _:a in a literal" .
<http://e/s> <http://e/p> _:b .
_:a <http://e/p> _:b <http://e/g> .
"""
BLANK_TTL = "@prefix e: <http://e/> . [] e:p [ e:p _:x ] . _:x e:p (1 2) . _:x e:q _:x ."


@pytest.mark.parametrize(("name", "text"), [("a.nq", BLANK_NT), ("a.ttl", BLANK_TTL)])
def test_a_blank_node_is_the_same_in_every_chunk_and_every_reading(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, name, text)
    found = chunks(path, 1)
    assert found == chunks(path, 1)
    assert "_:" not in "".join(chunk.text for chunk in found).replace("_:a in a literal", "")
    original = pyoxigraph.Dataset(pyoxigraph.parse(text, RdfFormat.from_extension(name[2:])))
    back = "".join(chunk.text for chunk in found)
    for mark in sorted(set(re.findall(r"<urn:txlog:bnode:[0-9a-f]{32}:[0-9]+>", back))):
        back = back.replace(mark, "_:" + mark[1:-1].replace(":", ""))
    copy = pyoxigraph.Dataset(pyoxigraph.parse(back, RdfFormat.N_QUADS))
    for each in (original, copy):
        each.canonicalize(pyoxigraph.CanonicalizationAlgorithm.UNSTABLE)
    assert original == copy


def test_another_file_has_other_blank_nodes(tmp_path: Path) -> None:
    one = terms(chunks(write(tmp_path, "a.nq", BLANK_NT)))[0]
    two = terms(chunks(write(tmp_path, "b.nq", BLANK_NT + "# other\n")))[0]
    assert one.subject != two.subject


@pytest.mark.parametrize("name", ["a.nq", "a.trig"])
def test_a_graph_takes_what_names_none(tmp_path: Path, name: str) -> None:
    text = '<http://e/s> <http://e/p> "1" .\n'
    named = '<http://e/s> <http://e/p> "2" <http://e/own> .\n'
    path = write(
        tmp_path, name, text + (named if name == "a.nq" else '<http://e/own> { <http://e/s> <http://e/p> "2" }')
    )
    assert [q.graph_name.value for q in terms(chunks(path, graph="http://e/g"))] == ["http://e/g", "http://e/own"]  # type: ignore[union-attr]


def test_a_chunk_is_bounded_in_bytes(tmp_path: Path) -> None:
    text = "".join(f'<http://e/s{n}> <http://e/p> "{"x" * 1_000_000}" .\n' for n in range(5))
    assert [chunk.quads for chunk in chunks(write(tmp_path, "a.nt", text))] == [3, 2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ttl", "<http://e/s> <http://e/p>\n 1 . oops", r"a.ttl:2: not Turtle"),
        ("a.nt", "<http://e/s> <http://e/p> _:a . oops\n", r"a.nt:1: not N-Triples"),
        ("a.nq", "_:a _:b _:c .\n", r"a.nq:1: not N-Quads"),
    ],
)
def test_what_is_not_rdf_is_named_by_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        chunks(write(tmp_path, name, text))


@pytest.mark.parametrize("long", [False, True])
def test_rdf_xml_is_read_as_xml_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    text = (
        '<?xml version="1.0" encoding="ISO-8859-1"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
        'xmlns:e="http://e/" xml:lang="en" xml:base="sub/"><rdf:Description rdf:about="s"><e:p xml:lang="">\u00e9</e:p>'
        "</rdf:Description></rdf:RDF>"
    )
    path = tmp_path / "a.rdf.gz"
    path.write_bytes(gzip.compress(text.encode("latin-1")))
    if long:
        monkeypatch.setattr(rdf_chunks, "XML_BYTES_MAX", 10)
        with pytest.raises(BadInput, match="Only UTF-8"):
            chunks(path)
        return
    [quad] = terms(chunks(path))
    assert quad.object == pyoxigraph.Literal("\u00e9")
    assert str(quad.subject).endswith("/sub/s>")


def test_broken_files_and_unknown_formats_are_named(tmp_path: Path) -> None:
    cut = tmp_path / "a.nt.gz"
    cut.write_bytes(gzip.compress(LINES.encode() * 100)[:-20])
    with pytest.raises(BadInput, match="broken gzip file"):
        chunks(cut)
    latin = tmp_path / "b.nt"
    latin.write_bytes('<http://e/s> <http://e/p> "ü" .\n'.encode("latin-1"))
    with pytest.raises(BadInput, match="not UTF-8"):
        chunks(latin)
    with pytest.raises(Unsupported, match="expected nt, nq, ttl"):
        chunks(write(tmp_path, "a.csv", "a,b"))
    with pytest.raises(BadInput, match="no such file"):
        chunks(tmp_path / "none.nt")


def test_a_url_is_fetched(tmp_path: Path) -> None:
    write(tmp_path, "a.nt.gz", LINES)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        root = f"http://127.0.0.1:{server.server_address[1]}"
        assert sum(chunk.quads for chunk in chunks(f"{root}/a.nt.gz?version=1")) == 25
        with pytest.raises(Unavailable, match="404"):
            chunks(f"{root}/b.nt")
    finally:
        server.shutdown()
        server.server_close()
