"""``txlog split-report`` and ``branches``: past splits and abandoned branches, from the records of all masters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from txlog.cli.cli_cluster import CliCluster, find_cluster
from txlog.cli.options import ClusterOptions, register
from txlog.cli.tables import format_time, out, print_line, print_rows, show_json, show_table, warn
from txlog.client import MasterClient
from txlog.model.errors import BadInput, NotFound, TxLogError

app = typer.Typer()
REPORT_LIMITS = (
    "Not in it: transactions of a branch that were not ordered there yet when it was stopped; times are of each "
    "master's own clock"
)
PHASE_TITLES = {
    "untilIsolated": "from the first silence until all continued alone",
    "backingUp": "the longest backup for that",
    "apart": "each side on its own",
    "rejoining": "from the stop of the branches until all were in one view",
    "goingBack": "until the last worker was on the log again",
}


RETURN_DUTIES = ("restore", "unorder", "skip-ahead")
"""Kinds of the duties that bring a worker back to the log; ``skip-ahead`` is the next release's name of ``unorder``."""


@register(app)
def split_report(cluster: ClusterOptions) -> None:
    """Show each split: its sides, times and transactions. Also the entries that moved, the workers that went back, and
    the named graphs that changed for clients."""
    show_splits(find_cluster(cluster), cluster.json)


def show_splits(cluster: CliCluster, json: bool) -> None:
    """Print what ``txlog split-report`` shows of a cluster."""
    answers = cluster.ask_all(MasterClient.splits)
    missing = [f"{url}: {answer}" for url, answer in answers.items() if isinstance(answer, TxLogError)]
    done = cluster.state.read("duties.json", {}).get("done", []) if cluster.state else []
    duties = [each for each in done if each["kind"] != "repair" and not each.get("repository")]
    found = build_split_report([each for each in answers.values() if not isinstance(each, TxLogError)], duties)
    if json:
        show_json({"splits": found, "notHeard": missing, "leftOut": REPORT_LIMITS})
        return
    for each in found:
        _show_split(each)
    if not found:
        out.print("no split is known")
    for text in missing:
        print_line(f"no answer: {text}", "yellow")
    print_line(REPORT_LIMITS, "dim")


@register(app)
def branches(
    view: Annotated[str | None, typer.Argument(help="view of a branch, as in the list: show its entries")] = None,
    after: Annotated[int, typer.Option(min=0, help="only entries above this index")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="the largest number of entries")] = 1000,
    full: Annotated[bool, typer.Option("--full", help="with the payload of each transaction")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List the abandoned branches, or the entries of one. Every master that was on a branch keeps it."""
    if full and view is None:
        raise BadInput("txlog branches --full: expected a VIEW; `txlog branches` lists them")
    masters = find_cluster(cluster)
    if view is None:
        _list_branches(masters, cluster.json)
        return
    entries = _branch_entries(masters, view, after, limit, full=full)
    print_rows(
        cluster.json,
        entries,
        ["INDEX THERE", "TRANSACTION", "HASH THERE", "INDEX NOW", *(["KIND", "PAYLOAD"] if full else [])],
        [(e["index"], e["id"], e["hash"], e["now"], *(_entry_content(e) if full else ())) for e in entries],
        "no entries after that index",
    )


def _entry_content(entry: dict[str, Any]) -> tuple[str, str]:
    """Kind and payload, or why they are not there."""
    missing = entry["missing"]
    if missing is not None:
        return missing["reason"], f"({missing['text']})"
    return entry["kind"], entry["payload"].rstrip("\n")


def _list_branches(cluster: CliCluster, json: bool) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for url, answer in cluster.ask_all(lambda client: (client.status().node, client.branches())).items():
        if isinstance(answer, TxLogError):
            warn(f"no answer: {url}: {answer}")
        else:
            found[answer[0]] = answer[1]
    rows = [(node, one) for node, several in found.items() for one in several]
    print_rows(
        json,
        found,
        ["KEPT BY", "VIEW", "MASTERS", "GIVEN UP", "BY VIEW", "BEHIND INDEX", "ITS END", "STABLE TO"],
        [
            (
                node,
                b["view"],
                ", ".join(b["members"]),
                format_time(b["at"]),
                b["endedBy"],
                b["after"],
                b["end"],
                b["stable"],
            )
            if "error" not in b
            else (node, b["view"], b["error"])
            for node, b in sorted(rows, key=lambda row: (row[1]["at"], row[1]["view"], row[0]))
        ],
        "no branch was abandoned",
    )


def _branch_entries(cluster: CliCluster, view: str, after: int, limit: int, *, full: bool) -> list[dict[str, Any]]:
    """The entries as the first master reports them that has the branch."""
    refused: TxLogError | None = None
    for url in cluster.masters:
        with MasterClient(url) as client:
            try:
                return client.branch_entries(view, after, limit, payload=full)
            except TxLogError as error:
                refused = refused if isinstance(refused, NotFound) else error
    raise refused or NotFound("no master was named")


def build_split_report(seen: list[dict[str, Any]], duties: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The splits, oldest first: one for each view with members that were silent in the view before, and one that is not
    over. ``seen``: the records of each master that answers; ``duties``: those that the supervisor has done. ``moved``:
    entries of a branch's log that have another index since. Pure."""
    rejoins: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for one in seen:
        for record in one["records"]:
            if "view" in record and _is_rejoin(record):
                rejoins.setdefault(record["view"]["number"], []).append((one, record))
    found = [_closed_split(number, rows, seen, duties) for number, rows in rejoins.items()]
    open_now = [(one, last) for one in seen if (last := _last_view(one)) is not None and last["view"]["silent"]]
    if open_now:
        found.append(_open_split(open_now, duties))
    found.sort(key=lambda split: split["began"] or 0.0)
    before = 0.0
    for split in found:
        split["duties"] = [d for d in split["duties"] if d.get("at", 0.0) > before]
        split["restoredWorkers"] = sorted({d["worker"] for d in split["duties"] if d["kind"] == "restore"})
        split["unorderedWorkers"] = sorted({d["worker"] for d in split["duties"] if d["kind"] in RETURN_DUTIES[1:]})
        before = split["ended"] or before
        split["seconds"] |= _duty_durations(split)
        split["graphs"] = _changed_graphs(split)
    return found


def _changed_graphs(split: dict[str, Any]) -> dict[str, Any]:
    """The graphs that clients have seen with other content than after the merge. ``sides``: the comparisons;
    ``notTold``: what could not be compared, and why."""
    sides: list[dict[str, Any]] = []
    unknown: list[str] = []
    for duty in split["duties"]:
        shown = duty.get("shown")
        if duty["kind"] != "restore" or not shown or shown.get("endedBy", split["endedBy"]) != split["endedBy"]:
            continue
        sides += [
            {"dataCenter": duty["dataCenter"], "worker": duty["worker"], "comparedAt": shown["comparedAt"], **side}
            for side in shown.get("sides", [])
        ]
        if "notTold" in shown:
            unknown.append(f"{duty['worker']}: {shown['notTold']}")
    if split["endedBy"] is None:
        unknown.append("it is not over")
    elif split["strategy"] == "None":
        unknown.append("no worker went back: each has executed in its own order (splitRecovery None)")
    elif not sides and not unknown:
        unknown.append("no worker went back for it that could be compared")
    return {"sides": sides, "notTold": unknown}


def _duty_durations(split: dict[str, Any]) -> dict[str, float | None]:
    """The seconds of the longest backup, and those from the view that ended the split until the last worker was on the
    log again. Such a worker still executes what follows its backup."""
    backups = [d["seconds"] for d in split["duties"] if d["kind"] == "backup" and "seconds" in d]
    back = [d["at"] for d in split["duties"] if d["kind"] in RETURN_DUTIES and "at" in d]
    return {
        "backingUp": max(backups, default=None),
        "goingBack": _elapsed(max(back, default=None), split["rejoined"]),
    }


def _is_rejoin(record: dict[str, Any]) -> bool:
    return set(record["before"]["silent"]) & set(record["view"]["members"]) != set()


def _last_view(one: dict[str, Any]) -> dict[str, Any] | None:
    return next((r for r in reversed(one["records"]) if "view" in r), None)


def _closed_split(
    number: str,
    rows: list[tuple[dict[str, Any], dict[str, Any]]],
    seen: list[dict[str, Any]],
    duties: list[dict[str, Any]],
) -> dict[str, Any]:
    """A split that the view ``number`` ended."""
    branches = _branches_by_view([(one, record["before"], record["end"], record["kept"]) for one, record in rows])
    rejoined = min(record["at"] for _, record in rows)
    view = rows[0][1]["view"]
    states = [(one["node"], r) for one in seen for r in one["records"] if "state" in r]
    began = max(_split_starts(states, rejoined), default=None)
    ended = max(
        (_first_state_change(states, node, "Joined", rejoined) or rejoined for node in view["members"]),
        default=rejoined,
    )
    isolated = [r["at"] for _, r in states if r["state"] == "Isolated" and began and began <= r["at"] <= rejoined]
    stopped = [
        r["at"]
        for _, r in states
        if r["state"] == "Rejoining" and r.get("was") == "Isolated" and rejoined - 60 <= r["at"] <= rejoined
    ]
    return {
        "endedBy": number,
        "strategy": "Simple" if view["merged"] else view["strategy"],
        "began": began,
        "rejoined": rejoined,
        "ended": ended,
        "branches": branches,
        "moved": sum(branch["moved"] for branch in branches),
        "synchronous": _decisions([record for _, record in rows]),
        "duties": [d for d in duties if began and d.get("at", 0) >= began],
        "seconds": {
            "untilIsolated": _elapsed(max(isolated, default=None), began),
            "apart": _elapsed(rejoined, min(isolated, default=None)),
            "rejoining": _elapsed(ended, min(stopped, default=rejoined)),
        },
    }


def _decisions(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Of the transactions that the rejoin found undecided: ``committed`` and ``rolledBack``, each with the index of the
    decision, and what is still ``undecided``. A master may not know a decision yet, or any more."""
    known: dict[str, dict[str, dict[str, Any]]] = {"committed": {}, "rolledBack": {}}
    for record in records:
        for word, found in known.items():
            for one in record.get(word, ()):
                if one["index"] is not None or one["txid"] not in found:
                    found[one["txid"]] = one
    decided = {txid for found in known.values() for txid in found}
    undecided = {txid for record in records for txid in record.get("undecided", ())} - decided
    rows = {word: [found[txid] for txid in sorted(found)] for word, found in known.items()}
    return {**rows, "undecided": sorted(undecided)}


def _open_split(rows: list[tuple[dict[str, Any], dict[str, Any]]], duties: list[dict[str, Any]]) -> dict[str, Any]:
    began = min(record["at"] for _, record in rows)
    return {
        "endedBy": None,
        "strategy": rows[0][1]["view"]["strategy"],
        "began": began,
        "rejoined": None,
        "ended": None,
        "branches": _branches_by_view([(one, record["view"], None, None) for one, record in rows]),
        "moved": None,
        "synchronous": _decisions([]),
        "duties": [d for d in duties if d.get("at", 0) >= began - 600],
        "seconds": {},
    }


def _branches_by_view(
    rows: list[tuple[dict[str, Any], dict[str, Any], int | None, int | None]],
) -> list[dict[str, Any]]:
    """The branches in the order of their views. The longest log of a view's members counts: shorter ones are prefixes
    of it."""
    found: dict[str, dict[str, Any]] = {}
    for _, view, end, kept in rows:
        branch = found.setdefault(
            view["number"],
            {"view": view["number"], "members": view["members"], "from": view["apartAt"], "end": end, "moved": 0},
        )
        if end is not None:
            branch["end"] = max(branch["end"] or 0, end)
            branch["moved"] = max(branch["moved"], end - kept if kept is not None else 0)
    for branch in found.values():
        known = branch["end"] is not None and branch["from"] is not None
        branch["transactions"] = max(0, branch["end"] - branch["from"]) if known else None
    return [found[number] for number in sorted(found)]


def _split_starts(states: list[tuple[str, dict[str, Any]]], before: float) -> list[float]:
    """When each master began to miss a peer, the last time before ``before``."""
    found: dict[str, float] = {}
    for node, record in states:
        if record["state"] == "Suspected" and record.get("was") != "Isolated" and record["at"] < before:
            found[node] = record["at"]
    return list(found.values())


def _first_state_change(states: list[tuple[str, dict[str, Any]]], node: str, state: str, after: float) -> float | None:
    return next((r["at"] for n, r in states if n == node and r["state"] == state and r["at"] >= after - 1.0), None)


def _elapsed(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else round(later - earlier, 1)


def _show_split(split: dict[str, Any]) -> None:
    over = split["endedBy"]
    end = f"rejoined by view {over} ({split['strategy']}) at {format_time(split['ended'])}" if over else "still there"
    print_line(f"split of {format_time(split['began'])}, {end}", "bold")
    show_table(
        ["BRANCH", "MASTERS", "APART SINCE INDEX", "LOG ENDED AT", "TRANSACTIONS", "MOVED"],
        [
            (b["view"], ", ".join(b["members"]), b["from"], b["end"], b["transactions"], b["moved"] if over else None)
            for b in split["branches"]
        ],
    )
    show_table(
        ["DUTY", "DATA CENTRE", "WHAT", "FROM", "INDEX", "SECONDS"],
        [
            (
                d["kind"],
                d["dataCenter"],
                d.get("worker") or d.get("name"),
                d.get("from"),
                d.get("index"),
                d.get("seconds"),
            )
            for d in split["duties"]
        ],
        "no backups and no workers that went back are known here",
    )
    _show_decisions(split["synchronous"])
    show_table(
        ["GRAPHS THAT ARE NOT WHAT WAS SHOWN BY", "AT INDEX", "NUMBER", "THE FIRST", "ALL OF THEM"],
        [
            (
                side["side"] if side["side"] == side["worker"] else f"{side['side']} (seen by {side['worker']})",
                side["shownAt"],
                side["graphs"],
                ", ".join(name or "(the default graph)" for name in side["first"][:3]),
                side["file"] if side["graphs"] > 3 else "",
            )
            for side in split["graphs"]["sides"]
        ],
        "graphs that differ from what was shown: not known",
    )
    for text in split["graphs"]["notTold"]:
        print_line(f"graphs: {text}", "dim")
    show_table(
        ["PHASE", "SECONDS"],
        [
            (text, split["seconds"][name])
            for name, text in PHASE_TITLES.items()
            if split["seconds"].get(name) is not None
        ],
        "no times are known here",
    )
    out.print()


def _show_decisions(found: dict[str, list[Any]]) -> None:
    """The synchronous transactions that nothing had decided when the sides met; nothing where there were none."""
    rows = [("committed", one["txid"], one["index"]) for one in found["committed"]]
    rows += [("rolled back", one["txid"], one["index"]) for one in found["rolledBack"]]
    rows += [("undecided", txid, None) for txid in found["undecided"]]
    if rows:
        show_table(["AT THE REJOIN", "SYNCHRONOUS TRANSACTION", "AT INDEX"], rows)
