"""Restore points: places of the log that a person has named, stored as the names of entries that workers skip.

A name contains the whole point: ``point <unique> <name>``. No transaction is called like this, so every version passes
over the entry.
"""

from __future__ import annotations

import re
from typing import Final

from txlog.model.errors import BadInput

KEY_PREFIX: Final = "point "
NAME_PATTERN: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
NAME_FORM: Final = "letters, digits, dots, underscores and dashes, at most 64, beginning with a letter or digit"


def check_point_name(name: str) -> str:
    """The name, if it is valid; :class:`~txlog.model.errors.BadInput` says what is expected."""
    if NAME_PATTERN.match(name) is None:
        raise BadInput(f"{name[:100]!r} is no name of a restore point; expected {NAME_FORM}")
    return name


def encode_restore_point(name: str, unique: str) -> str:
    """The name of an entry that is this point. ``unique`` has no space: the same name may be given again."""
    return f"{KEY_PREFIX}{unique} {name}"


def decode_restore_point(key: str) -> str | None:
    """The name of the point; None for the name of a transaction or of a change of namespaces."""
    if not key.startswith(KEY_PREFIX):
        return None
    return key.split(" ", 2)[2]
