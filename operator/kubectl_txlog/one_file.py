"""``kubectl txlog`` as one file: what needs Python's own library alone. ``tools/kubectl_plugin.py`` packs it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from kubectl_txlog import master_commands, site_commands, store_commands
from kubectl_txlog.command_line import run_arguments
from kubectl_txlog.console_command import console
from kubectl_txlog.options import NamedCluster
from txlog.model.errors import TxLogError

ABOUT: Final = (
    "Ask and command the masters of a TxLogCluster, through the API server. The Python package txlog has more commands:"
    " peers, split-report, verify, repair, top."
)


def status(on: NamedCluster) -> None:
    """Show the state of masters and workers. Exit code 1 when a master does not answer."""
    answers = on.masters().ask_all("/txlog/status")
    rows: list[dict[str, Any]] = []
    for site, master, answer in answers:
        url = site.server.server + master
        failed = isinstance(answer, TxLogError)
        rows.append({"url": url, "error": str(answer)} if failed else {"url": url, "status": answer})
    if on.json:
        print(json.dumps({"masters": rows}, indent=2))
    else:
        for row in rows:
            print(_line(row))
    if any("error" in row for row in rows):
        sys.exit(1)


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['url']}: {row['error']}"
    found = row["status"]
    workers = ", ".join(f"{each['name']} {each['state']}" for each in found["workers"]) or "no workers"
    view = found["view"]["number"]
    return f"{found['node']}: {found['state']}, view {view}, stable index {found['stable']['index']}; {workers}"


def main() -> None:
    """Never a stack trace for what went wrong outside of TxLog."""
    try:
        acting = {**store_commands.COMMANDS, **master_commands.COMMANDS, **site_commands.COMMANDS}
        commands = {"status": status, "console": console, **acting}
        run_arguments("kubectl txlog", ABOUT, commands, sys.argv[1:])
    except TxLogError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
