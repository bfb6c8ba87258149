"""The parts of which the JSON schemas of the administration API are made."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
HASH: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
ANY_OBJECT: Final[Schema] = {"type": "object"}
LEVEL: Final[Schema] = {"enum": ["accepted", "quorum", "synced", "applied", "applied-all", "archived"]}
SPLIT_MODE: Final[Schema] = {"enum": ["Continue", "Majority"]}
REF: Final = "#/components/schemas/"
"""Prefix of a reference to a named schema of the document."""


def array_of(of: Schema) -> Schema:
    """The schema of an array."""
    return {"type": "array", "items": of}


def nullable(of: Schema) -> Schema:
    """The schema of a value that may be null."""
    return {"anyOf": [of, {"type": "null"}]}


def object_of(_closed: bool = False, _optional: tuple[str, ...] = (), **fields: Schema) -> Schema:
    """The schema of an object. ``_closed``: the master refuses a body with other fields."""
    made: Schema = {"type": "object", "properties": fields, "required": [n for n in fields if n not in _optional]}
    return made | ({"additionalProperties": False} if _closed else {})


def schema_ref(name: str) -> Schema:
    """A reference to a schema of this document."""
    return {"$ref": REF + name}
