"""Literals in forms that some engines change, for tests of workers that hold them as they were sent."""

from __future__ import annotations

XSD = "http://www.w3.org/2001/XMLSchema#"
FORMS_AS_SENT = [
    f'"{value}"^^<{XSD}{kind}>'
    for kind, values in {
        "integer": "1 01 +1 abc",
        "int": "1 abc",
        "decimal": "1 1.0 1.10",
        "double": "1.0 1.0E0",
        "dateTime": "2020-01-02T03:04:05Z 2020-01-02T03:04:05+00:00 2020-01-02T24:00:00Z",
        "duration": "PT24H P1D",
        "boolean": "1 true",
    }.items()
    for value in values.split()
]
