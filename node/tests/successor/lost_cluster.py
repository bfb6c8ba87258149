"""A lost cluster's archive, and the first master of the one that takes its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archived_history import History
from restored_store import ArchivedLog

from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, plan_restore, read_timelines
from txlog.archive.restore_plan import EMPTY_BASE, RestorePlan
from txlog.archive.stream_reader import StreamReader
from txlog.config.process_config import NodeConfig
from txlog.successor.inheritance import Inheritance, read_inheritance
from txlog.successor.succession import SuccessionRequest

DAY_MS = 24 * 3600 * 1000


def inherit(history: ArchivedLog, moment: str = "latest", **more: Any) -> tuple[RestorePlan, Inheritance]:
    reader = StreamReader(history.stream)
    request = MomentRequest(parse_moment(moment), history.target, more.pop("base", EMPTY_BASE))
    plan, timelines = plan_restore(reader, request), read_timelines(reader, request)
    given = {"key_retention_ms": DAY_MS, "without_older_keys": False, **more}
    return plan, read_inheritance(timelines, plan, reader.read, **given)


def node_config(folder: Path, node: str = "uk-1", **changes: Any) -> NodeConfig:
    peers = [
        {"node": each, "data_center": each[:2], "url": f"http://127.0.0.1:{7300 + at}"}
        for at, each in enumerate(("uk-1", "uk-2", "us-1"))
    ]
    fields = {
        "node": node,
        "data_center": node[:2],
        "repository": "demo",
        "port": 7300,
        "journal_folder": str(folder / node / "journal"),
        "segment_bytes": 1 << 20,
        "peer_token_file": str(folder / "token"),
        "peers": peers,
    }
    return NodeConfig.model_validate({**fields, **changes})


def succession(history: History, folder: Path, moment: str = "latest", **more: Any) -> SuccessionRequest:
    request = MomentRequest(parse_moment(moment), history.target, EMPTY_BASE)
    master = node_config(folder, **more.pop("master", {}))
    return SuccessionRequest(master, history.target, StreamReader(history.stream), request, **more)
