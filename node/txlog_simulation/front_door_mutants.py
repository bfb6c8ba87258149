"""Safeguards of the front door, one each taken out. Imports nothing of ``txlog``. A test of the room kills each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_ROOM = "txlog/server/frontdoor"
_LONG = "node/tests/server/test_long_requests.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"door-{name}", "16", False, (SourceEdit(file, old, new),), test=test)


FRONT_DOOR_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "loop-reads-a-long-query",
        f"{_ROOM}/off_loop.py",
        "    if size < OFF_LOOP_SPARQL:\n",
        "    if size < OFF_LOOP_SPARQL << 10:\n",
        f"{_LONG}::test_a_long_request_leaves_the_loop_to_others",
    ),
    _mutant(
        "loop-prepares-all-lines-in-one-turn",
        f"{_ROOM}/ndjson_writes.py",
        "            if time.monotonic() - began > LOOP_TURN_S:\n",
        "            if False:\n",
        f"{_LONG}::test_a_long_request_leaves_the_loop_to_others",
    ),
    _mutant(
        "fast-path-takes-a-long-update",
        f"{_ROOM}/fast_path.py",
        "    if int(length) >= OFF_LOOP_SPARQL and media_type.lower().startswith(UPDATE_MEDIA_TYPE):\n",
        "    if False:\n",
        f"{_LONG}::test_a_long_update_of_a_low_level_leaves_the_fast_path",
    ),
    _mutant(
        "form-without-end",
        f"{_ROOM}/off_loop.py",
        ", max_num_fields=FORM_FIELDS_MAX",
        "",
        f"{_LONG}::test_a_form_has_no_more_fields_than_a_master_can_hold",
    ),
)
