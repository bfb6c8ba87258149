"""The record of a link as a store holds it: where no book has read the log, an anchor goes on from it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from txlog.client.site_client import SiteClient
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import PeerFault
from txlog.sites.keys import SITES_GRAPH
from txlog.sites.link_record import (
    CONTENTS_PREDICATE,
    NAME_PREDICATE,
    LaterRecord,
    LinkRecord,
    RecordNotRead,
    decode_contents,
    record_subject,
)

WAIT_S: Final = 10.0


class StoredRecord(NamedTuple):
    """``name``: None where the store holds no record. ``record``: None where it cannot be read."""

    name: bytes | None
    record: LinkRecord | None


def read_stored_record(master: SiteClient, repository: str, source: str) -> StoredRecord:
    """The record of the link from ``source``. Raises :class:`LaterRecord` for one of a later version, and what a query
    raises."""
    subject = f"<{record_subject(source)}>"
    where = f"{subject} <{NAME_PREDICATE}> ?name OPTIONAL {{ {subject} <{CONTENTS_PREDICATE}> ?contents }}"
    found = master.query(
        repository,
        f"SELECT ?name ?contents {{ GRAPH <{SITES_GRAPH}> {{ {where} }} }} ORDER BY ?name ?contents",
        wait_s=WAIT_S,
    )
    try:
        rows: list[dict[str, Any]] = msgspec.json.decode(found.body)["results"]["bindings"]
        names = [(str(row["name"]["value"]), str(row.get("contents", {}).get("value", ""))) for row in rows]
    except (KeyError, TypeError, AttributeError, *DECODE_ERRORS) as wrong:
        raise PeerFault(master.url, "Malformed", f"the record of the link: {wrong}") from None
    if not names:
        return StoredRecord(None, None)
    name, contents = names[0]
    try:
        record = decode_contents(contents.encode())
    except RecordNotRead:
        return StoredRecord(name.encode(), None)
    if not isinstance(record, LinkRecord):
        raise LaterRecord(f"the store holds a record of version {record.version} of the link from {source}")
    return StoredRecord(name.encode(), record)
