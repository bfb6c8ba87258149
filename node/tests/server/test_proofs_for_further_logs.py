"""A proof that a process is gone counts for each of its logs, also where its view has gone on before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from txlog.runtime.departures import DepartureHistory
from txlog.server.process_notices import TOPIC, ProcessNotices

BIRTH, START, LOG = 0xABC, 7, 2


class OneLog:
    """A further log, and the processes that were proved to be gone before its view lets them go."""

    def __init__(self, members: dict[str, int]) -> None:
        found = {node: SimpleNamespace(birth=birth) for node, birth in members.items()}
        status: Any = SimpleNamespace(
            view=SimpleNamespace(member=found.get, silent_members=[]),
            departures={},
            configured_members=[SimpleNamespace(node=node) for node in ("uk-1", "uk-3")],
        )
        self.proved: list[tuple[str, int, int]] = []
        self.departures = DepartureHistory(status)
        loop = SimpleNamespace(
            status=status, departures=self.departures, prove_down=lambda *about: self.proved.append(about)
        )
        self.notices = ProcessNotices(cast(Any, SimpleNamespace(logs={LOG: SimpleNamespace(loop=loop)})))
        notice = {"birth": BIRTH, "start": START, "logs": [(LOG, 0xDEF, 3)]}
        self.notices.on_notice("uk-3", TOPIC, msgspec.json.encode(notice))


@pytest.mark.parametrize(
    ("members", "proved", "out"),
    [
        ({"uk-1": 1, "uk-3": 0xDEF}, [("uk-3", 0xDEF, 3)], {}),
        ({"uk-1": 1, "uk-3": 0x123}, [], {}),
        ({"uk-1": 1}, [], {"uk-3": "down"}),
    ],
    ids=["member", "other-birth", "out-already"],
)
def test_a_proof_counts_in_each_log(
    members: dict[str, int], proved: list[tuple[str, int, int]], out: dict[str, str]
) -> None:
    log = OneLog(members)
    log.notices.on_proved_down("uk-3", BIRTH, START)
    assert (log.proved, log.departures.departed_members()) == (proved, out)
