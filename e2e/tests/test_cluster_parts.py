"""The clusters' parts that need neither root nor a cluster."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from e2e.cluster import control_plane, image_build, image_store, linters, programs
from e2e.cluster.image_archives import build_pause_image
from e2e.cluster.layout import NUMBERS, ROOT, ClusterSite, ClusterUnavailable
from e2e.cluster.node import ClusterNode
from e2e.cluster.volume_provisioner import CLASS, NODE, volume_for


def test_no_two_nodes_share_an_address() -> None:
    nodes = [ClusterNode(ClusterSite("x", number), k) for number in NUMBERS for k in NUMBERS]
    for said in ({node.address for node in nodes}, {node.site.pods(node.k) for node in nodes}):
        assert len(said) == len(nodes)
    assert ClusterNode(ClusterSite("uk", 1), 2).name == "uk-node-2"


def test_a_volume_is_its_claims_and_lies_on_the_node_that_was_chosen() -> None:
    claim = {
        "metadata": {"name": "journal-a-1", "namespace": "graphs", "uid": "77", "annotations": {NODE: "uk-node-2"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    made = volume_for(claim)
    assert made["spec"]["claimRef"] == {"namespace": "graphs", "name": "journal-a-1", "uid": "77"}
    assert made["spec"]["capacity"] == {"storage": "1Gi"}
    assert made["spec"]["storageClassName"] == CLASS
    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["uk-node-2"]
    assert made["spec"]["local"]["path"].endswith("/77")


def test_other_sources_have_another_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "go"
    compiler.write_text("#!/bin/sh\necho go1.25.0\n")
    compiler.chmod(0o755)
    copied = tmp_path / "programs"
    shutil.copytree(programs.SOURCES, copied)
    before = programs.build_stamp(str(compiler))
    monkeypatch.setattr(programs, "SOURCES", copied)
    assert programs.build_stamp(str(compiler)) == before
    assert before.endswith("-go1.25.0")
    (copied / "kube" / "main.go").write_text("package main\n")
    assert programs.build_stamp(str(compiler)) != before


def test_a_module_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "off")
    (tmp_path / "go.mod").write_text("module nothing\n\ngo 1.25.0\n")
    with pytest.raises(ClusterUnavailable, match=r"k8s\.io/not-there@v1\.0\.0 is not there"):
        linters.module_folder("k8s.io/not-there@v1.0.0", tmp_path)


def test_the_pause_image_is_one_layer_with_one_program(tmp_path: Path) -> None:
    (tmp_path / "pause").write_bytes(b"a program")
    archive = build_pause_image(tmp_path)
    with tarfile.open(archive) as opened:

        def content(name: str) -> bytes:
            file = opened.extractfile(name)
            assert file is not None
            return file.read()

        (told,) = json.loads(content("manifest.json"))
        config = json.loads(content(told["Config"]))
        layer = content(told["Layers"][0])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
        (only,) = opened.getmembers()
    assert (only.name, only.mode) == ("pause", 0o755)


def test_the_image_is_built_of_everything_that_the_dockerfile_copies() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {
        name
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
        if not name.startswith("requirements")
    }
    ignored = (ROOT / ".dockerignore").read_text().split()
    shown = {line[1:] for line in ignored if line.startswith("!")}
    assert len(copied) > 10
    for name in copied:
        tops = {name, *(str(parent) for parent in Path(name).parents)}
        assert tops & set(image_build.SOURCES), f"{name} is in no digest: a change of it would not build the image anew"
        assert tops & shown, f".dockerignore hides {name}"


def test_where_packages_come_from_is_passed_on_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://user:secret@packages.example.net/simple")
    monkeypatch.setenv("PASSWORD_OF_MINE", "x")
    told = image_build.variables()
    assert told["UV_DEFAULT_INDEX"].startswith("https://user")
    assert "PASSWORD_OF_MINE" not in told


def asked(verb: str, code: int, cause: str = "") -> str:
    """A line of an audit log."""
    answer: dict[str, object] = {"code": code}
    if cause:
        answer["details"] = {"causes": [{"reason": cause}]}
    user = {"username": "system:serviceaccount:graphs:txlog"}
    return json.dumps({"user": user, "verb": verb, "requestURI": "/api/v1/pods", "responseStatus": answer}) + "\n"


def test_what_pods_were_refused_is_found_in_the_audit_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLOG_CLUSTER_FOLDER", str(tmp_path))
    site = ClusterSite("uk", 1)
    site.folder.mkdir()
    (site.folder / "audit.log").write_text(asked("list", 200) + asked("create", 403, "NamespaceTerminating"))
    assert control_plane.forbidden_requests(site) == []
    (site.folder / "audit-2026.log").write_text(asked("delete", 403))
    assert control_plane.forbidden_requests(site) == ["system:serviceaccount:graphs:txlog: delete /api/v1/pods"]


def test_what_nodes_write_to_is_their_own_and_the_rest_is_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, archive, nodes = tmp_path / "made", tmp_path / "image.tar", [tmp_path / "n1", tmp_path / "n2"]
    (made / "snapshots").mkdir(parents=True)
    (made / "snapshots" / "file").write_text("a layer")
    (made / "meta.db").write_text("what is there")
    archive.write_text("an image")
    monkeypatch.setattr(image_store, "_unpack_images", lambda images: made)
    for node in nodes:
        node.mkdir()
        image_store.link_images(node, [archive])
    assert len({(folder / "snapshots" / "file").stat().st_ino for folder in (made, *nodes)}) == 1
    assert len({(folder / "meta.db").stat().st_ino for folder in (made, *nodes)}) == 3
    assert (nodes[1] / "meta.db").read_text() == "what is there"
