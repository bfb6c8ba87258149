"""Reports that one master received are passed on to the other masters, as notices of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from txlog.runtime.master_context import MasterContext
from txlog.wire import messages as wire


class ReportNotices:
    """Sends a notice to all other masters soon after a report, and every ``interval_s`` seconds: a notice may be lost,
    and a master that has started knows none. ``delay_s``: how long reports are collected. ``build``: makes the notice;
    None while there is none to send. ``send(peer, message)`` sends a message to another master."""

    def __init__(
        self,
        site: MasterContext,
        send: Callable[[str, bytes], None],
        topic: str,
        interval_s: float,
        delay_s: float,
        build: Callable[[], Any],
    ) -> None:
        self._context = site
        self._send = send
        self._topic = topic
        self._interval_s = interval_s
        self._delay_s = delay_s
        self._build = build
        self._due = asyncio.Event()

    def send_soon(self) -> None:
        """A report has come."""
        self._due.set()

    def is_for_cluster(self, data_center: str) -> bool:
        """Whether a notice about this data centre belongs to this cluster: one of its masters is there."""
        return data_center in {name for _, name in self._context.masters}

    async def run(self) -> None:
        """Sends until it is cancelled."""
        while True:
            self._due.clear()
            notice = self._build()
            if notice is not None:
                message = wire.encode(wire.Notice(self._topic, msgspec.json.encode(notice)))
                for node in self._context.other_nodes:
                    self._send(node, message)
            try:
                await asyncio.wait_for(self._due.wait(), self._interval_s)
                await asyncio.sleep(self._delay_s)
            except TimeoutError:
                pass
