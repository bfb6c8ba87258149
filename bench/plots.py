"""``python -m bench.plots``: pictures for docs/performance.md from the figures beside them (``docs/figures/*.json``).

What ``make bench-peers`` and ``make bench-scale`` found last is in ``build/figures`` and is taken over first. A picture
has no script and fetches nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pygal
from pygal.style import Style

MEASURED_FOLDER: Final = Path("build/figures")
COMMITTED_FOLDER: Final = Path("docs/figures")
SYSTEM_TITLES: Final = {
    "txlog": "TxLog",
    "etcd": "etcd",
    "etcd_http": "etcd over HTTP",
    "galera": "Galera",
    "nats": "NATS",
}
CASE_TITLES: Final = {
    "c64_per_s": "64 clients",
    "c1024_per_s": "1,024 clients",
    "b100x1_per_s": "1 client, 100 in a request",
    "b100x64_per_s": "64 clients, 100 in a request",
}
STYLE: Final = Style(
    background="white",
    plot_background="white",
    font_family="sans-serif",
    label_font_size=11,
    legend_font_size=12,
    colors=("#b3261e", "#2c5aa0", "#7fa7d9", "#d9a400", "#4c9a63"),
)
CHART_OPTIONS: Final = {
    "style": STYLE,
    "js": [],
    "disable_xml_declaration": True,
    "no_prefix": True,
    "width": 760,
    "height": 380,
    "legend_at_bottom": True,
    "legend_at_bottom_columns": 5,
    "stroke_style": {"width": 2},
}


_REMARKS: Final = re.compile('<!--.*?-->|<script.*?</script>| xmlns:xlink="[^"]*"', re.DOTALL)
"""When and by what it was drawn, its settings for scripts that are not there, and a name that pygal declares where lxml
is installed: a picture changes with its figures alone."""


class CurvePlot(NamedTuple):
    """One picture of a curve: which figure, over what, and which model stands beside it."""

    of: str
    figure: str
    title: str
    model: str | None = None


CURVE_PLOTS: Final = (
    CurvePlot("masters", "cpu_us", "Masters: us of processor for a transaction, all together"),
    CurvePlot("centres", "p50_ms", "Data centres, 50 ms apart: synced, p50 ms", "model_p50_ms"),
    CurvePlot("latency", "p50_ms", "Round trip in ms between two sites: synced, p50 ms", "model_p50_ms"),
    CurvePlot("log", "p50_ms", "Entries in the log: synced with 64 clients, p50 ms"),
    CurvePlot("queue", "p50_ms", "Waiting for their order: accepted, p50 ms"),
    CurvePlot("behind", "level_s", "Entries that a master lacks when it starts: s until its log is level"),
    CurvePlot("payload", "p50_ms", "Bytes of a transaction: synced, p50 ms"),
    CurvePlot("workers", "p50_ms", "Workers of a data centre: executed by all, p50 ms", "model_p50_ms"),
)


def plot_competitors(figures: dict[str, Any]) -> dict[str, str]:
    """By name of the picture; a system that was not measured is left out."""
    systems = {name: said for name, said in SYSTEM_TITLES.items() if name in figures}
    many = pygal.Bar(title="Transactions a second, three nodes each, one run", **CHART_OPTIONS)
    many.x_labels = list(CASE_TITLES.values())
    alone = pygal.HorizontalBar(
        title="One client: p50 ms until it is acknowledged", **CHART_OPTIONS | {"print_values": True}
    )
    for name, said in systems.items():
        many.add(said, [figures[name].get(case) for case in CASE_TITLES])
        alone.add(said, [figures[name].get("c1_synced_p50_ms")])
    return {"peers-many": many.render(), "peers-one": alone.render()}


def plot_scaling(figures: dict[str, Any]) -> dict[str, str]:
    made = {}
    for curve in CURVE_PLOTS:
        points = [point for point in figures["points"] if point["of"] == curve.of]
        if not points:
            continue
        most, least = (pick(point[curve.figure] for point in points) for pick in (max, min))
        chart = pygal.Line(title=curve.title, logarithmic=least > 0 and most / least > 50, **CHART_OPTIONS)
        chart.x_labels = [f"{point['at']:,}" for point in points]
        chart.add("measured", [point[curve.figure] for point in points])
        if curve.model is not None:
            chart.add(
                "model", [point.get(curve.model) for point in points], stroke_style={"width": 2, "dasharray": "4, 4"}
            )
        made[f"scale-{curve.of}"] = chart.render()
    return made


PLOTTERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, str]]]] = {
    "bench-peers": plot_competitors,
    "bench-scale": plot_scaling,
}


def main() -> int:
    COMMITTED_FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTTERS.items():
        kept = COMMITTED_FOLDER / f"{name}.json"
        if (MEASURED_FOLDER / kept.name).exists():
            shutil.copyfile(MEASURED_FOLDER / kept.name, kept)
        if not kept.exists():
            print(f"{kept} is not there: run make {name} first", file=sys.stderr)
            return 1
        for picture, svg in draw(json.loads(kept.read_text())).items():
            (COMMITTED_FOLDER / f"{picture}.svg").write_text(_REMARKS.sub("", svg) + "\n")
            print(COMMITTED_FOLDER / f"{picture}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
