"""What is wrong is refused by name, by real processes: requests, peers, manifests, disks."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.lib.cluster.masters import REPOSITORY, BenchMasters, three_masters
from e2e.lib.readers import same_log
from txlog.client import MasterClient, WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import JournalDamaged, TxLogError

STATEMENTS = f"/repositories/{REPOSITORY}/statements"
UPDATE = "application/sparql-update"
QUADS = "application/n-quads"
ALONE = (("uk-1", "uk"),)


class BadInputAnswer:
    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.text = reply.read().decode()


def ask(url: str, method: str, path: str, body: bytes | None = None, **headers: str) -> BadInputAnswer:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return BadInputAnswer(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchMasters]:
    folder = tmp_path_factory.mktemp("alone")
    with three_masters(folder, nodes=ALONE, limits={"body_bytes": 65536}) as masters:
        yield masters


@pytest.fixture
def url(alone: BenchMasters) -> str:
    return alone.urls[0]


@pytest.mark.parametrize(
    ("status", "kind", "body", "says"),
    [
        (400, UPDATE, b"INSERT DATA { <urn:a> <urn:b> }", ""),
        (400, UPDATE, b"SELECT * { ?s ?p ?o }", ""),
        (400, UPDATE, b"INSERT DATA { <urn:a> <urn:b> \xff }", ""),
        (400, UPDATE, b"INSERT DATA { GRAPH <urn:txlog:system> { <urn:a> <urn:b> <urn:c> } }", "system"),
        (400, UPDATE, b"DROP GRAPH <urn:txlog:system:1:aa:0>", "system"),
        (400, UPDATE, b"INSERT { <urn:a> <urn:b> ?x } WHERE { ?s ?p ?o BIND(BNODE(?o) AS ?x) }", "BNODE"),
        (400, QUADS, b"<urn:a> <urn:b> .\n", ""),
        (400, QUADS, b'<urn:a> <urn:b> "c" <urn:txlog:system> .\n', "system"),
        (400, "text/turtle", b"@prefix x: <urn:x> . y:a y:b y:c .", ""),
        (400, "application/rdf+xml", b"<rdf:RDF>", "MALFORMED DATA"),
        (415, "application/pdf", b"%PDF", ""),
        (413, UPDATE, b"INSERT DATA { <urn:a> <urn:b> '" + b"x" * 70_000 + b"' }", ""),
    ],
)
def test_a_write_that_is_wrong_is_refused_and_says_why(
    url: str, status: int, kind: str, body: bytes, says: str
) -> None:
    answer = ask(url, "POST", STATEMENTS, body, Content_Type=kind, TxLog_Durability="synced")
    assert answer.status == status, answer.text
    assert answer.text.strip()
    assert "Traceback" not in answer.text
    assert says.lower() in answer.text.lower()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/repositories/other/statements", {}, 404),
        ("POST", "/repositories/../statements", {}, 404),
        ("POST", STATEMENTS, {"TxLog_Durability": "soon"}, 400),
        ("POST", STATEMENTS, {"Idempotency_Key": "x" * 10_000}, 400),
        ("GET", "/txlog/transactions/nonsense", {}, 400),
        ("GET", "/txlog/transactions/uk-1.0123456789abcdef.7", {}, 404),
        ("GET", "/txlog/log?after=-1", {}, 400),
        ("GET", "/txlog/log?after=many", {}, 400),
        ("GET", "/txlog/log?after=0&hash=zz", {}, 400),
        ("GET", "/txlog/doorbell?after=x", {}, 400),
        ("GET", "/nowhere", {}, 404),
        ("PATCH", "/txlog/status", {}, 405),
    ],
)
def test_a_path_or_header_that_is_wrong_is_refused(
    url: str, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    body = b'<urn:a> <urn:b> "c" .\n' if method == "POST" else None
    answer = ask(url, method, path, body, Content_Type=QUADS, **headers)
    assert answer.status == status, answer.text
    assert "Traceback" not in answer.text


def test_one_bad_line_does_not_take_the_others_with_it(url: str) -> None:
    lines = [b'{"quads": "<urn:l:1> <urn:p> \\"1\\" .\\n"}', b"nonsense", b'{"update": "INSERT"}', b'{"add": 5}']
    lines.append(b'{"update": "INSERT DATA { <urn:l:2> <urn:p> 2 }"}')
    answer = ask(url, "POST", "/txlog/transactions", b"\n".join(lines) + b"\n", TxLog_Durability="synced")
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.status == 200
    assert ["error" in line for line in told] == [False, True, True, True, False]
    assert all(line["message"] for line in told if "error" in line)


def test_nothing_that_was_refused_is_in_the_log(alone: BenchMasters) -> None:
    with MasterClient(alone.urls[0]) as master:
        marked = list(master.submit([WriteRequest(quads='<urn:last> <urn:p> "x" .\n')], Durability.SYNCED))
        page = master.log_page(0)
    assert marked[0].error is None
    for word in (b"system", b"RAND", b"urn:a"):
        assert not [entry for entry in page.entries if word in entry.payload]


@pytest.mark.parametrize(
    ("node", "token", "reason"),
    [("uk-2", "wrong", "WrongToken"), ("stranger", None, "UnknownPeer"), ("", "", "WrongToken")],
)
def test_a_stranger_is_no_peer(alone: BenchMasters, node: str, token: str | None, reason: str) -> None:
    given = (alone.folder / "peer-token").read_text().strip() if token is None else token
    answer = ask(
        alone.urls[0],
        "GET",
        "/txlog/peer",
        TxLog_Node=node,
        Authorization=f"Bearer {given}",
        Connection="Upgrade",
        Upgrade="txlog-frames",
    )
    assert answer.status in (401, 403)
    assert json.loads(answer.text)["reason"] == reason


def test_a_manifest_with_a_wrong_field_names_file_line_and_field(tmp_path: Path) -> None:
    manifest = tmp_path / "uk.yaml"
    manifest.write_text(
        "apiVersion: txlog.io/v1alpha1\nkind: TxLogCluster\nmetadata: {name: c}\nspec:\n  dataCenter: uk\n"
        "  maxPeerlag: 60s\n  peers:\n  - {name: uk, masters: 1, address: h}\n"
    )
    program = Path(sys.executable).with_name("txlog")
    done = subprocess.run(
        [program, "up", "--detach", "-f", manifest, "--state", tmp_path / "state"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "maxPeerlag" in said
    assert "uk.yaml" in said.replace("\n", "")
    assert "Traceback" not in said
    assert not (tmp_path / "state").exists()


def test_a_full_disk_refuses_work_by_name_and_goes_on_after_more_room(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"journal_bytes_max": 6 << 20, "segment_bytes": 1 << 20}
    with three_masters(tmp_path / "full", nodes=ALONE, **settings) as masters:
        url = masters.urls[0]
        body = b'<urn:a> <urn:b> "%s" .\n' % (b"x" * 200_000)
        statuses = []
        for _ in range(60):
            answer = ask(url, "POST", STATEMENTS, body, Content_Type=QUADS, TxLog_Durability="synced")
            statuses.append(answer.status)
            if answer.status == 503:
                break
        assert statuses[-1] == 503, statuses
        assert statuses[0] == 204
        assert answer.headers["Retry-After"]
        assert "disk" in answer.text.lower()
        accepted = statuses.count(204)
        with MasterClient(url) as master:
            assert master.status().stable.index == accepted
            assert len(master.log_page(0, max_bytes=64 << 20).entries) == accepted
        _stop(masters, "uk-1")
        more = json.loads(masters.config_of("uk-1").read_text()) | {"journal_bytes_max": 60 << 20}
        masters.config_of("uk-1").write_text(json.dumps(more))
        masters.start("uk-1")
        masters.wait_joined()
        assert ask(url, "POST", STATEMENTS, body, Content_Type=QUADS, TxLog_Durability="synced").status == 204


def test_a_damaged_journal_is_named_and_mended_by_the_others(tmp_path: Path) -> None:
    with three_masters(tmp_path / "damaged", segment_bytes=1 << 16) as masters:
        with MasterClient(masters.by_node["uk-2"], 30.0) as master:
            writes = [WriteRequest(quads=f'<urn:d:{n}> <urn:p> "{"y" * 300}" .\n') for n in range(2000)]
            told = list(master.submit(writes, Durability.SYNCED))
        assert not [line for line in told if line.error]
        _stop(masters, "uk-1")
        _flip_a_byte_in_the_middle(masters.journal_of("uk-1"))
        masters.start("uk-1")
        masters.wait_joined()
        agree, lengths = same_log(masters.urls)
        assert agree
        assert len(set(lengths)) == 1
        try:
            _read_log(masters.by_node["uk-1"], lengths[0])
        except JournalDamaged:
            # A start does not read what has an index. What reads all of it from time to time ends the process, and the
            # next start reads it.
            masters.processes["uk-1"].wait(60)
            masters.start("uk-1")
            masters.wait_joined()
            _read_log(masters.by_node["uk-1"], lengths[0])


def _read_log(url: str, length: int) -> None:
    with MasterClient(url, 30.0) as master:
        at = 0
        while at < length:
            page = master.log_page(at)
            assert page.entries
            at = page.entries[-1].index


def test_a_damaged_journal_of_a_lone_master_is_never_passed_over(tmp_path: Path) -> None:
    with three_masters(tmp_path / "lone", nodes=ALONE, segment_bytes=1 << 16) as masters:
        with MasterClient(masters.urls[0], 30.0) as master:
            writes = [WriteRequest(quads=f'<urn:d:{n}> <urn:p> "{"y" * 300}" .\n') for n in range(2000)]
            assert not [line for line in master.submit(writes, Durability.SYNCED) if line.error]
        _stop(masters, "uk-1")
        _flip_a_byte_in_the_middle(masters.journal_of("uk-1"))
        masters.start("uk-1")
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if masters.processes["uk-1"].poll() is not None:
                break  # it ended by name
            try:
                with MasterClient(masters.urls[0], 2.0) as master:
                    status = master.status()
            except TxLogError:
                time.sleep(0.05)
                continue
            assert status.state != "Joined"
            if status.state == "Damaged":
                assert status.damage
                answer = ask(masters.urls[0], "POST", STATEMENTS, b"<urn:a> <urn:b> <urn:c> .\n", Content_Type=QUADS)
                assert answer.status == 503
                break
            time.sleep(0.05)
        else:
            pytest.fail("it neither says Damaged nor ends")
        assert "amage" in masters.last_log_lines("uk-1")


def _stop(masters: BenchMasters, node: str) -> None:
    masters.processes[node].terminate()
    masters.processes[node].wait(30)


def _flip_a_byte_in_the_middle(journal: Path) -> None:
    segments = sorted((path for path in journal.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    payload = b"y" * 100
    for segment in sorted(path for path in segments if path.stat().st_size > 4096):
        data = bytearray(segment.read_bytes())
        at = data.find(payload, len(data) // 3)
        if at > 0 and data.find(payload, at + 1000) > 0:
            data[at] ^= 0xFF
            segment.write_bytes(data)
            return
    pytest.fail(f"no segment with what was written in {journal}: {segments}")
