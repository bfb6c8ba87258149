"""Compares digests of several workers: which worker's data is wrong, since when, and how that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from txlog.model.graph_digests import KINDS, GraphDigests, differing_graphs
from txlog.model.store_cell import StoreCell
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers.adapter import fingerprint_family

POSITIONS_KEPT: Final = 3
"""Positions at which digests of a worker are kept, for each kind: data centres take digests at different moments."""
GRAPHS_NAMED_MAX: Final = 20
"""The most graphs that a finding names."""
CELLS_NAMED_MAX: Final = 20
"""The most cells of a worker whose digests are kept, and that its finding names."""
_Scope = tuple[str, StoreCell | None]
_REFUSAL: Final[_Scope] = ("refusal", None)


class ObservedWorker(msgspec.Struct, frozen=True):
    """A worker with its digests. ``name``: ``data centre/worker``. ``refused_txid``: the transaction that it refuses
    alone, while it is ``Blocked``; ``index``, ``fence``: its reported marker."""

    name: str
    engine: str
    digests: Sequence[GraphDigests] = ()
    refused_txid: str | None = None
    index: int = 0


def append_digest(looks: Sequence[GraphDigests], look: GraphDigests) -> list[GraphDigests]:
    """The digests with one more. For a marker it keeps the first digest and the last one that differs, at
    :data:`POSITIONS_KEPT` positions of each kind, or each cell."""
    mine = [each for each in looks if each.scope == look.scope]
    same = [each for each in mine if (each.position, each.fence) == (look.position, look.fence)]
    if any(each.fingerprint == look.fingerprint for each in same[-1:]):
        return list(looks)
    kept = [*(each for each in mine if each not in same), *same[:1], look]
    places = list(dict.fromkeys((each.position, each.fence) for each in kept))[-POSITIONS_KEPT:]
    others = [each for each in looks if each.scope != look.scope]
    if look.cell is not None:
        cells = list(dict.fromkeys(each.cell for each in others if each.cell is not None))[1 - CELLS_NAMED_MAX :]
        others = [each for each in others if each.cell is None or each.cell in cells]
    return [*others, *(each for each in kept if (each.position, each.fence) in places)]


def merge_digests(looks: Sequence[GraphDigests], others: Iterable[GraphDigests]) -> list[GraphDigests]:
    """The union of what two masters have kept of one worker."""
    found = list(looks)
    for look in others:
        if look not in found:
            found = append_digest(found, look)
    return found


class DivergenceDetector:
    """The current findings, by worker and kind of digest, or cell. Each call of :meth:`judge` compares everything
    again, and returns the new findings and the workers whose finding was removed."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, _Scope], DivergenceFinding] = {}
        self._engines: dict[str, str] = {}

    def finding_of(self, worker: str) -> DivergenceFinding | None:
        """The most serious finding of a worker, with all cells that are known to differ; or None."""
        mine = [finding for (name, _), finding in self._findings.items() if name == worker]
        kinds = ("counts", "cells", "sums", "refusal")
        first = max(mine, key=lambda each: (each.wrong, kinds.index(each.kind)), default=None)
        cells = [each for each in mine if each.kind == "cells" and first is not None and each.wrong is first.wrong]
        if first is None or not cells:
            return first
        named = [cell for each in cells for cell in each.cells][:CELLS_NAMED_MAX]
        return _merge_cells(cells, named) if first.kind == "cells" else msgspec.structs.replace(first, cells=named)

    def judge(self, subjects: Sequence[ObservedWorker]) -> tuple[list[tuple[str, DivergenceFinding]], list[str]]:
        """Compare the digests of all workers whose engines have comparable digests.

        Returns the findings that are new or changed, each with its worker, and the workers whose findings all ended.
        A raised fence, after a repair or a rebuild, ends the findings of a worker, except a refusal."""
        before = dict(self._findings)
        known = {subject.name for subject in subjects}
        fences = {s.name: s.digests[-1].fence for s in subjects if s.digests}
        for key, finding in before.items():
            name, scope = key
            gone = name not in known or (scope != _REFUSAL and fences.get(name, finding.fence) != finding.fence)
            if gone:
                del self._findings[key]
        digests = (look for subject in subjects for look in subject.digests)
        scopes = dict.fromkeys(look.scope for look in digests if look.kind in KINDS)  # a newer master may send others
        for key in [key for key in self._findings if key[1] != _REFUSAL and key[1] not in scopes]:
            del self._findings[key]  # newer cells have taken its place
        self._engines = {subject.name: subject.engine for subject in subjects}
        for alike in dict.fromkeys(fingerprint_family(subject.engine) for subject in subjects):
            group = [subject for subject in subjects if fingerprint_family(subject.engine) == alike]
            for scope in scopes:
                # Digests from before a repair or a rebuild do not describe the worker's present data.
                self._compare(
                    scope,
                    {
                        s.name: [o for o in s.digests if (o.scope, o.fence) == (scope, fences[s.name])]
                        for s in group
                        if s.digests
                    },
                )
            self._end_what_sums_contradict(group)
        self._check_refusals(subjects)
        new = [
            (name, finding)
            for (name, scope), finding in self._findings.items()
            if (was := before.get((name, scope))) is None or (was.wrong, was.graphs) != (finding.wrong, finding.graphs)
        ]
        lifted = sorted({name for name, _ in before} - {name for name, _ in self._findings})
        return new, lifted

    def _compare(self, scope: _Scope, looks: Mapping[str, Sequence[GraphDigests]]) -> None:
        for name, mine in looks.items():
            self._compare_with_itself(scope, name, mine)
        at: dict[tuple[int, str], dict[str, GraphDigests]] = {}
        for name, mine in looks.items():
            for look in mine:  # the later one at a position counts
                at.setdefault(look.position, {})[name] = look
        common = [place for place, there in at.items() if len(there) > 1]
        if not common:
            return
        place = max(common)
        there = at[place]
        wrong = {name for name in there if (f := self._findings.get((name, scope))) is not None and f.wrong}
        voting = {name: look for name, look in there.items() if name not in wrong}
        votes = Counter(look.fingerprint for look in voting.values())
        winner, count = votes.most_common(1)[0] if votes else ("", 0)
        decided = len(votes) == 1 or 2 * count > len(there)
        right = sorted(name for name, look in voting.items() if look.fingerprint == winner) if decided else []
        for name, look in there.items():
            if right and look.fingerprint == winner:
                self._findings.pop((name, scope), None)
            elif right:
                why = (
                    f"{count} of {len(there)} workers hold the same there"
                    if name not in wrong
                    else self._findings[name, scope].why
                )
                self._record(scope, name, look, there[right[0]], True, why, right)
            elif name not in wrong:
                other = next((o for o in voting.values() if o.fingerprint != look.fingerprint), None)
                if other is not None:
                    why = f"undecided: {len(votes)} different contents, none held by more than half of {len(there)}"
                    self._record(scope, name, look, other, False, why, [])

    def _end_what_sums_contradict(self, group: Sequence[ObservedWorker]) -> None:
        """A worker whose sums equal those of another one, reported after all of its cells, holds what it should. So a
        quad that was planted and removed again outside the log leaves no finding, also where the data centre has no
        other worker to compare the cell with."""
        for subject in group:
            last = next((look for look in reversed(subject.digests) if look.kind != "counts"), None)
            if last is None or last.kind != "sums" or (subject.name, last.scope) in self._findings:
                continue
            content = (last.scope, last.position, last.fingerprint)
            others = (look for other in group if other is not subject for look in other.digests)
            if any((look.scope, look.position, look.fingerprint) == content for look in others):
                mine = [key for key in self._findings if key[0] == subject.name and key[1][0] == "cells"]
                for key in [key for key in mine if self._findings[key].index <= last.index]:
                    del self._findings[key]

    def _compare_with_itself(self, scope: _Scope, name: str, looks: Sequence[GraphDigests]) -> None:
        """Compare a worker's digests at one marker, without other workers. They must be equal: data and marker
        change in one transaction."""
        if not looks:
            return
        last = looks[-1]
        first = next(look for look in looks if (look.position, look.fence) == (last.position, last.fence))
        found = self._findings.get((name, scope))
        if first.fingerprint != last.fingerprint:
            if found is None or not found.wrong:
                why = f"it held something else before at index {last.index}: changed without TxLog"
                self._record(scope, name, last, first, True, why, [])
        elif found is not None and found.why.startswith("it held") and found.index == last.index:
            del self._findings[name, scope]  # it holds again what it held

    def _record(
        self,
        scope: _Scope,
        name: str,
        look: GraphDigests,
        right: GraphDigests,
        wrong: bool,
        why: str,
        sources: Sequence[str],
    ) -> None:
        was = self._findings.get((name, scope))
        graphs = differing_graphs(look, right)
        self._findings[name, scope] = DivergenceFinding(
            scope[0],
            wrong,
            why,
            (graphs or [])[:GRAPHS_NAMED_MAX],
            None if graphs is None or look.more else len(graphs),
            look.index if was is None else was.first_index,
            look.index,
            look.hash,
            look.fence,
            [source for source in sources if self._engines[source] == self._engines[name]],
            [] if look.cell is None else [look.cell],
        )

    def _check_refusals(self, subjects: Sequence[ObservedWorker]) -> None:
        for subject in subjects:
            key = (subject.name, _REFUSAL)
            if subject.refused_txid is None:
                self._findings.pop(key, None)
                continue
            did = sorted(s.name for s in subjects if s.index > subject.index)
            refused = [s.name for s in subjects if s.refused_txid == subject.refused_txid]
            if not did:
                self._findings.pop(key, None)
                continue
            wrong = len(did) > len(refused)
            why = f"it refuses {subject.refused_txid}, which {len(did)} executed and {len(refused)} refused"
            index = subject.index + 1
            self._findings[key] = DivergenceFinding(
                "refusal", wrong, why, [], None, index, index, "", 0, did if wrong else []
            )


def _merge_cells(findings: Sequence[DivergenceFinding], cells: list[StoreCell]) -> DivergenceFinding:
    """One finding for several cells of a worker, which are all known to be wrong, or all undecided."""
    last = max(findings, key=lambda each: each.index)
    graphs = sorted({graph for each in findings for graph in each.graphs})
    known = all(each.graph_count is not None for each in findings)
    return msgspec.structs.replace(
        last,
        graphs=graphs[:GRAPHS_NAMED_MAX],
        graph_count=len(graphs) if known else None,
        first_index=min(each.first_index for each in findings),
        right=[name for name in last.right if all(name in each.right for each in findings)],
        cells=cells,
    )
