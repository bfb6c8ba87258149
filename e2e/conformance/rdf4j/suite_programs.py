"""RDF4J's own suites of tests, run by ``Suites.java`` with pinned files, and what each test came to."""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from e2e.conformance.pinned_artifacts import FOLDER
from e2e.lib.report import CannotMeasure
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.maven_artifacts import MavenArtifact, fetch_artifacts
from txlog.local.local_errors import CannotRun

SOURCE: Final = Path(__file__).with_name("Suites.java")
LOCK_FILE: Final = Path(__file__).with_name("suite_artifacts.lock")
GROUPS: Final = ("http", "isolation", "update", "rdfstar", "w3c", "compliance")
SILENT_S: Final = 300.0
"""A run that ends no test for so long is stopped: a test may wait for two minutes."""
_PLACE: Final = re.compile(r"(\w+\.java):([0-9]+)\b")
_ESCAPED: Final = re.compile(r"\\(.)")
_CHARACTERS: Final = {"n": "\n", "r": "\r", "t": "\t"}


class SuiteTarget(NamedTuple):
    """Where the suites' repository is. ``kind``: ``rdf4j`` for a server and the repository's id, ``jetty`` for one that
    is asked without ``Expect``, ``sparql`` for the endpoints of queries and of updates."""

    kind: str
    first: str
    second: str


class SuiteOutcome(NamedTuple):
    """``word``: passed, failed, or skipped by the suite itself. ``why``: what went wrong: the place in the suite where
    there is one, the error and its text."""

    group: str
    name: str
    word: str
    took_ms: int
    why: str


def is_same_failure(one: SuiteOutcome, other: SuiteOutcome) -> bool:
    """Whether both failed, at the same place of the suite or with the same error."""
    first, second = (outcome.why.partition(" ")[0] for outcome in (one, other))
    return one.word == other.word == "failed" and first == second


def fails_later(one: SuiteOutcome, other: SuiteOutcome) -> bool:
    """Whether ``one`` failed further on in the same test: a master refuses by name what a store takes and then fails
    at."""
    places = [_PLACE.match(outcome.why) for outcome in (one, other)]
    first, second = places
    if first is None or second is None or one.word != "failed" or other.word != "failed":
        return False
    return first[1] == second[1] and int(first[2]) > int(second[2])


def read_lock(text: str) -> list[MavenArtifact]:
    """The files of a lock: one a line, four words each. ValueError for another line."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    if wrong := [line for line in lines if len(line) != 4]:
        raise ValueError(f"a line that is no file: {' '.join(wrong[0])}")
    return [MavenArtifact(*line) for line in lines]


class OutcomeReader:
    """Reads the lines of ``Suites.java``. Two tests of one name get a number: the second ends with `` #2``."""

    def __init__(self) -> None:
        self._group = ""
        self._seen: Counter[str] = Counter()

    def read(self, line: str) -> SuiteOutcome | None:
        """None for a line that begins a group. ValueError for one that is neither."""
        if line.startswith("group "):
            self._group = line.removeprefix("group ")
            return None
        cells = [_unescape(cell) for cell in line.split("\t")]
        if len(cells) != 4 or not self._group:
            raise ValueError(f"no line of a test: {line[:200]}")
        name = cells[0]
        self._seen[name] += 1
        if self._seen[name] > 1:
            name += f" #{self._seen[name]}"
        return SuiteOutcome(self._group, name, cells[1], int(cells[2]), cells[3])


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _CHARACTERS.get(found[1], found[1]), text)


def base_name(name: str) -> str:
    """The name without the number of its repetition, as the program knows it."""
    return re.sub(r" #[0-9]+$", "", name)


def run_suites(
    target: SuiteTarget,
    groups: Sequence[str],
    folder: Path,
    *,
    asked: Iterable[str] | None = None,
    words: str = "",
    progress: Callable[[SuiteOutcome], None] = lambda _: None,
) -> list[SuiteOutcome]:
    """The outcomes of the tests of ``groups``, of those that are ``asked`` by name, and of those whose name contains
    ``words``. ``folder``: for files.

    :class:`CannotRun` without a Java that compiles and where files cannot be fetched; :class:`CannotMeasure` when the
    program ends early or no test ends for :data:`SILENT_S`."""
    folder.mkdir(parents=True, exist_ok=True)
    java = obtain_java_home(folder / "java") / "bin" / "java"
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    if "jdk.compiler@" not in modules.stdout:
        raise CannotRun(f"{java} has no compiler (jdk.compiler): a JDK is needed")
    jars = fetch_artifacts(read_lock(LOCK_FILE.read_text()), FOLDER)
    names = f"~{words}"
    if asked is not None:
        names = str(folder / "asked")
        Path(names).write_text("".join(f"{name}\n" for name in sorted({base_name(name) for name in asked})))
    path = ":".join(str(jar) for jar in jars)
    classes = _compile(java, path, folder / "classes")
    command = [
        *(str(java), "-Xmx512m", f"-Djava.io.tmpdir={folder}", "-cp", f"{classes}:{path}"),
        *(SOURCE.stem, *target, ",".join(groups), names),
    ]
    return _run(command, folder / "suites.log", progress)


def _compile(java: Path, path: str, folder: Path) -> Path:
    """To a folder: JUnit finds the classes of a program by their names."""
    compiler = "jdk.compiler/com.sun.tools.javac.Main"
    command = [str(java), "-m", compiler, "-nowarn", "-cp", path, "-d", str(folder), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SILENT_S, check=False)
    if done.returncode != 0:
        raise CannotMeasure(f"{SOURCE.name} cannot be compiled: {done.stdout}{done.stderr}"[:2000])
    return folder


def _run(command: Sequence[str], log: Path, progress: Callable[[SuiteOutcome], None]) -> list[SuiteOutcome]:
    outcomes: list[SuiteOutcome] = []
    reader = OutcomeReader()
    with log.open("ab") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        try:
            watchdog = _watch(process)
            for line in process.stdout:
                watchdog.cancel()
                outcome = reader.read(line.decode("utf-8", "replace").rstrip("\n"))
                if outcome is not None:
                    outcomes.append(outcome)
                    progress(outcome)
                watchdog = _watch(process)
            watchdog.cancel()
        finally:
            process.kill()
    if process.returncode != 0:
        last = outcomes[-1].name if outcomes else "none"
        end = log.read_text(errors="replace")[-1000:]
        raise CannotMeasure(f"the suites ended with {process.returncode} after the test {last}: {end}")
    return outcomes


def _watch(process: subprocess.Popen[bytes]) -> threading.Timer:
    timer = threading.Timer(SILENT_S, process.kill)
    timer.daemon = True
    timer.start()
    return timer
