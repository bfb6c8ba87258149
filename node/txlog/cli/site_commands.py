"""``txlog site status``: how far the links from other sites are."""

from __future__ import annotations

from typing import Any

import typer

from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, register
from txlog.cli.tables import colour_state, show_json, show_table
from txlog.client.site_client import read_site_links
from txlog.model.errors import TxLogError

app = typer.Typer(no_args_is_help=True, help="Links with other sites: clusters whose changes this one imports.")


@register(app)
def status(*, cluster: ClusterOptions) -> None:
    """Show each link: its state, how far it is, and what waits. Exit code 1 where one does not import."""
    answers = find_cluster(cluster).ask_all(read_site_links)
    if all(isinstance(each, TxLogError) for each in answers.values()):
        raise next(each for each in answers.values() if isinstance(each, TxLogError))
    rows = newest_reports([each for each in answers.values() if not isinstance(each, TxLogError)])
    if cluster.json:
        show_json(rows)
    else:
        show_table(
            ["SITE", "FROM", "STATE", "IMPORTED", "READ", "WAITING", "CORRECTIONS", "CONFLICTS", "REPORTED", ""],
            [_row(each) for each in rows],
            "no links",
        )
    if any(each["state"] != "Online" for each in rows):
        raise typer.Exit(1)


def newest_reports(answers: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of several masters' answers, the newest report of each link."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in (link for answer in answers for link in answer):
        name = each["site"], each["other"]
        if name not in found or each["reportedSecondsAgo"] < found[name]["reportedSecondsAgo"]:
            found[name] = each
    return [found[name] for name in sorted(found)]


def _row(link: dict[str, Any]) -> tuple[Any, ...]:
    return (
        link["site"],
        link["other"],
        colour_state(link["state"]),
        link["cursor"],
        link["read"],
        link["keysWaiting"],
        link["correctionsWaiting"],
        link["conflicts"],
        f"{link['reportedSecondsAgo']:.0f} s ago",
        link["error"],
    )
