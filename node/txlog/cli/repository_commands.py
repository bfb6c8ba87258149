"""``txlog repository list|add|remove``: the repositories of a cluster."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from txlog.cli.cli_cluster import find_cluster
from txlog.cli.options import ClusterOptions, YesOption, confirm, register
from txlog.cli.repository_scope import request_repositories
from txlog.cli.tables import print_answer, print_line, show_json, show_table

app = typer.Typer(no_args_is_help=True, help="Repositories, where the configuration of the masters allows several.")
NameArgument = Annotated[str, typer.Argument(help="such as stock")]


@register(app, "list")
def list_repositories(cluster: ClusterOptions) -> None:
    """List the repositories, as the first master that answers has them."""
    found = request_repositories(find_cluster(cluster), "GET", "", None)
    if cluster.json:
        show_json(found)
        return
    show_table(
        ["REPOSITORY", "LOG", "STATE", "STABLE", "APPLIED", "WORKERS", "WANTED BY"],
        [
            (
                one["name"],
                str(one["log"]),
                ", ".join([one["state"], *one["failed"].values()]),
                str(one["stable"]),
                str(one["applied"]),
                f"{one['workers']['working']}/{one['workers']['of']}",
                ", ".join(one["wantedBy"]),
            )
            for one in found["repositories"]
        ],
        "no repositories",
    )
    lacking = [one["name"] for one in found["repositories"] if one["workers"]["of"] and not one["workers"]["working"]]
    if lacking:
        print_line(
            f"no worker of {', '.join(lacking)} works in this master's data centre: reads get 503 there, and writes "
            "go on; see txlog status",
            style="yellow",
        )
    if found["behind"]:
        print_line(
            "this master does not reach a majority, or its system log is closed: it may lack some", style="yellow"
        )


@register(app, "add")
def add_repository(
    name: NameArgument,
    split_recovery: Annotated[str | None, typer.Option(help="Simple, Smart or None; default: as the first one")] = None,
    split_mode: Annotated[str | None, typer.Option(help="Continue or Majority; default: as the first one")] = None,
    key_retention: Annotated[str | None, typer.Option(help="such as 24h; default: as the first one")] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Create a repository at every master. The first one needs every configured master."""
    asked = {"splitRecovery": split_recovery, "splitMode": split_mode, "keyRetention": key_retention}
    body = {key: value for key, value in asked.items() if value is not None}
    found = request_repositories(find_cluster(cluster), "PUT", f"/{quote(name, safe='')}", body)
    is_open = found["state"] == "Joined"
    text = f"{name} is log {found['log']}{'' if is_open else ', and not open yet; see txlog repository list'}"
    print_answer(cluster.json, found, text, None if is_open else "yellow")


@register(app, "remove")
def remove_repository(name: NameArgument, yes: YesOption = False, *, cluster: ClusterOptions) -> None:
    """Remove a repository at every master. Each keeps the journal under another name."""
    confirm(yes, f"{name} takes no more reads and writes, at every master. Remove it?")
    found = request_repositories(find_cluster(cluster), "DELETE", f"/{quote(name, safe='')}", None)
    text = f"{name} is removed" if found is None else f"{name} is being removed; see txlog repository list"
    print_answer(cluster.json, found, text, None if found is None else "yellow")
