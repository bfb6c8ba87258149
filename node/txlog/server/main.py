"""The process of one master: ``python -m txlog.server --config FILE.json``, or ``--properties cluster.properties``. The
latter needs no program that writes the JSON file.

Exit codes: 0 stopped on request; 64 invalid input; 70 ended with a named error, in the last line of the log. 74: the
journal cannot be opened, or is damaged; the next start names the damage and fetches what is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from txlog.config.process_config import NodeConfig
from txlog.model.errors import Fatal, JournalDamaged, JournalFault
from txlog.runtime.scheduler_hints import mmap_large_allocations, request_short_timeslice
from txlog.server.master_process import serve
from txlog.server.startup_files import BadStart
from txlog.telemetry.event_log import EventLog
from txlog.telemetry.json_log import install_json_log

GC_THRESHOLD = 20_000
"""Container objects between two runs of the cycle collector. Python's default of 700 costs a master a few percent."""
SWITCH_INTERVAL_S = 0.001
"""Maximum time that the loop waits for the interpreter while a thread parses a large body, each time that the loop
returns from the kernel. Python's default of 5 ms is a whole round between the masters."""
EX_USAGE = 64
EX_IOERR = 74


def read_config(path: Path) -> NodeConfig:
    """The file as a configuration; :class:`BadStart` with one line for each error."""
    try:
        config = NodeConfig.model_validate_json(path.read_bytes())
    except OSError as wrong:
        raise BadStart(f"{path}: {wrong.strerror}") from None
    except ValidationError as wrong:
        lines = (f"{'.'.join(str(at) for at in e['loc']) or 'the file'}: {e['msg']}" for e in wrong.errors())
        raise BadStart("\n".join(f"{path}: {line}" for line in lines)) from None
    if config.node not in [p.node for p in config.peers]:
        raise BadStart(f"{path}: peers: {config.node} itself must be among them, at its place in the order")
    return config


def read_properties_config(path: Path) -> tuple[NodeConfig, list[str]]:
    """The master of a ``cluster.properties`` file, and the names in it that have no meaning here; :class:`BadStart`
    with one line for each error."""
    from txlog.config.cluster_properties import BadProperties, read_cluster_properties

    try:
        found = read_cluster_properties(path)
    except BadProperties as wrong:
        raise BadStart(str(wrong)) from None
    return found.node, found.ignored_names


def main(arguments: list[str] | None = None) -> int:
    """Runs a master until it is stopped; returns the exit code. ``arguments`` None: those of the command line."""
    if not __debug__:
        print("txlog.server does not run without its assertions: leave -O and PYTHONOPTIMIZE away", file=sys.stderr)
        return EX_USAGE
    parser = argparse.ArgumentParser(prog="python -m txlog.server", description="One TxLog master.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--config", type=Path, help="the JSON file that the supervisor wrote")
    way.add_argument("--properties", type=Path, help="a cluster.properties file")
    options = parser.parse_args(arguments)
    passed_over: list[str] = []
    try:
        if options.properties is not None:
            config, passed_over = read_properties_config(options.properties)
        else:
            config = read_config(options.config)
    except BadStart as wrong:
        print(wrong, file=sys.stderr)
        return EX_USAGE
    log = EventLog(config.node)
    if passed_over:
        log.warning("PropertiesPassedOver", names=passed_over, why="they mean nothing here")

    def end(error: BaseException) -> None:
        name = error.reason if isinstance(error, Fatal) else type(error).__name__
        log.error(name, message=str(error)[:2000])
        # Ends the process at once: code that went on could report what is no longer true.
        os._exit(EX_IOERR if isinstance(error, JournalDamaged) else Fatal.EXIT_CODE)

    try:
        return _run(config, log, end)
    except BadStart as wrong:
        log.error("BadStart", message=str(wrong))
        return EX_USAGE
    except JournalFault as wrong:
        log.error(wrong.name, message=str(wrong))
        return EX_IOERR
    except Fatal as wrong:
        log.error(wrong.reason, message=str(wrong))
        return Fatal.EXIT_CODE
    except OSError as wrong:
        log.error("CannotListen", address=f"{config.host}:{config.port}", message=str(wrong))
        return EX_IOERR


def _run(config: NodeConfig, log: EventLog, end: Callable[[BaseException], None]) -> int:
    import uvloop

    install_json_log(config.node, logging.WARNING)  # of libraries: a master itself writes events
    # The modules loaded now stay, and short-lived tuples rarely form cycles, so collect less often.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    mmap_large_allocations()
    request_short_timeslice()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config, log, end))
    return 0
