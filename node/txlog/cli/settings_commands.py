"""``txlog get`` and ``txlog set``: the live settings of the masters, shown and changed while they run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.cli.cli_cluster import ask_each, cluster_at, local_cluster
from txlog.cli.options import ClusterOptions, register
from txlog.cli.tables import Row, err, print_line, show_json, show_table, warn
from txlog.client import MasterClient
from txlog.client.errors import MasterUnreachable
from txlog.config.cluster_properties import read_text
from txlog.config.preferences import preference_key, property_name, read_changes, read_properties
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput, ChangePending, Conflict, TxLogError, Unavailable

app = typer.Typer()
SPLIT_RECOVERY = "splitRecovery"
VIEW_RENEWAL_TIMEOUT_S = 15.0
"""How long the command waits for the view that follows a changed strategy. The view comes without it, too."""

SettingsReply = dict[str, Any] | TxLogError


@register(app)
def get(
    key: Annotated[str | None, typer.Argument(help="one setting, in either spelling")] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show the live settings of the masters, and the source of each value."""
    wanted = preference_key(key) if key is not None else None
    answers = ask_each(_masters_by_name(cluster), MasterClient.settings)
    found = {node: answer for node, answer in answers.items() if not isinstance(answer, TxLogError)}
    failed = _failures(answers)
    if not found:
        raise Unavailable("NoMaster", f"no master answers: {next(iter(failed.values()))}")
    rows = [
        {"master": node, **one}
        for node, answer in found.items()
        for one in answer["settings"]
        if wanted is None or one["key"] == wanted
    ]
    if cluster.json:
        views = {node: answer["view"] for node, answer in found.items()}
        show_json({"settings": rows, "views": views, "notReached": list(failed)})
    else:
        show_table(["KEY", "IN cluster.properties", "VALUE", "FROM", "MASTERS"], _group_by_value(rows, list(found)))
        _print_strategy(found)
    for node, why in failed.items():
        warn(f"{node} was not reached: {why}")


@register(app, "set")
def set_settings(
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY VALUE]...", help="or KEY=VALUE; `manifest` ends a live value")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="read a cluster.properties file")] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Change live settings at all masters, durably, without a restart. A value holds until the manifest's value of that
    key changes. All masters check the change first. `splitRecovery` changes everywhere or nowhere."""
    changes, passed_over = _requested_changes(pairs or [], file)
    masters = _masters_by_name(cluster)
    before = _check_changes(masters, changes)
    silent = _failures(before)
    reached = {node: url for node, url in masters.items() if node not in silent}
    answers = {**ask_each(reached, lambda master: master.change_settings(changes)), **silent}
    if SPLIT_RECOVERY in changes:
        _roll_back_partial_change(masters, before, answers)
    failed = {node: str(why) for node, why in _failures(answers).items()}
    took = [node for node in answers if node not in failed]
    strategy = _wait_for_view({node: masters[node] for node in took}) if SPLIT_RECOVERY in changes and took else None
    if cluster.json:
        result = {"changes": changes, "took": took, "failed": failed, "splitRecovery": strategy}
        show_json({**result, "passedOver": passed_over})
    else:
        _print_changes(changes, answers)
        if passed_over:
            print_line(f"passed over, since manifests say them: {', '.join(passed_over)}")
        if strategy is not None:
            print_line(f"split recovery in force: {strategy}")
    if failed:
        if not cluster.json:
            err.print(f"not set at {', '.join(failed)}: say it again when they are there", style="red", highlight=False)
        raise typer.Exit(1)


def _failures(answers: dict[str, SettingsReply]) -> dict[str, TxLogError]:
    return {node: answer for node, answer in answers.items() if isinstance(answer, TxLogError)}


def _requested_changes(pairs: Sequence[str], file: Path | None) -> tuple[dict[str, str | None], list[str]]:
    if file is None:
        return read_changes(_parse_pairs(pairs)), []
    if pairs:
        raise BadInput("either --file or KEY VALUE, not both")
    return read_properties(read_text(file), str(file))


def _parse_pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals:
            value = next(rest, "")
        if not value:
            raise BadInput(f"{name[:80]} has no value; expected KEY VALUE or KEY=VALUE")
        found.append((name, value))
    return found


def _masters_by_name(options: ClusterOptions) -> dict[str, str]:
    """URLs by name: by node id where the state folder knows it, else by URL."""
    if options.master:
        cluster_at(options.master)  # each must answer
        return {url: url for url in options.master}
    local_cluster(options.state)
    return {place.node: place.url for place in StateFolder(options.state).topology().masters}


def _check_changes(masters: dict[str, str], changes: dict[str, str | None]) -> dict[str, SettingsReply]:
    """By master: its settings now, or why it cannot be asked. Raises, and nothing was changed anywhere, when a master
    refuses, or when a strategy would not reach every master."""
    answers = ask_each(masters, lambda client: client.change_settings(changes, check=True))
    silent = _failures(answers)
    refused = [why for why in silent.values() if isinstance(why, BadInput | ChangePending | Conflict)]
    if refused:
        raise type(refused[0])(f"nothing was changed: {'; '.join(dict.fromkeys(map(str, refused)))}")
    if silent and len(silent) == len(answers):
        raise Unavailable("NoMaster", f"nothing was changed: no master answers: {next(iter(silent.values()))}")
    if silent and SPLIT_RECOVERY in changes:
        raise Conflict(
            f"nothing was changed: splitRecovery needs every master to be there and Joined; {', '.join(silent)} "
            f"did not answer: {next(iter(silent.values()))}"
        )
    return answers


def _roll_back_partial_change(
    masters: dict[str, str], before: dict[str, SettingsReply], answers: dict[str, SettingsReply]
) -> None:
    """Raise when a master became unreachable after the check. The masters that took the strategy return to their
    former preference first."""
    failed = _failures(answers)
    if not failed:
        return
    kept: list[str] = []
    for node, answer in answers.items():
        was = before[node]
        if isinstance(answer, TxLogError) or isinstance(was, TxLogError) or SPLIT_RECOVERY not in answer["changed"]:
            continue
        one = next(each for each in was["settings"] if each["key"] == SPLIT_RECOVERY)
        back = {SPLIT_RECOVERY: one["value"] if one["source"] in ("live", "properties") else None}
        kept += _failures(ask_each({node: masters[node]}, partial(MasterClient.change_settings, changes=back)))
    why = "; ".join(f"{node}: {answer}" for node, answer in failed.items())
    held = f", but {', '.join(kept)} could not be set back: set it again when all are Joined" if kept else " anywhere"
    raise Conflict(f"splitRecovery was not changed{held}; {why}")


def _wait_for_view(masters: dict[str, str]) -> str | None:
    """The strategy of the view that follows the changed preferences; None when it is not installed in time."""
    until = time.monotonic() + VIEW_RENEWAL_TIMEOUT_S
    while time.monotonic() < until:
        answers = ask_each(masters, MasterClient.settings).values()
        found = [answer for answer in answers if not isinstance(answer, TxLogError)]
        views = [one["view"] for one in found if one["view"] is not None]
        is_final = len(views) == len(masters) and not any(view["renewing"] for view in views)
        if is_final and len({view["number"] for view in views}) == 1 and all(one["state"] == "Joined" for one in found):
            return str(views[0]["splitRecovery"])
        time.sleep(0.1)
    err.print("the next view is not there yet; see txlog status", style="yellow")
    return None


def _print_changes(changes: dict[str, str | None], answers: dict[str, SettingsReply]) -> None:
    rows: list[Row] = []
    for node, answer in answers.items():
        if isinstance(answer, TxLogError):
            reason = "not reached" if isinstance(answer, MasterUnreachable) else str(answer)
            rows.append((node, reason, ""))
            continue
        values = {one["key"]: one for one in answer["settings"]}
        now = ", ".join(f"{key} {values[key]['value']}" for key in changes)
        rows.append((node, "set" if answer["changed"] else "as it was", now))
    show_table(["MASTER", "", "NOW"], rows)


def _group_by_value(rows: list[dict[str, Any]], masters: list[str]) -> list[Row]:
    """The rows of a table: one where all masters have the same value."""
    by_value: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        by_value.setdefault((row["key"], row["value"], row["source"]), []).append(row["master"])
    order = list(dict.fromkeys(row["key"] for row in rows))
    return [
        (key, property_name(key), value, source, "all" if nodes == masters else ", ".join(nodes))
        for (key, value, source), nodes in sorted(by_value.items(), key=lambda each: order.index(each[0][0]))
    ]


def _print_strategy(found: dict[str, dict[str, Any]]) -> None:
    for node, answer in found.items():
        view = answer["view"]
        if view is not None and view["renewing"]:
            print_line(f"{node}: view {view['number']} still has {view['splitRecovery']}")
    strategies = {answer["view"]["splitRecovery"] for answer in found.values() if answer["view"] is not None}
    if strategies:
        print_line(f"split recovery in force: {', '.join(sorted(strategies))}")
