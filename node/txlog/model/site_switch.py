"""Switches of the links with other sites, stored as the names of entries that workers skip.

A name contains the whole switch: ``site <unique> <site> <offline|online> <operator|manifest>``. No transaction is
called like this, so every version passes over the entry. Of several switches of one site the last one in the log
counts. Beside it, the last order counts: ``site <unique> <site> <take|keep> operator``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

KEY_PREFIX: Final = "site "
SITE_NAME: Final = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""Of a site: a label of a DNS name."""
_WORDS: Final = {"offline": True, "online": False}
_ORDERS: Final = {"take": True, "keep": False}


class SwitchOrigin(StrEnum):
    """``operator``: a command. ``manifest``: a value of the manifest that has changed."""

    OPERATOR = "operator"
    MANIFEST = "manifest"


class SiteSwitch(NamedTuple):
    """Takes the link with ``site`` offline, or brings it online."""

    site: str
    is_offline: bool
    origin: SwitchOrigin


class StateOrder(NamedTuple):
    """Lets this cluster take the state of ``site``; ``takes`` False: it no longer does."""

    site: str
    takes: bool


class SwitchState(NamedTuple):
    """What the switches of one site have left. ``manifest_offline``: the value of the manifest that counted last.
    ``at``: the entry of the last switch. ``take_at``: that of the order to take its state, 0: there is none, or it was
    taken back."""

    is_offline: bool
    manifest_offline: bool
    at: int
    take_at: int = 0


NO_SWITCH: Final = SwitchState(False, False, 0)


def encode_site_switch(switch: SiteSwitch, unique: str) -> str:
    """The name of an entry that is this switch. ``unique`` has no space: the same switch may be made again."""
    assert re.fullmatch(SITE_NAME, switch.site), switch.site
    word = next(each for each, is_offline in _WORDS.items() if is_offline is switch.is_offline)
    return f"{KEY_PREFIX}{unique} {switch.site} {word} {switch.origin}"


def decode_site_switch(key: str) -> SiteSwitch | None:
    """The switch; None for any other name, and for a switch of a newer version."""
    if not key.startswith(KEY_PREFIX):
        return None
    try:
        _, _, site, word, origin = key.split(" ")
        return SiteSwitch(site, _WORDS[word], SwitchOrigin(origin))
    except (ValueError, KeyError):
        return None


def encode_state_order(order: StateOrder, unique: str) -> str:
    """The name of an entry that is this order, as of :func:`encode_site_switch`."""
    assert re.fullmatch(SITE_NAME, order.site), order.site
    word = next(each for each, takes in _ORDERS.items() if takes is order.takes)
    return f"{KEY_PREFIX}{unique} {order.site} {word} {SwitchOrigin.OPERATOR}"


def decode_state_order(key: str) -> StateOrder | None:
    """The order; None for any other name."""
    if not key.startswith(KEY_PREFIX):
        return None
    try:
        _, _, site, word, _ = key.split(" ")
        return StateOrder(site, _ORDERS[word])
    except (ValueError, KeyError):
        return None


def apply_site_switches(rows: Iterable[tuple[int, str]]) -> dict[str, SwitchState]:
    """The state of each site after these entries. ``rows``: index and name of entries that workers skip."""
    found: dict[str, SwitchState] = {}
    for index, key in sorted(rows):
        order = decode_state_order(key)
        if order is not None:
            before = found.get(order.site, NO_SWITCH)
            found[order.site] = before._replace(take_at=index if order.takes else 0)
        switch = decode_site_switch(key)
        if switch is None:
            continue
        before = found.get(switch.site, NO_SWITCH)
        manifest = before.manifest_offline
        if switch.origin is SwitchOrigin.MANIFEST:
            manifest = switch.is_offline
        found[switch.site] = SwitchState(switch.is_offline, manifest, index, before.take_at)
    return found
