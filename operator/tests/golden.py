"""What the builders make of the examples, as files that people read. ``python operator/tests/golden.py`` writes
them again; the diff is the review."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from txlog.config.manifest_reader import ClusterManifest, load_manifests
from txlog.config.pipeline_spec import PipelineSpec
from txlog.config.process_config import LastSeenIncarnation
from txlog_operator.manifest_validation import unsupported_fields
from txlog_operator.specs import BuildContext, KubeObject, desired_objects

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = Path(__file__).parent / "golden"
AROUND = BuildContext(
    "txlog.example/txlog:1",
    owner_uid="5f0c0ffe",
    last_seen={"uk-1": LastSeenIncarnation(birth=0xC0FFEE, start=7)},
    pipeline_account="txlog-pipeline",
)


def rendered(manifest: ClusterManifest) -> str:
    return _text(desired_objects(manifest.cluster, AROUND))


def rendered_executors() -> str:
    """What becomes another in London when its executors are pods."""
    cluster = load_manifests(EXAMPLES / "two-data-centres")[0].cluster
    plain = desired_objects(cluster, AROUND)
    spec = cluster.spec.model_copy(update={"pipeline": PipelineSpec.model_validate({"mode": "executors"})})
    apart = cluster.model_copy(update={"spec": spec})
    return _text(
        [each for each in desired_objects(apart, AROUND) if each not in plain and "accepted.json" not in str(each)]
    )


def _text(found: list[KubeObject]) -> str:
    yaml = YAML()
    yaml.width = 1000
    yaml.representer.ignore_aliases = lambda _: True
    text = io.StringIO()
    yaml.dump_all([_readable(each) for each in found], text)
    return text.getvalue()


def _readable(value: Any) -> Any:
    """Files inside of it as lines."""
    if isinstance(value, dict):
        return {key: _readable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_readable(each) for each in value]
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value


def expected() -> dict[Path, str]:
    """By file; without what does not run on Kubernetes."""
    return {FOLDER / "executors-uk.yaml": rendered_executors()} | {
        FOLDER / f"{folder.name}-{manifest.data_center}.yaml": rendered(manifest)
        for folder in sorted(EXAMPLES.iterdir())
        if folder.is_dir()
        for manifest in load_manifests(folder)
        if not unsupported_fields(manifest.cluster)
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in expected().items():
        file.write_text(text)
