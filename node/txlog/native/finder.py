"""Imports the compiled modules, if they were built from exactly the sources of this installation."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

SOURCE_ROOT: Final = Path(__file__).parent.parent.parent
"""The folder that holds the package."""
BUILD_FOLDER: Final = Path(sys.prefix) / "txlog-native"
MANIFEST: Final = "manifest.json"
DISABLE_VARIABLE: Final = "TXLOG_NATIVE"
"""Set to 0: the sources are interpreted."""

COMPILED_MODULES: Final = tuple(
    f"txlog.{package}.{name}"
    for package, names in (
        (
            "model",
            (
                "hashes",
                "stamp",
                "synchronous_entry",
            ),
        ),
        (
            "protocol",
            (
                "clock_comparison",
                "core",
                "events",
                "local_master",
                "log_lifecycle",
                "master_state",
                "message_dispatcher",
                "message_router",
                "outbox",
                "peer_levels",
                "peer_numbers",
            ),
        ),
        (
            "protocol.log",
            (
                "base_log",
                "configuration_history",
                "effect_places",
                "entry_hashes",
                "idempotency_keys",
                "incoming_queue",
                "key_table",
                "keyed_effects",
                "limbo",
                "log_index",
                "log_state",
                "log_trim",
                "open_queues",
                "record_merge",
                "synchronous_effects",
            ),
        ),
        (
            "protocol.membership",
            (
                "admission",
                "bootstrap",
                "configuration_changes",
                "configuration_effects",
                "departure",
                "handshake",
                "membership",
            ),
        ),
        (
            "protocol.replication",
            (
                "commit",
                "durability_marks",
                "failure_detector",
                "key_horizon",
                "peer_progress",
                "post_receiver",
                "post_schedule",
                "post_sender",
                "replication",
                "replication_state",
                "snapshot_install",
                "submission",
            ),
        ),
        (
            "protocol.views",
            (
                "backfill",
                "branch_selection",
                "candidate_checks",
                "catch_up",
                "coordinator",
                "decision_writer",
                "decisions",
                "log_merge",
                "needed_transactions",
                "next_view",
                "participant",
                "report",
                "split_backup",
                "undecided",
                "view_change",
                "view_lineage",
                "view_manager",
                "view_policy",
                "view_state",
            ),
        ),
        (
            "journal",
            (
                "format",
                "group_commit",
                "journal",
                "log_order",
                "origin_index",
                "payload_stage",
                "recent_cache",
                "record_bodies",
                "record_reader",
                "segment_gc",
                "segment_pool",
                "staged_payload",
                "state_header",
                "transaction_reader",
                "trim_records",
                "write_buffer",
            ),
        ),
        (
            "runtime",
            (
                "departures",
                "durability_tracker",
                "executor",
                "journal_maintenance",
                "master_loop",
                "master_status",
                "watermark",
            ),
        ),
        (
            "server.frontdoor",
            (
                "fast_path",
                "fast_reads",
                "head_templates",
                "http_connection",
                "kept_answers",
                "monotonic_reads",
                "plain_heads",
                "plain_queries",
                "plain_statements",
                "worker_choice",
                "worker_connections",
                "write_responses",
            ),
        ),
        (
            "server.peers",
            (
                "frame_connection",
                "peer_link",
            ),
        ),
    )
    for name in names
)
"""The modules that a transaction passes on its way from the client's socket to the disk and to the peers."""


def source_path(module: str) -> Path:
    """The source file of a module of :data:`COMPILED_MODULES`."""
    return SOURCE_ROOT / (module.replace(".", "/") + ".py")


def source_digest() -> str:
    """The digest of all that the compiled code depends on: its sources, the types they use, the interpreter."""
    found = hashlib.sha256(sys.version.encode())
    rooms = (
        *("model", "native", "wire", "sparql", "protocol", "journal", "auth", "http", "runtime", "telemetry"),
        *("server/frontdoor", "server/peers"),
    )
    for room in rooms:
        for path in sorted((SOURCE_ROOT / "txlog" / room).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


class CompiledModuleFinder(MetaPathFinder):
    """Imports compiled modules. ``files``: full module name to the file of its extension."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a compiled module. None, so that the next finder is asked, for every other module."""
        file = self._files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))


def install_import_hook() -> bool:
    """Import the compiled modules from now on. Call it before any of them is imported.

    False, and nothing changes: they were not built, were built from other sources, or ``TXLOG_NATIVE=0``."""
    if os.environ.get(DISABLE_VARIABLE) == "0":
        return False
    try:
        made = json.loads((BUILD_FOLDER / MANIFEST).read_bytes())
        if made["digest"] != source_digest():
            return False
        files = {name: BUILD_FOLDER / file for name, file in made["files"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False  # the file is no manifest of `make native`
    if not all(file.name.endswith(tuple(EXTENSION_SUFFIXES)) and file.exists() for file in files.values()):
        return False
    sys.meta_path.insert(0, CompiledModuleFinder(files))
    return True


def is_native() -> bool:
    """Whether the core of this process is compiled."""
    core = sys.modules.get("txlog.protocol.core")
    return core is not None and isinstance(core.__spec__.loader if core.__spec__ else None, ExtensionFileLoader)
