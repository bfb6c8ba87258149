"""Compressed request bodies and answers, at a master with a real store."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import aiohttp
import pytest
import zstandard
from worker_driver import Served

TURTLE = "text/turtle"
UPDATE = "application/sparql-update"
LINE = "<urn:a> <urn:p> <urn:o> ."
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def unpack(coding: str, body: bytes) -> bytes:
    if coding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return gzip.decompress(body) if coding == "gzip" else zlib.decompress(body)


async def raw(served: Served, path: str, **headers: str) -> tuple[aiohttp.ClientResponse, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=("Accept-Encoding",)) as session,
        session.get(served.cluster.url(0, path), headers=sent) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return answer, await answer.read()


@pytest.mark.parametrize("coding", PACKERS)
async def test_every_body_may_be_compressed(served: Served, coding: str) -> None:
    pack = PACKERS[coding]
    coded = {"Content_Encoding": coding}
    await served.send("PUT", "/statements", pack(LINE.encode()), Content_Type=TURTLE, **coded)
    assert await served.quads() == [LINE]
    await served.send("POST", "/statements", pack(b"INSERT DATA { <urn:b> a 1 }"), Content_Type=UPDATE, **coded)
    form = pack(b"update=DELETE+WHERE+%7B%3Curn:b%3E+a+%3Fo%7D")
    await served.send("POST", "/statements", form, Content_Type="application/x-www-form-urlencoded", **coded)
    assert await served.quads() == [LINE]
    found = await served.send(
        "POST",
        "",
        pack(b"SELECT ?s ?p ?o { ?s ?p ?o }"),
        Content_Type="application/sparql-query",
        Accept="text/csv",
        status=200,
        **coded,
    )
    assert found.split() == ["s,p,o", "urn:a,urn:p,urn:o"]
    async with served.cluster.session.post(served.cluster.url(0, "/repositories/demo/transactions")) as answer:
        transaction = urlsplit(answer.headers["Location"]).path.removeprefix("/repositories/demo")
    for action in ("ADD", "DELETE"):
        body = pack(f"<urn:{action}> <urn:p> <urn:o> .".encode() if action == "ADD" else LINE.encode())
        await served.send("PUT", f"{transaction}?action={action}", body, Content_Type=TURTLE, status=200, **coded)
    await served.send("PUT", f"{transaction}?action=COMMIT", status=200)
    assert await served.quads() == ["<urn:ADD> <urn:p> <urn:o> ."]


@pytest.mark.parametrize("coding", PACKERS)
async def test_json_lines_may_be_compressed_and_streamed(served: Served, coding: str) -> None:
    lines = [json.dumps({"quads": f"<urn:s{n}> <urn:p> <urn:o> ."}) for n in range(300)]
    body = PACKERS[coding]("\n".join(lines).encode())

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 100):
            yield body[at : at + 100]

    for data in (body, pieces()):
        answer = await served.cluster.session.post(
            served.cluster.url(0, "/txlog/transactions"),
            data=data,
            headers={"Content-Encoding": coding, "TxLog-Durability": "synced"},
        )
        assert [json.loads(line)["durability"] for line in (await answer.text()).splitlines()] == ["synced"] * 300


async def test_json_lines_that_break_off_say_so_after_the_whole_ones(served: Served) -> None:
    lines = "".join(json.dumps({"quads": f"<urn:s{n}> <urn:p> <urn:o> ."}) + "\n" for n in range(3000))
    packed = gzip.compress(lines.encode())
    answer = await served.cluster.session.post(
        served.cluster.url(0, "/txlog/transactions"),
        data=packed[:-9],
        headers={"Content-Encoding": "gzip", "TxLog-Durability": "synced"},
    )
    *whole, last = (json.loads(line) for line in (await answer.text()).splitlines())
    assert all(one["durability"] == "synced" for one in whole)
    assert "breaks off" in last["message"]


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, body in files.items():
            made.writestr(name, body)
    return out.getvalue()


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lambda text: archive({"a.ttl": text})], ids=["gzip", "bzip2", "zip"]
)
async def test_uploads_are_recognised_by_their_bytes(served: Served, pack: Callable[[bytes], bytes]) -> None:
    await served.send("POST", "/statements", pack(LINE.encode()), Content_Type=TURTLE)
    assert await served.quads() == [LINE]
    await served.send("PUT", "/rdf-graphs/service?graph=urn:g", pack(LINE.encode()), Content_Type=TURTLE)
    assert await served.quads() == [LINE, "<urn:a> <urn:p> <urn:o> <urn:g> ."]


@pytest.mark.parametrize(
    ("coding", "body", "status", "says"),
    [
        ("gzip", gzip.compress(LINE.encode())[:-9], 400, "breaks off"),
        ("gzip", b"", 204, ""),
        ("gzip", LINE.encode(), 400, "is not gzip"),
        ("zstd", PACKERS["zstd"](LINE.encode())[:-3], 400, "is not zstd"),
        ("deflate", zlib.compress(LINE.encode()) + b"x", 400, "is not deflate"),
        ("gzip", gzip.compress(bytes(100 << 20)), 413, "bytes"),
        ("zstd", PACKERS["zstd"](bytes(100 << 20)), 413, "bytes"),
        ("br", LINE.encode(), 415, "gzip, deflate, zstd"),
        ("gzip, gzip", LINE.encode(), 415, "gzip, deflate, zstd"),
        ("identity", LINE.encode(), 204, ""),
    ],
    ids=str.split("cut empty plain zstd-cut more gzip-bomb zstd-bomb br twice identity"),
)
async def test_what_cannot_be_decompressed_is_refused(
    served: Served, coding: str, body: bytes, status: int, says: str
) -> None:
    url = served.cluster.url(0, "/repositories/demo/statements")
    headers = {"Content-Type": TURTLE, "Content-Encoding": coding}
    async with served.cluster.session.post(url, data=body, headers=headers) as answer:
        text = await answer.text()
        assert answer.status == status, text
        assert says in text
        assert answer.headers.get("Accept-Encoding", "") == ("gzip, deflate, zstd" if status == 415 else "")


@pytest.mark.parametrize("accept", ["text/turtle", "application/n-quads", "application/trix"])
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("deflate", "deflate"),
        ("*", "gzip"),
        ("gzip;q=0, zstd;q=0.1, identity;q=0.05", "zstd"),
        ("gzip;q=0.5, identity", ""),
        ("br", ""),
        ("", ""),
    ],
)
async def test_answers_are_compressed_for_those_who_accept_it(
    served: Served, accept: str, accepted: str, coding: str
) -> None:
    text = "".join(f"<urn:s{n}> <urn:p> <urn:o> .\n" for n in range(300))
    await served.send("PUT", "/statements", text, Content_Type="application/n-quads")
    plain, expected = await raw(served, "/repositories/demo/statements", Accept=accept)
    assert "Content-Encoding" not in plain.headers
    answer, body = await raw(served, "/repositories/demo/statements", Accept=accept, Accept_Encoding=accepted)
    assert answer.headers.get("Content-Encoding", "") == coding
    assert "Accept-Encoding" in answer.headers["Vary"]
    assert (unpack(coding, body) if coding else body) == expected
    assert not coding or len(body) < len(expected) / 2


async def test_results_are_compressed_and_short_ones_are_not(served: Served) -> None:
    text = "".join(f"<urn:s{n}> <urn:p> <urn:o> .\n" for n in range(100))
    await served.send("PUT", "/statements", text, Content_Type="application/n-quads")
    query = "/repositories/demo?query=SELECT%20*%20%7B%3Fs%20%3Fp%20%3Fo%7D"
    answer, body = await raw(served, query, Accept="text/csv", Accept_Encoding="gzip")
    assert len(unpack("gzip", body).splitlines()) == 101
    for path in (f"{query}LIMIT%202", "/repositories/demo/size", "/repositories/demo/statements?subj=%3Curn:s1%3E"):
        answer, _ = await raw(served, path, Accept_Encoding="gzip")
        assert "Content-Encoding" not in answer.headers


async def test_what_may_hold_secrets_and_what_other_sites_ask_is_not_compressed(served: Served) -> None:
    text = "".join(f"<urn:s{n}> <urn:p> <urn:o> .\n" for n in range(100))
    await served.send("PUT", "/statements", text, Content_Type="application/n-quads")
    for path in ("/txlog/openapi.json", "/txlog/status", "/metrics"):
        answer, body = await raw(served, path, Accept_Encoding="gzip")
        assert "Content-Encoding" not in answer.headers
    browser = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)"
    for headers, is_compressed in (
        ({"Sec_Fetch_Site": "cross-site"}, False),
        ({"Sec_Fetch_Site": "same-site", "User_Agent": browser}, False),
        ({"User_Agent": browser}, False),
        ({"Sec_Fetch_Site": "same-origin", "User_Agent": browser}, True),
        ({"User_Agent": "curl/8.5.0"}, True),
        ({"User_Agent": ""}, True),
    ):
        answer, body = await raw(served, "/repositories/demo/statements", Accept_Encoding="gzip", **headers)
        assert ("Content-Encoding" in answer.headers) == is_compressed, headers
        assert body


async def test_a_compressed_body_may_wait_for_the_word_to_go_on(served: Served) -> None:
    body = gzip.compress(LINE.encode())
    reader, writer = await asyncio.open_connection("127.0.0.1", served.cluster.ports[0])
    writer.write(
        b"POST /repositories/demo/statements HTTP/1.1\r\nHost: x\r\nContent-Type: text/turtle\r\n"
        b"Expect: 100-continue\r\n"
        b"Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    assert b" 100 " in await reader.readline()
    writer.write(body)
    assert b" 204 " in await reader.read()
    writer.close()
