"""Parsers of the values in a ``cluster.properties`` file; their ``ValueError`` contains what is expected instead."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from txlog.config.units import duration_within, parse_duration, parse_quantity, size_within
from txlog.model.ids import NODE_ID


def parse_node_id(value: str) -> str:
    """A node id, or the name of a data centre."""
    if not NODE_ID.fullmatch(value):
        raise ValueError("small letters, digits and hyphens (at most 63), such as uk-1")
    return value


def integer_parser(least: int, most: int) -> Callable[[str], int]:
    """A parser of whole numbers within these bounds."""

    def read(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(value)

    return read


def choice_parser(*words: str) -> Callable[[str], str]:
    """A parser of one of these words, in any case; returns the word as it is listed."""

    def read(value: str) -> str:
        found = next((word for word in words if word.lower() == value.lower()), None)
        if found is None:
            raise ValueError(f"{', '.join(words[:-1])} or {words[-1]}")
        return found

    return read


def parse_bool(value: str) -> bool:
    """``true`` or ``false``."""
    return choice_parser("true", "false")(value) == "true"


def duration_parser(least: str, most: str) -> Callable[[str], int]:
    """A parser of durations within these bounds, in milliseconds."""
    check = duration_within(least, most)
    return lambda value: check(parse_duration(value))


def parse_size(value: str) -> int:
    """Bytes, at least 64Mi; a unit is required."""
    return size_within("64Mi")(parse_quantity(value if not value.isdigit() else "without a unit"))


def parse_text(value: str) -> str:
    """The value as it is."""
    return value


def parse_listen_address(value: str) -> tuple[str, int]:
    """``HOST:PORT``; the host without brackets."""
    host, colon, port = value.rpartition(":")
    if not colon or not re.fullmatch(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+", host):
        raise ValueError("HOST:PORT, such as 0.0.0.0:7300")
    return host.strip("[]"), integer_parser(1, 65535)(port)


def list_parser(pattern: str, what: str) -> Callable[[str], list[str]]:
    """A parser of texts of this pattern, separated by spaces. ``what``: their kind and an example."""

    def read(value: str) -> list[str]:
        if not all(re.fullmatch(pattern, each) for each in value.split()):
            raise ValueError(what)
        return value.split()

    return read


def parse_networks(value: str) -> list[str]:
    """Networks in CIDR form, separated by spaces."""
    try:
        return [str(ipaddress.ip_network(each)) for each in value.split()]
    except ValueError:
        raise ValueError("networks with spaces between them, such as 10.1.0.0/16") from None


def parse_seconds(value: str) -> float:
    """A duration from 100ms to 10m, in seconds."""
    return duration_parser("100ms", "10m")(value) / 1000
