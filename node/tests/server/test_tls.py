"""TLS among masters and at their doors: who is let in, who is refused by which name, and renewal under load."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import ClientConnectorError, ClientError, ClientSession, TCPConnector
from certifying import Authority, pem_of
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from master_cluster import TOKEN, Cluster, until
from people import bearer, guarded

from e2e.lib.ports import free_ports
from txlog.auth.tls import BadCertificates, Certificates
from txlog.client import MasterClient, MasterUnreachable
from txlog.config.process_config import NodeConfig
from txlog.model.errors import BadInput
from txlog.server.disk_full_mode import DiskFullMode
from txlog.server.peers import peer_links
from txlog.server.startup_files import BadStart, load_tls
from txlog.telemetry.event_log import EventLog

JSON = {"Accept": "application/json"}


def insert(what: object) -> str:
    return f'INSERT DATA {{ <urn:s:{what}> <urn:p> "o" }}'


class Secured:
    """Masters with certificates of one authority; each has a folder of its own. ``door``: clients speak TLS, too."""

    def __init__(self, cluster: Cluster, door: bool = True) -> None:
        self.cluster = cluster
        self.authority = Authority()
        self.ports = free_ports(len(cluster.nodes))
        for at, node in enumerate(cluster.nodes):
            folder = self.authority.issue(self.folder(at), node)
            config = cluster.configs[at]
            config["peer_tls_folder"], config["peer_port"] = str(folder), self.ports[at]
            if door:
                config["tls_folder"] = str(folder)
            for peer, port in zip(config["peers"], self.ports, strict=True):
                peer["url"] = f"http://127.0.0.1:{port}"
        if door:
            cluster.scheme = "https"

    def folder(self, at: int) -> Path:
        return self.cluster.folder / "certificates" / self.cluster.nodes[at]

    async def trust(self) -> None:
        """The session's, by the authority."""
        await self.cluster.session.close()
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        self.cluster.session = ClientSession(connector=TCPConnector(ssl=context))

    def events(self, at: int, name: str) -> list[dict[str, str]]:
        lines = [json.loads(line) for line in self.cluster.logs[at].getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]


@pytest.fixture
async def three_secured(clusters: Callable[..., Cluster]) -> Secured:
    secured = Secured(clusters(3))
    await secured.trust()
    await secured.cluster.start()
    return secured


@pytest.fixture
async def two(clusters: Callable[..., Cluster]) -> Secured:
    """Not started, clients plain."""
    return Secured(clusters(2), door=False)


async def test_three_masters_agree_and_both_short_ways_are_taken(three_secured: Secured) -> None:
    cluster = three_secured.cluster
    for n in range(6):
        await cluster.write(n % 3, insert(n))
    direct = cluster.app(0)._fast_path
    assert direct is not None
    assert direct._head_cache, "the short way for plain writes recognised none"

    async def connected() -> bool:
        peers = (await cluster.get(0, "/txlog/peers"))["peers"]
        return [(peer["connected"], peer["accepted"]) for peer in peers] == [(True, True)] * 2

    await until(connected)
    await until(lambda: all(cluster.service(at).loop.durability.stable.value == 6 for at in range(3)))
    for link in cluster.app(0).links.links.values():
        assert link.outgoing is not None
        assert isinstance(link.outgoing.ssl_context, ssl.SSLContext)
    pages = [(await cluster.get(at, "/txlog/log?after=0", headers=JSON))["entries"] for at in range(3)]
    assert len(pages[0]) == 6
    assert pages[0] == pages[1] == pages[2]
    metrics = await cluster.get(0, "/metrics")
    for shown_to in ("clients", "peers"):
        assert f'txlog_certificate_expires_seconds{{shown_to="{shown_to}"}} 1' in metrics


# The door


async def test_who_speaks_plainly_to_a_tls_door_is_told(three_secured: Secured) -> None:
    cluster = three_secured.cluster
    for request in (b"GET /txlog/status HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n" + b"x" * 300_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 20)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert answer.endswith(b"this port speaks TLS: ask with https://\n"), answer
        writer.close()
    assert three_secured.events(0, "PlainAtTlsPort")

    def ask() -> None:
        with MasterClient(cluster.url(0).replace("https", "http")) as client:
            client.status()

    with pytest.raises(BadInput, match="this port speaks TLS: ask with https://"):
        await asyncio.to_thread(ask)
    await cluster.write(0, insert("after"))


async def test_who_speaks_tls_to_a_plain_door_is_told(one: Cluster) -> None:
    def ask() -> None:
        with MasterClient(one.url(0).replace("http", "https")) as client:
            client.status()

    with pytest.raises(MasterUnreachable, match="does not speak TLS there; ask with http://"):
        await asyncio.to_thread(ask)
    await until(lambda: "NotHttp" in one.logged(0))
    await one.write(0, insert("after"))


async def test_our_client_believes_the_authority_that_its_file_names(
    three_secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, file = three_secured.cluster, tmp_path / "trusted.crt"

    def ask() -> str:
        with MasterClient(cluster.url(0)) as client:
            return client.status().node

    with pytest.raises(MasterUnreachable, match=r"certificate is not trusted .*TXLOG_CA_FILE"):
        await asyncio.to_thread(ask)
    monkeypatch.setenv("TXLOG_CA_FILE", str(file))
    with pytest.raises(BadInput, match="No such file"):
        await asyncio.to_thread(ask)
    file.write_text("nothing\n")
    with pytest.raises(BadInput, match="expected certificates as PEM"):
        await asyncio.to_thread(ask)
    file.write_bytes(Authority().pem)
    with pytest.raises(MasterUnreachable, match="certificate is not trusted"):
        await asyncio.to_thread(ask)
    file.write_bytes(three_secured.authority.pem)
    assert await asyncio.to_thread(ask) == "uk-1"
    await until(lambda: three_secured.events(0, "CertificateRefused"))  # the clients that did not trust it


async def test_a_client_that_only_connects_holds_up_nobody(three_secured: Secured) -> None:
    cluster = three_secured.cluster
    silent = [await asyncio.open_connection("127.0.0.1", cluster.ports[0]) for _ in range(20)]
    await cluster.write(0, insert("meanwhile"))
    for _, writer in silent:
        writer.close()


@pytest.mark.parametrize("phase", ["DiskFull", "Damaged"])
async def test_a_master_that_takes_no_part_speaks_tls_as_well(clusters: Callable[..., Cluster], phase: str) -> None:
    secured = Secured(clusters(2, journal_bytes_max=1 if phase == "DiskFull" else None))
    await secured.trust()
    cluster, stop = secured.cluster, asyncio.Event()
    if phase == "DiskFull":
        config, log = NodeConfig.model_validate(cluster.configs[0]), EventLog("uk-1", cluster.logs[0])
        room = DiskFullMode(config, 1, 1, 0, log, None, load_tls(config, log))
        waiting = asyncio.ensure_future(room.run(stop))
    else:
        cluster.spawn()
        await cluster.ready()
        for number in range(10):
            await cluster.write(number % 2, insert(number))
        for at in (1, 0):
            cluster.kill(at, signal.SIGTERM)
        segment = min(file for file in (cluster.folder / "uk-1").iterdir() if b"urn:s:5" in file.read_bytes())
        raw = bytearray(segment.read_bytes())
        raw[raw.index(b"urn:s:5")] ^= 1
        segment.write_bytes(raw)
        cluster.spawn(0)  # alone, so that it stays damaged

    async def state() -> str:
        try:
            return str((await cluster.get(0, "/txlog/status"))["state"])
        except (OSError, ClientError):
            return ""

    await until(lambda: _is(state, phase))
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
    writer.write(b"GET /txlog/status HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"ask with https://" in await asyncio.wait_for(reader.read(), 20)
    writer.close()
    if phase == "DiskFull":
        stop.set()
        assert not await waiting
        return
    with pytest.raises(OSError):
        await as_peer(secured, 0, "uk-2", None)
    cluster.spawn(1)
    await cluster.ready()  # it was mended by the other, with certificates
    assert "Mended" in (cluster.folder / "uk-1.log").read_text()


async def _is(state: Callable[[], Awaitable[str]], wanted: str) -> bool:
    return await state() == wanted


async def test_users_are_asked_behind_tls_on_both_ways(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    secured = Secured(guarded(clusters, tmp_path))
    await secured.trust()
    await secured.cluster.start()
    cluster = secured.cluster
    await cluster.write(0, insert(1), **bearer("writer"))
    await cluster.write(0, insert(2), 401)
    await cluster.write(0, insert(3), 403, **bearer("reader"))
    await cluster.get(0, "/txlog/configuration", headers=bearer("admin"))


# Peers


async def as_peer(
    secured: Secured, at: int, node: str, shown: Path | None, path: str = peer_links.PEER_PATH, token: bytes = TOKEN
) -> bytes:
    """What the peers' port answers to who shows that certificate; OSError when the connection ends without."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if shown is not None:
        context.load_cert_chain(shown / "tls.crt", shown / "tls.key")
    reader, writer = await asyncio.open_connection("127.0.0.1", secured.ports[at], ssl=context)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: txlog-frames\r\n"
            f"TxLog-Node: {node}\r\nAuthorization: Bearer {token.decode()}\r\n\r\n".encode()
        )
        answer = await asyncio.wait_for(reader.read(4096), 20)
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError("ended without an answer")
    return answer


async def test_strangers_are_refused_by_name(two: Secured, tmp_path: Path) -> None:
    """Everybody here knows the token. Processes: their loop is another than the tests'."""
    cluster = two.cluster
    cluster.spawn()
    await cluster.ready()

    async def refused() -> dict[tuple[str, str], int]:
        told = (await cluster.get(0, "/txlog/peers"))["refused"]
        return {(each["node"], each["reason"]): each["count"] for each in told}

    own, foreign = two.authority, Authority("another cluster's")
    strangers: list[tuple[Path | None, str, int]] = [
        (None, "NoCertificate", 1),
        (foreign.issue(tmp_path / "foreign", "uk-2"), "ForeignCertificate", 1),
        (own.issue(tmp_path / "servers", "uk-2", usages=(ExtendedKeyUsageOID.SERVER_AUTH,)), "ForeignCertificate", 2),
        (own.issue(tmp_path / "expired", "uk-2", days=-1), "ExpiredCertificate", 1),
    ]
    for shown, name, count in strangers:
        with pytest.raises(OSError):
            await as_peer(two, 0, "uk-2", shown)

        async def counted(name: str = name, count: int = count) -> bool:
            return (await refused()).get(("?", name)) == count

        await until(counted)
    for names in (("uk-3",), ("*.example.net", "UK-2"), ()):
        other = own.issue(tmp_path / f"of-{len(names)}-others", *names)
        answer = await as_peer(two, 0, "uk-2", other)
        assert b" 403 " in answer
        assert b"WrongCertificate" in answer
    assert b"WrongToken" in await as_peer(two, 0, "uk-2", two.folder(1), token=b"wrong")
    assert b"404" in (await as_peer(two, 0, "uk-2", two.folder(1), path="/txlog/status")).split(b"\r\n")[0]
    shown_plainly = {"TxLog-Node": "uk-2", "Authorization": f"Bearer {TOKEN.decode()}"}
    told = await cluster.get(0, peer_links.PEER_PATH, 403, headers=shown_plainly)
    assert told["reason"] == "NoCertificate"
    counts = await refused()
    assert counts["uk-2", "WrongCertificate"] == 3
    assert counts["uk-2", "NoCertificate"] == 1
    assert 'txlog_peers_refused_total{reason="ForeignCertificate"} 2.0' in await cluster.get(0, "/metrics")
    assert (await as_peer(two, 0, "uk-2", two.folder(1))).startswith(b"HTTP/1.1 101 ")
    await cluster.write(0, insert("after"))
    said = (cluster.folder / "uk-1.log").read_text()
    assert all(f'"event":"{name}"' in said for _, name, _ in strangers)
    assert "Traceback" not in said
    assert TOKEN.decode() not in said


@pytest.mark.parametrize(
    ("what", "here", "there"),
    [
        ("foreign", "ForeignCertificate", {"CertificateRefused", "NoHandshake"}),
        ("another's", "WrongCertificate", {"UnknownPeer"}),
        ("plain", "NoTls", {"PlainAtTlsPort"}),
    ],
)
async def test_masters_that_do_not_fit_together_say_so_and_send_no_token(
    two: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, here: str, there: set[str]
) -> None:
    """``here``: why uk-1 cannot reach uk-2; ``there``: how uk-1 refuses uk-2."""
    cluster = two.cluster
    if what == "foreign":
        Authority("another cluster's").issue(two.folder(1), "uk-2")
    elif what == "another's":
        # It starts as what it is, and is taken for uk-2 by uk-1's configuration alone.
        cluster.configs[1]["node"] = "uk-9"
        cluster.configs[1]["peers"][1]["node"] = "uk-9"
        two.authority.issue(two.folder(1), "uk-9")
    else:
        cluster.configs[1]["port"] = cluster.ports[1] = two.ports[1]
        del cluster.configs[1]["peer_tls_folder"], cluster.configs[1]["peer_port"]
    await cluster.start(0, 1, ready=False)
    link = cluster.app(0).links.links["uk-2"]
    await until(lambda: link.last_error is not None and here in link.last_error)
    await until(lambda: there & set(cluster.logged(0)))
    assert cluster.app(1).links.links["uk-1"].incoming is None
    assert TOKEN.decode() not in cluster.logs[0].getvalue() + cluster.logs[1].getvalue()
    await cluster.stop()


# Files


def turn(folder: Path, to: Path) -> None:
    """As Kubernetes does it: files are links through a link, and that is turned."""
    new = folder / "..data.new"
    new.symlink_to(to)
    new.rename(folder / "..data")


def mounted(folder: Path, first: Path) -> Path:
    folder.mkdir(parents=True)
    turn(folder, first)
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (folder / name).symlink_to(Path("..data") / name)
    return folder


async def test_renewal_under_load_loses_nothing_and_counts_for_open_connections(
    clusters: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authority is exchanged as one does it: trusted beside the old one, then issues, then the old one goes."""
    monkeypatch.setattr(peer_links, "HEARTBEAT_S", 0.3)
    secured, new = Secured(clusters(3)), Authority("the new one")
    cluster, old = secured.cluster, secured.authority
    both = old.pem + new.pem
    for at, node in enumerate(cluster.nodes):
        place = tmp_path / "versions" / node
        for name, authority, trusted in (("1", old, old.pem), ("2", old, both), ("3", new, both), ("4", new, new.pem)):
            (authority.issue(place / name, node) / "ca.crt").write_bytes(trusted)
        shutil.rmtree(secured.folder(at))
        mounted(secured.folder(at), place / "1")
    await secured.trust()
    context = ssl.create_default_context(cadata=both.decode())
    await cluster.session.close()
    cluster.session = ClientSession(connector=TCPConnector(ssl=context, force_close=True))
    await cluster.start()
    done: list[str] = []
    stop = False

    async def client(at: int) -> None:
        number = 0
        while not stop:
            number += 1
            told = await cluster.write(at, insert(f"{at}-{number}"), Prefer="wait=60")
            done.append(told["TxLog-Transaction"])

    writing = [asyncio.ensure_future(client(at)) for at in (0, 1, 2)]
    for version in ("2", "3", "4"):
        before = [link.outgoing for app in cluster.apps if app for link in app.links.links.values()]
        for at, node in enumerate(cluster.nodes):
            turn(secured.folder(at), tmp_path / "versions" / node / version)

        def renewed(before: list[object] = before) -> bool:
            now = [link for app in cluster.apps if app for link in app.links.links.values()]
            fresh = all(
                link.outgoing is not None and link.outgoing is not was for link, was in zip(now, before, strict=True)
            )
            return fresh and all(link.incoming is not None and not link.incoming.is_closed for link in now)

        await until(renewed)
        written = len(done)
        await until(lambda written=written: len(done) > written + 5)
    stop = True
    await asyncio.gather(*writing)
    await until(
        lambda: all(
            cluster.service(at).loop.durability.stable.value == cluster.service(0).loop.durability.log_index
            for at in range(3)
        )
    )
    pages = [(await cluster.get(at, "/txlog/log?after=0&maxBytes=8000000", headers=JSON))["entries"] for at in range(3)]
    assert {entry["txid"] for entry in pages[0]} >= set(done)
    assert len({entry["txid"] for entry in pages[0]}) == len(pages[0])
    assert pages[0] == pages[1] == pages[2]
    with pytest.raises(OSError):  # the old authority's word counts no more
        await as_peer(secured, 0, "uk-2", tmp_path / "versions" / "uk-2" / "2")
    assert not cluster.ended
    context = ssl.create_default_context(cadata=new.pem.decode())
    async with ClientSession(connector=TCPConnector(ssl=context)) as session, session.get(cluster.url(0)) as answer:
        assert answer.status == 404


def broken(what: str, folder: Path, authority: Authority, tmp_path: Path) -> None:
    key, certificate = folder / "tls.key", folder / "tls.crt"
    if what == "no folder":
        shutil.rmtree(folder)
    elif what == "no key":
        key.unlink()
    elif what == "unreadable key":
        key.unlink()
        key.mkdir()
    elif what == "another's key":
        key.write_bytes(pem_of(ec.generate_private_key(ec.SECP256R1())))
    elif what == "key with a password":
        key.write_bytes(pem_of(ec.generate_private_key(ec.SECP256R1()), b"secret"))
    elif what == "no certificate":
        certificate.write_text("not PEM\n")
    elif what == "expired":
        authority.issue(folder, "uk-1", days=-1)
    elif what == "another master's":
        authority.issue(folder, "uk-2")
    elif what == "for clients only":
        authority.issue(folder, "uk-1", usages=(ExtendedKeyUsageOID.CLIENT_AUTH,))
    elif what == "another authority's":
        (folder / "ca.crt").write_bytes(Authority("another").pem)
    elif what == "no authority":
        (folder / "ca.crt").unlink()
    elif what == "authority is nonsense":
        (folder / "ca.crt").write_text("nonsense\n")


FAULTS = {
    "no folder": r"ca\.crt: No such file",
    "no key": r"tls\.key: No such file",
    "unreadable key": r"tls\.key: Is a directory",
    "another's key": r"tls\.key: it is not the key of tls\.crt",
    "key with a password": r"tls\.key: expected a key without a password",
    "no certificate": r"expected a certificate and its key as PEM",
    "expired": r"tls\.crt: .*certificate has expired",
    "another master's": r"expected the DNS name uk-1, its master's; it names uk-2",
    "for clients only": r"tls\.crt: .*(unsupported|unsuitable) certificate purpose",
    "another authority's": r"tls\.crt: .*(local issuer|signature failure)",
    "no authority": r"ca\.crt: No such file",
    "authority is nonsense": r"ca\.crt: expected certificates as PEM",
}


@pytest.mark.parametrize("what", FAULTS)
async def test_what_is_wrong_with_files_is_named_and_those_of_before_count_on(tmp_path: Path, what: str) -> None:
    authority, folder = Authority(), tmp_path / "uk-1"
    authority.issue(folder, "uk-1")
    log, now = EventLog("uk-1", limit_s=0.0), 0.0
    certificates = Certificates(folder, log, node="uk-1", clock=lambda: now)
    before = certificates.server_context
    broken(what, folder, authority, tmp_path)
    now = 2.0
    assert certificates.server_context is before
    assert certificates.is_current(before)
    with pytest.raises(BadCertificates, match=FAULTS[what]):
        Certificates(folder, log, node="uk-1")
    config = {"node": "uk-1", "data_center": "uk", "repository": "r", "port": 1, "journal_folder": "j"}
    config |= {"peer_token_file": "t", "peers": [{"node": "uk-1", "data_center": "uk", "url": "http://127.0.0.1:1"}]}
    config |= {"peer_tls_folder": folder, "peer_port": 2}
    with pytest.raises(BadStart, match=r"^peer_tls_folder "):
        load_tls(NodeConfig.model_validate(config), log)
    shutil.rmtree(folder, ignore_errors=True)
    authority.issue(folder, "uk-1")
    now = 4.0
    assert certificates.server_context is not before
    assert not certificates.is_current(before)


def test_certificates_for_clients_need_no_authority_and_no_masters_name(tmp_path: Path) -> None:
    folder = Authority().issue(tmp_path / "door", "txlog.example.net")
    (folder / "ca.crt").unlink()
    certificates = Certificates(folder, EventLog("uk-1"))
    assert certificates.expires > 0
    Authority().issue(folder, "txlog.example.net", days=-1)
    with pytest.raises(BadCertificates, match="expired"):
        Certificates(folder, EventLog("uk-1"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"peer_tls_folder": "/nowhere"}, "peer_tls_folder and peer_port: expected both or none"),
        ({"peer_port": 5}, "peer_tls_folder and peer_port: expected both or none"),
        ({"tls_folder": "/nowhere"}, "tls_folder without peer_tls_folder"),
        ({"tls_folder": "/nowhere", "peer_tls_folder": "/nowhere", "peer_port": 5}, "peer_tls_folder /nowhere/tls.crt"),
    ],
)
async def test_a_master_that_shall_speak_tls_and_cannot_does_not_start(
    clusters: Callable[..., Cluster], change: dict[str, object], says: str
) -> None:
    cluster = clusters(1, **change)
    path = cluster.folder / "wrong.json"
    path.write_text(json.dumps(cluster.configs[0]))
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "txlog.server", "--config", str(path)], capture_output=True, text=True
    )
    assert run.returncode == 64, run.stderr
    assert says in run.stderr or says.replace("peer_tls", "tls") in run.stderr
    assert "Traceback" not in run.stderr


async def test_without_trust_nobody_is_believed_by_chance(two: Secured) -> None:
    """A client of Python's own, with the system's authorities."""
    secured = Secured(two.cluster)
    await secured.cluster.start()
    async with ClientSession() as session:
        with pytest.raises(ClientConnectorError):
            await session.get(secured.cluster.url(0))
