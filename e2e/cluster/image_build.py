"""The project's image, built from its ``Dockerfile`` by buildah: no daemon, no registry.

Its base is a minimal Debian from the mirror that apt uses here. ``python -m e2e.cluster.image_build`` prints the
archive; with ``--older`` that of the golden package is built, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e import golden
from e2e.cluster.layout import ROOT, ClusterUnavailable, cache_folder

NAME: Final = "localhost/txlog:e2e"
OLDER: Final = "localhost/txlog:older"
"""Of the golden package, by its own ``Dockerfile``."""
SUITE: Final = "bookworm"
PACKAGES: Final = ("python3", "ca-certificates", "netbase")
COMPILER: Final = (*PACKAGES, "gcc", "libc6-dev", "python3-dev")
LEFT_OUT: Final = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
SOURCES: Final = (
    "Dockerfile",
    ".dockerignore",
    "tools/slim-image",
    "tools/kubectl_plugin.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "node",
    "operator",
)
KEPT: Final = re.compile(r"UV_|PIP_|SSL_CERT_|HTTPS?_PROXY$|NO_PROXY$|https?_proxy$|no_proxy$")
"""Variables that say where packages come from; they are shown to the build and do not stay in the image."""
NATIVE: Final = os.environ.get("TXLOG_IMAGE_NATIVE", "0")
"""1: with the compiled rooms, which take a processor some minutes whenever one of them was changed."""
STEP_S: Final = 1800.0


@dataclass(frozen=True)
class BuiltImage:
    """``archive``: for a node's containerd; ``size``: bytes of its layers, unpacked."""

    name: str
    archive: Path
    size: int


def build_image() -> BuiltImage:
    """The image of the sources that are here; nothing is done when it was built before."""
    return _build_if_changed(NAME, ROOT, "image", _digest())


def build_older_image() -> BuiltImage:
    """The image of the golden package."""
    with tempfile.TemporaryDirectory() as folder:
        sources = golden.unpack(Path(folder)).parent
        told = _settings()
        told.update(golden.PACKAGE.read_bytes())
        return _build_if_changed(OLDER, sources, "older-image", told.hexdigest()[:16])


def _build_if_changed(name: str, sources: Path, kept_as: str, digest: str) -> BuiltImage:
    archive = cache_folder() / f"{kept_as}-{digest}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / "image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _build(name, sources, archive)
            for old in cache_folder().glob(f"{kept_as}-*.tar"):
                if old != archive:
                    old.unlink()
    return BuiltImage(name, archive, archive.stat().st_size)


def _settings() -> hashlib._Hash:
    return hashlib.sha256(f"{PACKAGES} {COMPILER} {SUITE} {NATIVE}".encode())


def _digest() -> str:
    told = _settings()
    for name in (*SOURCES, *sorted(path.name for path in ROOT.glob("requirements*.lock"))):
        top = ROOT / name
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.is_dir() else [top]
        for file in files:
            if "__pycache__" not in file.parts:
                told.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return told.hexdigest()[:16]


def _build(name: str, sources: Path, archive: Path) -> None:
    base, build_base = base_image(PACKAGES), base_image(COMPILER)
    print(f"building {name} from its Dockerfile ...", file=sys.stderr, flush=True)
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "packages"
        told.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables().items()))
        _buildah(
            *("build", "--isolation", "chroot", "--layers", "--pull=false"),
            *("--build-arg", f"BASE={base}", "--build-arg", f"BUILD_BASE={build_base}"),
            *("--build-arg", f"NATIVE={NATIVE}"),
            *("--secret", f"id=packages,src={told}", *_mounts(), "--tag", name, str(sources)),
        )
    _buildah("push", "--quiet", name, f"docker-archive:{part}:{name}")
    part.rename(archive)


def variables() -> dict[str, str]:
    """What the build is told of them."""
    return {"UV_CACHE_DIR": "/var/cache/uv"} | {
        name: value for name, value in os.environ.items() if KEPT.match(name) and name != "UV_CACHE_DIR"
    }


def _mounts() -> list[str]:
    """What this machine has for the build, read only: uv with its cache, so that nothing is fetched twice, and whom
    it trusts."""
    uv = Path(sys.executable).with_name("uv")
    mounted: list[str] = []
    if uv.exists():
        kept = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
        mounted += ["-v", f"{uv}:/usr/local/bin/uv:ro"]
        if Path(kept).exists():
            mounted += ["-v", f"{kept}:/var/cache/uv:O"]
    for variable in ("SSL_CERT_FILE", "PIP_CERT"):
        trusted = os.environ.get(variable, "")
        if trusted and Path(trusted).exists():
            mounted += ["-v", f"{trusted}:{trusted}:ro"]
    pairs = dict.fromkeys(zip(mounted[::2], mounted[1::2], strict=True))
    return [word for pair in pairs for word in pair]


def base_image(packages: Sequence[str]) -> str:
    """A minimal Debian with these packages, made once."""
    name = f"localhost/txlog-base:{hashlib.sha256(f'{SUITE} {packages}'.encode()).hexdigest()[:16]}"
    if _buildah("images", "--quiet", name, check=False).strip():
        return name
    print(f"making a Debian {SUITE} with {', '.join(packages)} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        archive = Path(folder) / "base.tar"
        options = ['--aptopt=Acquire::Languages "none"', '--aptopt=Apt::Install-Recommends "false"']
        options += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
        _run(
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(packages)}"),
            *(*options, SUITE, str(archive), *_mirror()),
        )
        container = _buildah("from", "scratch").strip()
        _buildah("add", "--quiet", container, str(archive), "/")
        _buildah("commit", "--quiet", "--rm", container, name)
    return name


def _mirror() -> list[str]:
    """Those of this machine's apt that have the suite or its updates; mmdebstrap knows some where there are none."""
    if shutil.which("apt-get") is None:
        return []
    told = ["apt-get", "indextargets", "--format", "$(CODENAME) $(SITE)", "Created-By: Packages"]
    lines = subprocess.run(told, capture_output=True, text=True, check=False).stdout.split("\n")
    found = [line.split() for line in dict.fromkeys(lines) if line.split("-")[0].split(" ")[0] == SUITE]
    return [f"deb {site} {name} main" for name, site in found]


def _buildah(*arguments: str, check: bool = True) -> str:
    """With a store of its own in the cache."""
    root = cache_folder() / "containers"
    return _run("buildah", "--root", str(root), "--runroot", "/run/txlog-containers", *arguments, check=check)


def _run(*command: str, check: bool = True) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=STEP_S)
    if check and ended.returncode:
        raise ClusterUnavailable(f"{shlex.join(command)[:300]}: {(ended.stderr + ended.stdout).strip()[-2000:]}")
    return ended.stdout


def main() -> int:
    try:
        if "--older" in sys.argv[1:]:
            build_older_image()
        built = build_image()
    except ClusterUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{built.archive} {built.size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
