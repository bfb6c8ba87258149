"""The declared names of a text, and rewritten text that knows the offsets of its origin."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from txlog.sparql.expansion_limit import EXPANDED_BYTES_MAX, check_expansion
from txlog.sparql.terms import ABSOLUTE, DEFAULT_PREFIXES, iri_text, local_text, refuse_system, resolve
from txlog.sparql.tokens import Token, malformed_query


class Prologue:
    """BASE and PREFIX in force at one offset of a text. Declarations accumulate; a later one wins. ``limit``: total
    length of all expanded IRIs."""

    def __init__(self, base: str | None, limit: int = EXPANDED_BYTES_MAX) -> None:
        self.base = base
        self._limit = limit
        self._expanded_bytes = 0
        self.prefixes: dict[str, str] = {}
        self.has_relative_iris = False
        self.used_default_prefixes: set[str] = set()

    def expand(self, source: str, token: Token, *, lenient: bool = False) -> str:
        """The full IRI of an ``IRI`` or ``PNAME`` token. Raises ``BadInput``, ``SystemGraphNamed`` and ``TooLarge``.
        With ``lenient`` a relative IRI without base is returned as it is, for a caller that knows the base."""
        if token.kind == "IRI":
            try:
                full = iri_text(token.text)
                if not ABSOLUTE.match(full):
                    self.has_relative_iris = True
                    if self.base is not None:
                        full = resolve(full, self.base)
                    elif not lenient:
                        raise malformed_query(
                            source,
                            token.start,
                            f"<{full[:200]}> is relative: send baseURI, or write BASE or the full IRI",
                        )
            except ValueError as error:
                raise malformed_query(source, token.start, str(error)) from None
        else:
            prefix, _, local = token.text.partition(":")
            stem = self.prefixes.get(prefix)
            if stem is None:
                stem = DEFAULT_PREFIXES.get(prefix)
                if stem is None:
                    raise malformed_query(source, token.start, f"the prefix {prefix}: is not declared")
                self.used_default_prefixes.add(prefix)
            full = stem + local_text(local)
        self._expanded_bytes += len(full)
        check_expansion(self._expanded_bytes, self._limit)
        refuse_system(full)
        return full


class SourceMappedText(list[tuple[str, int]]):
    """The text written so far, each part with the offset of its origin in the source."""

    def text(self) -> str:
        """The whole text."""
        return "".join([part for part, _ in self])

    def source_offset(self, at: int) -> int:
        """The offset in the source of the character ``at`` of :meth:`text`."""
        if not self:
            return 0
        starts = list(accumulate((len(part) for part, _ in self), initial=0))
        index = min(bisect_right(starts, max(at, 0)) - 1, len(self) - 1)
        return self[index][1]
