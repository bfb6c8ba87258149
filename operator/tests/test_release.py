"""A release, pushed to a registry that runs here, and pulled back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT, helm
from ruamel.yaml import YAML

from e2e.cluster.linters import build_linter
from e2e.cluster.programs import build_programs

sys.path.append(str(ROOT / "tools"))
from release import CHARTS, Release, ReleaseError, image_commands, read_version, sign_commands

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]
NO_IMAGE = f"sha256:{'0' * 64}"
MANIFESTS = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"


class Registry:
    """A real registry, in the memory of a process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([str(build_linter("registry")), "-port=0"], stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        found = re.search(r"serving on port (\d+)", self._process.stderr.readline())
        assert found is not None
        self.host = f"localhost:{found[1]}"

    def read(self, path: str) -> tuple[dict[str, Any], str]:
        """An answer, and the digest of it that the registry names."""
        request = urllib.request.Request(f"http://{self.host}/v2/{path}", headers={"Accept": MANIFESTS})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read()), answer.headers.get("Docker-Content-Digest", "")

    def repositories(self) -> list[str]:
        return list(self.read("_catalog")[0].get("repositories") or [])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def run_release(registry: Registry, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver="vfs"\nrunroot="{folder}/run"\ngraphroot="{folder}/graph"\n')
    environment = {
        **os.environ,
        "PATH": f"{build_programs()}:{os.environ['PATH']}",
        "CONTAINERS_STORAGE_CONF": str(storage),
        "HELM_REGISTRY_CONFIG": str(folder / "helm.json"),
        "TXLOG_NATIVE": "0",
    }
    command = [sys.executable, str(ROOT / "tools" / "release.py"), f"--registry={registry.host}/team", *more]
    command += [f"--folder={folder / 'release'}", "--plain-http", "--builder=buildah"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_charts_are_pulled_as_they_were_released(registry: Registry, tmp_path: Path) -> None:
    done = run_release(registry, tmp_path, "--unsigned", f"--image-digest={NO_IMAGE}")
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "release" / "release.json").read_text())
    version = read_version()
    assert (made["version"], made["signed"]) == (version, False)
    assert made["image"]["reference"] == f"{registry.host}/team/txlog@{NO_IMAGE}"
    for chart, one in zip(CHARTS, made["charts"], strict=True):
        _, digest = registry.read(f"team/charts/{chart}/manifests/{version}")
        assert one == {"name": chart, "reference": f"{registry.host}/team/charts/{chart}@{digest}"}
        place = ["--plain-http", "--version", version, "--destination", str(tmp_path)]
        helm("pull", f"oci://{registry.host}/team/charts/{chart}", *place)
        pulled = tmp_path / f"{chart}-{version}.tgz"
        assert pulled.read_bytes() == (tmp_path / "release" / pulled.name).read_bytes()
    helm("lint", "--strict", str(tmp_path / f"txlog-operator-{version}.tgz"))
    file = str(tmp_path / f"txlog-operator-{version}.tgz")
    rendered = helm("template", "txlog", file, "--kube-version=1.34.0").stdout
    (deployment,) = [each for each in YAML(typ="safe").load_all(rendered) if each and each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{registry.host}/team/txlog:{version}"
    assert f"--image={registry.host}/team/txlog:{version}" in container["command"]


def test_the_files_of_a_release(registry: Registry, tmp_path: Path) -> None:
    done = run_release(registry, tmp_path, "--unsigned", f"--image-digest={NO_IMAGE}")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "release"
    made = json.loads((folder / "release.json").read_text())
    for name, digest in made["files"].items():
        assert sha256((folder / name).read_bytes()).hexdigest() == digest
    contents = json.loads((folder / "txlog-python.cdx.json").read_text())
    assert (contents["bomFormat"], contents["metadata"]["component"]["name"]) == ("CycloneDX", "txlog")
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    listed = {each["name"]: each["version"] for each in contents["components"]}
    assert listed == locked
    assert all(each["externalReferences"][0]["hashes"] for each in contents["components"])
    plugin = subprocess.run([str(folder / "kubectl-txlog"), "--help"], capture_output=True, text=True, check=True)
    assert "force-view" in plugin.stdout


@pytest.mark.skipif(shutil.which("buildah") is None or os.geteuid() != 0, reason="buildah as root builds images here")
def test_an_image_for_several_architectures_is_one_name(registry: Registry, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    # Nothing runs, so no emulation is needed.
    (context / "Dockerfile").write_text("FROM scratch\nARG WHAT\nLABEL what=$WHAT\nCOPY Dockerfile /\n")
    packages = tmp_path / "packages"
    packages.write_text("export UV_INDEX_URL=https://mirror.example.org\n")
    more = [f"--context={context}", "--build-arg=WHAT=ours", f"--packages={packages}"]
    done = run_release(registry, tmp_path, "--unsigned", *more)
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "release" / "release.json").read_text())
    index, digest = registry.read(f"team/txlog/manifests/{read_version()}")
    assert made["image"]["reference"] == f"{registry.host}/team/txlog@{digest}"
    found = [f"{each['platform']['os']}/{each['platform']['architecture']}" for each in index["manifests"]]
    assert sorted(found) == ["linux/amd64", "linux/arm64"] == made["image"]["platforms"]
    for each in index["manifests"]:
        manifest, _ = registry.read(f"team/txlog/manifests/{each['digest']}")
        config, _ = registry.read(f"team/txlog/blobs/{manifest['config']['digest']}")
        assert config["config"]["Labels"]["what"] == "ours"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--unsigned", "--context=/nowhere"], "buildah ended with" if shutil.which("buildah") else "not on PATH"),
        (["--unsigned", "--image-digest=sha256:1"], "--image-digest"),
        ([f"--image-digest={NO_IMAGE}"], "not on PATH: cosign; --unsigned leaves signatures out"),
    ],
)
def test_what_fails_early_has_pushed_nothing(registry: Registry, tmp_path: Path, more: list[str], named: str) -> None:
    done = run_release(registry, tmp_path, *more)
    assert done.returncode == 1
    assert named in done.stderr
    assert registry.repositories() == []


def copy_versions(folder: Path) -> Path:
    for name in ("pyproject.toml", *(f"charts/{chart}/Chart.yaml" for chart in CHARTS)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("charts/txlog-operator/Chart.yaml", "\nversion: 0.1.0", "\nversion: 0.2.0", "version is 0.2.0"),
        ("charts/txlog-cluster/Chart.yaml", "appVersion: 0.1.0", "appVersion: 0.3.0", "appVersion is 0.3.0"),
        ("charts/txlog-cluster/Chart.yaml", "appVersion: 0.1.0", "", "appVersion is missing"),
        ("pyproject.toml", 'version = "0.1.0"', 'version = "0.1"', "expected one as 1.2.3"),
    ],
)
def test_versions_that_differ_are_refused(tmp_path: Path, file: str, old: str, new: str, named: str) -> None:
    root = copy_versions(tmp_path)
    assert read_version(root) == "0.1.0"
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))
    with pytest.raises(ReleaseError, match=named):
        read_version(root)


def test_everything_that_was_pushed_is_signed_by_digest(tmp_path: Path) -> None:
    release = Release("registry.example.org/team", "1.2.3", tmp_path, "docker", key="cosign.key")
    image, chart = f"{release.image}@{NO_IMAGE}", f"{release.charts}/txlog-operator@{NO_IMAGE}"
    options = ["--yes", "--key", "cosign.key"]
    assert sign_commands(release, [image, chart], image, tmp_path / "sbom.json") == [
        ["cosign", "sign", *options, image],
        ["cosign", "sign", *options, chart],
        ["cosign", "attest", *options, "--type", "cyclonedx", "--predicate", str(tmp_path / "sbom.json"), image],
    ]
    (build,) = image_commands(release)
    assert build[:5] == ["docker", "buildx", "build", "--platform", "linux/amd64,linux/arm64"]
    assert "registry.example.org/team/txlog:1.2.3" in build
    assert release.tools == ["docker", "helm", "cosign"]
