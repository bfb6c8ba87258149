"""A stand-in for a master's feed: serves a list of entries by the documented paths. No journal, no protocol."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from txlog.model.entry import KIND_QUADS, KIND_SKIP, LogEntry, Position
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.wire.log_page import MEDIA_TYPE, encode_page, make_page

ORIGIN = Origin("stub-1", 7)


class StubLog:
    """The entries, shared by the stubs of one data centre. Every entry is stable at once."""

    def __init__(self, cluster: bytes = b"\x0a" * 16) -> None:
        self.cluster = cluster
        self.start = Position(1, 0, chain_start(cluster))
        self.entries: list[LogEntry] = []
        self.changed = threading.Condition()

    def append(self, *payloads: bytes, kind: int = KIND_QUADS) -> int:
        """The index of the last of them."""
        with self.changed:
            for payload in payloads:
                seq = len(self.entries) + 1
                stamp = seq << 16
                content = content_hash(kind, "", payload)
                after = chain_hash(self.at(seq - 1).hash, stamp, origin_tag(ORIGIN), seq, content)
                self.entries.append(LogEntry(seq, after, Txid(ORIGIN, seq), stamp, kind, payload, ""))
            self.changed.notify_all()
            return len(self.entries)

    def skip(self, index: int) -> int:
        """Append the entry that lets every worker pass over the transaction at ``index``."""
        with self.changed:
            e = self.entries[index - 1]
            self.entries[index - 1] = LogEntry(e.index, e.hash, e.txid, e.stamp, e.kind, e.payload, "skip")
            return self.append(str(e.txid).encode(), kind=KIND_SKIP)

    def at(self, index: int) -> Position:
        return self.start if index == 0 else Position(1, index, self.entries[index - 1].hash)

    @property
    def stable(self) -> Position:
        return self.at(len(self.entries))


class FeedStub:
    """One stand-in; ``stop`` and ``start`` again keep its port. ``reports`` are all reports, oldest first."""

    def __init__(self, log: StubLog, workers: list[str]) -> None:
        self.log = log
        self.workers: dict[str, dict[str, Any]] = {
            name: {"name": name, "url": "", "engine": "oxigraph", "position": None, "state": "Unknown", "hold": None}
            for name in workers
        }
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[str] = []
        self.bells: list[float] = []
        """How long each request for the doorbell was to wait."""
        self.traceparents: dict[int, str] = {}
        """Of the transactions that are recorded, by index."""
        self.bulk: dict[str, dict[str, Any]] = {}
        """The bulk load that each worker is asked to prepare."""
        self.tick = 0
        self._ring_at: dict[str, float] = {}
        self._pause: dict[str, float] = {}
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._connections: set[Any] = set()
        self.start()

    def start(self) -> None:
        stub = self

        class Handler(_Handler):
            pass

        Handler.stub = stub
        ThreadingHTTPServer.allow_reuse_address = True
        server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        self._port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """As a killed process: nothing listens, every connection breaks."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in list(self._connections):
            connection.close()
        with self.log.changed:
            self.log.changed.notify_all()

    @property
    def alive(self) -> bool:
        return self._server is not None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def hold(self, worker: str, index: int | None) -> None:
        with self.log.changed:
            self.workers[worker]["hold"] = index
            self.log.changed.notify_all()

    def position(self, worker: str) -> int | None:
        place = self.workers[worker]["position"]
        return None if place is None else int(place["index"])

    def state(self, worker: str) -> str:
        return str(self.workers[worker]["state"])

    # -- what the paths do

    def doorbell(self, after: int, tick: int, timeout_s: float) -> dict[str, Any]:
        self.bells.append(timeout_s)
        deadline = time.monotonic() + timeout_s
        with self.log.changed:
            while self.alive and self.log.stable.index <= after and self.tick <= tick:
                self._tick_for_those_behind()
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                if self.tick <= tick:
                    self.log.changed.wait(min(left, 0.05))
            return {"stable": place(self.log.stable), "tick": self.tick, "workers": list(self.workers.values())}

    def _tick_for_those_behind(self) -> None:
        now = time.monotonic()
        for name, worker in self.workers.items():
            target = min(self.log.stable.index, self.log.stable.index if worker["hold"] is None else worker["hold"])
            if (self.position(name) or 0) >= target:
                self._pause.pop(name, None)
                self._ring_at.pop(name, None)
            elif name not in self._ring_at:
                self._pause[name] = min(self._pause.get(name, 0.125) * 2, 2.0)
                self._ring_at[name] = now + self._pause[name]
            elif now >= self._ring_at[name]:
                del self._ring_at[name]
                self.tick += 1

    def page(self, after: int, hash_hex: str | None, upto: int, bytes_max: int) -> bytes | str:
        """A page, or the reason why there is none."""
        stable = self.log.stable.index
        if after > stable:
            return "Ahead"
        if hash_hex is not None and bytes.fromhex(hash_hex) != self.log.at(after).hash:
            return "Diverged"
        taken, size = [], 0
        for entry in self.log.entries[after : min(upto, stable)]:
            taken.append(entry)
            size += len(entry.payload) + 64
            if size >= bytes_max:
                break
        return encode_page(make_page(self.log.at(after), taken, self.log.stable, self.log.cluster))


def place(position: Position) -> dict[str, Any]:
    return {"epoch": position.epoch, "index": position.index, "hash": position.hash.hex()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    stub: FeedStub

    def setup(self) -> None:
        super().setup()
        self.stub._connections.add(self.connection)

    def finish(self) -> None:
        self.stub._connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        stub, url = self.stub, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        stub.asked.append(url.path)
        if url.path == "/txlog/doorbell":
            self._json(
                200, stub.doorbell(int(query["after"]), int(query.get("tick", 0)), float(query.get("timeout", 5)))
            )
        elif url.path == "/txlog/log":
            page = stub.page(
                int(query["after"]),
                query.get("hash"),
                int(query.get("upto", 1 << 62)),
                int(query.get("maxBytes", 1 << 20)),
            )
            if isinstance(page, bytes):
                self._answer(200, MEDIA_TYPE, page)
            else:
                self._json(409, {"error": "Refused", "reason": page, "message": page})
        elif url.path == "/txlog/status":
            here = place(stub.log.stable)
            self._json(
                200,
                {"node": "stub-1", "state": "Joined", "stable": here, "log": here, "workers": [*stub.workers.values()]},
            )
        elif url.path == "/txlog/traces":
            found = {
                at: text for at, text in stub.traceparents.items() if int(query["after"]) < at <= int(query["upto"])
            }
            rows = [{"txid": f"stub-1.7.{at}", "index": at, "traceparent": text} for at, text in found.items()]
            self._json(200, {"transactions": rows})
        elif url.path == "/txlog/workers":
            self._json(200, list(stub.workers.values()))
        elif url.path.startswith("/health/"):
            self._json(200, {})
        else:
            self._json(404, {"error": "NotFound", "message": url.path})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.rpartition("/")[2]
        with self.stub.log.changed:
            worker = self.stub.workers.get(name)
            if worker is None:
                self._json(404, {"error": "NotFound", "message": name})
                return
            worker.update(position=body["position"], state=body["state"], error=body["error"], reportedAt=1.0)
            self.stub.reports.append((name, body))
            self.stub.log.changed.notify_all()
        self._json(200, {"hold": worker["hold"], "bulk": self.stub.bulk.get(name)})

    def _json(self, status: int, body: Any) -> None:
        self._answer(status, "application/json", json.dumps(body).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass
