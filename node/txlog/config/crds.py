"""``make crds``: the resources' definitions for Kubernetes, from the models that read manifests.

``python -m txlog.config.crds FOLDER...`` writes them. A definition must be *structural*: every value has one type, said
outside of any alternative, and no field is unknown; what the models say beyond that are rules in CEL.
"""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from ruamel.yaml import YAML

from txlog.config.backup_resources import (
    BackupSpec,
    JobStatus,
    RehearsalSpec,
    RestoreSpec,
    ScheduleSpec,
    ScheduleStatus,
)
from txlog.config.cluster import API_VERSION, ClusterSpec
from txlog.config.cluster_status import ClusterStatus
from txlog.config.manifest_model import CEL_RULES, NO_DEFAULTS, cel_rules
from txlog.config.pod_template import PRESERVE
from txlog.config.units import DURATION_PATTERN, QUANTITY_PATTERN, format_duration, format_quantity

Schema = dict[str, Any]
TEXT_MAX: Final = 512
"""The length of texts that no model bounds: an API server accepts a rule only with a bounded cost."""
ITEMS_MAX: Final = 100
_ROLE = re.compile(r":[a-z]+:`")
_FORMATTERS: dict[str | None, Callable[[int], str]] = {
    DURATION_PATTERN: format_duration,
    QUANTITY_PATTERN: format_quantity,
}


@dataclass(frozen=True)
class ResourceDefinition:
    """One kind. ``columns``: what ``kubectl get`` shows, as name, type, path and priority; ``root_rules``: rules over
    everything."""

    kind: str
    short_name: str
    spec: type[BaseModel]
    status: type[BaseModel]
    columns: tuple[tuple[str, str, str, int], ...]
    root_rules: tuple[tuple[str, str], ...] = ()
    scale: Schema | None = None
    """What ``kubectl scale`` and an autoscaler change and read: the paths of the replicas and of the selector."""

    @property
    def plural(self) -> str:
        """The resource's name in URLs of the Kubernetes API."""
        return f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        """Name of the definition, such as ``txlogclusters.txlog.io``."""
        return f"{self.plural}.{API_VERSION.partition('/')[0]}"


_NAME_RULE = (
    "self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$')",
    "metadata.name: lower-case letters, digits and hyphens, at most 50, since names of pods contain it",
)
_SPLIT_RULE = (
    "self.spec.splitRecovery.lowerAscii() == oldSelf.spec.splitRecovery.lowerAscii()"
    " || !has(self.status) || !has(self.status.split)",
    "splitRecovery cannot be changed during a split; wait until status.split is gone",
)


def _growth_rule(part: str, component: str) -> tuple[str, str]:
    """A size may also go back to what every volume has: the storage may refuse to grow."""
    new, old, sizes = f"self.spec.{part}.storage", f"oldSelf.spec.{part}.storage", "self.status.volumeSizes"
    return (
        f"!has({new}) || !has({old}) || {_at_least(f'{new}.size', f'{old}.size')}"
        f" || has(self.status) && has({sizes}) && has({sizes}.{component})"
        f" && {_at_least(f'{new}.size', f'{sizes}.{component}')}",
        f"{part}.storage.size: at least the size of the volumes, which do not shrink",
    )


def _at_least(size: str, least: str) -> str:
    return f"{_bytes_of(size)} >= {_bytes_of(least)}"


def _bytes_of(size: str) -> str:
    """A size is a number or a text. Its text as ``string(size)`` would have no bound, and no rule may be so costly."""
    return f"(type({size}) == int ? int({size}) : quantity({size}).asInteger())"


_AGE_COLUMN = ("Age", "date", ".metadata.creationTimestamp", 0)


def _condition(kind: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].status'


_IMMUTABLE_RULE = ("self.spec == oldSelf.spec", "spec cannot be changed; delete the resource and create another one")
_JOB_COLUMNS = (
    ("State", "string", ".status.state", 0),
    ("Backup", "string", ".status.backup", 0),
    ("Position", "string", ".status.position", 0),
    ("Message", "string", ".status.message", 1),
    _AGE_COLUMN,
)
DEFINITIONS: Final = (
    ResourceDefinition(
        "TxLogCluster",
        "txl",
        ClusterSpec,
        ClusterStatus,
        (
            ("Ready", "string", _condition("Ready"), 0),
            ("Masters", "string", ".status.mastersReady", 0),
            ("Peers", "string", ".status.peersReachable", 0),
            ("State", "string", ".status.state", 0),
            ("Lag", "string", ".status.lag", 0),
            ("Quorum", "string", '.status.conditions[?(@.type=="SynchronousQuorum")].reason', 1),
            ("Recovery", "string", ".status.recovery", 0),
            ("Applied", "integer", ".status.applied", 0),
            ("Why", "string", '.status.conditions[?(@.type=="Ready")].reason', 1),
            ("Backup", "string", ".status.lastBackup", 1),
            _AGE_COLUMN,
        ),
        (
            _NAME_RULE,
            _SPLIT_RULE,
            _growth_rule("masters", "master"),
            _growth_rule("workers", "worker"),
            _growth_rule("changeSets", "changesets"),
        ),
        {
            "specReplicasPath": ".spec.workers.replicas",
            "statusReplicasPath": ".status.workerReplicas",
            "labelSelectorPath": ".status.workerSelector",
        },
    ),
    ResourceDefinition(
        "TxLogBackup",
        "txlb",
        BackupSpec,
        JobStatus,
        (("Cluster", "string", ".spec.cluster", 0), ("Why", "string", ".spec.why", 0), *_JOB_COLUMNS),
        (_IMMUTABLE_RULE,),
    ),
    ResourceDefinition(
        "TxLogRestore",
        "txlr",
        RestoreSpec,
        JobStatus,
        (("Cluster", "string", ".spec.cluster", 0), ("Worker", "string", ".spec.worker", 0), *_JOB_COLUMNS),
        (_IMMUTABLE_RULE,),
    ),
    ResourceDefinition(
        "TxLogRehearsal",
        "txlx",
        RehearsalSpec,
        JobStatus,
        (("Cluster", "string", ".spec.cluster", 0), ("Why", "string", ".spec.why", 0), *_JOB_COLUMNS),
        (_IMMUTABLE_RULE,),
    ),
    ResourceDefinition(
        "TxLogBackupSchedule",
        "txls",
        ScheduleSpec,
        ScheduleStatus,
        (
            ("Cluster", "string", ".spec.cluster", 0),
            ("Schedule", "string", ".spec.schedule", 0),
            ("Suspended", "boolean", ".spec.suspend", 0),
            ("Next", "date", ".status.next", 0),
            ("Last", "string", ".status.last", 0),
            _AGE_COLUMN,
        ),
    ),
)


def custom_resource_definition(of: ResourceDefinition) -> Schema:
    """The CustomResourceDefinition."""
    group, _, version = API_VERSION.partition("/")
    schema: Schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Group and version of these resources."},
            "kind": {"type": "string", "description": "Kind of the resource."},
            "metadata": {"type": "object"},  # an API server takes no definition that describes it
            "spec": structural_schema(of.spec),
            "status": _without_defaults(structural_schema(of.status)),
        },
    }
    if of.root_rules:
        schema |= cel_rules(*of.root_rules)
    columns = [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
        for name, kind, path, priority in of.columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": of.name},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": of.kind,
                "listKind": f"{of.kind}List",
                "plural": of.plural,
                "singular": of.kind.lower(),
                "shortNames": [of.short_name],
                "categories": ["txlog"],
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **({"scale": of.scale} if of.scale is not None else {})},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def structural_schema(model: type[BaseModel]) -> Schema:
    """The model's schema as Kubernetes takes it."""
    whole = model.model_json_schema(by_alias=True)
    return _convert(whole, whole.get("$defs", {}), defaults=True)


def _without_defaults(schema: Schema) -> Schema:
    """What has not been seen is not there: the API server shall say nothing in the operator's place."""
    found = {word: value for word, value in schema.items() if word != "default"}
    if "properties" in found:
        found["properties"] = {name: _without_defaults(each) for name, each in found["properties"].items()}
    if "items" in found:
        found["items"] = _without_defaults(found["items"])
    return found


def _convert(given: Schema, known: Mapping[str, Schema], *, defaults: bool) -> Schema:
    schema = _resolve_references(given, known)
    found: Schema = {}
    kept = (
        "type",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "enum",
        CEL_RULES,
        PRESERVE,
    )
    for word in (*kept, "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"):
        if word in schema:
            found[word] = schema[word]
    if "const" in schema:
        found["enum"] = [schema["const"]]
    said = schema.get("description")
    if said:
        found["description"] = " ".join(_ROLE.sub("`", said.replace("``", "`")).split())
    if "default" in schema and defaults and schema["default"] is not None:
        found["default"] = _format_default(schema["default"], schema.get("pattern"))
    kind = schema.get("type")
    if kind == "object":
        inner = defaults and not schema.get(NO_DEFAULTS, False)
        _convert_object(schema, found, known, inner)
    elif kind == "array":
        # Tools that compare lists as a whole take a default that the API server adds inside of one for a change.
        found["items"] = _convert(schema["items"], known, defaults=False)
        found.setdefault("maxItems", ITEMS_MAX)
    elif kind == "string" and "enum" not in found:
        found.setdefault("maxLength", TEXT_MAX)
    elif kind == "integer":
        found["format"] = "int64"
    return found


def _format_default(value: Any, pattern: str | None) -> Any:
    """As people write it. What is in an object has defaults of its own."""
    if isinstance(value, dict):
        return {}
    if isinstance(value, int) and pattern in _FORMATTERS:
        return _FORMATTERS[pattern](value)
    return value


def _convert_object(schema: Schema, found: Schema, known: Mapping[str, Schema], defaults: bool) -> None:
    if "properties" in schema:
        found["properties"] = {
            name: _convert(each, known, defaults=defaults) for name, each in schema["properties"].items()
        }
        if schema.get("required"):
            found["required"] = schema["required"]
    elif isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _convert(schema["additionalProperties"], known, defaults=defaults)
        found["maxProperties"] = ITEMS_MAX


def _resolve_references(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    """Without references, and without the alternative of nothing: a field that may be left out is left out."""
    while "$ref" in schema or "anyOf" in schema:
        if "$ref" in schema:
            inner = known[schema["$ref"].rpartition("/")[2]]
        else:
            (inner,) = [each for each in schema["anyOf"] if each.get("type") != "null"]
        outer = {word: value for word, value in schema.items() if word not in ("$ref", "anyOf")}
        both = [*inner.get(CEL_RULES, []), *outer.get(CEL_RULES, [])]
        schema = {**inner, **outer, **({CEL_RULES: both} if both else {})}
    return schema


def render_files() -> dict[str, str]:
    """The files, by name."""
    yaml = YAML()
    yaml.width = 1000
    yaml.representer.ignore_aliases = lambda _: True
    yaml.indent(mapping=2, sequence=4, offset=2)
    found = {}
    for of in DEFINITIONS:
        text = io.StringIO()
        text.write("# Made by `make crds` from node/txlog/config.\n")
        yaml.dump(custom_resource_definition(of), text)
        found[f"{of.plural}.yaml"] = text.getvalue()
    return found


def main() -> None:
    """Writes the definitions into each folder that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m txlog.config.crds", description="Write the resources' definitions."
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    for folder in parser.parse_args().folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in render_files().items():
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
