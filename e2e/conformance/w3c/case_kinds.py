"""The kinds of the W3C's tests. Paths are those of files in the suite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TestDataset:
    """Data that a test begins or ends with: files (their paths in the suite) of the default graph, and by graph."""

    default: tuple[str, ...]
    named: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class QueryTest:
    """``text`` names its own base; ``result``: the file with what must come out; ``lax``: how often is left open."""

    name: str
    text: str
    before: TestDataset
    result: str
    lax: bool


@dataclass(frozen=True)
class UpdateTest:
    """``request`` names its own base; ``after``: what must be there then."""

    name: str
    request: str
    before: TestDataset
    after: TestDataset


@dataclass(frozen=True)
class SyntaxTest:
    """A query or an update that is to be taken (``valid``), or refused as malformed."""

    name: str
    text: str
    is_update: bool
    valid: bool


@dataclass(frozen=True)
class UploadTest:
    """A file of RDF that is to be taken (``valid``), or refused as malformed. ``result``: the file with the same
    statements in N-Triples or N-Quads; "" where the suite has none."""

    name: str
    path: str
    base: str
    result: str
    valid: bool


W3cTest = QueryTest | UpdateTest | SyntaxTest | UploadTest
NO_DATA = TestDataset((), ())
