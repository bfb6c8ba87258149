"""The links between masters: a TCP proxy for each ordered pair, all in one process (``python -m
txlog.local.link_proxy``).

The connections that master A opens to B go through the proxy (A, B), so each byte belongs to one *direction*: what A
sends on it to A→B, what B answers to B→A. A direction can be slow (``delay_s``) or cut. With neither, a chunk that
is read is written at once, and nothing else is done to it.

- *Slow*: a chunk leaves ``delay_s`` after it came, in order. Up to ``QUEUE_BYTES`` are in transit.
- *Cut*: like a packet filter. Established connections stay. Their bytes and ends wait in this process and in the
  sockets' buffers, then the sender waits. They continue in order when the link heals, as with TCP's retransmission.
  A new connection needs both directions for its handshake. It is accepted, receives nothing, and is reset when the
  link heals, so that no data of a connection that the master has abandoned arrives late.
  (One difference: with one direction cut, TCP would also stall the other one, after a window, for want of
  acknowledgements. Here the other one continues.)

The supervisor sends commands over an inherited socket (``--control-fd``), a JSON object in each line. It always sends
the whole table, so a restarted proxy has the same faults. The proxy exits when the supervisor is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import sys
from collections import deque
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

import uvloop
from pydantic import BaseModel, ConfigDict

log = logging.getLogger("txlog.links")

QUEUE_BYTES: Final = 64 << 20
"""Bytes in transit in one direction of one connection; above it the sender waits. 50 ms of 10 Gbit/s."""
HELD_CONNECTIONS_MAX: Final = 1024
"""Connections that wait for a link to heal; more are reset at once."""
TIMER_SLACK_S: Final = 0.0005
"""uvloop's timers have a resolution of milliseconds."""

FULL, CUT, QUEUED = 1, 2, 4
"""Why a flow does not read: its sink is full, its direction is cut, or its queue is full."""


class LinkConfig(BaseModel):
    """The proxy of the connections that ``source`` opens to ``target``, on loopback ports."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source: str
    target: str
    listen_port: int
    target_port: int


class LinkDirection:
    """Bytes from one master to another, on all connections."""

    __slots__ = ("cut", "delay_s", "flows")

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.cut = False
        self.flows: set[StreamFlow] = set()

    def set_fault(self, delay_s: float, cut: bool) -> None:
        """Also affects bytes in transit."""
        self.delay_s, self.cut = delay_s, cut
        for flow in list(self.flows):
            flow.on_fault_changed()


class StreamFlow:
    """One direction of one connection: from ``source``'s socket to ``sink``'s."""

    __slots__ = (
        "block_reasons",
        "bytes_received",
        "direction",
        "ended",
        "passes_through",
        "queue",
        "queued_bytes",
        "sink",
        "source",
        "timer",
    )

    def __init__(self, direction: LinkDirection, source: ProxySocket, sink: ProxySocket) -> None:
        self.direction = direction
        self.source = source
        self.sink = sink
        self.queue: deque[tuple[float, bytes | None]] = deque()  # None: the end of the stream, or a reset
        self.queued_bytes = 0
        self.block_reasons = 0
        self.timer: asyncio.TimerHandle | None = None
        self.bytes_received = 0
        self.ended = False
        self.passes_through = not direction.cut and not direction.delay_s
        direction.flows.add(self)
        if direction.cut:
            self.block(CUT)

    def block(self, reason: int) -> None:
        """Stops reading for this reason (a bit of ``block_reasons``)."""
        if not self.block_reasons and self.source.open and not self.ended:
            self.source.transport.pause_reading()
        self.block_reasons |= reason

    def unblock(self, reason: int) -> None:
        """Removes this reason; reading continues when none is left."""
        before, self.block_reasons = self.block_reasons, self.block_reasons & ~reason
        if before and not self.block_reasons and self.source.open and not self.ended:
            self.source.transport.resume_reading()

    def receive(self, data: bytes) -> None:
        """Data from the source's socket."""
        self.bytes_received += len(data)
        if self.passes_through:
            self.sink.write(data)
        else:
            self._enqueue(data)

    def end(self) -> None:
        """The source's socket has ended or is lost; the sink receives that after all earlier data."""
        if self.ended:
            return
        self.ended = True
        if self.passes_through:
            self._deliver(None)
        else:
            self._enqueue(None)

    def _enqueue(self, data: bytes | None) -> None:
        self.queue.append((monotonic() + self.direction.delay_s, data))
        self.queued_bytes += len(data) if data else 0
        if self.queued_bytes > QUEUE_BYTES:
            self.block(QUEUED)
        self._schedule()

    def _schedule(self) -> None:
        if self.timer is None and self.queue and not self.direction.cut:
            wait = max(0.0, self.queue[0][0] - monotonic())
            self.timer = asyncio.get_running_loop().call_later(wait, self._release_due)

    def _release_due(self) -> None:
        self.timer = None
        now = monotonic() + TIMER_SLACK_S
        while self.queue and self.queue[0][0] <= now:
            _, data = self.queue.popleft()
            self.queued_bytes -= len(data) if data else 0
            self._deliver(data)
        if self.queued_bytes <= QUEUE_BYTES // 2:
            self.unblock(QUEUED)
        if not self.queue:
            self.passes_through = not self.direction.cut and not self.direction.delay_s
        self._schedule()

    def _deliver(self, data: bytes | None) -> None:
        if data is not None:
            self.sink.write(data)
        elif self.source.reset:
            self.sink.abort()
        else:
            self.sink.end()

    def on_fault_changed(self) -> None:
        """Applies the direction's new delay and cut, also to queued data."""
        cut, delay_s = self.direction.cut, self.direction.delay_s
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if cut:
            self.passes_through = False
            self.block(CUT)
            return
        if self.block_reasons & CUT:  # the delay of queued data starts now
            due = monotonic() + delay_s
            self.queue = deque((due, data) for _, data in self.queue)
        else:
            latest = monotonic() + delay_s
            self.queue = deque((min(due, latest), data) for due, data in self.queue)
        self.passes_through = not delay_s and not self.queue
        self.unblock(CUT)
        self._schedule()

    def drop(self) -> None:
        """The connection ends on both sides."""
        self.direction.flows.discard(self)
        if self.timer is not None:
            self.timer.cancel()
        self.queue.clear()
        self.passes_through = False


class ProxySocket(asyncio.Protocol):
    """One of the two sockets of a proxied connection."""

    def __init__(self, link: LinkProxy) -> None:
        self.link = link
        self.transport: asyncio.Transport
        self.open = False
        self.reset = False  # lost without an end of stream
        self.finished = False  # the proxy has closed its writing side
        self.outgoing: StreamFlow | None = None  # data from this socket
        self.incoming: StreamFlow | None = None  # data to this socket
        self.connecting: asyncio.Task[None] | None = None
        self.early_data: list[bytes] = []  # data from before the other socket existed; uvloop may read before it pauses
        self.early_end = False

    # -- events of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is open."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is none of asyncio's
        self.open = True
        self.transport.set_write_buffer_limits(high=1 << 20)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes for the flow; kept before it exists, discarded on a cut link."""
        if self.outgoing is not None:
            self.outgoing.receive(data)
        elif self not in self.link.held_sockets:
            self.early_data.append(data)

    def eof_received(self) -> bool:
        """asyncio: the end of the stream. Returns whether the socket stays open for writing."""
        if self.outgoing is not None:
            self.outgoing.end()
        elif self in self.link.held_sockets:
            return False  # too late: the link did not heal in time
        self.early_end = True
        return True

    def start_flows(self) -> None:
        """Both sockets and their flows exist."""
        assert self.outgoing is not None
        early, self.early_data = self.early_data, []
        for data in early:
            self.outgoing.receive(data)
        if self.early_end:
            self.outgoing.end()
        elif not self.outgoing.block_reasons and self.open:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """asyncio: the send buffer is full, so the other socket is not read."""
        if self.incoming is not None:
            self.incoming.block(FULL)

    def resume_writing(self) -> None:
        """asyncio: the send buffer has room again."""
        if self.incoming is not None:
            self.incoming.unblock(FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is closed. Without an end of its stream, the other socket is reset."""
        self.open = False
        if self.connecting is not None:
            self.connecting.cancel()
        if self.outgoing is None or self.incoming is None:
            self.link.held_sockets.discard(self)
            return
        if not (self.outgoing.ended and self.finished):
            self.reset = True
            self.outgoing.ended = False  # an end of stream alone would leave the other socket half open
            self.outgoing.end()
        self.incoming.unblock(FULL)  # later data for this socket is read and discarded
        if not self.outgoing.sink.open:
            self.outgoing.drop()
            self.incoming.drop()
            self.link.connections -= 1

    # -- calls of the flow

    def write(self, data: bytes) -> None:
        """Sends bytes; discards them when the socket is closed for writing."""
        if self.open and not self.finished:
            self.transport.write(data)

    def end(self) -> None:
        """No more data will be written; the socket is closed once both of its streams have ended."""
        if not self.open or self.finished:
            return
        self.finished = True
        if self.outgoing is not None and self.outgoing.ended and not self.outgoing.queue:
            self.transport.close()
        else:
            self.transport.write_eof()
        other = self.incoming.source if self.incoming else None
        if other is not None and other.finished and other.open:
            other.transport.close()

    def abort(self) -> None:
        """A reset, as the other end would see it."""
        if self.open:
            sock = self.transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


class AcceptedSocket(ProxySocket):
    """The socket of the master that opened the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: a master has connected."""
        super().connection_made(transport)
        self.link.on_accepted(self)


class LinkProxy:
    """The proxy of the connections that one master opens to another."""

    def __init__(self, config: LinkConfig, there: LinkDirection, back: LinkDirection) -> None:
        self.config = config
        self.forward = there
        self.backward = back
        self.held_sockets: set[ProxySocket] = set()
        self.connections = 0
        self.server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Accepts connections on the link's port. ``OSError`` when it is in use."""
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(
            lambda: AcceptedSocket(self), "127.0.0.1", self.config.listen_port, backlog=256, reuse_address=True
        )

    @property
    def is_cut(self) -> bool:
        """Whether a direction is cut, so that no handshake succeeds."""
        return self.forward.cut or self.backward.cut

    def on_accepted(self, side: AcceptedSocket) -> None:
        """Connects to the target, or lets the socket wait while the link is cut."""
        if self.is_cut:
            self._hold_socket(side)
            return
        side.transport.pause_reading()
        side.connecting = asyncio.get_running_loop().create_task(self._connect(side))

    def _hold_socket(self, side: ProxySocket) -> None:
        if len(self.held_sockets) >= HELD_CONNECTIONS_MAX:
            side.abort()
        else:
            self.held_sockets.add(side)

    async def _connect(self, side: AcceptedSocket) -> None:
        round_trip = self.forward.delay_s + self.backward.delay_s
        if round_trip:
            await asyncio.sleep(round_trip)
        if self.is_cut:
            side.connecting = None
            self._hold_socket(side)
            if side.early_end:
                side.abort()
            elif side.open:
                side.transport.resume_reading()
            return
        far = ProxySocket(self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, "127.0.0.1", self.config.target_port)
        except OSError:
            side.connecting = None
            side.abort()
            return
        side.connecting = None
        if not side.open:
            far.abort()
            return
        self.connections += 1
        far.transport.pause_reading()
        for each, other, direction in ((side, far, self.forward), (far, side, self.backward)):
            flow = StreamFlow(direction, each, other)
            each.outgoing, other.incoming = flow, flow
        for each in (side, far):
            each.start_flows()

    def on_fault_changed(self) -> None:
        """Resets the connections that waited for the link, once it has healed."""
        if not self.is_cut:
            for side in list(self.held_sockets):
                side.abort()


class LinkProxySet:
    """All links, and the table of their faults."""

    def __init__(self, configs: list[LinkConfig]) -> None:
        self.directions: dict[tuple[str, str], LinkDirection] = {}
        for config in configs:
            self.directions.setdefault((config.source, config.target), LinkDirection())
            self.directions.setdefault((config.target, config.source), LinkDirection())
        self.links = [
            LinkProxy(c, self.directions[c.source, c.target], self.directions[c.target, c.source]) for c in configs
        ]

    async def listen(self) -> None:
        """Accepts connections on all links."""
        for link in self.links:
            await link.listen()

    def set_faults(self, table: list[dict[str, Any]]) -> None:
        """``[{"from","to","delayMs","cut"}]``; a direction that is not in the table has no fault."""
        wanted = {(row["from"], row["to"]): row for row in table}
        for pair, direction in self.directions.items():
            row = wanted.get(pair, {})
            delay_s, cut = float(row.get("delayMs", 0)) / 1000, bool(row.get("cut", False))
            if (delay_s, cut) != (direction.delay_s, direction.cut):
                direction.set_fault(delay_s, cut)
        for link in self.links:
            link.on_fault_changed()

    def counts(self) -> list[dict[str, Any]]:
        """The number of open connections of each link: ``from``, ``to``, ``connections``."""
        return [
            {"from": link.config.source, "to": link.config.target, "connections": link.connections}
            for link in self.links
        ]


async def serve(configs: list[LinkConfig], control: socket.socket) -> None:
    """Runs until the other end of ``control`` closes."""
    links = LinkProxySet(configs)
    reader, writer = await asyncio.open_connection(sock=control)
    await links.listen()
    while line := await reader.readline():
        request = json.loads(line)
        if "table" in request:
            links.set_faults(request["table"])
        answer = {"id": request.get("id"), "links": links.counts()}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


def main(arguments: list[str] | None = None) -> int:
    """Runs the proxies of the links that ``--config`` lists. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.local.link_proxy", description="links between local masters")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    configs = [LinkConfig.model_validate(row) for row in json.loads(options.config.read_text())]
    control = socket.socket(fileno=options.control_fd)
    os.set_inheritable(options.control_fd, False)
    try:
        with contextlib.suppress(KeyboardInterrupt, ConnectionError):
            uvloop.run(serve(configs, control))
    except OSError as error:
        log.error("the links cannot listen: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
