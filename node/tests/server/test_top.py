"""``txlog top`` in a terminal, beside real masters: keys, another master when one ends, and a clean end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from master_cluster import Cluster, until
from people import TOKENS, guarded

from txlog.client.credentials import TOKEN_FILE

pytestmark = pytest.mark.timeout(400)

DEADLINE_S = 120.0
"""A program that starts on a busy machine takes its time."""
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
HOME = b"\x1b[H"


class Terminal:
    """A program at a terminal of 80 columns and 24 lines."""

    def __init__(self, *arguments: str) -> None:
        self.end, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(inner)
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "txlog.cli.main", "top", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
        )
        self.inner = inner
        self.seen = b""
        os.set_blocking(self.end, False)

    def read(self) -> None:
        try:
            while piece := os.read(self.end, 1 << 16):
                self.seen += piece
        except (BlockingIOError, OSError):
            pass

    @property
    def screen(self) -> str:
        """The last frame that is whole."""
        self.read()
        frames = self.seen.split(HOME)
        return ESCAPE.sub(b"", frames[-2] if len(frames) > 2 else b"").decode("utf-8", "replace")

    async def shows(self, *words: str) -> None:
        await until(lambda: all(word in self.screen for word in words), DEADLINE_S)

    def press(self, keys: bytes) -> None:
        os.write(self.end, keys)

    async def ends(self) -> int:
        def code() -> tuple[int] | None:
            self.read()
            found = self.process.poll()
            return None if found is None else (found,)

        (ended,) = await until(code, DEADLINE_S)
        self.read()
        return int(ended)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)
        os.close(self.inner)


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    made = Terminal(*arguments)
    try:
        yield made
    finally:
        made.close()


def masters(cluster: Cluster, *which: int) -> list[str]:
    return [part for at in which for part in ("--master", cluster.url(at))]


async def test_it_follows_a_cluster_and_goes_to_the_next_master_when_one_ends(three: Cluster) -> None:
    with terminal(*masters(three, 0, 1)) as seen:
        await seen.shows("as uk-1 in uk sees it", "All 3 masters are in one view", "sort workers: name")
        stable = (await three.get(0, "/txlog/live"))["log"]["stable"]
        await three.write(0, 'INSERT DATA { <urn:s> <urn:p> "o" }')
        await seen.shows(f"stable {stable + 1}")
        seen.press(b"s")
        await seen.shows("sort workers: lag")
        seen.press(b"n")
        await seen.shows("as uk-2 in uk sees it")
        await three.crash(1)
        await seen.shows("as uk-1 in uk sees it", "uk-2")
        await three.crash(0)
        await seen.shows("No answer")
        seen.press(b"q")
        assert await seen.ends() == 0
        assert termios.tcgetattr(seen.inner) == seen.before, "the terminal is as it was"
        assert seen.seen.rstrip().endswith((b"\x1b[?25h", b"\x1b[?1049l")), "the earlier screen and the cursor are back"


async def test_ctrl_c_ends_it_and_restores_the_terminal(one: Cluster) -> None:
    with terminal(*masters(one, 0)) as seen:
        await seen.shows("as uk-1 in uk sees it")
        seen.process.send_signal(signal.SIGINT)
        assert await seen.ends() == 130
        assert termios.tcgetattr(seen.inner) == seen.before
        assert b"Traceback" not in seen.seen


async def test_without_any_master_it_says_so_and_ends(one: Cluster) -> None:
    url = one.url(0)
    await one.crash(0)
    with terminal("--master", url) as seen:
        assert await seen.ends() == 1
        assert url.encode() in seen.seen
        assert b"Traceback" not in seen.seen


async def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "txlog.cli.main", "top", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    out, error = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


async def test_without_a_terminal_it_prints_one_snapshot_and_needs_a_reader(clusters: object, tmp_path: Path) -> None:
    cluster = guarded(clusters, tmp_path)  # type: ignore[arg-type]
    await cluster.start()
    code, _, error = await run(*masters(cluster, 0))
    assert (code, "Traceback" in error) == (1, False)
    assert "credentials" in error or "token" in error
    token = tmp_path / "reader"
    token.write_text(TOKENS["reader"])
    code, out, error = await run(*masters(cluster, 0), **{TOKEN_FILE: str(token)})
    assert (code, error) == (0, "")
    assert "as uk-1 in uk sees it" in out
    assert "\x1b" not in out
    code, out, _ = await run(*masters(cluster, 0), "--json", **{TOKEN_FILE: str(token)})
    assert (code, json.loads(out)["node"]) == (0, "uk-1")
