"""Takes a load whose parts are written through preparation, decision and entry, to all data centres.

Any failure before the decision means that the load never happens. From the decision on, the entry is written again and
again under one key, until it is known to be stable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from txlog.apply import WorkerState
from txlog.bulk.bulk_errors import BulkKeyForgotten, LoadAborted, NotReady, UnknownKind
from txlog.bulk.load_files import LoadFolder
from txlog.client.bulk_calls import BulkCalls, BulkLoads, BulkWorker
from txlog.client.errors import MasterUnreachable, MethodNotAllowed
from txlog.model.bulk_entry import BulkReference
from txlog.model.errors import NotFound, TxLogError, Unavailable, Unsupported

POLL_S: Final = 0.5
APPEND_S: Final = 120.0
"""How long a master is looked for that takes the entry."""
KEY_SHARE: Final = 0.5
"""An entry whose outcome is unknown is written again within this share of ``keyRetention`` after the decision."""
RETENTION_MIN_S: Final = 600.0
"""Of ``keyRetention``: the share that is left has to cover a last request that a master answers late."""
HELD: Final = "Held"
FAILED: Final = "Failed"
UNREPORTED: Final = "Unknown"
"""The state of a worker of which a master has no report."""
NO_REPORT: Final = "its pipeline has not reported it since the master was started; try again"


class BulkSite(NamedTuple):
    """A data centre: its masters, and the load on its target."""

    name: str
    masters: Sequence[BulkCalls]
    folder: LoadFolder


class PreparationProgress(NamedTuple):
    """``quads``: sent to all workers so far. ``workers``: how many are ready, of how many."""

    quads: int
    ready: int
    workers: int


ProgressCallback = Callable[[PreparationProgress], None]


def check_sites(sites: Sequence[BulkSite]) -> None:
    """:class:`UnknownKind` or :class:`NotReady`, naming everything that could not take part in a load: each configured
    master and each pipeline has to say that it knows bulk loads. :class:`~txlog.model.errors.Unsupported` where the
    cluster takes none."""
    unknown: list[str] = []
    reasons: list[str] = []
    refused: list[str] = []
    for site in sites:
        answers: list[BulkLoads] = []
        for master in site.masters:
            try:
                answers.append(master.describe())
            except (NotFound, MethodNotAllowed):
                unknown.append(f"{master.url} is of an earlier version")
            except TxLogError as error:
                reasons.append(f"{master.url} does not answer ({error})")
        if answers:
            workers = _join_reports(answers)
            unknown += [_unknown(site, worker) for worker in workers if _is_of_earlier_version(worker)]
            reasons += list(_unfit(site, workers))
        refused += [answer.refused for answer in answers if answer.refused is not None]
    if refused:
        raise Unsupported(refused[0])
    if unknown:
        raise UnknownKind(f"{'; '.join(unknown)}. Upgrade first, or load with txlog load")
    if reasons:
        raise NotReady("; ".join(reasons))


def _join_reports(answers: Sequence[BulkLoads]) -> list[BulkWorker]:
    """Each worker as the first master has it that has a report of it: one that was just started has none yet."""
    found: dict[str, BulkWorker] = {}
    for worker in (worker for answer in answers for worker in answer.workers):
        if worker.name not in found or found[worker.name].state == UNREPORTED:
            found[worker.name] = worker
    return list(found.values())


def _is_of_earlier_version(worker: BulkWorker) -> bool:
    """Not where no pipeline has reported since the master was started."""
    return worker.bulk is None and worker.state != UNREPORTED


def _unknown(site: BulkSite, worker: BulkWorker) -> str:
    return f"the pipeline of {worker.name} ({site.name}) says nothing of bulk loads"


def _unfit(site: BulkSite, workers: Sequence[BulkWorker]) -> Iterator[str]:
    for worker in workers:
        if worker.bulk is None and worker.state == UNREPORTED:
            yield f"{worker.name} ({site.name}): {NO_REPORT}"
        if worker.bulk is not None and not worker.bulk.mode:
            yield f"{worker.name} ({site.name}): {worker.bulk.error}"
    if not any(worker.state == WorkerState.WORKING for worker in workers):
        yield f"no worker of {site.name} works; see txlog worker list"


def check_retention(retention_s: float) -> None:
    """:class:`NotReady` where masters forget the key of a load's entry so soon that it could be written twice."""
    if retention_s < RETENTION_MIN_S:
        raise NotReady(
            f"keyRetention is {retention_s:g} s, and a bulk load needs {RETENTION_MIN_S:g} s at least; load with "
            "txlog load, or set it higher"
        )


def prepare_load(
    sites: Sequence[BulkSite],
    load: BulkReference,
    timeout_s: float,
    on_progress: ProgressCallback,
    is_decided: Callable[[], bool] = lambda: False,
) -> None:
    """Returns when every working worker holds the load. Workers that are away load it when they are back.
    :class:`NotReady` names what is missing after ``timeout_s``, and a worker that cannot hold it, at once.
    ``is_decided``: whether another command has decided. No worker has to hold the load any more then."""
    until = time.monotonic() + timeout_s
    while not is_decided():
        missing: list[str] = []
        workers = [(site, worker) for site in sites for worker in ask_again(site, load)]
        working = [(site, worker) for site, worker in workers if worker.state == WorkerState.WORKING]
        missing += [f"{w.name} ({site.name}): {NO_REPORT}" for site, w in workers if w.state == UNREPORTED]
        for site, worker in working:
            phase = worker.bulk.phase if worker.bulk is not None and worker.bulk.load == load.id else ""
            if phase == FAILED:
                raise NotReady(f"{worker.name} ({site.name}): {worker.bulk.error if worker.bulk else phase}")
            if phase != HELD:
                missing.append(f"{worker.name} ({site.name}): {_explain(worker, phase)}")
        ready = max(0, len(working) - len(missing))
        on_progress(PreparationProgress(_sent(workers, load), ready, len(working)))
        if working and not missing:
            return
        if time.monotonic() > until:
            raise NotReady(f"not prepared within {timeout_s:g} s: {'; '.join(missing) or 'no worker works'}")
        time.sleep(POLL_S)


def _explain(worker: BulkWorker, phase: str) -> str:
    if worker.bulk is not None and worker.bulk.error:
        return worker.bulk.error
    return f"{phase.lower() or 'has not begun'}, {worker.bulk.quads if worker.bulk is not None else 0:,} quads"


def _sent(workers: Sequence[tuple[BulkSite, BulkWorker]], load: BulkReference) -> int:
    return sum(w.bulk.quads for _, w in workers if w.bulk is not None and w.bulk.load == load.id)


def ask_again(site: BulkSite, load: BulkReference) -> list[BulkWorker]:
    """Asks every master of a data centre for the preparation, so that none forgets it. The workers, as the masters
    that answer have them. A refusal of a master is raised."""
    return _ask_masters(site, lambda master: master.prepare(load))


def describe_workers(site: BulkSite) -> list[BulkWorker]:
    """The workers of a data centre, as the masters that answer have them."""
    return _ask_masters(site, lambda master: master.describe())


def _ask_masters(site: BulkSite, ask: Callable[[BulkCalls], BulkLoads]) -> list[BulkWorker]:
    answers: list[BulkLoads] = []
    last: TxLogError | None = None
    for master in site.masters:
        try:
            answers.append(ask(master))
        except (MasterUnreachable, Unavailable) as error:
            last = error
    if not answers:
        raise NotReady(f"no master of {site.name} answers: {last}")
    return _join_reports(answers)


def give_up(sites: Sequence[BulkSite], load: str) -> None:
    """Ends the preparation everywhere, as far as masters answer; the others forget it by themselves."""
    for site in sites:
        for master in site.masters:
            try:
                master.give_up(load)
            except TxLogError:
                continue


def append_time_left(decided_at: float, retention_s: float) -> float:
    """Seconds for which the entry of a load may still be written; not above 0: it could become a second one."""
    return KEY_SHARE * retention_s - (time.time() - decided_at)


def forgotten_key(load: str, decided_at: float, retention_s: float) -> BulkKeyForgotten:
    """The error where :func:`append_time_left` has nothing left."""
    return BulkKeyForgotten(
        f"it was decided {(time.time() - decided_at) / 3600:.1f} hours ago that the load {load} happens, and its key "
        f"may be forgotten (keyRetention {retention_s:g} s); look for bulk.{load} with txlog log, and load with "
        "--again where it is not"
    )


def commit_load(home: LoadFolder, sites: Sequence[BulkSite], load: BulkReference, retention_s: float) -> str:
    """Decides that the load happens, and appends its entry. Returns the transaction. ``retention_s``: for how long the
    masters know its key. :class:`LoadAborted` where it was decided otherwise, :class:`BulkKeyForgotten` where it was
    decided too long ago. :class:`~txlog.model.errors.Unavailable`: not known yet; the same call continues."""
    decision = home.decide("commit", time.time())
    if decision.decision != "commit":
        raise LoadAborted(f"the load {load.id} was aborted; begin again")
    left_s = append_time_left(decision.at, retention_s)
    if left_s <= 0:
        raise forgotten_key(load.id, decision.at, retention_s)
    until = time.monotonic() + min(APPEND_S, left_s)
    last: TxLogError | None = None
    while True:
        for number, master in enumerate(each for site in sites for each in site.masters):
            if number and time.monotonic() > until:
                break  # masters that hang must not put the next request off beyond the key
            try:
                txid = master.append(load)
                if txid is not None:
                    return txid
            except (MasterUnreachable, Unavailable) as error:
                last = error
        if time.monotonic() > until:
            raise Unavailable(
                "OutcomeUnknown",
                f"no master says that the entry of the load {load.id} is stable ({last or 'not in time'}). It is "
                "decided that it happens: the same command continues",
            )
        time.sleep(POLL_S)


def await_loaded(
    sites: Sequence[BulkSite], load: BulkReference, index: int, timeout_s: float, on_progress: ProgressCallback
) -> list[tuple[str, BulkWorker]]:
    """Returns the workers by data centre when every working one has the load, or after ``timeout_s``.
    :class:`~txlog.model.errors.Unavailable` where no master of a data centre answers then: the load is in the log."""
    until = time.monotonic() + timeout_s
    while True:
        workers, silent = _describe_all(sites)
        done = [worker for _, worker in workers if worker.index >= index]
        on_progress(PreparationProgress(load.quads * len(done), len(done), len(workers)))
        awaited = (WorkerState.WORKING, WorkerState.BLOCKED, UNREPORTED)
        waits = [w for _, w in workers if w.index < index and w.state in awaited]
        is_over = time.monotonic() > until
        if is_over and silent:
            raise Unavailable(
                "NoMaster",
                f"the load {load.id} is in the log, at index {index}. It is not known which workers have it: "
                f"{'; '.join(silent)}. Each loads it when it is there; see txlog worker list",
            )
        if (done and not waits and not silent) or is_over:
            return workers
        time.sleep(POLL_S)


def _describe_all(sites: Sequence[BulkSite]) -> tuple[list[tuple[str, BulkWorker]], list[str]]:
    """The workers by data centre, and why those of a data centre are not known now."""
    workers: list[tuple[str, BulkWorker]] = []
    silent: list[str] = []
    for site in sites:
        try:
            workers += [(site.name, worker) for worker in describe_workers(site)]
        except NotReady as no_answer:
            silent.append(str(no_answer))
    return workers, silent
