"""Files of Maven Central, pinned by hash. Apache Ivy, which is part of Spark, downloads them into the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.local_errors import CannotRun

DOWNLOAD_TIMEOUT_S: Final = 600.0
_IVY_CONFIGURATIONS: Final = {"jar": "default", "war": "*"}
"""Ivy's names of a module's parts: a web application is beside its classes."""


class MavenArtifact(NamedTuple):
    """One file: its coordinates, and its required SHA-256. ``classifier``: for a file beside the module's own."""

    group: str
    name: str
    version: str
    sha256: str
    extension: str = "jar"
    classifier: str = ""

    @property
    def filename(self) -> str:
        """The name of the file at Maven Central and here."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's files: ``$XDG_CACHE_HOME/txlog``, else ``~/.cache/txlog``."""
    given = environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "txlog"


def fetch_artifact(artifact: MavenArtifact, folder: Path | None = None) -> Path:
    """The file, from ``folder`` (else the user's cache) if its hash is right, else from Maven Central.

    :class:`CannotRun` without Java or Spark, when the download fails, and when the hash differs from the pinned one.
    """
    return fetch_artifacts([artifact], folder)[0]


def fetch_artifacts(artifacts: Sequence[MavenArtifact], folder: Path | None = None) -> list[Path]:
    """As :func:`fetch_artifact`, several in one download."""
    folder = cache_folder() / "maven" if folder is None else folder
    wanted = {folder / artifact.filename: artifact for artifact in artifacts}
    missing = {path: artifact for path, artifact in wanted.items() if not _has_hash(path, artifact)}
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _download([*missing.values()], Path(place))
            for path, artifact in missing.items():
                new = Path(place) / path.name
                if not _has_hash(new, artifact):
                    raise CannotRun(
                        f"{path.name} is not the file that is pinned: its SHA-256 is {_sha256(new)}, "
                        f"{artifact.sha256} is wanted; do not use it"
                    )
                os.replace(new, path)
    return [*wanted]


def _has_hash(path: Path, artifact: MavenArtifact) -> bool:
    return path.exists() and _sha256(path) == artifact.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(artifacts: Sequence[MavenArtifact], place: Path) -> None:
    java = obtain_java_home(place / "java") / "bin" / "java"
    names = ", ".join(f"{artifact.name} {artifact.version}" for artifact in artifacts[:3])
    names += f" and {len(artifacts) - 3} more" if len(artifacts) > 3 else ""
    request = place / "ivy.xml"
    request.write_text(_ivy_request(artifacts))
    try:
        done = subprocess.run(
            [
                *(java, "-cp", _spark_jars(), "org.apache.ivy.Main", "-cache", place / "cache", "-warn"),
                *("-ivy", request, "-retrieve", f"{place}/[artifact]-[revision](-[classifier]).[ext]"),
            ],
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{names} did not come from Maven Central within {DOWNLOAD_TIMEOUT_S:g} s; try again") from None
    if done.returncode != 0 or not all((place / artifact.filename).exists() for artifact in artifacts):
        output = f"{done.stdout}{done.stderr}".strip()[-1500:]
        raise CannotRun(f"{names} cannot be fetched from Maven Central: {output}")


def _ivy_request(artifacts: Sequence[MavenArtifact]) -> str:
    """Each file without what it depends on: everything that is needed is pinned."""
    lines = "".join(
        f'<dependency org="{artifact.group}" name="{artifact.name}" rev="{artifact.version}" transitive="false" '
        f'conf="default->{_IVY_CONFIGURATIONS.get(artifact.extension, "default")}">{_ivy_file(artifact)}</dependency>'
        for artifact in artifacts
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="txlog" module="pinned"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{lines}</dependencies></ivy-module>'
    )


def _ivy_file(artifact: MavenArtifact) -> str:
    """The element that names a file beside the module's own; "" for the module's own."""
    if not artifact.classifier:
        return ""
    kind = artifact.extension
    return f'<artifact name="{artifact.name}" type="{kind}" ext="{kind}" m:classifier="{artifact.classifier}"/>'


def _spark_jars() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.origin:
        raise CannotRun("pyspark is not installed; make install")
    return str(Path(found.origin).parent / "jars" / "*")
