"""The TxLog cluster ``catalogue`` over both data centres: installed, watched, cut in two."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from e2e.cluster import image_build
from e2e.cluster.layout import ROOT
from e2e.kubernetes.data_center_access import NAME, NAMESPACE, DataCenterAccess, wait_until
from e2e.kubernetes.manifests import MASTERS, TOKEN, cluster_manifest, token_secret
from e2e.lib.history import effects_by_txid
from e2e.lib.readers import read_log
from txlog.client import MasterClient

OPERATOR: Final = "txlog"
READY_S: Final = 180.0
SETTLED_S: Final = 90.0


class CatalogueCluster:
    """``written``: every transaction that was acknowledged; none may be lost. ``counts``: how many masters each data
    centre has now."""

    def __init__(self, sides: Mapping[str, DataCenterAccess]) -> None:
        self.sides = dict(sides)
        self.counts = dict(MASTERS)
        self.written: list[str] = []

    # -- its life

    def install(self, **spec: Any) -> None:
        """The operator by its chart, then the resource, as a user does it."""

        def one(name: str) -> None:
            self._operator(name)
            self.sides[name].kubectl("apply", "-f", "-", input_text=json.dumps(token_secret()))
            self.change(name, **spec)

        self._for_each_side(one)

    def install_with_executors(self, side: str, **pipeline: Any) -> None:
        """The same, where the executors of one data centre are pods and the other has one process, as it is usual."""

        def one(name: str) -> None:
            self._operator(name, executors="true")
            self.sides[name].kubectl("apply", "-f", "-", input_text=json.dumps(token_secret()))
            self.change(name, splitRecovery="None", **({"pipeline": pipeline} if name == side else {}))

        self._for_each_side(one)

    def install_examples(self) -> None:
        """The same with ``examples/two-data-centres`` as they are, in the words of ``docs/install.md``."""

        def one(name: str) -> None:
            side = self.sides[name]
            self._operator(name)
            side.kubectl("create", "secret", "generic", f"{NAME}-peer-token", f"--from-literal=token={TOKEN}")
            side.kubectl("apply", "-f", str(ROOT / "examples" / "two-data-centres" / f"{name}.yaml"))

        self._for_each_side(one)

    def _for_each_side(self, act: Callable[[str], None]) -> None:
        with ThreadPoolExecutor(len(self.sides)) as pool:
            list(pool.map(act, self.sides))

    def _operator(self, name: str, **more: str) -> None:
        side = self.sides[name]
        repository, _, tag = image_build.NAME.rpartition(":")
        values = {"image.repository": repository, "image.tag": tag, "image.pullPolicy": "Never", **more}
        told = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        chart = str(ROOT / "charts" / "txlog-operator")
        side.helm("upgrade", "--install", OPERATOR, chart, "--create-namespace", "--wait", "--timeout", "120s", *told)

    def change(self, name: str, **spec: Any) -> None:
        """Apply the resource of a data centre again. :class:`CannotRun` with the API server's words when it refuses."""
        self.sides[name].kubectl("apply", "-f", "-", input_text=json.dumps(cluster_manifest(name, **spec)))

    def patch(self, side: str, **spec: Any) -> None:
        """As ``kubectl patch`` does. :class:`CannotRun` with the API server's words when it refuses."""
        self.sides[side].kubectl("patch", "txl", NAME, "--type=merge", "-p", json.dumps({"spec": spec}))

    def remove(self) -> None:
        self._for_each_side(lambda name: _remove(self.sides[name]))

    # -- looking

    def masters(self) -> dict[str, str]:
        """Node id to URL, now."""
        return {f"{name}-{index}": side.master(index) for name, side, index in self._each()}

    def states(self) -> dict[str, str]:
        found = {}
        for node, url in self.masters().items():
            with MasterClient(url, 5.0) as master:
                found[node] = master.status().state
        return found

    def wait_condition(self, side: str, kind: str, words: str) -> None:
        """Until the condition says so: ``False Apart``, or the beginning of it."""
        wait_until(f"{kind} of {side} is {words}", 60, lambda: self.condition(side, kind).startswith(words))

    def worker_state(self, side: str, worker: str) -> str:
        """As the masters of its data centre know it."""
        with MasterClient(self.sides[side].master(1), 5.0) as master:
            return next(each.state for each in master.workers() if each.name == worker)

    def wait_preference(self, side: str, key: str, value: str) -> None:
        wait_until(f"the masters of {side} have {key} {value}", 60, lambda: self.preferences(side, key) == {value})

    def wait_recovery(self, how: str) -> None:
        """Until the view that all masters are in names it: what they prefer counts from the next view on."""

        def looked() -> bool:
            found = {side.status(index).view.split_recovery for _, side, index in self._each()}
            if found != {how}:
                raise KeyError(str(found))
            return True

        wait_until(f"{how} is in force", 60, looked)

    def starts(self) -> dict[str, int]:
        """How often each master has started on its journal."""
        return {f"{name}-{index}": side.status(index).start for name, side, index in self._each()}

    def births(self) -> dict[str, str]:
        """Which journal each master has."""
        return {f"{name}-{index}": str(side.status(index).birth) for name, side, index in self._each()}

    def _each(self) -> list[tuple[str, DataCenterAccess, int]]:
        return [(name, side, index) for name, side in self.sides.items() for index in range(1, self.counts[name] + 1)]

    def preferences(self, side: str, key: str) -> set[str]:
        """What the masters of a data centre prefer."""
        found: set[str] = set()
        for index in range(1, self.counts[side] + 1):
            with MasterClient(self.sides[side].master(index), 5.0) as master:
                found.update(str(one["value"]) for one in master.settings()["settings"] if one["key"] == key)
        return found

    def wait_state(self, state: str, seconds: float = SETTLED_S) -> None:
        def looked() -> bool:
            states = self.states()
            if set(states.values()) != {state}:
                raise KeyError(str(states))
            return True

        wait_until(f"all masters are {state}", seconds, looked)

    def wait_working(self) -> None:
        """Both resources say Ready, and a write has reached every store."""
        self.wait_ready()
        self.write("uk", "DROP SILENT GRAPH <urn:e2e:warm>", "synced")
        self.wait_converged(READY_S)

    def wait_ready(self, seconds: float = READY_S) -> None:
        """As every user would wait."""
        waited = ("wait", "--for=condition=Ready", f"txlogcluster/{NAME}", f"--timeout={seconds:g}s")
        with ThreadPoolExecutor(len(self.sides)) as pool:
            list(pool.map(lambda side: side.kubectl(*waited), self.sides.values()))

    def condition(self, side: str, kind: str) -> str:
        """Status and reason of one, as ``True AllReady``."""
        found = self.sides[side].resource()["status"]["conditions"]
        return next(f"{each['status']} {each['reason']}" for each in found if each["type"] == kind)

    def wait_converged(self, seconds: float = SETTLED_S) -> int:
        """All masters have one log, and every store has executed all of it; its length."""

        def looked() -> int:
            ends = set()
            for url in self.masters().values():
                with MasterClient(url, 5.0) as master:
                    status = master.status()
                    ends.add((status.stable.index, status.stable.hash, status.queue.transactions))
            (end,) = ends if len(ends) == 1 else [None]
            places = {(name, at): side.position(at) for name, side in self.sides.items() for at in side.workers()}
            if end is None or end[2] or set(places.values()) != {end[0]}:
                raise KeyError(f"masters {ends}, stores {places}")
            return end[0]

        return wait_until("one log, executed everywhere", seconds, looked)

    def digests_equal(self) -> bool:
        found = [side.digest(at) for side in self.sides.values() for at in side.workers()]
        return not any(one.differs_from(found[0]) for one in found)

    def lost_transactions(self) -> list[str]:
        """Acknowledged transactions that do not take effect once in every log."""
        wrong = []
        for node, url in self.masters().items():
            counts = effects_by_txid(read_log(url))
            wrong += [f"{txid} {counts[txid]} times at {node}" for txid in self.written if counts[txid] != 1]
        return wrong

    # -- acting

    def write(self, side: str, update: str, level: str = "applied") -> None:
        self.written.append(self.sides[side].write(update, level))

    def set_partitioned(self, deaf: bool) -> None:
        """The data centres lose each other, or have each other again."""
        self.set_one_way_block("uk", "us", deaf)
        self.set_one_way_block("us", "uk", deaf)

    def set_one_way_block(self, one: str, other: str, deaf: bool) -> None:
        """``one`` no longer hears ``other``, or does again."""
        self.sides[one].center.block_from(self.sides[other].center.site, deaf)

    def set_latency(self, delay_ms: float, jitter_ms: float = 0, loss_percent: float = 0) -> None:
        """Each way between them; 0 takes it away."""
        uk, us = self.sides["uk"].center, self.sides["us"].center
        uk.delay_to(us.site, delay_ms, jitter_ms, loss_percent)
        us.delay_to(uk.site, delay_ms, jitter_ms, loss_percent)


def _remove(side: DataCenterAccess) -> None:
    side.center.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
