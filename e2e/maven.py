"""Files of Maven Central that checks need, pinned by hash. Fetched by Apache Ivy, which Spark brings along."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from txlog.local.faults import CannotRun
from txlog.local.java import find_java_home

FOLDER: Final = Path(__file__).parents[1] / "build" / "maven"
FETCH_S: Final = 600.0


class Artifact(NamedTuple):
    """One file: its coordinates, and the SHA-256 that it must have."""

    group: str
    name: str
    version: str
    sha256: str


W3C_TESTS: Final = Artifact(
    "org.eclipse.rdf4j",
    "rdf4j-sparql-testsuite",
    "5.2.0",
    "b085ef49f807c24cd01b66087f86af1aec1801a3abbe51f519636d8b05659df0",
)
"""Holds the W3C's tests of SPARQL 1.0 and 1.1 as they were published."""


def fetched(artifact: Artifact, folder: Path = FOLDER) -> Path:
    """The file, from ``folder`` where it is there with the right hash, else from Maven Central.

    :class:`CannotRun` without Java or Spark, where it cannot be fetched, and when it is not what is pinned."""
    path = folder / f"{artifact.name}-{artifact.version}.jar"
    if not _is(path, artifact):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            new = Path(place) / path.name
            _fetch(artifact, Path(place))
            if not _is(new, artifact):
                raise CannotRun(
                    f"{path.name} is not the file that is pinned: its SHA-256 is {_sha256(new)}, "
                    f"{artifact.sha256} is wanted; do not use it"
                )
            os.replace(new, path)
    return path


def _is(path: Path, artifact: Artifact) -> bool:
    return path.exists() and _sha256(path) == artifact.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(artifact: Artifact, place: Path) -> None:
    java = find_java_home(place / "java") / "bin" / "java"
    done = subprocess.run(
        [
            *(java, "-cp", _spark_jars(), "org.apache.ivy.Main", "-cache", place / "cache", "-warn"),
            *("-dependency", artifact.group, artifact.name, artifact.version, "-confs", "default", "-notransitive"),
            *("-retrieve", f"{place}/[artifact]-[revision].[ext]"),
        ],
        capture_output=True,
        text=True,
        timeout=FETCH_S,
        check=False,
    )
    if done.returncode != 0 or not (place / f"{artifact.name}-{artifact.version}.jar").exists():
        said = f"{done.stdout}{done.stderr}".strip()[-1500:]
        raise CannotRun(f"{artifact.name} {artifact.version} cannot be fetched from Maven Central: {said}")


def _spark_jars() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.origin:
        raise CannotRun("pyspark is not installed; make install")
    return str(Path(found.origin).parent / "jars" / "*")
