"""Mutants of the model: the module without one safeguard. Each must violate the property that it names."""

from __future__ import annotations

from typing import Final, NamedTuple

Edits = tuple[tuple[str, str], ...]


class ModelMutant(NamedTuple):
    """``rule``: the rule of docs/design/protocol.md that is taken away. ``run``: the sizes that reach the violation;
    ``constants``: those that differ for this mutant."""

    name: str
    rule: int
    violates: str
    run: str
    edits: Edits
    constants: dict[str, str] = {}  # noqa: RUF012  (never changed)


MUTANTS: Final = (
    ModelMutant(
        "stamp-at-the-counter",
        4,
        "PromiseKept",
        "rounds",
        (("s == counter[m] + 1", "s == Max({counter[m], 1})"),),
        {"MaxWrites": "2"},
    ),
    ModelMutant(
        "counter-lost-in-a-crash",
        5,
        "PromisesGrow",
        "crashes",
        (
            (
                "counter' = [counter EXCEPT ![m] = @]",
                "counter' = [counter EXCEPT ![m] = Max({0} \\cup {e.s : e \\in Range(log[m]) \\cup queue[m]})]",
            ),
        ),
    ),
    ModelMutant(
        "promise-lost-in-a-crash",
        34,
        "SettledStays",
        "crash-in-a-view-change",
        (("promised' = [promised EXCEPT ![m] = @]", "promised' = [promised EXCEPT ![m] = view[m]]"),),
    ),
    ModelMutant(
        "post-before-it-is-durable",
        8,
        "SyncedKept",
        "crashes",
        (("queue' = [queue EXCEPT ![m] = @]", "queue' = [queue EXCEPT ![m] = {e \\in @ : txs[e.n].origin = m}]"),),
    ),
    ModelMutant(
        "counter-without-its-transactions",
        10,
        "OneOrder",
        "rounds",
        (("IF claim.own \\subseteq names /\\ claim.len <= length THEN", "IF claim.len <= length THEN"),),
        {"MaxWrites": "2"},
    ),
    ModelMutant(
        "silent-members-do-not-count",
        12,
        "OneOrder",
        "rounds",
        (
            (
                "Usable(claims[t], all, Len(lg1)) : t \\in peers}",
                "Usable(claims[t], all, Len(lg1)) : t \\in IF alone THEN {} ELSE peers}",
            ),
        ),
        {"MaxWrites": "2"},
    ),
    ModelMutant(
        "stable-is-the-end-of-the-log",
        33,
        "SettledStays",
        "split",
        (("end    == StableIndex(lg2, stable[r], peers, claims)", "end    == Len(lg2)"),),
    ),
    ModelMutant(
        "stamped-while-stopped",
        21,
        "KeysGrow",
        "majority",
        (
            ("     IN IF Working(m)\n", "     IN IF TRUE\n"),
            (
                "stamped == {[n |-> n, s |-> floor + Cardinality({x \\in own : x <= n})] : n \\in own}",
                "stamped == {e \\in queue[m] : e.n \\in own}",
            ),
        ),
    ),
    ModelMutant(
        "stopped-view-resumed",
        34,
        "SettledStays",
        "majority",
        (
            (
                "Working(m) == view[m] /= NoView /\\ installed[m] /\\ promised[m] = view[m]",
                "Working(m) == view[m] /= NoView /\\ installed[m]",
            ),
        ),
    ),
    ModelMutant(
        "accepted-view-not-reported",
        21,
        "SettledStays",
        "majority",
        (
            (
                "IN IF Majority THEN {Max(reported)}",
                "    known    == {r.view : r \\in {x \\in R : x.installed}}\n"
                "  IN IF Majority THEN {Max(IF known = {} THEN reported ELSE known)}",
            ),
        ),
    ),
    ModelMutant(
        "opened-before-it-is-closed",
        21,
        "SettledStays",
        "split",
        (("IN longest \\o Sorted({e \\in waiting : e.n \\notin Names(Range(longest))})", "IN longest"),),
    ),
    ModelMutant(
        "answered-at-the-accept",
        21,
        "SettledStays",
        "majority",
        (
            (
                "     /\\ UNCHANGED <<txs, birth, promised, worker, settled, lost, crashes, disks>>",
                "     /\\ settled' = [settled EXCEPT ![b] = Order(plan.base)]\n"
                "     /\\ UNCHANGED <<txs, birth, promised, worker, lost, crashes, disks>>",
            ),
        ),
    ),
    ModelMutant(
        "majority-not-asked",
        20,
        "OneViewAtWork",
        "majority",
        (("IsMajority(S) == 2 * Cardinality(S) > N", "IsMajority(S) == S /= {}"),),
        {"Proposals": "{{1, 2}, {3}}", "MaxWrites": "1"},
    ),
    ModelMutant(
        "learner-votes",
        2,
        "SettledStays",
        "lost-disk",
        (("Majority => IsMajority({r.node : r \\in R})", "Majority => IsMajority(Members(b))"),),
    ),
    ModelMutant(
        "lost-disk-keeps-its-vote",
        2,
        "SettledStays",
        "lost-disk",
        (
            ("birth' = [birth EXCEPT ![m] = @ + 1]", "birth' = birth"),
            ("promised' = [promised EXCEPT ![m] = NoView]", "promised' = promised"),
            ("view' = [view EXCEPT ![m] = NoView]", "view' = view"),
            (
                "  /\\ installed' = [installed EXCEPT ![m] = FALSE]\n  /\\ stable'",
                "  /\\ installed' = installed\n  /\\ stable'",
            ),
        ),
    ),
    ModelMutant(
        "view-left-behind-votes",
        25,
        "SettledStays",
        "split",
        (("  \\/ v \\in Ancestors(w)\n", "  \\/ FALSE\n"),),
        {"Proposals": "{{3}, {1, 2, 3}}", "Coordinators": "{3}", "MaxNumber": "5"},
    ),
    ModelMutant(
        "written-meanwhile-is-dropped", 3, "AcceptedKept", "majority", (("own    == Own(m, before)", "own    == {}"),)
    ),
    ModelMutant(
        "taken-twice-at-a-rejoin",
        26,
        "NoneTwice",
        "rejoin-smart",
        (
            (
                "outside  == Sorted(Least({e \\in all : e.n \\notin Names(Range(base))}))",
                "outside  == Sorted(Least(all))",
            ),
        ),
    ),
    ModelMutant(
        "branches-one-after-the-other",
        26,
        "KeysGrow",
        "rejoin-simple",
        (
            (
                "IN SubSeq(one, 1, shared) \\o Sorted(Least(after))",
                "    others == {e \\in Least(after) : e.n \\notin Names(Range(one))}\n"
                "  IN SubSeq(one, 1, shared) \\o Sorted(others) \\o SubSeq(one, shared + 1, Len(one))",
            ),
        ),
    ),
    ModelMutant(
        "worker-stays-off-the-log",
        25,
        "WorkerFollows",
        "rejoin-smart",
        (("     ELSE Replay(lg, 0, to)", "     ELSE w \\o Replay(lg, Len(w), to)"),),
    ),
    ModelMutant(
        "key-judged-at-the-door",
        16,
        "KeyOnce",
        "rounds",
        (
            (
                "\\A j \\in 1 .. i - 1 : lg[j].n = lg[i].n",
                "\\A j \\in 1 .. i - 1 : txs[lg[j].n].origin /= txs[lg[i].n].origin",
            ),
        ),
        {"MaxWrites": "2"},
    ),
    ModelMutant(
        "key-not-judged-again-after-a-rejoin",
        16,
        "KeyOnce",
        "rejoin-smart",
        (
            (
                "     ELSE Replay(lg, 0, to)",
                "     ELSE [i \\in 1 .. to |-> [n |-> lg[i].n,\n"
                "                             counts |-> \\E j \\in 1 .. Len(w) : w[j].n = lg[i].n /\\ w[j].counts]]",
            ),
        ),
    ),
)
