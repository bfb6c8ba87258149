"""The commands of a page of ``docs/``, run as a reader would, and their output compared with what the page shows.

A block without a language is a block of commands if its first word is a program of :data:`PROGRAMS`. The block without
a language that follows it is its output. A comment directly above a block changes how it is run:

| comment | meaning |
|---|---|
| ``<!-- run: kubernetes -->``, ``hosts``, ``example`` | not run: needs Kubernetes, other hosts, or shows a form only |
| ``<!-- run: until 60 -->`` | the commands are repeated until the output is as shown, for 60 s at most |
| ``<!-- run: for 3 -->`` | they do not end by themselves: they are ended after 3 s |
| ``<!-- run: exit 1 -->`` | their exit code is 1, and messages of errors are part of the output |
| ``<!-- run: file NAME -->`` | the block is the content of a file in the reader's folder |

``<!-- sh: COMMANDS -->`` runs commands that the page assumes and does not show.

Outputs are compared line by line. White space counts as one blank. ``...`` alone on a line stands for any lines, ``…``
for any text. Of an answer that begins with ``HTTP/`` a page shows some headers. Ids, hashes, times and numbers of three
digits or more (:data:`UNSTABLE`) differ on each machine: each stands for the same value wherever the page repeats it,
in later commands too. Durations and sizes are compared by their unit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = frozenset([".", "curl", "mkdir", "make", "openssl", "rm", "txlog", "TOKEN=$(txlog"])
"""First words of blocks that are commands."""
NEEDS_KUBERNETES: Final = frozenset({"helm", "kubectl", "tools/kind"})
"""The same, of commands that never run here: a reader's own cluster might answer."""
NOT_HERE: Final = frozenset({"kubernetes", "hosts", "example"})
REWRITTEN: Final = {
    "make up": "txlog up -f examples/two-data-centres --detach",
    "make down": "txlog down",
    ". .venv/bin/activate": ":",
}
"""Commands of a checkout, as they are run beside it: ``make`` would use the checkout's own state folder."""
PORTS: Final = {"7301": "uk-1", "7302": "uk-2", "7303": "us-1"} | {
    "7304": "uk-worker-1",
    "7305": "uk-worker-2",
    "7306": "us-worker-1",
}
"""The ports on the pages; the cluster of a run has free ones."""
COMMAND_S: Final = 240.0
PAUSE_S: Final = 0.5
QUESTION: Final = "[y/N]: "
"""The reader answers ``y``, which a terminal shows."""

FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
COMMENT: Final = re.compile(r"<!--\s*(?P<kind>run|sh):\s*(?P<text>.*?)\s*-->", re.DOTALL)
PRINTED: Final = re.compile(r"print\(.*\)  # (.*)")
UNSTABLE: Final = re.compile(
    "|".join(
        (
            r"(?P<backup>\b\d{12}-[0-9a-f]{8}-[a-z]+-\w+-[0-9a-f]{6}\b)",
            r"(?P<position>\b\d+:\d+:(?:[0-9a-f]{8,}|[0-9a-f]{4,})(?:\.\.\.)?)",
            r"(?P<event>\b\d+:(?:[0-9a-f]{8,}|[0-9a-f]{4,}\.\.\.))",
            r"(?P<txid>\b[a-z]+-\d+\.[0-9a-f]{16}\.\d+\b)",
            r"(?P<view>\b\d+\.\d+\.[a-z]+-\d+\b)",
            r"(?P<hash>\b[0-9a-f]{8,}\b)",
            r"(?P<time>\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?)",
            r"(?P<amount>\b\d+(?:\.\d+)? (?:ms|s|B|kB|MB)(?!\w))",
            r"(?P<number>(?<!HTTP/1\.1 )\b\d{3,}\b)",
            r"(?P<text>…)",
        )
    )
)
ALIKE: Final = {
    "backup": r"\d{12}-[0-9a-f]{8}-[a-z]+-\w+-[0-9a-f]{6}",
    "position": r"\d+:\d+:[0-9a-f]+",
    "event": r"\d+:[0-9a-f]+",
    "view": r"\d+\.\d+\.[a-z]+-\d+",
    "hash": r"[0-9a-f]+",
    "time": r"[-\d]+[ T][:\d]+(?:\.\d+)?Z?",
    "number": r"\d+",
    "text": r".*?",
}
"""What may take the place of an unstable part, by its kind."""


class Block(NamedTuple):
    """One block of a page. ``kind``: ``commands``, ``output``, ``python``, ``file`` or ``other``."""

    line: int
    kind: str
    text: str
    rule: str = ""
    """The text of the comment above it."""


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page of Markdown, with what its comments say about them, in order."""
    found: list[Block] = []
    lines = page.splitlines()
    at, rule = 0, ""
    while at < len(lines):
        if lines[at].lstrip().startswith("<!--"):
            first = at
            while "-->" not in lines[at]:
                at += 1
            comment = COMMENT.search("\n".join(lines[first : at + 1]))
            if comment and comment["kind"] == "sh":
                found.append(Block(first + 1, "commands", comment["text"]))
            elif comment:
                rule = comment["text"]
        elif fence := FENCE.match(lines[at]):
            first = at
            at += 1
            while lines[at].strip() != "```":
                at += 1
            text = "\n".join(line[len(fence["indent"]) :] for line in lines[first + 1 : at])
            found.append(Block(first + 1, _kind(fence["language"], text, rule), text, rule))
            rule = ""
        elif lines[at].strip():
            rule = ""
        at += 1
    return found


def _kind(language: str, text: str, rule: str) -> str:
    if rule.startswith("file "):
        return "file"
    if language:
        return "python" if language == "python" else "other"
    first = text.split(maxsplit=1)[0]
    return "commands" if first in PROGRAMS or first in NEEDS_KUBERNETES else "output"


class Bindings:
    """Unstable parts of a page, and the value that each has in this run."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, text: str) -> str:
        """A command of the page with this run's values."""
        return UNSTABLE.sub(lambda part: self.values.get(part[0], part[0]), text)

    def match(self, shown: str, line: str) -> bool:
        """Whether a line of the output is what the page shows; its unstable parts are bound if so."""
        pattern, unbound, end = "", list[str](), 0
        shown = " ".join(shown.split())
        for part in UNSTABLE.finditer(shown):
            pattern += re.escape(shown[end : part.start()])
            end = part.end()
            kind = str(part.lastgroup)
            if kind == "amount":
                pattern += rf"[\d.]+ {part[0].split()[-1]}"
            elif kind == "text":
                pattern += ALIKE[kind]
            elif part[0] in self.values:
                pattern += re.escape(self.values[part[0]])
            elif part[0] in unbound:
                pattern += rf"(?P=p{unbound.index(part[0])})"
            else:
                alike = ALIKE.get(kind) or re.escape(part[0].partition(".")[0]) + r"\.[0-9a-f]{16}\.\d+"
                pattern += f"(?P<p{len(unbound)}>{alike})"
                unbound.append(part[0])
        same = re.fullmatch(pattern + re.escape(shown[end:]), " ".join(line.split()))
        if same:
            self.values |= {name: same[f"p{number}"] for number, name in enumerate(unbound)}
        return bool(same)

    def compare(self, shown: str, output: str) -> str | None:
        """None if the output is what the page shows; else what the page shows that is missing, or what is too much."""
        lines = [line for line in output.splitlines() if line.strip()]
        wanted = [line for line in shown.splitlines() if line.strip()]
        is_head = wanted[0].startswith("HTTP/")
        at, any_lines = 0, False
        for want in wanted:
            if want.strip() == "...":
                any_lines = True
                continue
            places = range(at, len(lines)) if any_lines or is_head else range(at, min(at + 1, len(lines)))
            place = next((place for place in places if self.match(want, lines[place])), None)
            if place is None:
                return f"not in the output: {want}"
            at, any_lines = place + 1, False
        return None if at == len(lines) or any_lines or is_head else f"not on the page: {lines[at]}"


class Reader:
    """A reader in a folder of its own, with ``txlog`` on the path and the examples at hand, who follows one page after
    the other. ``wrong`` has each place where a page does not show what happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bindings = Bindings()
        self.wrong: list[str] = []
        self.ran = 0
        (folder / "examples").symlink_to(ROOT / "examples")
        self._environment = folder / ".environment"
        self._path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def follow(self, page: Path) -> None:
        """Run one page. Ids that another page showed have no meaning on this one."""
        self.bindings = Bindings()
        self._bind_ports()
        blocks = blocks_of(page.read_text())
        for number, block in enumerate(blocks):
            if block.rule in NOT_HERE:
                continue
            after = blocks[number + 1] if number + 1 < len(blocks) else None
            for wrong in self._do(block, after.text if after and after.kind == "output" else None):
                self.wrong.append(f"{page.relative_to(ROOT)}:{block.line}: {wrong}")

    def _do(self, block: Block, shown: str | None) -> Iterator[str]:
        if block.kind == "file":
            (self.folder / block.rule.removeprefix("file ")).write_text(block.text + "\n")
        elif block.kind == "python":
            printed = "\n".join(PRINTED.findall(block.text))
            yield from self._run(["python", "-c", self.bindings.apply(block.text)], "", printed or None)
        elif block.text.split(maxsplit=1)[0] in NEEDS_KUBERNETES:
            yield "needs the comment <!-- run: kubernetes -->"
        elif block.kind == "commands":
            text = "\n".join(REWRITTEN.get(line, line) for line in block.text.splitlines())
            script = f"set -ea; [ ! -e {self._environment} ] || . {self._environment}\n"
            script += f"trap 'declare -px > {self._environment}' EXIT\n{self.bindings.apply(text)}\n"
            yield from self._run(["bash", "-c", script], block.rule, shown)

    def _run(self, command: Sequence[str], rule: str, shown: str | None) -> Iterator[str]:
        self.ran += 1
        word, _, value = rule.partition(" ")
        until = time.monotonic() + (float(value) if word == "until" else 0.0)
        while True:
            code, output, errors = self._execute(command, float(value) if word == "for" else COMMAND_S)
            self._bind_ports()
            expected = int(value) if word == "exit" else 0
            wrong = None
            if code != expected and (word != "for" or code is not None):
                wrong = f"exit code {code} in place of {expected}"
            elif shown is not None:
                wrong = self.bindings.compare(shown, output + errors if word == "exit" else output)
            if wrong is None or time.monotonic() > until:
                break
            time.sleep(PAUSE_S)
        if wrong is not None:
            yield f"{wrong}\n{command[-1]}\n{output}{errors}"

    def _execute(self, command: Sequence[str], timeout_s: float) -> tuple[int | None, str, str]:
        """Exit code, output and errors; no exit code for what had to be ended."""
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | {"PATH": self._path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate("y\n", timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 15)
                output, errors = process.communicate()
                return None, output, errors
        return process.returncode, output.replace(QUESTION, f"{QUESTION}y\n"), errors

    def _bind_ports(self) -> None:
        file = self.folder / ".txlog" / "ports.json"
        if file.exists():
            ports = json.loads(file.read_text())
            self.bindings.values |= {shown: str(ports[name]) for shown, name in PORTS.items() if name in ports}

    def end(self) -> None:
        """Remove the cluster, if the pages left one running."""
        if (self.folder / ".txlog").exists():
            self._execute(["txlog", "down", "--purge"], COMMAND_S)
