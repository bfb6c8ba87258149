"""``spec.repositories`` of a manifest: repositories beside the first one, each with a log of its own."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from txlog.config.manifest_model import ManifestModel, expected_error, list_map
from txlog.config.previews import PREVIEWS_VARIABLE, REPOSITORIES_PREVIEW, is_preview_on
from txlog.config.repository_names import REPOSITORY_PATTERN, SYSTEM_NAME
from txlog.config.worker_specs import RepositoryWorkersSpec, check_engines

FURTHER_MAX: Final = 15
"""A cluster has at most 16 repositories, the first one included."""
WORKER_NAME_MAX: Final = 63
REPOSITORIES_ARE_A_PREVIEW: Final = (
    "none: several repositories are a preview; "
    f"{PREVIEWS_VARIABLE}={REPOSITORIES_PREVIEW} in the environment of txlog up switches it on"
)


def repository_label(name: str) -> str:
    """The repository in names of workers, folders and processes: lower case, with hyphens."""
    return name.lower().replace("_", "-")


def repository_worker_names(data_center: str, name: str, count: int) -> list[str]:
    """Names of a further repository's workers in this data centre, in order."""
    return [f"{data_center}-{repository_label(name)}-worker-{index}" for index in range(1, count + 1)]


def _not_reserved(name: str) -> str:
    if name.lower() == SYSTEM_NAME:
        raise ValueError(f"another name; {SYSTEM_NAME} is the log that names the repositories")
    return name


class RepositorySpec(ManifestModel):
    """A repository beside the first one. Masters of all data centres order its transactions."""

    name: Annotated[str, AfterValidator(_not_reserved)] = Field(
        pattern=REPOSITORY_PATTERN, description="Repository id in the URLs of clients."
    )
    workers: RepositoryWorkersSpec = Field(
        default=RepositoryWorkersSpec(), description="Its workers in this data centre."
    )


class FurtherRepositories(ManifestModel):
    """The field of a cluster about its further repositories."""

    repositories: list[RepositorySpec] = Field(
        default=[],
        max_length=FURTHER_MAX,
        description="Repositories beside the first one, which `repository` names. One that is taken out here stays "
        "until `txlog repository remove`. A preview, which the environment variable `TXLOG_PREVIEWS=repositories` "
        "switches on; it does not act on Kubernetes yet.",
        json_schema_extra=list_map("name"),
    )


def check_repositories(
    listed: FurtherRepositories, data_center: str, mixed_engines: bool, non_deterministic: str
) -> None:
    """Raises what is wrong with the further repositories of a data centre."""
    if not listed.repositories:
        return
    if not is_preview_on(REPOSITORIES_PREVIEW):
        raise expected_error(REPOSITORIES_ARE_A_PREVIEW, "repositories")
    known: dict[str, str] = {}
    for at, each in enumerate(listed.repositories):
        place = ("repositories", at, "name")
        label = repository_label(each.name)
        if label in known:
            raise expected_error(_same_label(known[label]), *place)
        known[label] = each.name
        names = repository_worker_names(data_center, each.name, each.workers.count)
        if names and len(names[-1]) > WORKER_NAME_MAX:
            what = f"a shorter name: that of its worker {names[-1]} has more than {WORKER_NAME_MAX} characters"
            raise expected_error(what, *place)
        check_engines(each.workers.engines, mixed_engines, non_deterministic)


def check_names(listed: FurtherRepositories, first: str) -> None:
    """Raises which of the further repositories has the name of the first one."""
    for at, each in enumerate(listed.repositories):
        if repository_label(each.name) == repository_label(first):
            raise expected_error(_same_label(first), "spec", "repositories", at, "name")


def _same_label(other: str) -> str:
    return f"another name than the repository {other}, not only by case or by - and _"
