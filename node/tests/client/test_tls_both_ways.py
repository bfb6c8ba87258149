"""A client over TLS that reads and writes at once, of real sockets and OpenSSL at both ends."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from certifying import Authority
from scripted_master import Handler, ScriptedMaster, scripted_master
from test_master_client import echo

from txlog.client import MasterClient, MasterUnreachable, WriteRequest
from txlog.client.full_duplex_tls import RECV_BYTES, FullDuplexTlsSocket
from txlog.model import errors

NAME = "uk-1.masters.graphs.svc"
LINES = ("POST", "/txlog/transactions")
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
Client = Callable[[], AbstractContextManager[MasterClient]]


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def speaks(request: pytest.FixtureRequest, authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    folder = authority.issue(tmp_path / "door", NAME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.minimum_version = context.maximum_version = request.param
    return context


@pytest.fixture
def master(speaks: ssl.SSLContext) -> Iterator[ScriptedMaster]:
    with scripted_master(speaks) as master:
        yield master


@pytest.fixture
def trusts(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem.decode())


@pytest.fixture
def client(master: ScriptedMaster, trusts: ssl.SSLContext) -> Client:
    return lambda: MasterClient(master.url, timeout_s=20, tls=trusts, name=NAME)


def test_a_refusal_that_comes_while_the_request_is_being_sent_is_read_as_one(
    master: ScriptedMaster, client: Client
) -> None:
    """Both threads are busy at once here, right behind the handshake, whose last words are on their way."""

    def refuse(handler: Handler) -> None:
        list(handler.lines_in())
        handler.answer(401, {"error": "Unauthorized", "message": "who are you"})

    master.answers[LINES] = refuse
    for _ in range(100):
        with client() as asking, pytest.raises(errors.Unauthorized, match="who are you"):
            list(asking.submit([WriteRequest(quads="q")]))


def test_lines_go_both_ways_over_one_connection_that_is_kept(master: ScriptedMaster, client: Client) -> None:
    master.answers[LINES] = echo
    master.answers["GET", "/metrics"] = (200, b"m" * (3 * RECV_BYTES))
    answered = threading.Event()

    def lines() -> Iterator[WriteRequest]:
        yield WriteRequest(quads="q")
        assert answered.wait(20), "the first answer did not come before the second line"
        yield WriteRequest(quads="q")

    with client() as asking:
        answers = asking.submit(lines(), batch_bytes=0)
        assert next(answers).txid == "t0"
        answered.set()
        assert [each.txid for each in answers] == ["t1"]
        assert len(asking.metrics()) == 3 * RECV_BYTES
        assert sum(
            each.txid is not None for each in asking.submit(WriteRequest(quads="q" * 200) for _ in range(20_000))
        ) == (20_000)
    assert master.connections == 1


def test_an_answer_that_is_cut_is_no_whole_one(master: ScriptedMaster, client: Client) -> None:
    def cut(handler: Handler) -> None:
        line = handler.start_lines_out()
        line(b'{"txid":"t0"}\n')
        handler.connection.shutdown(socket.SHUT_RDWR)  # without a word of TLS

    master.answers[LINES] = cut
    with client() as asking:
        answers = asking.submit([WriteRequest(quads="q")] * 3)
        assert next(answers).txid == "t0"
        with pytest.raises(MasterUnreachable):
            list(answers)


def test_whom_nobody_trusts_or_who_has_another_name_is_said(master: ScriptedMaster, trusts: ssl.SSLContext) -> None:
    other = ssl.create_default_context(cadata=Authority("another").pem.decode())
    for context, name, words in (
        (other, NAME, "its certificate is not trusted"),
        (trusts, "uk-2.masters.graphs.svc", "Hostname mismatch"),
    ):
        with (
            MasterClient(master.url, timeout_s=20, tls=context, name=name) as asking,
            pytest.raises(MasterUnreachable, match=words) as said,
        ):
            asking.status()
        assert not said.value.sent


def test_who_speaks_plainly_and_who_says_nothing(trusts: ssl.SSLContext) -> None:
    with scripted_master() as plain:
        url = plain.url.replace("http://", "https://")
        with (
            MasterClient(url, timeout_s=20, tls=trusts) as asking,
            pytest.raises(MasterUnreachable, match="it does not speak TLS there"),
        ):
            asking.status()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connected = socket.create_connection(silent.getsockname(), 0.2)
        with pytest.raises(TimeoutError):
            FullDuplexTlsSocket(connected, trusts, NAME)
        assert connected.fileno() < 0, "it was let go of"


def test_it_waits_no_longer_than_it_was_told(speaks: ssl.SSLContext, trusts: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[ssl.SSLSocket] = []

        def take() -> None:
            sock, _ = listening.accept()
            taken.append(speaks.wrap_socket(sock, server_side=True))

        thread = threading.Thread(target=take)
        thread.start()
        with closing(
            FullDuplexTlsSocket(socket.create_connection(listening.getsockname(), 20), trusts, NAME)
        ) as asking:
            thread.join()
            asking.settimeout(0.1)
            with pytest.raises(TimeoutError):
                asking.recv_into(memoryview(bytearray(10)))
            asking.settimeout(20)
            taken[0].sendall(b"late")
            with asking.makefile("rb") as file:
                assert file.read(4) == b"late"
        taken[0].close()
