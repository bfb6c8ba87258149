"""Files of a bulk load: canonical N-Quads without blank nodes, and errors with file, line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from txlog.bulk.bulk_errors import BulkSyntax, SourceChanged
from txlog.cli.bulk_sources import SourceProgress, read_source
from txlog.cli.rdf_chunks import open_source

LOAD = "ab" * 16


def read(path: Path, graph: str | None = None, number: int = 0, load: str = LOAD) -> tuple[bytes, SourceProgress]:
    progress = SourceProgress()
    with open_source(str(path)) as source:
        return b"".join(read_source(source, number, load, graph, progress)), progress


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


TRIPLES = '<urn:a> <urn:p> <urn:b> .\n<urn:a> <urn:p> "x \\n <urn:g> ." .\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.nt", "# a comment\n\n" + TRIPLES),
        ("a.nt", TRIPLES.rstrip("\n")),
        ("a.nt.gz", TRIPLES),
        ("a.ttl", '@prefix : <urn:> .\n:a :p :b, "x \\n <urn:g> ." .'),
        ("a.n3", '@prefix : <urn:> .\n:a :p :b, "x \\n <urn:g> ." .'),
        (
            "a.rdf",
            '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:">'
            '<rdf:Description rdf:about="urn:a"><u:p rdf:resource="urn:b"/><u:p>x \n &lt;urn:g> .</u:p>'
            "</rdf:Description></rdf:RDF>",
        ),
    ],
)
def test_every_format_gives_the_same_lines(tmp_path: Path, name: str, text: str) -> None:
    lines, progress = read(write(tmp_path, name, text))
    assert lines.decode() == TRIPLES
    assert (progress.quads, progress.errors) == (2, [])


@pytest.mark.parametrize("name", ["a.nt", "a.ttl"])
def test_a_graph_takes_the_triples(tmp_path: Path, name: str) -> None:
    lines, _ = read(write(tmp_path, name, TRIPLES), "urn:g")
    assert lines.decode() == TRIPLES.replace(" .\n", " <urn:g> .\n")


@pytest.mark.parametrize("name", ["a.nq", "a.trig"])
def test_a_graph_leaves_quads_where_they_are(tmp_path: Path, name: str) -> None:
    quads = {
        "a.nq": "<urn:a> <urn:p> 1 <urn:h> .\n",
        "a.trig": "<urn:h> { <urn:a> <urn:p> 1 }\n<urn:a> <urn:q> <urn:b> .",
    }
    text = quads[name].replace(" 1 ", ' "1" ')
    text = text if name == "a.trig" else text + "<urn:a> <urn:q> <urn:b> .\n"
    lines, _ = read(write(tmp_path, name, text), "urn:g")
    assert sorted(lines.decode().splitlines()) == [
        '<urn:a> <urn:p> "1" <urn:h> .',
        "<urn:a> <urn:q> <urn:b> <urn:g> .",
    ]


def test_blank_nodes_are_of_one_file_of_one_load(tmp_path: Path) -> None:
    text = '_:x <urn:p> _:y .\n_:x <urn:q> "_:x" .\n'
    path = write(tmp_path, "a.nt", text)
    first, _ = read(path)
    assert first == read(path)[0], "the same load may be continued"
    subjects = {line.split()[0] for line in first.splitlines()}
    assert len(subjects) == 1
    assert b'"_:x"' in first
    others = [read(path, number=1)[0], read(path, load="cd" * 16)[0], read(write(tmp_path, "a.ttl", text), number=2)[0]]
    assert all(not subjects & {line.split()[0] for line in other.splitlines()} for other in others)


def test_drawn_blank_nodes_are_the_same_again(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ttl", "<urn:a> <urn:p> [ <urn:q> [] ] .")
    assert read(path)[0] == read(path)[0]
    assert b"_:" not in read(path)[0]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.nt", TRIPLES + "<urn:a> <urn:p> .\n" + TRIPLES, ":3:"),
        ("a.nt", TRIPLES + "<urn:a> <urn:p> <urn:b> <urn:g> .\n", ":3:"),
        ("a.nq", '<urn:a> <urn:p> "x\n', ":1:"),
        ("a.nt.gz", TRIPLES + "<a> <urn:p> <urn:b> .\n", ":3:"),
        ("a.ttl", "<urn:a> <urn:p> <urn:b> .\n<urn:a> <urn:p> ;; <urn:b> .\n", ":2:"),
        ("a.nq", "<urn:a> <urn:p> <urn:b> <urn:txlog:system:1> .\n", ":1:"),
        ("a.nt", "<urn:a> <urn:p> <urn:txlog:system> .\n", ":1:"),
        ("a.rdf", "<rdf:RDF", ":"),
    ],
)
def test_what_is_no_rdf_is_named_with_its_place(tmp_path: Path, name: str, text: str, place: str) -> None:
    path = write(tmp_path, name, text)
    _, progress = read(path)
    assert len(progress.errors) == 1
    assert progress.errors[0].startswith(f"{path}{place}")
    with pytest.raises(BulkSyntax, match="nothing was loaded") as raised:
        progress.raise_errors()
    assert raised.value.name == "Syntax"


def test_the_first_twenty_errors_of_all_files(tmp_path: Path) -> None:
    path = write(tmp_path, "a.nt", TRIPLES + "<urn:a> .\n" * 30)
    _, progress = read(path)
    assert [each.split(":")[1] for each in progress.errors] == [str(n) for n in range(3, 23)]
    with pytest.raises(BulkSyntax, match="the first 20"):
        progress.raise_errors()


def test_a_broken_gzip_file(tmp_path: Path) -> None:
    path = tmp_path / "a.nt.gz"
    path.write_bytes(gzip.compress(TRIPLES.encode() * 100)[:-20])
    _, progress = read(path)
    assert "broken gzip file" in progress.errors[0]


def test_a_column_is_named(tmp_path: Path) -> None:
    _, progress = read(write(tmp_path, "a.nt", "<urn:a> <urn:p> <urn:b c> .\n"))
    line, column = progress.errors[0].split(":")[1:3]
    assert (int(line), int(column) > 1) == (1, True)


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.nt", TRIPLES)
    with open_source(str(path)) as source:
        path.write_text(TRIPLES.replace("urn:b", "urn:c"))
        with pytest.raises(SourceChanged, match=r"a\.nt has changed"):
            list(read_source(source, 0, LOAD, None, SourceProgress()))
