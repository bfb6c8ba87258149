"""JSON schemas of every kind that TxLog writes, for kubeconform: those of the pinned Kubernetes and of the pinned
Prometheus operator, out of their Go modules, and TxLog's own definitions. Nothing is downloaded beside these modules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from control_plane import ROOT
from ruamel.yaml import YAML

from e2e.cluster.linters import FOLDER, module_folder
from e2e.cluster.programs import SOURCES

LOCATION = "{{ .Group }}_{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
"""As kubeconform finds a file; the core group is its version."""
REFERENCE = "#/definitions/"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
MONITORING_KINDS = ("podmonitors", "prometheusrules")
Schema = dict[str, Any]


def write_schemas(folder: Path) -> str:
    """Writes them all; the schema location for kubeconform."""
    for group, version, kind, schema in [*_of_kubernetes(), *_of_definitions()]:
        name = f"{group or version}_{kind.lower()}_{version}.json"
        (folder / name).write_text(json.dumps(schema))
    return f"{folder}/{LOCATION}"


def _of_kubernetes() -> Iterator[tuple[str, str, str, Schema]]:
    specification = module_folder("k8s.io/kubernetes", SOURCES) / "api" / "openapi-spec" / "swagger.json"
    definitions: dict[str, Schema] = json.loads(specification.read_text())["definitions"]
    for schema in definitions.values():
        _close(schema)
    # The document calls both strings.
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    for name, schema in definitions.items():
        for known in schema.get("x-kubernetes-group-version-kind", []):
            needed = {each: definitions[each] for each in _reached(name, definitions)}
            yield (
                known["group"],
                known["version"],
                known["kind"],
                {"$ref": f"{REFERENCE}{name}", "definitions": needed},
            )


def _reached(name: str, definitions: dict[str, Schema]) -> set[str]:
    found, waiting = set[str](), [name]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting.extend(_references(definitions[each]))
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.removeprefix(REFERENCE)
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _of_definitions() -> Iterator[tuple[str, str, str, Schema]]:
    monitoring = module_folder(PROMETHEUS_OPERATOR, FOLDER / "prometheus-operator") / "example/prometheus-operator-crd"
    ours = sorted((ROOT / "crds").glob("*.yaml"))
    for file in (*ours, *(monitoring / f"monitoring.coreos.com_{kind}.yaml" for kind in MONITORING_KINDS)):
        spec = YAML(typ="safe").load(file.read_text())["spec"]
        for version in spec["versions"]:
            schema: Schema = version["schema"]["openAPIV3Schema"]
            schema["properties"] |= {name: {"type": "string"} for name in ("apiVersion", "kind")}
            schema["properties"]["metadata"] = {"type": "object"}
            _close(schema, root=True)
            yield spec["group"], version["name"], spec["names"]["kind"], schema


def _close(schema: Any, root: bool = False) -> None:
    """An unknown field is an error, as ``kubectl`` has it with strict validation; a number may be given for a string
    where Kubernetes lets it."""
    if isinstance(schema, list):
        for each in schema:
            _close(each)
    if not isinstance(schema, dict):
        return
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    if isinstance(schema.get("properties"), dict):
        keeps = schema.get("x-kubernetes-preserve-unknown-fields")
        if not keeps and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for name, each in schema["properties"].items():
            if not (root and name == "metadata"):
                _close(each)
    for key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf"):
        if key in schema:
            _close(schema[key])
