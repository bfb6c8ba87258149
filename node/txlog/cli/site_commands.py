"""``txlog site status|offline|online|take-state``: how far the links from other sites are, and whether they import."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from txlog.cli.cli_cluster import SURVEY_TIMEOUT_S, CliCluster, find_cluster
from txlog.cli.options import ClusterOptions, YesOption, confirm, register
from txlog.cli.tables import colour_state, print_answer, print_rows
from txlog.client.site_client import SiteClient, SiteOverview, ask_site
from txlog.model.errors import NotFound, TxLogError
from txlog.sites.link_texts import (
    describe_order,
    describe_switch,
    has_followed,
    has_state,
    newest_links,
    remark_of,
)

app = typer.Typer(no_args_is_help=True, help="Links with other sites: clusters whose changes this one imports.")
POLL_S: Final = 0.2
NameArgument = Annotated[str, typer.Argument(help="the name of the other site, as spec.sites lists it")]
WaitOption = Annotated[float, typer.Option(help="seconds until the link must have followed")]


@register(app)
def status(*, cluster: ClusterOptions) -> None:
    """Show each link: its state, how far it is, and what waits. Exit code 1 where one does not import."""
    rows = newest_reports(_overviews(find_cluster(cluster)))
    columns = ["SITE", "FROM", "STATE", "IMPORTED", "BEHIND", "LAG", "CORRECTIONS", "CONFLICTS", "REPORTED", ""]
    print_rows(cluster.json, rows, columns, map(_row, rows), "no links")
    if any(each["state"] != "Online" for each in rows):
        raise typer.Exit(1)


@register(app)
def offline(name: NameArgument, wait: WaitOption = 60.0, *, cluster: ClusterOptions) -> None:
    """Stop the imports between this site and another one, in both directions, until txlog site online.

    Both sites go on with their own transactions. The command ends when nothing is imported here any more; the other
    site follows within seconds of its next contact. Nothing is lost, unless it lasts for longer than changeSets.keep of
    either site. Exit code 1 where the link has not followed in time: the switch stays."""
    _switch(find_cluster(cluster), name, wait, as_json=cluster.json, is_offline=True)


@register(app)
def online(name: NameArgument, wait: WaitOption = 60.0, *, cluster: ClusterOptions) -> None:
    """Import again from another site, and let it import, from where both were. Where the other site has taken the link
    offline too, it stays offline until that site brings it online. Exit code 1 as of txlog site offline."""
    _switch(find_cluster(cluster), name, wait, as_json=cluster.json, is_offline=False)


@register(app, name="take-state")
def take_state(
    name: NameArgument,
    wait: Annotated[float, typer.Option(help="seconds until this site must be online with the state")] = 3600.0,
    cancel: Annotated[bool, typer.Option("--cancel", help="take the order back; what was taken stays")] = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Replace the data of this site by that of another one, while both take writes.

    For a new site, and for a link that is NeedsState. This site loses what it wrote before and the other one has not
    imported; what clients write here from now on stays. The command ends when the link is Online again. Exit code 1
    where it is not in time: the transfer goes on, and txlog site status shows how far it is."""
    masters = find_cluster(cluster)
    question = f"What this site wrote and {name} has not imported is lost. Take the state of {name}?"
    confirm(yes or cancel, question)
    made = _order(masters, name, takes=not cancel)
    # An order that is not stable yet has no entry by which its end is recognised.
    deadline = time.monotonic() + (0.0 if cancel or made.get("index", 0) is None else wait)
    link = _find_link(masters, name)
    while not has_state(link, made) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        link = _find_link(masters, name)
    print_answer(cluster.json, {"order": made, "link": link}, describe_order(made, link))
    if not cancel and not has_state(link, made):
        raise typer.Exit(1)


def _switch(masters: CliCluster, name: str, wait_s: float, *, as_json: bool, is_offline: bool) -> None:
    made = _ask_where_linked(masters, name, lambda site: site.switch_site(name, offline=is_offline))
    deadline = time.monotonic() + wait_s
    link = _find_link(masters, name)
    while not has_followed(link, is_offline) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        link = _find_link(masters, name)
    print_answer(as_json, {"switch": made, "link": link}, describe_switch(made, link))
    if not has_followed(link, is_offline):
        raise typer.Exit(1)


def _order(masters: CliCluster, name: str, *, takes: bool) -> dict[str, Any]:
    """The answer of the first master to which the link was reported. It is not repeated at another one: each order to
    take the state is one more, and one whose answer is lost may be in the log."""
    errors: list[TxLogError] = []
    for url in masters.masters:
        with masters.open_client(url, SURVEY_TIMEOUT_S) as client:
            try:
                is_linked = any(link["other"] == name for link in ask_site(SiteClient.site_links)(client))
            except TxLogError as error:
                errors.append(error)
                continue
            if is_linked:
                return ask_site(lambda site: site.order_state(name, takes=takes))(client)
    raise errors[-1] if errors else NotFound(f"no link from {name} was reported to these masters")


def _ask_where_linked(masters: CliCluster, name: str, ask: Callable[[SiteClient], dict[str, Any]]) -> dict[str, Any]:
    """The answer of a master to which the link was reported: the others do not know the name."""
    errors: list[TxLogError] = []
    for url in masters.masters:
        with masters.open_client(url, SURVEY_TIMEOUT_S) as client:
            try:
                return ask_site(ask)(client)
            except TxLogError as error:
                errors.append(error)
    raise next((each for each in errors if isinstance(each, NotFound)), errors[-1])


def _find_link(masters: CliCluster, name: str) -> dict[str, Any] | None:
    return next((each for each in newest_reports(_overviews(masters)) if each["other"] == name), None)


def _overviews(masters: CliCluster) -> list[SiteOverview]:
    """What the masters that answer report. Raises the error of one where none answers."""
    answers = list(masters.ask_all(ask_site(SiteClient.site_overview)).values())
    found = [each for each in answers if not isinstance(each, TxLogError)]
    if not found:
        raise next(each for each in answers if isinstance(each, TxLogError))
    return found


def newest_reports(answers: Sequence[SiteOverview]) -> list[dict[str, Any]]:
    """Of several masters' answers, the newest report of each link."""
    return newest_links(link for answer in answers for link in answer.links)


def _row(link: dict[str, Any]) -> tuple[Any, ...]:
    return (
        link["site"],
        link["other"],
        colour_state(link["state"]),
        link["cursor"],
        link.get("lagEntries", "?"),
        f"{link['lagSeconds']:.0f} s" if "lagSeconds" in link else "?",
        link["correctionsWaiting"],
        link["conflicts"],
        f"{link['reportedSecondsAgo']:.0f} s ago",
        remark_of(link),
    )
