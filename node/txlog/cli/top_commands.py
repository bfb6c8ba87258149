"""``txlog top``: the cluster at a terminal, live, as one master sees it."""

from __future__ import annotations

import sys
import threading
import time
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from txlog.cli.cli_cluster import CliCluster, find_cluster, require_urls
from txlog.cli.live_summary import RateHistory
from txlog.cli.options import ClusterOptions, register
from txlog.cli.tables import out, show_json
from txlog.cli.terminal_keys import TerminalKeys
from txlog.cli.top_screen import TopState, WorkerOrder, draw
from txlog.client.live_follower import LiveEvent, LiveFollower
from txlog.client.live_snapshot import LiveSnapshot
from txlog.model.errors import TxLogError

app = typer.Typer()
HISTORY_S: Final = 180.0
REDRAW_S: Final = 1.0
"""Between two drawings while nothing arrives: ages and rates change all the same."""
PLAIN_HEIGHT: Final = 200

OnceOption = Annotated[bool, typer.Option("--once", help="print one snapshot and end; so it is without a terminal")]


@register(app)
def top(once: OnceOption = False, *, cluster: ClusterOptions) -> None:
    """Show the cluster as it changes: masters, links, workers, rates and duties, as one master sees it. Keys: q quits,
    s sorts the workers in another way, n asks the next master."""
    found = CliCluster({"": require_urls(cluster.master)}, None) if cluster.master else find_cluster(cluster)
    show_top(found, once, cluster.json)


def show_top(cluster: CliCluster, once: bool, json: bool) -> None:
    """The live view of the first master that answers, until the key q. ``once``, ``json`` or an output that is no
    terminal: one snapshot."""
    if once or json or not sys.stdout.isatty():
        show_once(cluster, json)
    else:
        TopView(cluster).run()


def show_once(cluster: CliCluster, json: bool) -> None:
    """Print one snapshot. Raises the last error when no master answers."""
    for event in LiveFollower(cluster.masters, cluster.open_client):
        if event.snapshot is None:
            continue
        if json:
            show_json(event.snapshot)
            return
        history = RateHistory(HISTORY_S)
        history.add(event.snapshot)
        state = TopState(event.snapshot, history, event.url, "", 0.0, WorkerOrder.NAME)
        out.print(draw(state, out.width, PLAIN_HEIGHT, keys=False))
        return


class TopView:
    """The live view. One thread follows a master; the thread of :meth:`run` draws and reads keys."""

    def __init__(self, cluster: CliCluster) -> None:
        self._urls = list(cluster.masters)
        self._cluster = cluster
        self._history = RateHistory(HISTORY_S)
        self._order = WorkerOrder.NAME
        self._live: LiveSnapshot | None = None
        self._url, self._problem = self._urls[0], ""
        self._arrived_at = time.monotonic()
        self._error: TxLogError | None = None
        self._lock = threading.Lock()
        self._round = 0
        """Of the thread that follows now; the threads of earlier rounds end with their next line."""

    def run(self) -> None:
        """Draw until the key q or the end of the input. Raises what the follower raises."""
        console = Console()
        with TerminalKeys() as keys, Live(console=console, screen=True, auto_refresh=False, transient=True) as screen:
            self._follow(keys)
            while True:
                if self._error is not None:
                    raise self._error
                screen.update(draw(self._state(), console.width, console.height), refresh=True)
                pressed = keys.wait(REDRAW_S)
                if "q" in pressed or "\x04" in pressed:
                    return
                for _ in range(pressed.count("s")):
                    self._order = self._order.following
                if "n" in pressed:
                    self._urls = [*self._urls[1:], self._urls[0]]
                    self._follow(keys)

    def _state(self) -> TopState:
        with self._lock:
            age_s = time.monotonic() - self._arrived_at
            return TopState(self._live, self._history, self._url, self._problem, age_s, self._order)

    def _follow(self, keys: TerminalKeys) -> None:
        with self._lock:
            self._round += 1
            self._url = self._urls[0]
        threading.Thread(target=self._receive, args=(self._round, keys), daemon=True).start()

    def _receive(self, number: int, keys: TerminalKeys) -> None:
        try:
            for event in LiveFollower(self._urls, self._cluster.open_client):
                if not self._take(number, event):
                    return
                keys.wake()
        except TxLogError as error:
            if number == self._round:
                self._error = error
        keys.wake()

    def _take(self, number: int, event: LiveEvent) -> bool:
        """False when another thread follows by now."""
        with self._lock:
            if number != self._round:
                return False
            self._url = event.url
            if event.snapshot is not None:
                self._live, self._problem, self._arrived_at = event.snapshot, "", time.monotonic()
                self._history.add(event.snapshot)
            elif event.problem:
                self._problem = event.problem
            return True
