"""The links to the other masters: one connection to every peer, with the frames of :mod:`txlog.wire`
(:mod:`.frame_connection`).

A slow or dead peer delays no other peer. Messages that its connection does not take wait in a bounded queue, which
drops the oldest; the protocol repairs the loss. A message from a peer is accepted over any of its connections. This
master sends over the connection that it opened. While there is none, it sends over the connection that the peer opened.
"""

from __future__ import annotations

import asyncio
import hmac
import random
import ssl
import time
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from txlog.auth.tls import Certificates, describe_handshake_failure, describe_names, dns_names
from txlog.config.process_config import NodeConfig, PeerConfig
from txlog.http.aiohttp_server import HttpServer
from txlog.http.listener import Listener, listen
from txlog.http.name_resolver import resolve_name
from txlog.http.router import (
    ConnectionUpgraded,
    Request,
    Response,
    Route,
    Router,
    RouteTable,
    json_response,
    peer_fault_status,
)
from txlog.model.configuration import Configuration
from txlog.model.errors import PeerFault
from txlog.server.peers.frame_connection import (
    CLOSED_BEFORE_ANSWER,
    LEVEL_HEADER,
    UPGRADE,
    FrameConnection,
    UpgradeHandshake,
    parse_link_level,
)
from txlog.server.peers.peer_link import EnvelopeReceiver, MessageReceiver, PeerLink
from txlog.telemetry.event_log import EventLog
from txlog.wire.envelope import LEVEL_ENVELOPES

PEER_PATH = "/txlog/peer"
NODE_HEADER = "TxLog-Node"
RECONNECT_BACKOFF_S = (0.05, 2.0)
CONNECT_TIMEOUT_S = 3.0
HEARTBEAT_S = 5.0
"""Interval of the empty frame, in seconds; it is sent whatever other traffic there is."""
SILENCE_TIMEOUT_S = 15.0
"""Detects a connection that died silently. The core, not this module, decides whether a master is present."""
CLOSE_TIMEOUT_S = 0.5


async def listen_to_peers(config: NodeConfig, links: PeerLinks, certificates: Certificates, log: EventLog) -> Listener:
    """Opens the port for masters with certificates. It serves nothing else."""
    assert config.peer_port is not None, "peer_tls_folder comes with a port, the configuration says"
    server = HttpServer(Router(RouteTable(links.routes()), log), log)
    return await listen(server, config.host, config.peer_port, log, certificates, links.refuse_handshake)


def _describe_error(failed: Exception) -> str:
    if isinstance(failed, ssl.SSLError):
        name, what = describe_handshake_failure(failed)
        return f"{name}: {what}"
    return f"{type(failed).__name__}: {failed}"


class PeerLinks:
    """All peers of this master, and the path on which they connect. With ``certificates``, both ends must show one that
    names that peer; the token is needed as well. ``envelopes``: delivers messages of further logs; with it this master
    announces that it reads them."""

    def __init__(
        self,
        config: NodeConfig,
        token: bytes,
        log: EventLog,
        certificates: Certificates | None = None,
        envelopes: EnvelopeReceiver | None = None,
    ) -> None:
        self._envelopes = envelopes
        self._level_line = "" if envelopes is None else f"{LEVEL_HEADER}: {LEVEL_ENVELOPES}\r\n"
        self.links = {p.node: self._new_link(p) for p in config.peers if p.node != config.node}
        self.refused_counts: dict[tuple[str, str], int] = {}
        self._config = config
        self._token = token
        self._certificates = certificates
        self._log = log
        self._receiver: MessageReceiver | None = None
        self._message_bytes_max = 2 * (config.limits.frame_bytes + config.limits.body_bytes) + (16 << 20)
        self._is_closing = False
        self._added_tasks: dict[str, asyncio.Task[None]] = {}

    def _new_link(self, config: PeerConfig) -> PeerLink:
        return PeerLink(config, self._log_fault, self._envelopes)

    def send(self, peer: str, data: bytes) -> None:
        """Queues one message of the first log. Never blocks."""
        link = self.links.get(peer)
        if link is not None:
            link.send(data)

    def connected_peers(self) -> list[str]:
        """The peers that a message can be sent to now."""
        return [node for node, link in self.links.items() if link.connection is not None]

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", PEER_PATH, self.accept)]

    def tasks(self, loop: MessageReceiver) -> dict[str, Any]:
        """The tasks that run until the process ends, by name: one for each peer."""
        self._receiver = loop
        for link in self.links.values():
            link.receiver = loop
        # A peer that is added later gets its task from on_configuration().
        return {f"peer-{node}": self._keep_connected(link) for node, link in self.links.items()}

    def on_configuration(self, configuration: Configuration) -> None:
        """Follows the masters that the log names. A master that no manifest names is reached at its address from the
        log."""
        for master in configuration.masters:
            if master.node == self._config.node or master.node in self.links or not master.urls:
                continue
            config = PeerConfig(
                node=master.node, data_center=master.data_center, url=master.urls[0], weight=master.weight
            )
            link = self.links[master.node] = self._new_link(config)
            link.receiver = self._receiver
            name = f"peer-{master.node}"
            self._added_tasks[name] = asyncio.get_running_loop().create_task(self._keep_connected(link), name=name)

    # Outgoing

    async def _keep_connected(self, link: PeerLink) -> None:
        wait_s = RECONNECT_BACKOFF_S[0]
        while True:
            if self._is_closing:
                await asyncio.Event().wait()  # until this task is cancelled
            try:
                frames = await asyncio.wait_for(self._connect(link), CONNECT_TIMEOUT_S)
            except (OSError, TimeoutError, ValueError) as failed:
                text = _describe_error(failed)
                if text != link.last_error:
                    self._log.warning_rate_limited(
                        "PeerUnreachable", link.config.node, peer=link.config.node, error=text[:300]
                    )
                link.last_error = text
                await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))
                wait_s = min(2 * wait_s, RECONNECT_BACKOFF_S[1])
                continue
            began = time.monotonic()
            link.outgoing, link.last_error = frames, None
            link.flush()
            self._log.info("PeerConnected", peer=link.config.node)
            try:
                link.last_error = await self._run_heartbeat(frames)
            finally:
                link.outgoing = None
                frames.abort("this master lets go of it")
            if self._is_closing:
                continue
            self._log.warning_rate_limited(
                "PeerDisconnected", link.config.node, peer=link.config.node, error=link.last_error
            )
            if time.monotonic() - began > RECONNECT_BACKOFF_S[1]:
                wait_s = RECONNECT_BACKOFF_S[0]
            await asyncio.sleep(wait_s)

    async def _connect(self, link: PeerLink) -> FrameConnection:
        """Connects and requests the upgrade. ``OSError`` or ``ValueError`` (a wrong URL) if there is no connection."""
        url = urlsplit(link.config.url)
        secure = url.scheme == "https" or self._certificates is not None
        port = url.port or (443 if secure else 80)
        request = (
            f"GET {url.path.rstrip('/')}{PEER_PATH} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Connection: Upgrade\r\nUpgrade: {UPGRADE}\r\n"
            f"{NODE_HEADER}: {self._config.node}\r\nAuthorization: Bearer {self._token.decode()}\r\n"
            f"{self._level_line}\r\n"
        ).encode("ascii")
        frames, last = self._new_connection(link), OSError(f"{url.hostname} has no address")
        context = self._certificates.client_context if self._certificates is not None else None
        if secure and context is None:
            context = ssl.create_default_context()

        def judge(transport: asyncio.BaseTransport) -> str | None:
            shown = transport.get_extra_info("peercert")
            if self._certificates is None or link.node in dns_names(shown):
                return None
            return f"WrongCertificate: there is {describe_names(shown)} by its certificate, and no {link.node}"

        for _, address in await resolve_name(url.hostname or ""):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            try:
                transport, _ = await asyncio.get_running_loop().create_connection(
                    partial(UpgradeHandshake, request, frames, done, judge),
                    address,
                    port,
                    ssl=context,
                    server_hostname=url.hostname if secure else None,
                )
            except OSError as failed:
                last = failed
                continue
            try:
                await done
            except ConnectionError as failed:
                transport.abort()
                if self._certificates is not None and str(failed) == CLOSED_BEFORE_ANSWER:
                    raise ConnectionError(
                        f"{failed}; if it did not take this master's certificate, its log says why"
                    ) from None
                raise
            except BaseException:
                transport.abort()
                raise
            return frames
        raise last

    def _new_connection(self, link: PeerLink, under: asyncio.BaseProtocol | None = None) -> FrameConnection:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return FrameConnection(link.receive, link.flush, ended, self._message_bytes_max, under)

    async def _run_heartbeat(self, frames: FrameConnection) -> str:
        """Sends empty frames until the connection ends; returns the reason. It ends the connection when certificates
        are renewed, so that both masters check the current ones."""
        certificates = self._certificates
        while not frames.ended.done():
            await asyncio.wait((frames.ended,), timeout=HEARTBEAT_S)
            if time.monotonic() - frames.last_received > SILENCE_TIMEOUT_S:
                frames.abort(f"nothing arrived for {SILENCE_TIMEOUT_S:g} s")
            elif certificates is not None and not certificates.is_current(frames.ssl_context):
                frames.close("certificates were renewed")
            elif not frames.is_paused:
                frames.send(b"")
        return frames.ended.result()

    # Incoming

    async def accept(self, request: Request, _: Any) -> Response:
        """Accepts the connection that a peer opens."""
        if self._is_closing:
            return json_response({"error": "Unavailable", "reason": "Closing", "message": "stopping"}, 503)
        try:
            link = self._authenticated(request)
        except PeerFault as fault:
            self._count_refused(fault.peer, fault.reason)
            self._log.warning_rate_limited(fault.reason, fault.peer, peer=fault.peer, message=str(fault))
            if self._receiver is not None and fault.peer in self.links:
                self._receiver.count_fault(fault.peer, fault.reason)
            body = {"error": "PeerFault", "reason": fault.reason, "message": str(fault)}
            return json_response(body, peer_fault_status(fault))
        transport = request.transport
        if request.headers.get("Upgrade", "").lower() != UPGRADE or transport is None:
            body = {"error": "BadInput", "reason": "", "message": f"masters connect here with Upgrade: {UPGRADE}"}
            return json_response(body, 400)
        frames = self._new_connection(link, request.protocol)
        frames.link_level = parse_link_level(request.headers.get(LEVEL_HEADER, ""))
        transport.set_protocol(frames)
        frames.connection_made(transport)
        transport.write(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n"
            f"{self._level_line}\r\n".encode()
        )
        link.incoming = frames
        link.flush()
        try:
            await self._run_heartbeat(frames)
        finally:
            if link.incoming is frames:
                link.incoming = None
            frames.abort("this master lets go of it")
        return ConnectionUpgraded()

    def _authenticated(self, request: Request) -> PeerLink:
        node = request.headers.get(NODE_HEADER, "")[:80]
        if self._certificates is not None:
            transport = request.transport
            shown = transport.get_extra_info("peercert") if transport is not None else None
            if not shown:
                why = f"masters come to port {self._config.peer_port}, with a certificate; this one has peer_tls_folder"
                raise PeerFault(node or "?", "NoCertificate", why)
            if node not in dns_names(shown):
                why = f"its certificate names {describe_names(shown)}, and it says that it is {node or 'no master'}"
                raise PeerFault(node or "?", "WrongCertificate", why)
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), b"Bearer " + self._token):
            raise PeerFault(node or "?", "WrongToken", "its token is not this cluster's; see peer_token_file")
        link = self.links.get(node)
        if link is None:
            raise PeerFault(node or "?", "UnknownPeer", "it is no peer of this master's configuration")
        return link

    def refuse_handshake(self, reason: str, message: str) -> None:
        """Counts a handshake on the peers' port that failed. The caller is not known."""
        self._count_refused("?", reason)

    def _count_refused(self, peer: str, reason: str) -> None:
        self.refused_counts[peer, reason] = self.refused_counts.get((peer, reason), 0) + 1
        if len(self.refused_counts) > 1000:  # the names come from outside: bound the memory
            self.refused_counts.clear()

    def _log_fault(self, link: PeerLink, fault: PeerFault) -> None:
        self._log.warning_rate_limited(fault.reason, link.node, peer=link.node, message=str(fault)[:1000])

    # Reported state

    def describe(self) -> dict[str, Any]:
        """The body of ``GET /txlog/peers``."""
        peers = []
        for node, link in self.links.items():
            messages, size = link.queued
            peers.append(
                {
                    "node": node,
                    "dataCenter": link.config.data_center,
                    "url": link.config.url,
                    "weight": link.config.weight,
                    "connected": link.outgoing is not None and not link.outgoing.is_closed,
                    "accepted": link.incoming is not None and not link.incoming.is_closed,
                    "lastHeardAt": link.last_received_at,
                    "lastError": link.last_error,
                    "faults": link.faults,
                    "lastFault": link.last_fault,
                    "queue": {"messages": messages, "bytes": size},
                    "sent": {"messages": link.sent_messages, "bytes": link.sent_bytes, "dropped": link.dropped},
                }
            )
            if self._envelopes is not None:
                peers[-1]["furtherLogs"] = {"read": link.reads_envelopes, "droppedOlderProgram": link.dropped_older}
        refused = [{"node": n, "reason": r, "count": c} for (n, r), c in sorted(self.refused_counts.items())]
        return {"peers": peers, "refused": refused}

    async def close(self) -> None:
        """Closes every connection. Bytes that a connection does not take within :data:`CLOSE_TIMEOUT_S` are dropped."""
        self._is_closing = True
        for task in self._added_tasks.values():
            task.cancel()
        open_ones = [f for link in self.links.values() for f in (link.outgoing, link.incoming) if f is not None]
        for frames in open_ones:
            frames.close("this master stops")
        if open_ones:
            await asyncio.wait([frames.ended for frames in open_ones], timeout=CLOSE_TIMEOUT_S)
        for frames in open_ones:
            frames.abort("this master stops")
