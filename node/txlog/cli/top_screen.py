"""The live view of a terminal, drawn from one snapshot for a given size. Pure: the terminal is that of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from txlog.cli.live_summary import (
    RateHistory,
    Severity,
    headline,
    is_outdated,
    severity_of_master,
    severity_of_worker,
)
from txlog.client.live_snapshot import LiveMaster, LiveSnapshot, LiveWorker

STYLES: Final = {Severity.GOOD: "green", Severity.WAIT: "cyan", Severity.WARN: "yellow", Severity.BAD: "bold red"}
SIGNS: Final = {Severity.GOOD: "●", Severity.WAIT: "◌", Severity.WARN: "▲", Severity.BAD: "✖"}
"""Not by colour alone."""
BARS: Final = " ▁▂▃▄▅▆▇█"
LAG_BAR_CELLS: Final = 10
FIXED_LINES: Final = 16
"""Lines that are neither masters nor workers nor duties: the head, the figures, the heads of tables, the keys."""
DUTY_LINES: Final = 3
"""The same of the duties: an empty line, the head of their table, and how many are not shown."""


class WorkerOrder(Enum):
    """How workers are sorted: by data centre and name, the one that is furthest behind first, or the worst first."""

    NAME = "name"
    LAG = "lag"
    STATE = "state"

    @property
    def following(self) -> WorkerOrder:
        """The order after this one; the first one after the last."""
        orders = list(WorkerOrder)
        return orders[(orders.index(self) + 1) % len(orders)]


class TopState(NamedTuple):
    """What is drawn. ``url``: the master that answered last; ``problem``: why it answers no more, empty while it does;
    ``age_s``: seconds since its last snapshot arrived."""

    live: LiveSnapshot | None
    history: RateHistory
    url: str
    problem: str
    age_s: float
    order: WorkerOrder


def draw(state: TopState, width: int, height: int, *, keys: bool = True) -> RenderableType:
    """The whole screen. ``keys``: with the line that names the keys."""
    live = state.live
    if live is None:
        return Group(Text("TxLog", style="bold"), Text(f"asking {state.url} …  {state.problem}", style="cyan"))
    duties = min(len(live.duties), 3)
    room = max(2, height - FIXED_LINES - (duties + DUTY_LINES if duties else 0))
    masters = min(len(live.masters), max(1, room // 2))
    workers = max(1, room - masters)
    parts: list[RenderableType] = [
        _head(live, width),
        _sentence(state),
        Text(""),
        _figures(state, width),
        Text(""),
        *_cut(_masters(state, live.masters[:masters], width), len(live.masters) - masters, "masters"),
        Text(""),
        *_worker_part(state, workers, width),
    ]
    if live.duties:
        parts += [Text(""), *_cut(_duties(live, duties), len(live.duties) - duties, "duties")]
    if keys:
        parts += [Rule(style="dim"), _keys(state.order)]
    return Group(*parts)


def _head(live: LiveSnapshot, width: int) -> RenderableType:
    left = Text.assemble(
        ("TxLog ", "bold"), (live.repository, "bold cyan"), f"  as {live.node} in {live.data_center} sees it"
    )
    view = live.view.number or "none"
    recovery = f" · {live.view.split_recovery}" if live.view.split_recovery and width >= 100 else ""
    return _line(left, Text(f"view {view}{recovery}", style="dim"))


def _sentence(state: TopState) -> RenderableType:
    assert state.live is not None
    if state.problem:
        text = f"{SIGNS[Severity.WAIT]} No answer: {state.problem}. What is shown is {state.age_s:.0f} s old."
        return Text(text, style=STYLES[Severity.WAIT])
    found = headline(state.live)
    return Text(f"{SIGNS[found.severity]} {found.text}", style=STYLES[found.severity])


def _figures(state: TopState, width: int) -> RenderableType:
    live = state.live
    assert live is not None
    now = live.at + state.age_s
    rate = sum(state.history.rates(now).values())
    log, queue, trim = live.log, live.queue, live.trim
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_row(
        _figure("log end", f"{log.end:,}"),
        _figure("stable", f"{log.stable:,}"),
        _figure("applied by all", f"{log.applied_all:,}"),
    )
    table.add_row(
        _figure("per second", format_rate(rate)),
        _figure("synced after", _milliseconds(live.latency_ms.synced)),
        _figure("applied after", _milliseconds(live.latency_ms.applied)),
    )
    table.add_row(
        _figure("waiting", f"{queue.transactions:,}"),
        _figure(
            "journal", f"{_mebibytes(trim.bytes)} of {_mebibytes(trim.bytes_max)}", "bold red" if trim.alarm else ""
        ),
        _figure("log kept from", f"{trim.kept_from:,}"),
    )
    cells = max(10, width - 14)
    return Group(table, Text.assemble(("last 3 min ", "dim"), (sparkline(state.history.totals(now, cells)), "green")))


def _masters(state: TopState, shown: Sequence[LiveMaster], width: int) -> Table:
    live = state.live
    assert live is not None
    rates = state.history.rates(live.at + state.age_s)
    counts = {origin.node: origin.transactions for origin in live.origins}
    table = _table("MASTER", "DATA CENTRE", "STATE", "RECEIVES FROM", right=("IN THE LOG", "PER S"))
    for master in shown:
        severity = severity_of_master(master)
        table.add_row(
            Text(f"{SIGNS[severity]} {master.node}", style=STYLES[severity]),
            Text(master.data_center),
            Text(_master_state(live, master), style=STYLES[severity]),
            _received(live, master),
            Text(f"{counts.get(master.node, 0):,}"),
            Text(format_rate(rates.get(master.node, 0.0))),
        )
    return table


def _master_state(live: LiveSnapshot, master: LiveMaster) -> str:
    if master.is_self:
        return live.state
    return "in the view" if master.present else "silent" if master.in_view else "out"


def _received(live: LiveSnapshot, master: LiveMaster) -> Text:
    """The other masters, each with whether its messages arrive."""
    text = Text(overflow="ellipsis", no_wrap=True)
    for other in live.masters:
        if other.node == master.node:
            continue
        arrives = live.receives(master.node, other.node)
        style = {True: "green", False: "bold red strike", None: "dim"}[arrives]
        text.append({True: "", False: "✖", None: "?"}[arrives] + other.node, style=style)
        text.append(" ")
    return text


def _worker_part(state: TopState, room: int, width: int) -> list[RenderableType]:
    live = state.live
    assert live is not None
    if not live.workers:
        return [Text("no workers", style="dim")]
    table = _table("WORKER", "DATA CENTRE", "ENGINE", "STATE", right=("INDEX", "BEHIND"))
    table.add_column("", no_wrap=True)
    lags = [live.lag_of(worker) or 0 for worker in live.workers]
    scale = max(100, *lags)
    for worker in sort_workers(live, state.order)[:room]:
        outdated = is_outdated(live, worker)
        severity = Severity.WAIT if outdated else severity_of_worker(live, worker)
        lag = live.lag_of(worker)
        table.add_row(
            Text(f"{SIGNS[severity]} {worker.name}", style=STYLES[severity]),
            Text(worker.data_center),
            Text(worker.engine),
            Text("last known" if outdated else _worker_state(worker), style=STYLES[severity]),
            Text("?" if worker.index is None else f"{worker.index:,}"),
            Text("?" if lag is None else f"{lag:,}"),
            _lag_bar(lag, scale, severity),
        )
    return _cut(table, len(live.workers) - room, "workers")


def _worker_state(worker: LiveWorker) -> str:
    state = "differs" if worker.differs is not None else worker.state
    return state if worker.hold is None else f"{state}, held at {worker.hold:,}"


def sort_workers(live: LiveSnapshot, order: WorkerOrder) -> list[LiveWorker]:
    """The workers in this order."""
    worst = [Severity.BAD, Severity.WARN, Severity.WAIT, Severity.GOOD]
    by_name = sorted(live.workers, key=lambda worker: (worker.data_center, worker.name))
    if order is WorkerOrder.LAG:
        return sorted(by_name, key=lambda worker: -(live.lag_of(worker) if worker.index is not None else 1 << 62))  # type: ignore[operator]
    if order is WorkerOrder.STATE:
        return sorted(by_name, key=lambda worker: worst.index(severity_of_worker(live, worker)))
    return by_name


def _duties(live: LiveSnapshot, shown: int) -> Table:
    table = _table("DUTY", "WORKER", "WHY")
    for duty in live.duties[:shown]:
        why = f"{duty.why} · {duty.error}" if duty.error else duty.why
        table.add_row(Text(duty.kind, style="yellow"), Text(duty.worker or "–"), Text(why))
    return table


def _keys(order: WorkerOrder) -> Text:
    text = Text()
    for key, meaning in (("q", "quit"), ("s", f"sort workers: {order.value}"), ("n", "next master")):
        text.append(f" {key} ", style="reverse")
        text.append(f" {meaning}   ")
    return text


def _table(*heads: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, no_wrap=True, overflow="ellipsis")
    for head in right:
        table.add_column(head, no_wrap=True, justify="right")
    return table


def _cut(table: Table, left_out: int, what: str) -> list[RenderableType]:
    return [table] if left_out <= 0 else [table, Text(f"and {left_out} more {what}", style="dim")]


def _line(left: Text, right: Text) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_column(no_wrap=True, justify="right")
    grid.add_row(left, right)
    return grid


def _figure(name: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, style or "bold"))


def _lag_bar(lag: int | None, scale: int, severity: Severity) -> Text:
    cells = 0 if lag is None else LAG_BAR_CELLS - round((LAG_BAR_CELLS - 1) * lag / scale)
    return Text.assemble(("█" * cells, STYLES[severity]), ("░" * (LAG_BAR_CELLS - cells), "dim"))


def sparkline(values: Sequence[float]) -> str:
    """One character per value, as high as its share of the largest one. A value above 0 is never shown as empty."""
    top = max(values, default=0.0)
    if top <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[0] if value <= 0 else BARS[max(1, round(8 * value / top))] for value in values)


def format_rate(value: float) -> str:
    """Per second, with one decimal below ten."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"


def _mebibytes(value: int) -> str:
    mebibytes = value / (1 << 20)
    return f"{mebibytes:.0f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"
