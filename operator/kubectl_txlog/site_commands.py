"""``kubectl txlog site``: links with other sites, asked and switched at the masters. Needs Python's own library alone,
so that the plugin can be one file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

from kubectl_txlog.command_line import Argument, Group, Option, Tree, confirm, print_answer
from kubectl_txlog.master_access import MasterProxies, SiteAccess, first_answer
from kubectl_txlog.options import ChosenCluster, NamedCluster, YesOption
from txlog.model.errors import NotFound, TxLogError, Unavailable
from txlog.sites.link_texts import (
    describe_order,
    describe_switch,
    has_followed,
    has_state,
    newest_links,
    remark_of,
)

SITES_PATH: Final = "/txlog/sites"
POLL_INTERVAL_S: Final = 0.5
LINK_WAIT_S: Final = 60.0
STATE_WAIT_S: Final = 3600.0
CHANGE_TIMEOUT_S: Final = 60.0
"""A switch and an order are answered when they are stable."""

SiteArgument = Annotated[str, Argument("the name of the other site, as spec.sites lists it", "SITE")]
LinkWaitOption = Annotated[float, Option("seconds until the link must have followed", min=0)]


def status(on: NamedCluster) -> None:
    """Show each link with another site: its state, how far it is, and what waits. Exit code 1 where one does not
    import."""
    rows = _links(on.masters())
    print_answer(on.json, rows, "\n".join(map(_line, rows)) or "no links")
    if any(each["state"] != "Online" for each in rows):
        sys.exit(1)


def offline(site: SiteArgument, wait: LinkWaitOption = LINK_WAIT_S, *, on: ChosenCluster) -> None:
    """Stop the imports between this site and another one, in both directions, until kubectl txlog site online.

    Both sites go on with their own transactions. Nothing is lost, unless it lasts for longer than `changeSets.keep` of
    either site. Exit code 1 where the link has not followed in time: the switch stays."""
    _switch(on, site, wait, is_offline=True)


def online(site: SiteArgument, wait: LinkWaitOption = LINK_WAIT_S, *, on: ChosenCluster) -> None:
    """Import again from another site, and let it import, from where both were.

    Where the other site has taken the link offline too, it stays offline until that site brings it online. Exit code 1
    where the link has not followed in time: the switch stays."""
    _switch(on, site, wait, is_offline=False)


def take_state(
    site: SiteArgument,
    cancel: Annotated[bool, Option("take the order back; what was taken stays")] = False,
    yes: YesOption = False,
    wait: Annotated[float, Option("seconds until this site must be online with the state", min=0)] = STATE_WAIT_S,
    *,
    on: ChosenCluster,
) -> None:
    """Replace the data of this site by that of another one, while both take writes.

    For a new site, and for a link that is `NeedsState`. This site loses what it wrote before and the other one has not
    imported; what clients write here from now on stays. Exit code 1 where the link is not Online again in time. The
    transfer goes on: see kubectl txlog site status."""
    masters = on.masters()
    confirm(yes or cancel, f"What this site wrote and {site} has not imported is lost. Take the state of {site}?")
    found, master = _linked_masters(masters, site)[0]
    try:
        made = found.ask(master, "PATCH", _path_of(site), {"takeState": not cancel}, CHANGE_TIMEOUT_S)
    except Unavailable as error:  # not repeated at another master: it would be a second order
        text = f"{error}; it may be ordered all the same: kubectl txlog site status"
        raise Unavailable(error.reason, text) from None
    # An order that is not stable yet has no entry by which its end is recognised.
    wait_s = 0.0 if cancel or made.get("index", 0) is None else wait
    link = _await_link(masters, site, wait_s, lambda link: has_state(link, made))
    print_answer(on.json, {"order": made, "link": link}, describe_order(made, link))
    if not cancel and not has_state(link, made):
        sys.exit(1)


def _switch(on: ChosenCluster, site: str, wait_s: float, *, is_offline: bool) -> None:
    masters = on.masters()
    # A switch that is asked for twice is one switch.
    made = first_answer(
        _linked_masters(masters, site),
        lambda found, master: found.ask(master, "PATCH", _path_of(site), {"offline": is_offline}, CHANGE_TIMEOUT_S),
    )
    link = _await_link(masters, site, wait_s, lambda link: has_followed(link, is_offline))
    print_answer(on.json, {"switch": made, "link": link}, describe_switch(made, link))
    if not has_followed(link, is_offline):
        sys.exit(1)


def _linked_masters(masters: MasterProxies, site: str) -> list[tuple[SiteAccess, str]]:
    """Those to which the link was reported: the others do not know the name. :class:`NotFound` without one."""
    answers = _overviews(masters)
    found = [(access, master) for access, master, each in answers if any(link["other"] == site for link in each)]
    if not found:
        known = sorted({link["other"] for _, _, each in answers for link in each})
        raise NotFound(f"no link from {site} was reported to these masters; known: {', '.join(known) or 'none'}")
    return found


def _overviews(masters: MasterProxies) -> list[tuple[SiteAccess, str, list[Mapping[str, Any]]]]:
    """The links that each master knows. The error of one where none answers."""
    answers = masters.ask_all(SITES_PATH)
    found = [(site, master, each["links"]) for site, master, each in answers if not isinstance(each, TxLogError)]
    if not found:
        raise next((each for _, _, each in answers), Unavailable("NoMaster", "there is no master"))
    return found


def _links(masters: MasterProxies) -> list[dict[str, Any]]:
    return newest_links(link for _, _, links in _overviews(masters) for link in links)


def _await_link(
    masters: MasterProxies, site: str, wait_s: float, is_done: Callable[[Mapping[str, Any] | None], bool]
) -> dict[str, Any] | None:
    """The last report of the link, as soon as it is so, or when the time is over. Masters that do not answer for a
    moment are asked again: what was ordered is in the log."""
    until = time.monotonic() + wait_s
    while True:
        try:
            link = next((each for each in _links(masters) if each["other"] == site), None)
        except Unavailable:
            link = None
        if is_done(link) or time.monotonic() >= until:
            return link
        time.sleep(POLL_INTERVAL_S)


def _path_of(site: str) -> str:
    return f"{SITES_PATH}/{quote(site, safe='')}"


def _line(link: Mapping[str, Any]) -> str:
    behind, lag_s = link.get("lagEntries", "?"), link.get("lagSeconds")
    text = f"{link['site']} from {link['other']}: {link['state']}, imported {link['cursor']}, {behind} behind"
    text += "" if lag_s is None else f", lag {lag_s:.0f} s"
    waits, lost = link.get("correctionsWaiting", 0), link.get("conflicts", 0)
    text += f", {waits} corrections wait, {lost} conflicts, reported {link['reportedSecondsAgo']:.0f} s ago"
    remark = remark_of(link)
    return f"{text}; {remark}" if remark else text


COMMANDS: Final[Tree] = {
    "site": Group(
        "Links with other sites: clusters whose changes this one imports.",
        {"status": status, "offline": offline, "online": online, "take-state": take_state},
    ),
}
