"""Queries for a worker whose marker is a triple: ``<urn:txlog:system>`` three times, in a graph of ours.

No query names that IRI, so only a pattern that may match any predicate can match the marker: a variable as predicate, a
negated property set, a path of length zero. The rewriter adds a filter after each such pattern, in its own group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.sparql.terms import SYSTEM_GRAPHS
from txlog.sparql.tokens import Token, apply_edits, significant_tokens, tokens

_TERMS: Final = frozenset(("VARIABLE", "IRI", "PNAME", "BLANK", "STRING", "NUMBER"))
_LITERALS: Final = ("true", "false")
_CLOSES: Final = {"{": "}", "(": ")", "[": "]"}
_SUBJECT, _VERB, _OBJECT, _END, _KEYWORD, _CLAUSE = "subject", "verb", "object", "end", "keyword", "clause"


class _OpenBracket:
    """An open bracket: ``kind`` is group, list (a collection), node (``[ ]``), or other (expressions, data)."""

    def __init__(self, kind: str, close: str, state: str, opened: int) -> None:
        self.kind, self.close, self.state, self.opened_at = kind, close, state, opened
        self.subject: str | None = ""
        """The variable; "" for a blank node, None for a constant."""
        self.verb: str = ""
        """The variable."""
        self.is_path = False
        """The predicate is a path that may match anything."""
        self.expects_verb, self.depth = True, 0
        """In a path: that a step comes next; how many parentheses are open."""
        self.hidden: list[str] = []


class _MarkerFilterRewriter:
    def __init__(self, query: str) -> None:
        self.query = query
        self.toks = significant_tokens(query)
        self.stack: list[_OpenBracket] = [_OpenBracket("top", "", _CLAUSE, 0)]
        self.insertions: list[tuple[int, str]] = []
        self.construct_end = -1
        """The offset at which a CONSTRUCT without a template needs one."""
        self.after_values = False

    def run(self) -> str:
        at = 0
        while at < len(self.toks):
            at = self._token(at)
        return apply_edits(self.query, [(offset, offset, text) for offset, text in self.insertions])

    def _token(self, at: int) -> int:
        token, frame = self.toks[at], self.stack[-1]
        kind, text = token.kind, token.text
        if kind == "MARK" and text == "{":
            self._open_group(at)
        elif kind == "MARK" and frame.close and text == frame.close:
            self._close(token)
        elif frame.kind in ("other", "top"):
            if kind == "MARK" and text in _CLOSES:
                self.stack.append(_OpenBracket("other", _CLOSES[text], _CLAUSE, token.start))
        elif frame.state == _VERB and self._verb(token, frame):
            pass
        elif kind == "WORD" and text not in (*_LITERALS, "a"):
            self._keyword(text.upper(), frame)
        elif frame.state in (_KEYWORD, _CLAUSE):
            if kind == "MARK" and text in _CLOSES:
                self.stack.append(_OpenBracket("other", _CLOSES[text], _CLAUSE, token.start))
        elif kind == "MARK" and text in (".", ";", ","):
            frame.state = {".": _SUBJECT, ";": _VERB, ",": _OBJECT}[text]
            frame.expects_verb, frame.depth = True, 0
            if text == ";":
                frame.verb, frame.is_path = "", False
        elif kind == "MARK" and text == "^^":
            return at + 2  # the datatype
        elif kind == "MARK" and text in "([" and frame.state != _END:
            self._term("", frame)
            state = _OBJECT if text == "(" else _VERB
            self.stack.append(_OpenBracket("list" if text == "(" else "node", _CLOSES[text], state, token.start))
        elif kind in _TERMS or text in _LITERALS:
            self._term(text if kind == "VARIABLE" else "" if kind == "BLANK" else None, frame)
        return at + 1

    def _open_group(self, at: int) -> None:
        before = self.toks[at - 1].text.upper() if at else ""
        frame, token = self.stack[-1], self.toks[at]
        data = self.after_values or (before == "CONSTRUCT" and self.toks[at - 1].kind == "WORD")
        self.after_values = False
        if frame.kind == "group" and frame.state != _CLAUSE:
            frame.state = _SUBJECT
        self.stack.append(_OpenBracket("other" if data else "group", "}", _CLAUSE if data else _SUBJECT, token.start))

    def _close(self, token: Token) -> None:
        frame = self.stack.pop()
        if frame.kind == "group" and frame.hidden:
            text = "".join(f" FILTER(!sameTerm({name},<{SYSTEM_GRAPHS}>))" for name in dict.fromkeys(frame.hidden))
            self.insertions.append((token.start, text + " "))
            if self.construct_end >= 0 and len(self.stack) == 1:
                inside = self.query[frame.opened_at + 1 : token.start]
                self.insertions.append((self.construct_end, f" {{{inside}}} "))
        outer = self.stack[-1]
        if frame.kind == "other" and outer.kind == "group" and outer.state == _KEYWORD and not self.after_values:
            outer.state = _SUBJECT

    def _keyword(self, word: str, frame: _OpenBracket) -> None:
        if frame.kind != "group":
            return
        self.after_values = word == "VALUES"
        if word == "SELECT" or frame.state == _CLAUSE:
            frame.state = _CLAUSE
        else:
            frame.state = _KEYWORD

    def _verb(self, token: Token, frame: _OpenBracket) -> bool:
        """Whether the token is of the predicate; otherwise another state has been entered."""
        kind, text = token.kind, token.text
        if kind == "VARIABLE" and frame.expects_verb and not frame.depth:
            frame.verb, frame.is_path, frame.state = text, False, _OBJECT
            return True
        if frame.expects_verb:
            if kind == "MARK" and text in "(^!":
                frame.depth += text == "("
                frame.is_path = frame.is_path or text == "!"
                return True
            if kind in ("IRI", "PNAME") or text == "a":
                frame.expects_verb, frame.verb = False, ""
                return True
            if kind == "MARK" and text == ")" and frame.depth:  # !()
                frame.depth -= 1
                frame.expects_verb = False
                return True
        elif kind == "MARK" and text == ")" and frame.depth:
            frame.depth -= 1
            return True
        elif kind == "MARK" and text in ("/", "|"):
            frame.expects_verb = True
            return True
        elif kind == "MARK" and text in ("*", "+", "?"):
            frame.is_path = frame.is_path or text != "+"
            return True
        if frame.expects_verb:  # the end of a list that a semicolon had opened
            frame.state = _END
        else:
            frame.state = _OBJECT
        return False

    def _term(self, variable: str | None, frame: _OpenBracket) -> None:
        if frame.kind == "list":
            return
        if frame.state == _OBJECT:
            self._triple(frame, variable)
            frame.state = _END
        else:  # a subject, also where a group has ended before it
            frame.subject, frame.state = variable, _VERB
            frame.verb, frame.is_path, frame.expects_verb, frame.depth = "", False, True, 0

    def _triple(self, frame: _OpenBracket, value: str | None) -> None:
        subject = frame.subject if frame.kind == "group" else ""
        if subject is None or value is None:
            return
        group = next(each for each in reversed(self.stack) if each.kind == "group")
        if frame.verb:
            group.hidden.append(frame.verb)
        elif frame.is_path and (subject or value):
            group.hidden.append(subject or value)


def hide_marker(query: str) -> str:
    """A query that returns, on a worker whose marker is a triple, what ``query`` (from ``hide_system_graphs``) returns
    without the marker. Not hidden: a path that may match anything between two blank nodes."""
    hiding = _MarkerFilterRewriter(query)
    for at, token in enumerate(hiding.toks[:-1]):
        if token.kind == "WORD" and token.text.upper() == "CONSTRUCT" and hiding.toks[at + 1].text != "{":
            hiding.construct_end = token.end
    return hiding.run()


def with_dataset(query: str, default: Sequence[str], named: Sequence[str]) -> str:
    """A query without FROM, restricted to these graphs (bare IRIs)."""
    said = "".join([f" FROM <{graph}>" for graph in default] + [f" FROM NAMED <{graph}>" for graph in named])
    depth, form = 0, ""
    toks = significant_tokens(query)
    for at, token in enumerate(toks):
        word = token.word
        if word in ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE") and not form:
            form = word
        elif token.kind == "MARK" and not depth and form and (word == "" and token.text == "{"):
            if toks[at - 1].text.upper() != "CONSTRUCT":
                return f"{query[: token.start]}{said} {query[token.start :]}"
        elif word == "WHERE" and not depth:
            return f"{query[: token.start]}{said} {query[token.start :]}"
        if token.kind == "MARK" and token.text in _CLOSES:
            depth += 1
        elif token.kind == "MARK" and token.text in _CLOSES.values():
            depth -= 1
    return query + said  # DESCRIBE <iri>


def uses_graph_clause(query: str) -> bool:
    """Whether the query contains GRAPH anywhere."""
    return any(token.kind == "WORD" and token.text.upper() == "GRAPH" for token in tokens(query))
