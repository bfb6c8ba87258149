"""Compares the masters of the manifests with those of the log: which one is added or removed next.

The log changes by one master at a time, so each function names one. ``configuration`` is what
``GET /txlog/configuration`` answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Configuration = Mapping[str, Any]


def newest_configuration(configurations: Iterable[Configuration | None]) -> Configuration | None:
    """The one with the highest version; None when no master reported one."""
    return max(
        (each for each in configurations if each is not None), key=lambda each: int(each["version"]), default=None
    )


def missing_masters(configuration: Configuration, wanted: Sequence[str], *, again: bool = False) -> list[str]:
    """Those of ``wanted`` (node ids) that are no masters. ``again``: also those that were removed before."""
    known = {*_nodes(configuration), *(() if again else configuration["removed"])}
    return [node for node in wanted if node not in known]


def next_master_to_add(configuration: Configuration, wanted: Sequence[str], *, again: bool = False) -> str | None:
    """The first of :func:`missing_masters`; None while another change waits for its place in the log."""
    return None if configuration["pending"] else next(iter(missing_masters(configuration, wanted, again=again)), None)


def next_master_to_remove(configuration: Configuration, data_center: str, wanted: Sequence[str]) -> str | None:
    """The last master of the data centre that is not among ``wanted``; None when there is none, while another change
    waits, or while a master of the data centre still leaves: it leaves alone, after it has replicated its
    transactions."""
    own = [each for each in configuration["masters"] if each["dataCenter"] == data_center]
    if configuration["pending"] or any(each["role"] == "leaving" for each in own):
        return None
    extra = [str(each["node"]) for each in own if each["node"] not in wanted]
    return max(extra, key=node_index, default=None)


def unlisted_masters(configuration: Configuration, wanted: Sequence[str]) -> list[str]:
    """Masters of the log that no manifest names. They are only shown: their transactions may exist nowhere else."""
    return [node for node in _nodes(configuration) if node not in wanted]


def node_index(node: str) -> int:
    """The number at the end of a node id: 2 for ``uk-2``."""
    return int(node.rpartition("-")[2])


def _nodes(configuration: Configuration) -> list[str]:
    return [str(each["node"]) for each in configuration["masters"]]
