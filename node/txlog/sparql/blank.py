"""What a blank node is called: in stores an IRI, the same in all of them and after every restore; at the door a blank
node again, whose label says which IRI that is. So a client that sends blank nodes gets blank nodes back, and one that
names one by the label that it was given means that very node.

``urn:txlog:bnode:<32 hexadecimal digits>:<rest>`` ↔ ``_:txlog-<32 hexadecimal digits>-<rest>``.
"""

from __future__ import annotations

import re
from typing import Final

STEM: Final = "urn:txlog:bnode:"
MARK: Final = STEM.encode()
IRI: Final = MARK + rb"([0-9a-f]{32}):([0-9A-Za-z-]++)"
LABEL: Final = rb"txlog-\1-\2"
_KNOWN: Final = b"_:txlog-"
_IRI = re.compile(IRI.decode())
_LABEL = re.compile(r"txlog-([0-9a-f]{32})-([0-9A-Za-z-]++)")
_TERMS = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"|<' + IRI + rb">")
_LABELS = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"|_:txlog-([0-9a-f]{32})-([0-9A-Za-z-]++)(?= )')


def iri_of(label: str) -> str | None:
    """The IRI of the node with this label (without ``_:``); None when it is a label that a client made."""
    found = _LABEL.fullmatch(label)
    return f"{STEM}{found[1]}:{found[2]}" if found else None


def label_of(iri: str) -> str | None:
    """The label under which a client sees this IRI; None when it is no blank node's."""
    found = _IRI.fullmatch(iri)
    return f"txlog-{found[1]}-{found[2]}" if found else None


def named(term: str) -> str:
    """A term in canonical N-Triples; a blank node with a label of ours as its IRI."""
    iri = iri_of(term[2:]) if term.startswith("_:") else None
    return term if iri is None else f"<{iri}>"


def named_lines(nquads: bytes) -> bytes:
    """Canonical N-Quads with each blank node that has a label of ours as its IRI."""
    if _KNOWN not in nquads:
        return nquads
    return _LABELS.sub(lambda m: m[0] if m[1] is None else b"<%s%s:%s>" % (MARK, m[1], m[2]), nquads)


def blank_terms(text: bytes) -> bytes:
    """Terms as N-Triples and SPARQL's TSV write them, with each such IRI outside of strings as a blank node."""
    if MARK not in text:
        return text
    return _TERMS.sub(lambda m: m[0] if m[1] is None else b"_:" + m.expand(LABEL), text)


def blank_lines(nquads: bytes) -> bytes:
    """Canonical N-Quads, whole lines, with each such IRI as a blank node; a predicate, which none can be, stays."""
    if MARK not in nquads:
        return nquads
    lines = nquads.split(b"\n")
    for at, line in enumerate(lines):
        if MARK in line:
            subject, _, rest = line.partition(b" ")
            predicate, _, rest = rest.partition(b" ")
            lines[at] = b" ".join((blank_terms(subject), predicate, blank_terms(rest)))
    return b"\n".join(lines)
