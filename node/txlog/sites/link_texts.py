"""What reports of links, and answers to switches and orders, mean: for the command lines. Pure; needs Python's own
library alone, so that the kubectl plugin can be one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Link = Mapping[str, Any]
"""The last report of a link, as ``GET /txlog/sites`` has it."""


def newest_links(links: Iterable[Link]) -> list[dict[str, Any]]:
    """Of several masters' reports, the newest one of each link."""
    found: dict[tuple[str, str], Link] = {}
    for each in links:
        name = each["site"], each["other"]
        if name not in found or each["reportedSecondsAgo"] < found[name]["reportedSecondsAgo"]:
            found[name] = each
    return [dict(found[name]) for name in sorted(found)]


def has_followed(link: Link | None, is_offline: bool) -> bool:
    """Whether a link is as its own site wants it. ``link``: its last report."""
    if link is None:
        return False
    return bool(link["state"] == "Offline" if is_offline else link.get("offlineBy", "") != link["site"])


def has_state(link: Link | None, made: Mapping[str, Any]) -> bool:
    """Whether this site has taken the state since the order ``made``."""
    at = made.get("takeAt", 0)
    return link is not None and link["state"] == "Online" and bool(at) and link.get("anchor", 0) > at


def describe_switch(made: Mapping[str, Any], link: Link | None) -> str:
    """What a switch has led to, for a person. ``made``: the answer to it."""
    place = "not in the log yet" if made["index"] is None else f"entry {made['index']}"
    state = "not reported" if link is None else link["state"]
    by = f", taken offline by {link['offlineBy']}" if link is not None and link.get("offlineBy") else ""
    return f"{made['site']} is switched {'offline' if made['offline'] else 'online'} ({place}); the link is {state}{by}"


def describe_order(made: Mapping[str, Any], link: Link | None) -> str:
    """What an order has led to, for a person. ``made``: the answer to it."""
    state = "not reported" if link is None else link["state"]
    if made.get("index", 0) is None:
        return f"the order is not in the log yet; the link from {made['site']} is {state}"
    if not made["takeAt"]:
        return f"the state of {made['site']} is not taken any more; the link is {state}"
    keys = f", {link['transferred']} of {link['transferKeys']} keys" if link and link.get("transferKeys") else ""
    return f"the state of {made['site']} is taken (entry {made['takeAt']}); the link is {state}{keys}"


def remark_of(link: Link) -> str:
    """What is wrong with a link, or who has taken it offline; empty for most."""
    return str(link["error"] or (f"taken offline by {link['offlineBy']}" if link.get("offlineBy") else ""))
