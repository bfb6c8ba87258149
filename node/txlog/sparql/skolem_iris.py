"""Maps blank nodes to IRIs (Skolem IRIs) and back. A store holds an IRI, the same in all stores and after every
restore. The HTTP API returns a blank node, whose label encodes the IRI. So a client that sends blank nodes gets blank
nodes back, and a client that uses such a label addresses that node.

A new node has a random name: ``urn:txlog:bnode:<32 hexadecimal digits>:<rest>`` ↔
``_:txlog-<32 hexadecimal digits>-<rest>``. A node whose label a client keeps (``preserveNodeId=true``) has that label
as its name: ``urn:txlog:bnode:kept:<label>`` ↔ ``_:<label>``. A label that an IRI cannot hold is written there as
``x-`` and its bytes in hexadecimal. Where a format cannot hold a label, it is written as ``hex-`` and its bytes, which
is the same label.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyoxigraph

SKOLEM_PREFIX: Final = "urn:txlog:bnode:"
SKOLEM_PREFIX_BYTES: Final = SKOLEM_PREFIX.encode()
SKOLEM_IRI_PATTERN: Final = (
    SKOLEM_PREFIX_BYTES + rb"([0-9a-f]{32}:[0-9A-Za-z-]++|kept:[0-9A-Za-z_](?:[0-9A-Za-z._-]*[0-9A-Za-z_-])?)"
)
"""Its group is the argument of :func:`name_to_label`."""
_IRI = re.compile(SKOLEM_IRI_PATTERN.decode())
_GENERATED_LABEL = re.compile(r"txlog-([0-9a-f]{32})-([0-9A-Za-z-]++)")
_PLAIN_LABEL = re.compile(r"(?!x-|hex-)[0-9A-Za-z_](?:[0-9A-Za-z._-]*[0-9A-Za-z_-])?")
_ENCODED_LABEL = re.compile(r"hex-((?:[0-9a-f]{2})*)")
_TERMS = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"|<' + SKOLEM_IRI_PATTERN + rb">")
_QUOTED = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"|(<<\( (?:<[^<>]*>|_:[^ ]+) )(<[^<>]*>)|<' + SKOLEM_IRI_PATTERN + rb">")
_LABELS = re.compile(rb'"(?:[^"\\\n]++|\\.|)*+"|<<\(|<[^>\n]*+>|_:([^ \n]++)')


def label_to_iri(label: str) -> str:
    """The IRI of the node with this label (without ``_:``): of a random name, or of a kept label."""
    hexed = _ENCODED_LABEL.fullmatch(label)
    text = label if hexed is None else _decode_label(hexed[1], label)
    found = _GENERATED_LABEL.fullmatch(text)
    if found is not None:
        return f"{SKOLEM_PREFIX}{found[1]}:{found[2]}"
    return f"{SKOLEM_PREFIX}kept:{text if _PLAIN_LABEL.fullmatch(text) else 'x-' + text.encode().hex()}"


def _decode_label(digits: str, otherwise: str) -> str:
    try:
        return bytes.fromhex(digits).decode()
    except ValueError:
        return otherwise


def name_to_label(name: str) -> str:
    """The label under which a client sees a node; ``name``: its IRI without the stem."""
    first, _, rest = name.partition(":")
    if first != "kept":
        return f"txlog-{first}-{rest}"
    if _PLAIN_LABEL.fullmatch(rest):
        return rest
    text = _decode_label(rest[2:], rest)
    return text if _is_label(text) and label_to_iri(text) == f"{SKOLEM_PREFIX}{name}" else encode_label(text)


def _is_label(text: str) -> bool:
    """Whether every RDF format accepts the label; only N-Triples allows a colon."""
    try:
        return ":" not in pyoxigraph.BlankNode(text).value
    except ValueError:
        return False


def encode_label(label: str) -> str:
    """Another form of this label, of letters and digits that every RDF format accepts."""
    return f"hex-{label.encode().hex()}"


def iri_to_label(iri: str) -> str | None:
    """The label under which a client sees this IRI; None when it is no blank node's."""
    found = _IRI.fullmatch(iri)
    return name_to_label(found[1]) if found else None


def make_blank_node(text: str) -> pyoxigraph.BlankNode:
    """A blank node from a format in which its name may be any text."""
    return pyoxigraph.BlankNode(text if _is_label(text) else encode_label(text))


def skolemise_term(term: str) -> str:
    """A term in canonical N-Triples; a blank node as its IRI."""
    return f"<{label_to_iri(term[2:])}>" if term.startswith("_:") else term


def rename_nodes(nquads: bytes, terms: re.Pattern[bytes], name: Callable[[re.Match[bytes]], bytes]) -> bytes:
    """Whole lines of N-Quads; in those that may have a blank node, each match of ``terms`` is given to ``name``."""
    lines = nquads.split(b"\n")
    for at, line in enumerate(lines):
        if b"_:" in line:
            lines[at] = terms.sub(name, line)
    return b"\n".join(lines)


def skolemise_kept_lines(nquads: bytes) -> bytes:
    """Canonical N-Quads, whole lines, with each blank node as its IRI."""
    if b"_:" not in nquads:
        return nquads

    def name(found: re.Match[bytes]) -> bytes:
        return found[0] if found[1] is None else b"<%s>" % label_to_iri(found[1].decode()).encode()

    return rename_nodes(nquads, _LABELS, name)


def unskolemise_terms(text: bytes) -> bytes:
    """Terms in the syntax of N-Triples and SPARQL's TSV, with each such IRI outside of strings as a blank node."""
    if SKOLEM_PREFIX_BYTES not in text:
        return text
    return _TERMS.sub(lambda m: m[0] if m[1] is None else b"_:" + name_to_label_bytes(m[1]), text)


def _unskolemise_triple_term(text: bytes) -> bytes:
    """The same for the end of a line whose object is a triple term: predicates inside stay."""

    def restore(found: re.Match[bytes]) -> bytes:
        if found[1]:
            return unskolemise_terms(found[1]) + found[2]
        return found[0] if found[3] is None else b"_:" + name_to_label_bytes(found[3])

    return _QUOTED.sub(restore, text)


def name_to_label_bytes(name: bytes) -> bytes:
    """:func:`name_to_label` for encoded text."""
    return name_to_label(name.decode()).encode()


def unskolemise_lines(nquads: bytes) -> bytes:
    """Canonical N-Quads, whole lines, with each such IRI as a blank node; predicates stay, as they must be IRIs."""
    if SKOLEM_PREFIX_BYTES not in nquads:
        return nquads
    lines = nquads.split(b"\n")
    for at, line in enumerate(lines):
        if SKOLEM_PREFIX_BYTES in line:
            subject, _, rest = line.partition(b" ")
            predicate, _, rest = rest.partition(b" ")
            restore = _unskolemise_triple_term if rest.startswith(b"<<(") else unskolemise_terms
            lines[at] = b" ".join((unskolemise_terms(subject), predicate, restore(rest)))
    return b"\n".join(lines)
