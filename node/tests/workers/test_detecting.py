"""Which engine a URL is: real stores, and servers that are none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fuseki_process import FusekiProcess
from oxigraph_process import OxigraphProcess
from rdf4j_process import Rdf4jProcess

from txlog.workers.adapter import Unreachable
from txlog.workers.engine_detection import detect
from txlog.workers.http_transport import HttpTransport


@pytest.mark.parametrize("kind", [OxigraphProcess, FusekiProcess, Rdf4jProcess])
def test_a_real_store_is_known_and_left_as_it_is(tmp_path: Path, kind: Any) -> None:
    store = kind(tmp_path / "store")
    try:
        before = store.data()
        assert detect(store.transport) == store.adapter.engine
        assert store.data() == before
        root = HttpTransport(f"http://127.0.0.1:{store.port}", 30)
        assert detect(root) == ("oxigraph" if kind is OxigraphProcess else None)
    finally:
        store.kill()


class _Other(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html>12</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def other() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_another_server_is_none(other: str) -> None:
    assert detect(HttpTransport(other, 10)) is None


def test_nobody_there_is_said(tmp_path: Path) -> None:
    store = OxigraphProcess(tmp_path / "store")
    url = store.url
    store.kill()
    with pytest.raises(Unreachable):
        detect(HttpTransport(url, 5))
