"""Types of values that other masters send, with their bounds: the decoder of a message checks them (rule 32).

Each bound leaves room to count on for the life of a cluster, and fits the fields of the journal.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from txlog.model.stamp import STAMP_MAX

HASH_LENGTH: Final = 16
"""Bytes of every hash (:mod:`txlog.model.hashes`, which needs this module)."""
COUNT_MAX: Final = (1 << 62) - 1
NODE_CHARACTERS_MAX: Final = 63
NODE_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""The pattern of a master's name: a DNS label, as Kubernetes names pods (RFC 1123)."""
KEY_BYTES_MAX: Final = (1 << 16) - 1
"""A key in the journal: its length is two bytes."""
SLOTS_MAX: Final = 255
"""Incarnations of masters in one log, over the whole life of a cluster: the order of the log has one byte for each."""

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
"""An index, a seq, the number of a start or of a post, a part of a view's number, or a number of bytes."""
Seq = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
"""The seq of a transaction."""
Birth = Annotated[int, Meta(ge=0)]
"""An incarnation: 64 bits."""
Stamp = Annotated[int, Meta(ge=0, le=STAMP_MAX // 2)]
"""A stamp or a counter, far enough below the greatest one: later stamps lie above it."""
Slot = Annotated[int, Meta(ge=0, lt=SLOTS_MAX)]
"""The place of an incarnation in a view."""
Kind = Annotated[int, Meta(ge=-127, le=127)]
"""The kind of a transaction; negative for one that names its payload (:mod:`txlog.runtime.payload_transfer`)."""
NodeId = Annotated[str, Meta(pattern=rf"^{NODE_LABEL}\Z")]
"""The name of a master. No other name can be of one: the journal's own files take an empty name for none."""
CoordinatorId = Annotated[str, Meta(max_length=NODE_CHARACTERS_MAX)]
"""The coordinator of a view; empty for no view."""
Key = Annotated[str, Meta(max_length=KEY_BYTES_MAX)]
Hash = Annotated[bytes, Meta(min_length=HASH_LENGTH, max_length=HASH_LENGTH)]
