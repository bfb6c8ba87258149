from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from txlog.config.cluster import ClusterSpec
from txlog.config.cluster_status import ClusterStatus
from txlog.config.crds import DEFINITIONS, custom_resource_definition, render_files, structural_schema

CRDS = Path(__file__).parents[3] / "crds"


def test_the_committed_files_are_what_the_models_say() -> None:
    """``make crds`` writes them anew."""
    for folder in (CRDS, CRDS.parent / "charts" / "txlog-operator" / "crds-of-txlog"):
        assert {file.name: file.read_text() for file in folder.iterdir()} == render_files(), folder


def schema_of(file: str) -> dict[str, Any]:
    read = YAML(typ="safe").load((CRDS / file).read_text())
    found: dict[str, Any] = read["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(schema: Any) -> list[dict[str, Any]]:
    """Every value that the schema describes."""
    found = [schema]
    for each in schema.get("properties", {}).values():
        found += nodes(each)
    for word in ("items", "additionalProperties"):
        if word in schema:
            found += nodes(schema[word])
    return found


@pytest.mark.parametrize("file", sorted(file.name for file in CRDS.iterdir()))
def test_every_value_has_one_type_and_a_bound(file: str) -> None:
    for each in nodes(schema_of(file)):
        assert ("type" in each) != each.get("x-kubernetes-int-or-string", False), each
        assert not {"anyOf", "allOf", "$ref", "title", "const"} & set(each), each
        if each.get("type") == "array":
            assert "maxItems" in each, each


def test_the_metadata_of_a_kind_is_left_to_the_api_server() -> None:
    """An API server refuses a definition whose root ``metadata`` says more than its type, a description included."""
    for definition in DEFINITIONS:
        root = custom_resource_definition(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert root["properties"]["metadata"] == {"type": "object"}, definition.name


def test_what_the_api_server_fills_in_is_what_the_model_takes() -> None:
    """The same cluster, whether the defaults came from there or from here."""

    def filled(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
        found = dict(value)
        for name, each in schema.get("properties", {}).items():
            if name not in found and "default" in each:
                found[name] = each["default"]
            if isinstance(found.get(name), dict):
                found[name] = filled(found[name], each)
            elif isinstance(found.get(name), list) and each.get("items", {}).get("type") == "object":
                found[name] = [filled(one, each["items"]) for one in found[name]]
        return found

    schema = structural_schema(ClusterSpec)
    peers = [{"name": "uk", "masters": 2, "address": "uk-{index}.example.net"}]
    for workers in ({}, {"external": [{"url": "http://store:7878"}]}, {"replicas": 3}):
        spec = {"dataCenter": "uk", "peers": peers, "workers": workers}
        assert ClusterSpec.model_validate(filled(spec, schema)) == ClusterSpec.model_validate(spec)
    assert filled({"dataCenter": "uk", "peers": peers}, schema)["maxPeerLag"] == "1m"


def test_names_that_yaml_reads_as_something_else_are_no_fields() -> None:
    for definition in DEFINITIONS:
        for each in nodes(custom_resource_definition(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
            assert not {"n", "y", "on", "off", "yes", "no"} & set(each.get("properties", {}))


def test_a_status_is_told_whole_by_the_operator() -> None:
    for definition in DEFINITIONS:
        status = custom_resource_definition(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
            "properties"
        ]["status"]
        assert not [each for each in nodes(status) if "default" in each]


def test_columns_point_at_what_is_there() -> None:
    for definition in DEFINITIONS:
        parts = {"spec": definition.spec, "status": definition.status}
        for _, _, path, _ in definition.columns:
            where = path.partition("[")[0].strip(".").split(".")
            if where[0] in parts:
                model: type[BaseModel] = parts[where[0]]
                names = {str(field.alias or name) for name, field in model.model_fields.items()}
                assert where[1] in names, path
    assert ClusterStatus.model_validate({})
