"""``spec.limits`` of a manifest: bounds that one data centre may choose by itself.

Each is judged before an entry is logged, or is a worker's evidence about one that is. Nothing that decides what an
entry of the log means is here: that has to be the same at every master.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from txlog.config.manifest_model import ManifestModel
from txlog.config.units import Duration, duration_within

KEYS_MAX: Final = (1000, 30_000_000)
"""The least and the largest ``keysMax``. A snapshot with more keys would be above what a message may announce (1 GiB),
and a master that lost its disk could not learn the log any more."""
EXECUTION_TIMEOUT: Final = ("1s", "40s")
"""The same of ``executionTimeout``. Another process believes after 45 s that the request of an earlier one is over."""
CLOSED_CONNECTIONS: Final = (2, 100)
"""The same of ``closedConnections``. One closed connection proves nothing: a host restarts."""


class LimitsSpec(ManifestModel):
    """Bounds of this data centre. Other data centres may have other ones."""

    keys_max: int = Field(
        default=20_000_000,
        ge=KEYS_MAX[0],
        le=KEYS_MAX[1],
        strict=True,
        description="Idempotency keys that a master keeps, with 32 bytes of memory each. Above it, new keys are "
        "refused (503 `KeysFull`).",
    )
    execution_timeout: Annotated[Duration, AfterValidator(duration_within(*EXECUTION_TIMEOUT))] = Field(
        default=20_000,
        description="How long a worker may execute one transaction, and 1s more for each 512Ki of it. If each worker "
        "takes longer twice, the masters skip the transaction.",
    )
    closed_connections: int = Field(
        default=3,
        ge=CLOSED_CONNECTIONS[0],
        le=CLOSED_CONNECTIONS[1],
        strict=True,
        description="How often a store closes its connection at a transaction until the transaction counts as one that "
        "ends the store. If it ends each worker, the masters skip it.",
    )

    def pipeline_fields(self) -> dict[str, Any]:
        """The fields of a pipeline's configuration that these bounds decide, with their values."""
        return {"execution_s": self.execution_timeout / 1000, "closed_connections": self.closed_connections}
