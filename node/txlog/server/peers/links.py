"""WebSockets between masters: one to every other, binary frames of :mod:`txlog.wire`.

Each link has its own sender, so that a slow or dead peer delays nobody else, and a bounded queue that forgets its
oldest messages: the protocol repairs what is lost. What a peer sends counts whichever socket it comes over; messages
leave over the socket that this master opened, or, while there is none, over the one that the peer opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import random
import time
from collections import deque
from typing import Any, Protocol

from aiohttp import ClientError, ClientSession, ClientTimeout, ClientWebSocketResponse, WSMsgType, web
from aiohttp.http_websocket import WebSocketError

from txlog.config.process import NodeConfig, PeerConfig
from txlog.model.errors import PeerFault
from txlog.runtime.events import EventLog
from txlog.runtime.web import Request, Response, Route, json_answer, peer_fault_status

PATH = "/txlog/peer"
NODE_HEADER = "TxLog-Node"
QUEUE_BYTES_MAX = 32 << 20
"""Waiting for one peer's socket: eight full frames; more only delays what is newer."""
QUEUE_MESSAGES_MAX = 256
QUEUE_UNCONNECTED_MAX = 8
"""Messages kept for a peer without a socket: a post is worth little when it is old."""
BACK_OFF_S = (0.05, 2.0)
CONNECT_S = 3.0
HEARTBEAT_S = 10.0
"""Finds a connection that died without a word. Whether a master is present is the core's business, not this."""
CLOSE_S = 0.5


class Receiver(Protocol):
    """Who takes what peers send: the loop, or the repair of a damaged journal before there is one."""

    def receive(self, peer: str, data: bytes) -> None:
        """One message; raises ``PeerFault`` when it is refused."""

    def count_fault(self, peer: str, reason: str) -> None: ...


_Socket = ClientWebSocketResponse | web.WebSocketResponse


class Link:
    """One peer. ``dropped`` counts messages forgotten because the queue was full."""

    def __init__(self, config: PeerConfig) -> None:
        self.config = config
        self.outgoing: ClientWebSocketResponse | None = None
        self.incoming: web.WebSocketResponse | None = None
        self.last_error: str | None = None
        self.last_heard: float | None = None
        self.sent_messages = 0
        self.sent_bytes = 0
        self.dropped = 0
        self.faults = 0
        self.last_fault: str | None = None
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._filled = asyncio.Event()

    @property
    def socket(self) -> _Socket | None:
        for one in (self.outgoing, self.incoming):
            if one is not None and not one.closed:
                return one
        return None

    def put(self, data: bytes) -> None:
        """Queue a message. Never blocks."""
        self._queue.append(data)
        self._queue_bytes += len(data)
        most = QUEUE_MESSAGES_MAX if self.socket is not None else QUEUE_UNCONNECTED_MAX
        while len(self._queue) > 1 and (len(self._queue) > most or self._queue_bytes > QUEUE_BYTES_MAX):
            self._queue_bytes -= len(self._queue.popleft())
            self.dropped += 1
        self._filled.set()

    def connected(self) -> None:
        """A socket is there: look at the queue."""
        self._filled.set()

    async def send_for_ever(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._queue and (socket := self.socket) is not None:
                data = self._queue.popleft()
                self._queue_bytes -= len(data)
                try:
                    await socket.send_bytes(data)
                except (ConnectionError, ClientError, RuntimeError) as gone:
                    self.dropped += 1
                    self.last_error = f"{type(gone).__name__}: {gone}"
                    with contextlib.suppress(Exception):
                        await asyncio.wait_for(socket.close(), CLOSE_S)
                    continue
                self.sent_messages += 1
                self.sent_bytes += len(data)

    @property
    def queued(self) -> tuple[int, int]:
        """Messages and bytes that wait."""
        return len(self._queue), self._queue_bytes


class Ears(Protocol):
    """Who hears what peers say: the loop, or a journal's repair."""

    def receive(self, peer: str, data: bytes) -> None: ...
    def count_fault(self, peer: str, reason: str) -> None: ...


class Links:
    """All peers of this master, and the door through which they come."""

    def __init__(self, config: NodeConfig, token: bytes, log: EventLog) -> None:
        self.links = {p.node: Link(p) for p in config.peers if p.node != config.node}
        self.refused: dict[tuple[str, str], int] = {}
        self._config = config
        self._token = token
        self._log = log
        self._loop: Ears | None = None
        self._session: ClientSession | None = None
        self._message_bytes_max = 2 * (config.limits.frame_bytes + config.limits.body_bytes) + (16 << 20)
        self._closing = False

    def send(self, peer: str, data: bytes) -> None:
        """Queue one message of the core. Never blocks."""
        link = self.links.get(peer)
        if link is not None:
            link.put(data)

    def routes(self) -> list[Route]:
        return [Route("GET", PATH, self.accept)]

    def tasks(self, loop: Ears) -> dict[str, Any]:
        """What runs for ever, by name: two tasks for each peer."""
        self._loop = loop
        running: dict[str, Any] = {}
        for node, link in self.links.items():
            running[f"peer-sender-{node}"] = link.send_for_ever()
            running[f"peer-connector-{node}"] = self._connect_for_ever(link)
        return running

    # Outwards

    async def _connect_for_ever(self, link: Link) -> None:
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_S), trust_env=False)
        wait_s = BACK_OFF_S[0]
        while True:
            if self._closing:
                await asyncio.Event().wait()  # until this task is cancelled
            try:
                socket = await asyncio.wait_for(self._open(link), CONNECT_S)
            except (ClientError, OSError, TimeoutError, ValueError, RuntimeError) as failed:
                text = f"{type(failed).__name__}: {failed}"
                if text != link.last_error:
                    self._log.limited("PeerUnreachable", link.config.node, peer=link.config.node, error=text[:300])
                link.last_error = text
                await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))
                wait_s = min(2 * wait_s, BACK_OFF_S[1])
                continue
            began = time.monotonic()
            link.outgoing, link.last_error = socket, None
            link.connected()
            self._log.info("PeerConnected", peer=link.config.node)
            try:
                await self._read(link, socket)
            finally:
                link.outgoing = None
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(socket.close(), CLOSE_S)
            link.last_error = "the connection ended"
            if self._closing:
                continue
            self._log.limited("PeerDisconnected", link.config.node, peer=link.config.node)
            if time.monotonic() - began > BACK_OFF_S[1]:
                wait_s = BACK_OFF_S[0]
            await asyncio.sleep(wait_s)

    async def _open(self, link: Link) -> ClientWebSocketResponse:
        assert self._session is not None
        return await self._session.ws_connect(
            link.config.url.rstrip("/") + PATH,
            headers={NODE_HEADER: self._config.node, "Authorization": f"Bearer {self._token.decode()}"},
            heartbeat=HEARTBEAT_S,
            compress=0,
            max_msg_size=self._message_bytes_max,
        )

    # Inwards

    async def accept(self, request: Request, _: Any) -> Response:
        """A peer opens its socket."""
        if self._closing:
            return json_answer({"error": "Unavailable", "reason": "Closing", "message": "stopping"}, 503)
        try:
            link = self._authenticated(request)
        except PeerFault as fault:
            self.refused[fault.peer, fault.reason] = self.refused.get((fault.peer, fault.reason), 0) + 1
            if len(self.refused) > 1000:  # names come from outside
                self.refused.clear()
            self._log.limited(fault.reason, fault.peer, peer=fault.peer, message=str(fault))
            if self._loop is not None and fault.peer in self.links:
                self._loop.count_fault(fault.peer, fault.reason)
            body = {"error": "PeerFault", "reason": fault.reason, "message": str(fault)}
            return json_answer(body, peer_fault_status(fault))
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, compress=False, max_msg_size=self._message_bytes_max)
        if not socket.can_prepare(request).ok:
            body = {"error": "BadInput", "reason": "", "message": "masters connect here with a WebSocket"}
            return json_answer(body, 400)
        await socket.prepare(request)
        link.incoming = socket
        link.connected()
        try:
            await self._read(link, socket)
        finally:
            if link.incoming is socket:
                link.incoming = None
        return socket

    def _authenticated(self, request: Request) -> Link:
        node = request.headers.get(NODE_HEADER, "")[:80]
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), b"Bearer " + self._token):
            raise PeerFault(node or "?", "WrongToken", "its token is not this cluster's; see peer_token_file")
        link = self.links.get(node)
        if link is None:
            raise PeerFault(node or "?", "UnknownPeer", "it is no peer of this master's configuration")
        return link

    async def _read(self, link: Link, socket: _Socket) -> None:
        loop, node = self._loop, link.config.node
        assert loop is not None
        receive = socket.receive
        while True:
            try:
                message = await receive()
            except (WebSocketError, ClientError, ConnectionError, RuntimeError) as broken:
                link.last_error = f"{type(broken).__name__}: {broken}"
                return
            if message.type is not WSMsgType.BINARY:
                if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
                    return
                continue
            link.last_heard = time.time()
            try:
                loop.receive(node, message.data)
            except PeerFault as fault:
                link.faults += 1
                link.last_fault = str(fault)[:500]
                self._log.limited(fault.reason, node, peer=node, message=str(fault)[:1000])

    # What it shows

    def view(self) -> dict[str, Any]:
        """``GET /txlog/peers``."""
        peers = []
        for node, link in self.links.items():
            messages, size = link.queued
            peers.append(
                {
                    "node": node,
                    "dataCenter": link.config.data_center,
                    "url": link.config.url,
                    "weight": link.config.weight,
                    "connected": link.outgoing is not None and not link.outgoing.closed,
                    "accepted": link.incoming is not None and not link.incoming.closed,
                    "lastHeardAt": link.last_heard,
                    "lastError": link.last_error,
                    "faults": link.faults,
                    "lastFault": link.last_fault,
                    "queue": {"messages": messages, "bytes": size},
                    "sent": {"messages": link.sent_messages, "bytes": link.sent_bytes, "dropped": link.dropped},
                }
            )
        refused = [{"node": n, "reason": r, "count": c} for (n, r), c in sorted(self.refused.items())]
        return {"peers": peers, "refused": refused}

    async def close(self) -> None:
        """Say good-bye on every socket; whoever does not answer is left after :data:`CLOSE_S`."""
        self._closing = True
        sockets = [s for link in self.links.values() for s in (link.outgoing, link.incoming) if s is not None]
        closing = [asyncio.ensure_future(s.close()) for s in sockets]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_S)
            for one in closing:
                one.cancel()
        if self._session is not None:
            await self._session.close()
