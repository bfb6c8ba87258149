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
JSON: Final = "application/json"
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


def query_parameter(name: str, schema: Schema, text: str) -> Schema:
    """A parameter of the query string."""
    return {"name": name, "in": "query", "schema": schema, "description": text}


def describe_response(text: str, schema: Schema | None = None, content: str = JSON) -> Schema:
    """An answer with a body of this media type; without a schema, one without a body."""
    return {"description": text} | ({"content": {content: {"schema": schema}}} if schema is not None else {})


def operation_of(
    text: str, answers: dict[str, Schema], *queries: Schema, body: Schema | None = None, content: str = JSON
) -> Schema:
    """An operation of the document. ``queries``: its parameters; ``body``: of the request, of this media type."""
    made: Schema = {"summary": text, "responses": answers}
    if queries:
        made["parameters"] = list(queries)
    if body is not None:
        made["requestBody"] = {"required": True, "content": {content: {"schema": body}}}
    return made
