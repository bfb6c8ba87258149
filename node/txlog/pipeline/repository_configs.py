"""The configuration of an application as each of its repositories has it."""

from __future__ import annotations

from typing import Final

from txlog.client.connection import REPOSITORIES_PATH
from txlog.config.process_config import PipelineConfig

FIRST_REPOSITORY: Final = ""
"""Means the repository of the masters' first log, whose name a pipeline does not know."""


def repository_config(config: PipelineConfig, repository: str) -> PipelineConfig:
    """The configuration of an application that had this repository alone. ``repository``: a name that is listed, or
    :data:`FIRST_REPOSITORY`. Its masters' paths are those of its log, so every part of the application works on it."""
    if repository == FIRST_REPOSITORY:
        return config.model_copy(update={"repositories": []}) if config.repositories else config
    (found,) = [each for each in config.repositories if each.name == repository]
    return config.model_copy(
        update={
            "masters": [f"{url.rstrip('/')}{REPOSITORIES_PATH}/{repository}" for url in config.masters],
            "workers": found.workers,
            "scratch_folder": config.scratch_folder / "repositories" / repository,
            "bulk_target": None,
            "repositories": [],
        }
    )


def repository_configs(config: PipelineConfig) -> dict[str, PipelineConfig]:
    """By repository, the first one first; see :func:`repository_config`."""
    names = [FIRST_REPOSITORY, *(each.name for each in config.repositories)]
    return {name: repository_config(config, name) for name in names}
