"""One command makes a release: the image for several architectures and both charts go to a registry; a list of what is
in the image, and the plugin for kubectl, go into a folder. All that was pushed is signed.

``python tools/release.py --registry HOST/PATH``. Nothing is pushed before every tool was found, and the versions agree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
CHARTS: Final = ("txlog-operator", "txlog-cluster")
CHARTS_PATH: Final = "charts"
"""Of the charts, below the registry."""
PLATFORMS: Final = "linux/amd64,linux/arm64"
DEFAULT_IMAGE: Final = "repository: txlog\n"
"""The line of the operator's values that a released chart replaces."""
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")
_PUSHED: Final = re.compile(r"^Digest:\s*(sha256:[0-9a-f]{64})$", re.MULTILINE)
_FIELD: Final = r"^{}: (\S+)$"


class ReleaseError(Exception):
    """The release cannot be made; the message is for a person."""


@dataclass(frozen=True)
class Release:
    """``registry``: host and path, without a scheme. ``builder``: docker or buildah. ``key``: of cosign, empty for its
    identity of the caller; ``is_signed`` False leaves signatures out. ``is_plain``: the registry has no TLS.
    ``image_digest``: of an image that is there already, so that none is built. ``build_options``: further ones of the
    build, which docker and buildah have in common."""

    registry: str
    version: str
    folder: Path
    builder: str
    platforms: str = PLATFORMS
    context: Path = ROOT
    key: str = ""
    is_signed: bool = True
    is_plain: bool = False
    image_digest: str = ""
    build_options: tuple[str, ...] = ()

    @property
    def image(self) -> str:
        """The image's name, without a tag."""
        return f"{self.registry}/txlog"

    @property
    def charts(self) -> str:
        """Where the charts are, without a scheme."""
        return f"{self.registry}/{CHARTS_PATH}"

    @property
    def tools(self) -> list[str]:
        """The programs that it needs."""
        return [*([] if self.image_digest else [self.builder]), "helm", *(["cosign"] if self.is_signed else [])]


def read_version(root: Path = ROOT) -> str:
    """The version of the Python package. :class:`ReleaseError` where a chart has another one."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"pyproject.toml: version {version}: expected one as 1.2.3, which Helm takes")
    for chart in CHARTS:
        text = (root / "charts" / chart / "Chart.yaml").read_text()
        for field in ("version", "appVersion"):
            found = re.search(_FIELD.format(field), text, re.MULTILINE)
            if found is None or found[1] != version:
                other = found[1] if found is not None else "missing"
                raise ReleaseError(f"charts/{chart}/Chart.yaml: {field} is {other}, and pyproject.toml has {version}")
    return version


def find_tools(release: Release) -> None:
    """:class:`ReleaseError` names all that are missing."""
    missing = [name for name in release.tools if shutil.which(name) is None]
    if missing:
        hint = "; --unsigned leaves signatures out" if "cosign" in missing else ""
        raise ReleaseError(f"not on PATH: {', '.join(missing)}{hint}")


def image_commands(release: Release) -> list[list[str]]:
    """Build the image for all platforms, and push it under one name; none for an image that is there already."""
    if release.image_digest:
        return []
    name = f"{release.image}:{release.version}"
    if release.builder == "docker":
        output = f"type=registry{',registry.insecure=true' if release.is_plain else ''}"
        return [
            [
                *("docker", "buildx", "build", "--platform", release.platforms, "--provenance=mode=max", "--sbom=true"),
                *release.build_options,
                *("--tag", name, "--output", output, "--metadata-file", str(release.folder / "image.json")),
                str(release.context),
            ]
        ]
    tls = ["--tls-verify=false"] if release.is_plain else []
    digest = ["--digestfile", str(release.folder / "image.digest")]
    return [
        [
            *("buildah", "build", "--platform", release.platforms, *release.build_options),
            *("--manifest", name, str(release.context)),
        ],
        ["buildah", "manifest", "push", "--all", *tls, *digest, name, f"docker://{name}"],
    ]


def read_image_digest(release: Release) -> str:
    """Of the list of all platforms, as it was pushed."""
    if release.builder == "docker":
        return str(json.loads((release.folder / "image.json").read_text())["containerimage.digest"])
    return (release.folder / "image.digest").read_text().strip()


def package_command(release: Release, chart: Path) -> list[str]:
    """The chart as a file."""
    versions = ["--version", release.version, "--app-version", release.version]
    return ["helm", "package", str(chart), *versions, "--destination", str(release.folder)]


def push_command(release: Release, chart: str) -> list[str]:
    """Push the file of a chart."""
    file = release.folder / f"{chart}-{release.version}.tgz"
    return ["helm", "push", str(file), f"oci://{release.charts}", *(["--plain-http"] if release.is_plain else [])]


def sign_commands(release: Release, references: Sequence[str], image: str, contents: Path) -> list[list[str]]:
    """Sign what was pushed, by digest, and attest what the image contains. ``image``: its reference by digest."""
    options = ["--yes", *(["--key", release.key] if release.key else [])]
    options += ["--allow-http-registry"] if release.is_plain else []
    attest = ["cosign", "attest", *options, "--type", "cyclonedx", "--predicate", str(contents), image]
    return [*(["cosign", "sign", *options, each] for each in references), attest]


def contents_command(file: Path) -> list[str]:
    """List the Python packages of the image with their hashes, as CycloneDX."""
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--of", "JSON", "-o", str(file)]
    return [sys.executable, "-m", "cyclonedx_py", "requirements", str(ROOT / "requirements.lock"), *options]


def copy_chart(release: Release, chart: str) -> Path:
    """The chart as it is released: the operator's one names the image of this registry."""
    copy = release.folder / "charts" / chart
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "charts" / chart, copy)
    values = copy / "values.yaml"
    if chart == CHARTS[0]:
        text = values.read_text()
        if text.count(DEFAULT_IMAGE) != 1:
            raise ReleaseError(f"charts/{chart}/values.yaml has no line {DEFAULT_IMAGE.strip()!r}")
        values.write_text(text.replace(DEFAULT_IMAGE, f"repository: {release.image}\n"))
    return copy


def run(command: Sequence[str]) -> str:
    """Its output, both streams. :class:`ReleaseError` with it when the command fails."""
    print(f"+ {shlex.join(command)}", flush=True)
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode:
        raise ReleaseError(f"{command[0]} ended with {ended.returncode}: {ended.stdout.strip()[-2000:]}")
    return ended.stdout


def make_release(release: Release, act: Callable[[Sequence[str]], str] = run) -> dict[str, Any]:
    """Make everything, in this order: what fails early has pushed nothing. Returns the content of ``release.json``."""
    release.folder.mkdir(parents=True, exist_ok=True)
    contents = release.folder / "txlog-python.cdx.json"
    act(contents_command(contents))
    plugin = release.folder / "kubectl-txlog"
    act([sys.executable, str(ROOT / "tools" / "kubectl_plugin.py"), str(plugin)])
    for chart in CHARTS:
        act(package_command(release, copy_chart(release, chart)))
    for command in image_commands(release):
        act(command)
    image = f"{release.image}@{release.image_digest or read_image_digest(release)}"
    charts: list[dict[str, str]] = []
    for chart in CHARTS:
        pushed = _PUSHED.search(act(push_command(release, chart)))
        if pushed is None:
            raise ReleaseError(f"helm named no digest of {chart}")
        charts.append({"name": chart, "reference": f"{release.charts}/{chart}@{pushed[1]}"})
    if release.is_signed:
        for command in sign_commands(release, [image, *(each["reference"] for each in charts)], image, contents):
            act(command)
    made = {
        "version": release.version,
        "image": {"reference": image, "platforms": release.platforms.split(",")},
        "charts": charts,
        "signed": release.is_signed,
        "files": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (contents, plugin)},
    }
    (release.folder / "release.json").write_text(json.dumps(made, indent=1) + "\n")
    return made


def build_options(arguments: Sequence[str], packages: Path | None) -> tuple[str, ...]:
    """Arguments of the Dockerfile, and the file of its secret."""
    secret = ("--secret", f"id=packages,src={packages}") if packages is not None else ()
    return (*(word for each in arguments for word in ("--build-arg", each)), *secret)


def choose_builder() -> str:
    """docker where it has buildx, else buildah."""
    if shutil.which("docker") is not None:
        found = subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False)
        if found.returncode == 0:
            return "docker"
    return "buildah"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and makes the release. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="tools/release.py", description="Build, push and sign a release.")
    parser.add_argument("--registry", required=True, help="host and path, such as registry.example.org/team")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "release", help="for files of the release")
    parser.add_argument("--builder", choices=["docker", "buildah"], help="default: docker where it has buildx")
    parser.add_argument("--platforms", default=PLATFORMS, help=f"default: {PLATFORMS}")
    parser.add_argument("--context", type=Path, default=ROOT, help="the folder with the Dockerfile")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="of the Dockerfile")
    parser.add_argument("--packages", type=Path, help="file with variables of a package mirror (docs/install.md)")
    parser.add_argument("--image-digest", default="", help="sha256:... of an image that is pushed already: build none")
    parser.add_argument("--key", default="", help="of cosign; default: the caller's identity, without a key")
    parser.add_argument("--unsigned", action="store_true", help="sign nothing; cosign is not needed")
    parser.add_argument("--plain-http", action="store_true", help="the registry has no TLS: for tests alone")
    options = parser.parse_args(arguments)
    try:
        if "://" in options.registry or options.registry.endswith("/"):
            raise ReleaseError("--registry: expected host and path, without a scheme and a slash at the end")
        if options.image_digest and not _DIGEST.fullmatch(options.image_digest):
            raise ReleaseError("--image-digest: expected sha256: and 64 hexadecimal digits")
        release = Release(
            options.registry,
            read_version(),
            options.folder.resolve(),
            options.builder or choose_builder(),
            options.platforms,
            options.context,
            options.key,
            not options.unsigned,
            options.plain_http,
            options.image_digest,
            build_options(options.build_arg, options.packages),
        )
        find_tools(release)
        made = make_release(release)
    except ReleaseError as wrong:
        print(wrong, file=sys.stderr)
        return 1
    print(json.dumps(made, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
