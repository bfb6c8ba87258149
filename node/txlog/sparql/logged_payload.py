"""Checks the payload of an entry of the log as a front door would: for payloads that no front door has made here."""

from __future__ import annotations

import re
from typing import Final

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput
from txlog.sparql.rdf_upload import check_supported_terms
from txlog.sparql.terms import iri_text, refuse_system
from txlog.sparql.tokens import tokens
from txlog.sparql.update_normaliser import is_valid_update

_NEVER_ALLOWED: Final = ("LOAD", "SERVICE")
_LINES: Final = re.compile(
    rb'(?:[AD] <[^<>\s]+> <[^<>\s]+> (?:<[^<>\s]+>|"(?:[^"\\\n]++|\\.|)*+"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]+>|)'
    rb"|<<\( [^\n]* \)>>)(?: <[^<>\s]+>|) \.\n|)*+"
)


def check_logged_payload(kind: int, payload: bytes) -> None:
    """:class:`BadInput` for a payload that no master logs under this kind: an update that reads other addresses, names
    of TxLog's own, text that is no update, lines that are no quads."""
    try:
        if kind == KIND_QUADS:
            _check_quads(payload)
        elif kind == KIND_UPDATE:
            _check_update(payload)
        else:
            raise BadInput(f"kind {kind} is unknown")
    except ValueError as wrong:
        raise BadInput(str(wrong)) from None


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
