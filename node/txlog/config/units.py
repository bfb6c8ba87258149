"""Values of a manifest that are written as text: durations (``500ms``, ``60s``, ``7d``) and quantities (``20Gi``).

In Python a :data:`Duration` is a number of milliseconds and a :data:`Quantity` a number of bytes. Both are written
back, and described in a schema, as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PlainSerializer, StringConstraints, WithJsonSchema

DURATION_PATTERN = r"^(0|[0-9]+(ms|s|m|h|d|w))$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
CPU_PATTERN = r"^[0-9]+(\.[0-9]+)?m?$"

_DURATION_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_QUANTITY_UNITS: dict[str, int] = {"": 1} | {
    unit: int(factor**power)
    for factor, names in ((1000, ("k", "M", "G", "T", "P")), (1024, ("Ki", "Mi", "Gi", "Ti", "Pi")))
    for power, unit in enumerate(names, start=1)
}
_DURATION = re.compile(r"^([0-9]{1,12})(ms|s|m|h|d|w)$")
_QUANTITY = re.compile(r"^([0-9]{1,18})(?:\.([0-9]{1,9}))?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")


def parse_duration(value: object) -> int:
    """``60s`` to milliseconds. A bare number has no unit and is refused, 0 excepted.

    ``ValueError`` contains the expected notation.
    """
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if text == "0":
        return 0
    found = _DURATION.match(text)
    if found is None:
        raise ValueError("a duration: a whole number and one of ms, s, m, h, d, w, such as 500ms, 60s or 7d")
    return int(found[1]) * _DURATION_UNITS[found[2]]


def format_duration(milliseconds: int) -> str:
    """The shortest text of a duration: 60000 is ``1m``."""
    if milliseconds == 0:
        return "0"
    return next(f"{milliseconds // size}{unit}" for unit, size in _DURATION_UNITS.items() if milliseconds % size == 0)


def parse_quantity(value: object) -> int:
    """``20Gi`` to bytes, as Kubernetes writes sizes (``Gi`` = 2**30, ``G`` = 10**9)."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    found = _QUANTITY.match(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("a size: a number and one of Ki, Mi, Gi, Ti, k, M, G, T, such as 512Mi or 20Gi")
    unit = _QUANTITY_UNITS[found[3] or ""]
    fraction = found[2] or ""
    return int(found[1]) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def format_quantity(size: int) -> str:
    """The shortest exact text of a size: 21474836480 is ``20Gi``."""
    for unit, factor in sorted(_QUANTITY_UNITS.items(), key=lambda each: -each[1]):
        if size and size % factor == 0 and (unit.endswith("i") or not unit):
            return f"{size // factor}{unit}"
    return str(size)


def duration_within(least: str, most: str) -> Callable[[int], int]:
    """A validator of a duration; the bounds are text."""
    low, high = parse_duration(least), parse_duration(most)

    def check(milliseconds: int) -> int:
        if not low <= milliseconds <= high:
            raise ValueError(f"a duration from {least} to {most}")
        return milliseconds

    return check


def size_within(least: str, most: str | None = None) -> Callable[[int], int]:
    """A validator of a size; the bounds are text."""
    low, high = parse_quantity(least), parse_quantity(most) if most else None

    def check(size: int) -> int:
        if size < low:
            raise ValueError(f"a size of at least {least}")
        if high is not None and size > high:
            raise ValueError(f"a size of at most {most}")
        return size

    return check


def _validate_resource_quantity(value: Any) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not re.match(r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$", text):
        raise ValueError("a quantity of Kubernetes, such as 2, 500m or 1Gi")
    return text


Engine = Literal["oxigraph", "fuseki", "rdf4j", "virtuoso", "rdf4j-as-written"]
"""Engines of stores that can be workers (:mod:`txlog.workers`)."""
AS_WRITTEN: Final = "rdf4j-as-written"
"""An RDF4J server that holds literals as they were sent, with language tags in lower case. All workers of a cluster
have this engine, or none. It is also the value of ``TxLog-Literals`` there."""
STANDALONE_ENGINES: Final = ("virtuoso", AS_WRITTEN)
"""Engines that no other engine may stand beside."""


def can_keep_literals(engines: Iterable[str], *, mixed: bool) -> bool:
    """Whether stores of these engines, at least one, can all hold literals as they are sent. ``mixed``: an engine that
    cannot is allowed beside them."""
    return {server_of_engine(engine) for engine in engines} == {server_of_engine(AS_WRITTEN)} and not mixed


def server_of_engine(engine: str) -> str:
    """The engine whose server program a worker of this engine runs."""
    return engine.removesuffix("-as-written")


Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]
"""Milliseconds."""

Quantity = Annotated[
    int,
    BeforeValidator(parse_quantity),
    PlainSerializer(format_quantity, return_type=str),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN}),
]
"""Bytes."""

ResourceQuantity = Annotated[
    str, BeforeValidator(_validate_resource_quantity), WithJsonSchema({"x-kubernetes-int-or-string": True})
]
"""A share of a machine, kept as it was written: TxLog hands it to Kubernetes unread."""

CpuQuantity = Annotated[
    str,
    StringConstraints(pattern=CPU_PATTERN),
    BeforeValidator(_validate_resource_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": CPU_PATTERN}),
]
"""So many, or thousandths of one (``250m``), kept as it was written."""
