"""Packed RDF: gzip, bzip2 and zip archives by their first bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import zipfile

import pytest

from txlog.model.errors import BadInput, SystemGraphNamed, TooLarge
from txlog.sparql.packed_upload import (
    FILES_MAX,
    is_packed,
    prepare_packed_removal,
    prepare_upload,
    unpack_upload,
)

LINE = b'<urn:a> <urn:p> "x" .\n'
LIMIT = 1 << 20
# The same bytes in every process that collects tests: the time of packing is part of gzip's head, and of a test's name.
PACKED = gzip.compress(LINE, mtime=0)


def archive(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, body in files.items():
            made.writestr(zipfile.ZipInfo(name), body, method)
    return out.getvalue()


def quads(body: bytes, media: str = "text/turtle", limit: int = LIMIT) -> bytes:
    return prepare_upload(body, media, limit, base=None, contexts=[], draw=lambda: 1).payload


@pytest.mark.parametrize("body", [LINE, PACKED, bz2.compress(LINE), PACKED * 2])
def test_a_document_is_read_packed_or_not(body: bytes) -> None:
    assert quads(body) == b"A " + LINE
    assert is_packed(body) == (body != LINE)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_files_of_an_archive_have_the_format_of_their_names(method: int) -> None:
    files = {
        "folder/": b"",
        "folder/a.nt": LINE,
        "b.TTL": b"@prefix : <urn:> . :b :p 1 .",
        "c.trig.gz": gzip.compress(b"<urn:g> { <urn:c> <urn:p> 1 }"),
        "as-the-request-says.dat": b"<urn:d> a <urn:e> .",
    }
    found = quads(archive(files, method)).splitlines()
    assert len(found) == 4
    assert b'A <urn:c> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> <urn:g> .' in found
    assert b"A <urn:d> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:e> ." in found


def test_a_packed_archive_is_unpacked_and_an_archive_in_one_is_not() -> None:
    inner = archive({"a.nt": LINE})
    assert quads(gzip.compress(inner)) == b"A " + LINE
    with pytest.raises(BadInput):
        quads(archive({"b.zip": inner}))
    with pytest.raises(BadInput):
        quads(gzip.compress(gzip.compress(LINE)))


def test_an_empty_archive_is_nothing_to_do() -> None:
    assert quads(archive({})) == b""


def test_blank_nodes_of_two_files_are_two_nodes() -> None:
    numbers = iter((1, 2))
    body = archive({"a.ttl": b"_:b a <urn:a> .", "b.ttl": b"_:b a <urn:a> ."})
    found = prepare_upload(body, "text/turtle", LIMIT, base=None, contexts=[], draw=lambda: next(numbers))
    assert len(found.payload.splitlines()) == 2


def test_a_mistake_names_its_file() -> None:
    with pytest.raises(BadInput, match=r"MALFORMED DATA.*in b\.ttl"):
        quads(archive({"a.nt": LINE, "b.ttl": b"nonsense"}))
    with pytest.raises(SystemGraphNamed):
        quads(archive({"a.nq": b"<urn:a> <urn:b> <urn:c> <urn:txlog:system:1> ."}))


@pytest.mark.parametrize("packed", [PACKED, bz2.compress(LINE), archive({"a.nt": LINE})])
def test_a_removal_may_be_packed(packed: bytes) -> None:
    found = prepare_packed_removal(packed, "text/turtle", LIMIT, base=None, graphs=[""])
    assert found.payload == b"D " + LINE


@pytest.mark.parametrize(
    "bomb",
    [
        gzip.compress(bytes(64 << 20)),
        bz2.compress(bytes(64 << 20)),
        archive({"a.nt": bytes(64 << 20)}),
        archive({f"{n}.nt": bytes(1 << 19) for n in range(3)}),
        archive({"a.nt.gz": gzip.compress(bytes(64 << 20))}),
        archive({str(n): b"" for n in range(FILES_MAX + 1)}),
    ],
)
def test_a_bomb_is_too_large(bomb: bytes) -> None:
    with pytest.raises(TooLarge):
        unpack_upload(bomb, "text/turtle", LIMIT)


def test_many_files_that_expand_are_bounded_together() -> None:
    one = b"@prefix a: <urn:%s> ." % (b"x" * 20_000) + b"".join(b"a:s a:p a:o%d ." % n for n in range(30))
    with pytest.raises(TooLarge):
        quads(archive({f"{n}.ttl": one.replace(b"a:s", b"a:s%d" % n) for n in range(20)}), limit=16 << 20)


def test_broken_ones_are_refused() -> None:
    chance = random.Random(3)
    whole = (gzip.compress(LINE * 50), bz2.compress(LINE * 50), archive({"a.nt": LINE * 50, "b.ttl": LINE}))
    for packed in whole:
        with pytest.raises(BadInput):
            quads(packed[: len(packed) * 2 // 3])
        for _ in range(300):
            broken = bytearray(packed)
            broken[chance.randrange(4, len(packed))] ^= 1 << chance.randrange(8)
            try:
                quads(bytes(broken))
            except (BadInput, TooLarge):
                continue


def test_other_methods_and_passwords_are_refused() -> None:
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with pytest.raises(BadInput, match="neither stored nor deflated"):
            quads(archive({"a.nt": LINE}, method))
    locked = bytearray(archive({"a.nt": LINE}))
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(BadInput, match="encrypted"):
        quads(bytes(locked))
