"""``txlog get`` and ``txlog set``: what the masters of this cluster prefer, looked at and changed while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.cli.output import (
    DEFAULT_STATE,
    JsonOption,
    MasterOption,
    StateOption,
    err,
    find_cluster,
    out,
    show_json,
    show_table,
)
from txlog.client import MasterClient
from txlog.client.errors import MasterUnreachable
from txlog.config.preferences import preference_key, property_name, read_changes, read_properties
from txlog.local.state_folder import StateFolder
from txlog.model.errors import BadInput, ChangePending, Conflict, TxLogError, Unavailable

SPLIT_RECOVERY = "splitRecovery"
VIEW_RENEWAL_TIMEOUT_S = 15.0
"""So long it is waited for the view that follows a changed strategy; it comes without anybody who waits, too."""
REQUEST_TIMEOUT_S = 5.0
FILE_BYTES_MAX = 1 << 20

SettingsReply = dict[str, Any] | TxLogError


def add_to(app: typer.Typer) -> None:
    app.command("get")(get)
    app.command("set")(set_settings)


def get(
    key: Annotated[str | None, typer.Argument(help="one setting, in either spelling")] = None,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Show the live settings of the masters, and the source of each value."""
    wanted = preference_key(key) if key is not None else None
    asked = _request_all(_masters_by_name(state, master), MasterClient.settings)
    told = {node: answer for node, answer in asked.items() if not isinstance(answer, TxLogError)}
    if not told:
        raise Unavailable("NoMaster", f"no master answers: {next(iter(asked.values()))}")
    rows = [
        {"master": node, **one}
        for node, answer in told.items()
        for one in answer["settings"]
        if wanted is None or one["key"] == wanted
    ]
    silent = [node for node in asked if node not in told]
    if json:
        views = {node: answer["view"] for node, answer in told.items()}
        show_json({"settings": rows, "views": views, "notReached": silent})
    else:
        show_table(["KEY", "IN cluster.properties", "VALUE", "FROM", "MASTERS"], _group_by_value(rows, list(told)))
        _print_strategy(told)
    for node in silent:
        err.print(f"{node} was not reached: {asked[node]}", style="yellow", markup=False, soft_wrap=True)


def set_settings(
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY VALUE]...", help="or KEY=VALUE; `manifest` ends a live value")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="read a cluster.properties file")] = None,
    master: MasterOption = None,
    state: StateOption = DEFAULT_STATE,
    json: JsonOption = False,
) -> None:
    """Change live settings at all masters, durably, without a restart. A value holds until the manifest's value of that
    key changes. All masters check the change first. `splitRecovery` changes everywhere or nowhere."""
    changes, placed = _requested_changes(pairs or [], file)
    masters = _masters_by_name(state, master)
    before = _check_changes(masters, changes)
    silent = {node: answer for node, answer in before.items() if isinstance(answer, TxLogError)}
    asked = _request_all(
        {n: url for n, url in masters.items() if n not in silent}, lambda m: m.change_settings(changes)
    )
    asked |= silent
    if SPLIT_RECOVERY in changes:
        _roll_back_partial_change(masters, before, asked)
    took = [node for node, answer in asked.items() if not isinstance(answer, TxLogError)]
    strategy = _wait_for_view({node: masters[node] for node in took}) if SPLIT_RECOVERY in changes and took else None
    failed = {node: str(answer) for node, answer in asked.items() if isinstance(answer, TxLogError)}
    if json:
        show_json({"changes": changes, "took": took, "failed": failed, "splitRecovery": strategy, "passedOver": placed})
    else:
        _print_changes(changes, asked)
        if placed:
            out.print(f"passed over, since manifests say them: {', '.join(placed)}", highlight=False)
        if strategy is not None:
            out.print(f"split recovery in force: {strategy}", highlight=False)
    if failed:
        if not json:
            err.print(f"not set at {', '.join(failed)}: say it again when they are there", style="red", highlight=False)
        raise typer.Exit(1)


def _requested_changes(pairs: Sequence[str], file: Path | None) -> tuple[dict[str, str | None], list[str]]:
    if file is None:
        return read_changes(_parse_pairs(pairs)), []
    if pairs:
        raise BadInput("either --file or KEY VALUE, not both")
    try:
        with open(file, "rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
    except OSError as wrong:
        raise BadInput(f"{file}: cannot be read: {wrong.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise BadInput(f"{file}: above {FILE_BYTES_MAX} bytes; expected a cluster.properties file")
    try:
        return read_properties(raw.decode("utf-8-sig"), str(file))
    except UnicodeDecodeError:
        raise BadInput(f"{file}: not text in UTF-8; expected a cluster.properties file") from None


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


def _masters_by_name(state: Path, given: Sequence[str] | None) -> dict[str, str]:
    """URLs by what each is called: its node id where the state folder knows it."""
    if given:
        find_cluster(state, given)  # each must answer
        return {url: url for url in given}
    find_cluster(state, None)
    return {place.node: place.url for place in StateFolder(state).topology().masters}


def _request_all(masters: dict[str, str], ask: Callable[[MasterClient], dict[str, Any]]) -> dict[str, SettingsReply]:
    asked: dict[str, SettingsReply] = {}
    for node, url in masters.items():
        with MasterClient(url, REQUEST_TIMEOUT_S) as client:
            try:
                asked[node] = ask(client)
            except TxLogError as error:
                asked[node] = error
    return asked


def _check_changes(masters: dict[str, str], changes: dict[str, str | None]) -> dict[str, SettingsReply]:
    """What each says now, or why it cannot be asked. Raises, and nothing was changed anywhere, when somebody refuses,
    or when a strategy would not reach everybody."""
    asked = _request_all(masters, lambda client: client.change_settings(changes, check=True))
    mistakes = (BadInput, ChangePending, Conflict)
    refused = {node: answer for node, answer in asked.items() if isinstance(answer, mistakes)}
    if refused:
        kind = type(next(iter(refused.values())))
        said = list(dict.fromkeys(str(answer) for answer in refused.values()))
        raise kind(f"nothing was changed: {'; '.join(said)}")
    silent = {node: answer for node, answer in asked.items() if isinstance(answer, TxLogError)}
    if silent and len(silent) == len(asked):
        raise Unavailable("NoMaster", f"nothing was changed: no master answers: {next(iter(silent.values()))}")
    if silent and SPLIT_RECOVERY in changes:
        raise Conflict(
            f"nothing was changed: splitRecovery needs every master to be there and Joined; {', '.join(silent)} "
            f"did not answer: {next(iter(silent.values()))}"
        )
    return asked


def _roll_back_partial_change(
    masters: dict[str, str], before: dict[str, SettingsReply], asked: dict[str, SettingsReply]
) -> None:
    """A master came apart in the moment between: those that took the strategy go back to what they preferred."""
    failed = {node: answer for node, answer in asked.items() if isinstance(answer, TxLogError)}
    if not failed:
        return
    kept: list[str] = []
    for node, answer in asked.items():
        was = before[node]
        if isinstance(answer, TxLogError) or isinstance(was, TxLogError) or SPLIT_RECOVERY not in answer["changed"]:
            continue
        one = next(each for each in was["settings"] if each["key"] == SPLIT_RECOVERY)
        back = {SPLIT_RECOVERY: one["value"] if one["source"] in ("live", "properties") else None}
        again = _request_all({node: masters[node]}, partial(_change_settings, back))[node]
        kept += [node] if isinstance(again, TxLogError) else []
    why = "; ".join(f"{node}: {answer}" for node, answer in failed.items())
    held = f", but {', '.join(kept)} could not be set back: set it again when all are Joined" if kept else " anywhere"
    raise Conflict(f"splitRecovery was not changed{held}; {why}")


def _change_settings(changes: dict[str, str | None], master: MasterClient) -> dict[str, Any]:
    return master.change_settings(changes)


def _wait_for_view(masters: dict[str, str]) -> str | None:
    """The strategy of the view that knows what everybody prefers now; None when it is not there in time."""
    until = time.monotonic() + VIEW_RENEWAL_TIMEOUT_S
    while time.monotonic() < until:
        told = [one for one in _request_all(masters, MasterClient.settings).values() if not isinstance(one, TxLogError)]
        views = [one["view"] for one in told if one["view"] is not None]
        settled = len(views) == len(masters) and not any(view["renewing"] for view in views)
        if settled and len({view["number"] for view in views}) == 1 and all(one["state"] == "Joined" for one in told):
            return str(views[0]["splitRecovery"])
        time.sleep(0.1)
    err.print("the next view is not there yet; see txlog status", style="yellow")
    return None


def _print_changes(changes: dict[str, str | None], asked: dict[str, SettingsReply]) -> None:
    rows: list[tuple[object, ...]] = []
    for node, answer in asked.items():
        if isinstance(answer, TxLogError):
            reason = "not reached" if isinstance(answer, MasterUnreachable) else str(answer)
            rows.append((node, reason, ""))
            continue
        values = {one["key"]: one for one in answer["settings"]}
        now = ", ".join(f"{key} {values[key]['value']}" for key in changes)
        rows.append((node, "set" if answer["changed"] else "as it was", now))
    show_table(["MASTER", "", "NOW"], rows)


def _group_by_value(rows: list[dict[str, Any]], masters: list[str]) -> list[tuple[object, ...]]:
    """One line where all masters say the same."""
    by_value: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        by_value.setdefault((row["key"], row["value"], row["source"]), []).append(row["master"])
    order = list(dict.fromkeys(row["key"] for row in rows))
    return [
        (key, property_name(key), value, source, "all" if nodes == masters else ", ".join(nodes))
        for (key, value, source), nodes in sorted(by_value.items(), key=lambda each: order.index(each[0][0]))
    ]


def _print_strategy(told: dict[str, dict[str, Any]]) -> None:
    for node, answer in told.items():
        view = answer["view"]
        if view is not None and view["renewing"]:
            out.print(f"{node}: view {view['number']} still has {view['splitRecovery']}", highlight=False)
    strategies = {answer["view"]["splitRecovery"] for answer in told.values() if answer["view"] is not None}
    if strategies:
        out.print(f"split recovery in force: {', '.join(sorted(strategies))}", highlight=False)
