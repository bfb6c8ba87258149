"""``make reference``: two pages of ``docs/reference``, made from the code that they describe.

``txlogcluster.md`` has every field of the custom resources, from the models that read manifests. ``cli.md`` has every
command, from the typer applications. Meanings come from the descriptions and docstrings of the code: change them there,
then run ``make crds reference``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from tools.cli_reference import APPLICATIONS, NOTE, commands_page, entries, number_range, table_cell
from txlog.config.backup_resources import NODE_PATTERN
from txlog.config.cluster import ADDRESS_PATTERN, API_VERSION, NAME_PATTERN
from txlog.config.cluster_status import TIME_PATTERN
from txlog.config.crds import DEFINITIONS, TEXT_MAX, ResourceDefinition, Schema, custom_resource_definition
from txlog.config.manifest_model import CEL_RULES
from txlog.config.preferences import SPLIT_RECOVERY_PATTERN, WORKER_REPAIR_PATTERN
from txlog.config.resource_specs import RESOURCE_NAME_PATTERN
from txlog.config.units import CPU_PATTERN, DURATION_PATTERN, QUANTITY_PATTERN, format_duration, format_quantity

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "reference"

TYPES: Final = {DURATION_PATTERN: "duration", QUANTITY_PATTERN: "size", CPU_PATTERN: "quantity"}
WRITTEN: Final = {DURATION_PATTERN: format_duration, QUANTITY_PATTERN: format_quantity}
VALUES: Final = {
    ADDRESS_PATTERN: "`HOST` or `HOST:PORT`",
    NAME_PATTERN: "lower-case letters, digits, hyphens; at most 50",
    NODE_PATTERN: "lower-case letters, digits, hyphens; at most 63",
    RESOURCE_NAME_PATTERN: "name of a Kubernetes object",
    SPLIT_RECOVERY_PATTERN: "`Smart`, `Simple`, `None`",
    WORKER_REPAIR_PATTERN: "`auto`, `manual`",
    TIME_PATTERN: "UTC, such as `2026-01-31T09:30:00Z`",
}
"""Patterns that are easier to read as words. Others are shown as they are."""

EXAMPLE: Final = f"""\
apiVersion: {API_VERSION}
kind: TxLogCluster
metadata:
  name: catalogue
spec:
  dataCenter: uk
  peers:
    - {{name: uk, masters: 2, address: "uk-{{index}}.example.net"}}
    - {{name: us, masters: 1, address: us-1.example.net}}
"""

RESOURCES_INTRO: Final = f"""\
# TxLogCluster and the other resources

Every field of the manifests: its path, type, default, allowed values and meaning.
`txlog up` and the operator read the same `TxLogCluster`. The other kinds exist on Kubernetes only.
An unknown field is an error. {NOTE}

The smallest manifest for two data centres:

```yaml
{EXAMPLE}```

| type | how it is written |
|---|---|
| duration | a whole number and `ms`, `s`, `m`, `h`, `d` or `w`, such as `500ms` or `7d`; also `0` |
| size | a number and `Ki`, `Mi`, `Gi`, `Ti`, `k`, `M`, `G` or `T`, such as `20Gi` |
| quantity | a quantity of Kubernetes, such as `2`, `500m` or `1Gi` |

[Configuration](configuration.md) lists the fields that change without a restart.
[States and reasons](states-and-reasons.md) explains the values in a status.
"""


class Row(NamedTuple):
    """One field. ``default`` is empty where a field without a value means that nothing is configured."""

    path: str
    type: str
    default: str
    values: str
    meaning: str


def field_rows(path: str, schema: Schema, model: type[BaseModel] | None) -> Iterator[Row]:
    """The fields of an object and of the objects inside it. ``model``: the one that the schema was made from."""
    known = {str(info.alias): info for info in model.model_fields.values()} if model is not None else {}
    required = schema.get("required", [])
    for name, each in schema.get("properties", {}).items():
        info = known.get(name)
        items = each.get("items", {})
        default = "required" if name in required else _default(info, each)
        meaning = each.get("description") or items.get("description", "")
        yield Row(f"{path}.{name}", _type(each), default, _values(each, info), meaning)
        inner = _inner_model(info.annotation) if info is not None else None
        yield from field_rows(f"{path}.{name}", each, inner)
        yield from field_rows(f"{path}.{name}[]", items, inner)


def rules_of(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    """What the API server checks beyond single fields: the path of the object, and the message."""
    for rule in schema.get(CEL_RULES, []):
        yield path, str(rule["message"])
    for name, each in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        yield from rules_of(inner, each)
        yield from rules_of(f"{inner}[]", each.get("items", {}))


def schema_of(definition: ResourceDefinition) -> Schema:
    """The whole schema of a kind."""
    (version,) = custom_resource_definition(definition)["spec"]["versions"]
    found: Schema = version["schema"]["openAPIV3Schema"]
    return found


def resource_rows(definition: ResourceDefinition) -> list[Row]:
    """Every field of a kind, in the order of its models."""
    properties = schema_of(definition)["properties"]
    rows = [
        Row(name, _type(properties[name]), "required", values, properties[name].get("description", meaning))
        for name, values, meaning in (
            ("apiVersion", f"`{API_VERSION}`", ""),
            ("kind", f"`{definition.kind}`", ""),
            ("metadata", "as in Kubernetes", "Name, namespace, labels and annotations."),
        )
    ]
    rows.append(Row("spec", "object", "required", "", properties["spec"].get("description", "")))
    rows += field_rows("spec", properties["spec"], definition.spec)
    rows.append(Row("status", "object", "", "", properties["status"].get("description", "")))
    return rows + [row._replace(default="") for row in field_rows("status", properties["status"], definition.status)]


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model inside ``X``, ``X | None`` or ``list[X]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _inner_model(each)) is not None), None)


def _type(schema: Schema) -> str:
    if schema.get("pattern") in TYPES:
        return TYPES[schema["pattern"]]
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "quantity"))


def _default(info: FieldInfo | None, schema: Schema) -> str:
    """Objects, lists and maps are empty by default, and show nothing."""
    value = info.get_default() if info is not None else None
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and schema.get("pattern") in WRITTEN:
        return f"`{WRITTEN[schema['pattern']](value)}`"
    if isinstance(value, int | float | str):
        return f"`{value}`" if value != "" else "empty"
    return ""


def _values(schema: Schema, info: FieldInfo | None) -> str:
    if schema.get("type") == "array":
        inner = _values(schema["items"], None)
        return "; ".join(filter(None, (f"{number_range(schema.get('minItems'), schema['maxItems'])} items", inner)))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    pattern = schema.get("pattern")
    if pattern in WRITTEN:
        return ", ".join(_bounds(info))
    if pattern is not None and pattern not in TYPES:
        return VALUES.get(pattern) or _code(pattern)
    if "minimum" in schema or "maximum" in schema:
        return number_range(schema.get("minimum"), schema.get("maximum"))
    longest = schema.get("maxLength", TEXT_MAX)
    return f"at most {longest} characters" if longest != TEXT_MAX else ""


def _bounds(info: FieldInfo | None) -> Iterator[str]:
    """Of a duration or a size: what its validators say about values that no field takes."""
    if info is None:
        return
    metadata = list(info.metadata)
    for each in get_args(info.annotation):
        if get_origin(each) is Annotated:
            metadata += each.__metadata__
    for one in metadata:
        if isinstance(one, AfterValidator):
            yield from dict.fromkeys(filter(None, (_refusal(one.func, value) for value in (-1, 1 << 62))))


def _refusal(check: Any, value: int) -> str:
    try:
        check(value)
    except ValueError as refused:
        return re.sub(r"^a (duration from|size of) ", "", str(refused))
    return ""


def _code(text: str) -> str:
    """Code inside a table."""
    return f"`{text}`".replace("|", "\\|")


def resource_page() -> str:
    """``txlogcluster.md``."""
    parts = [RESOURCES_INTRO, "| kind | short name | content |\n|---|---|---|"]
    for each in DEFINITIONS:
        content = schema_of(each)["properties"]["spec"].get("description", "")
        parts.append(f"| [{each.kind}](#{each.kind.lower()}) | `{each.short_name}` | {table_cell(content)} |")
    for definition in DEFINITIONS:
        parts += _kind_section(definition)
    return "\n".join(parts) + "\n"


def _kind_section(definition: ResourceDefinition) -> Iterator[str]:
    rows = resource_rows(definition)
    columns = ", ".join(name for name, _, _, priority in definition.columns if not priority)
    wide = ", ".join(name for name, _, _, priority in definition.columns if priority)
    yield f"\n## {definition.kind}\n"
    yield f"`kubectl get {definition.short_name}` shows {columns}{f'; with `-o wide` also {wide}' if wide else ''}.\n"
    yield from _table([row for row in rows if "." not in row.path], defaults=True)
    for part in ("spec", "status"):
        inside = [row for row in rows if row.path.startswith(f"{part}.")]
        large = _large(inside)
        yield f"\n### {part.capitalize()} of {definition.kind}\n"
        top = [row for row in inside if _section(row.path) not in large or row.path == _section(row.path)]
        yield from _table([_with_link(row, large) for row in top], defaults=part == "spec")
        for name in large:
            yield f"\n### {name}\n"
            yield from _table(
                [row for row in inside if _section(row.path) == name and row.path != name], defaults=part == "spec"
            )
    rules = list(rules_of("", schema_of(definition)))
    if rules:
        yield f"\n### Rules of {definition.kind}\n"
        yield "The API server rejects a manifest that breaks one of these rules.\n"
        yield "| field | rule |\n|---|---|"
        yield from (f"| {f'`{path}`' if path else 'all'} | {table_cell(message)} |" for path, message in rules)


def _section(path: str) -> str:
    """``spec.peers`` of ``spec.peers[].name``."""
    return ".".join(path.split(".")[:2]).removesuffix("[]")


def _large(rows: Iterable[Row]) -> list[str]:
    """Fields whose inner fields get a table of their own."""
    counts = Counter(_section(row.path) for row in rows)
    return [name for name, count in counts.items() if count > 1]


def _with_link(row: Row, large: Sequence[str]) -> Row:
    if row.path not in large:
        return row
    return row._replace(meaning=f"{row.meaning} [Fields](#{row.path.replace('.', '').lower()}).")


def _table(rows: Iterable[Row], *, defaults: bool) -> Iterator[str]:
    yield "| path | type | default | allowed values | meaning |" if defaults else "| path | type | values | meaning |"
    yield "|---|---|---|---|---|" if defaults else "|---|---|---|---|"
    for row in rows:
        default = f"{row.default} | " if defaults else ""
        yield re.sub(
            r" {2,}", " ", f"| `{row.path}` | {row.type} | {default}{row.values} | {table_cell(row.meaning)} |"
        )


def meanings() -> dict[str, str]:
    """What each field, command, argument and option means, by where it is; empty where the code says nothing."""
    found = {f"{each.kind} {row.path}": row.meaning for each in DEFINITIONS for row in resource_rows(each)}
    found |= {
        f"{each.kind} {path or 'rule'}: {message}": message
        for each in DEFINITIONS
        for path, message in rules_of("", schema_of(each))
    }
    for app, name in APPLICATIONS:
        for entry in entries(app, name):
            found[entry.path] = entry.text
            found |= {f"{entry.path} {each.name}": each.meaning for each in (*entry.arguments, *entry.options)}
    return found


def pages() -> dict[Path, str]:
    """Path to text of both pages."""
    return {FOLDER / "txlogcluster.md": resource_page(), FOLDER / "cli.md": commands_page()}


def main() -> int:
    """Writes the pages. The exit code: 1 when something has no meaning; nothing is written then."""
    missing = [where for where, meaning in meanings().items() if not meaning]
    if missing:
        print("without a meaning:", *missing, sep="\n  ", file=sys.stderr)
        return 1
    for path, text in pages().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
