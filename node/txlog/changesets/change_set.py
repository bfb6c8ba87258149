"""The quads that an entry of the log really deleted and added, in the form in which stores return them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from txlog.model.quads import encode_quads


class ChangeSet(msgspec.Struct, frozen=True):
    """Lines of canonical N-Quads, sorted, without newlines. ``deletes`` were there before, ``adds`` were not, and no
    line is in both. So the quads after it are the quads before it, without ``deletes``, with ``adds``.

    ``graphs``: of a change that is too large to be kept, the IRIs of the graphs that it changed, sorted; the default
    graph is an empty text. Its lines are not known any more."""

    deletes: tuple[bytes, ...] = ()
    adds: tuple[bytes, ...] = ()
    graphs: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.deletes) + len(self.adds)

    def inverse(self) -> ChangeSet:
        """The change that takes this one back."""
        assert not self.graphs, "a change that was not kept cannot be taken back"
        return ChangeSet(self.adds, self.deletes)

    def encode(self) -> bytes:
        """The payload of kind QUADS with this effect (:mod:`txlog.model.quads`)."""
        return encode_quads(self.deletes, self.adds)


def decode_change_set(payload: bytes) -> ChangeSet:
    """The inverse of :meth:`ChangeSet.encode`. Raises ``ValueError`` for bytes that are no change set."""
    changes: dict[bytes, list[bytes]] = {b"A ": [], b"D ": []}
    for line in payload.split(b"\n"):
        if line:
            lines = changes.get(line[:2])
            if lines is None:
                raise ValueError(f"{line[:80]!r} is no line of a change set")
            lines.append(line[2:])
    return ChangeSet(tuple(changes[b"D "]), tuple(changes[b"A "]))


def combine(changes: Iterable[ChangeSet]) -> ChangeSet:
    """The net change of several, in order: a quad that is added and deleted again is in neither part."""
    deleted: set[bytes] = set()
    added: set[bytes] = set()
    for change in changes:
        for lines, undone, done in ((change.deletes, added, deleted), (change.adds, deleted, added)):
            for line in lines:
                if line in undone:
                    undone.discard(line)
                else:
                    done.add(line)
    return ChangeSet(tuple(sorted(deleted)), tuple(sorted(added)))
