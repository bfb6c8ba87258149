"""``--repository``: the log of a further repository in place of the first one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from txlog.cli.cli_cluster import CliCluster, find_cluster, request_once
from txlog.cli.options import ClusterOptions
from txlog.client.connection import REPOSITORIES_PATH
from txlog.config.repository_names import is_repository_name
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput, NotFound

ANSWER_S: Final = 70.0
RepositoryOption = Annotated[
    str | None, typer.Option("--repository", help="a further repository; default: the first one")
]


def request_repositories(found: CliCluster, method: str, path: str, body: object) -> Any:
    """The answer about repositories, as of :func:`request_once`. A change is not repeated at another master: the answer
    would be about the first try."""
    return request_once(found, method, f"{REPOSITORIES_PATH}{path}", body, ANSWER_S)


def find_repository(options: ClusterOptions, name: str | None) -> tuple[CliCluster, str | None]:
    """The masters as they serve this repository, and its name on targets: None for the first one. :class:`NotFound` for
    a name that the masters do not know."""
    found = find_cluster(options)
    if name is None or _is_first(found, name):
        return found, None
    listed = request_repositories(found, "GET", "", None)["repositories"]
    if name not in [one["name"] for one in listed]:
        raise NotFound(f"unknown repository {name[:80]}; there are {', '.join(one['name'] for one in listed)}")
    below = f"{REPOSITORIES_PATH}/{quote(name, safe='')}"
    masters = {dc: [f"{url}{below}" for url in urls] for dc, urls in found.data_centers.items()}
    return replace(found, data_centers=masters), name


def nested_name(state: Path, name: str | None) -> str | None:
    """The name of a repository on targets, without a question to the masters: None for the first one of the state
    folder's cluster. :class:`BadInput` for a text that is no name."""
    if name is None:
        return None
    if not is_repository_name(name):
        raise BadInput(f"--repository {name[:80]!r}: expected 1 to 63 letters, digits, - and _, such as stock")
    folder = StateFolder(state)
    is_first = folder.exists and folder.topology().repository == name
    return None if is_first else name


def _is_first(found: CliCluster, name: str) -> bool:
    return found.ask_first(lambda master: master.status().repository) == name
