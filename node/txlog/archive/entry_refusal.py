"""What a front door refuses is refused again: the chain of an archive is no signature, so a forger could write one."""

from __future__ import annotations

import re
from typing import Final

from txlog.archive.archive_errors import EntryRefused
from txlog.archive.block_codec import ArchivedEntry
from txlog.model.bulk_entry import decode_bulk_load
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput
from txlog.sparql import check_supported_terms, is_valid_update
from txlog.sparql.terms import iri_text, refuse_system
from txlog.sparql.tokens import tokens

_NEVER_ALLOWED: Final = ("LOAD", "SERVICE")
_LINES: Final = re.compile(
    rb'(?:[AD] <[^<>\s]+> <[^<>\s]+> (?:<[^<>\s]+>|"(?:[^"\\\n]++|\\.|)*+"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]+>|)'
    rb"|<<\( [^\n]* \)>>)(?: <[^<>\s]+>|) \.\n|)*+"
)


def refuse_foreign(entry: ArchivedEntry) -> None:
    """:class:`EntryRefused` for an entry that no master has accepted: an update that reads other addresses, names of
    TxLog's own, payloads that are none. Also for a bulk load, whose data no archive has."""
    load = decode_bulk_load(entry.payload) if entry.kind == KIND_UPDATE else None
    if load is not None:
        raise EntryRefused(
            f"the entry {entry.index} ({entry.txid}) is the bulk load {load.id} of {load.quads:,} quads, which are in "
            "no archive; restore from a backup that was taken behind it, or to a moment before it"
        )
    try:
        if entry.kind == KIND_QUADS:
            _check_quads(entry.payload)
        elif entry.kind == KIND_UPDATE:
            _check_update(entry.payload)
        else:
            raise BadInput(f"kind {entry.kind} is unknown")
    except (BadInput, ValueError) as wrong:
        raise EntryRefused(
            f"the entry {entry.index} ({entry.txid}) holds what no master accepts: {wrong}; compare the archive with "
            "another copy, and find out who wrote it"
        ) from None


def _check_quads(payload: bytes) -> None:
    if _LINES.fullmatch(payload) is None:
        raise BadInput("its payload is no list of quads")
    check_supported_terms(payload)


def _check_update(payload: bytes) -> None:
    text = payload.decode()
    for token in tokens(text):
        if token.kind == "WORD" and token.text.upper() in _NEVER_ALLOWED:
            raise BadInput(f"{token.text.upper()} reads another address")
        if token.kind == "IRI":
            refuse_system(iri_text(token.text))
        if token.kind == "PNAME":
            raise BadInput(f"{token.text[:80]} has no prefix in the log")
        if token.kind == "ERROR":
            raise BadInput(f"{token.text[:80]!r} is no SPARQL")
    if text.strip() and not is_valid_update(text):
        raise BadInput("it is no SPARQL update")
