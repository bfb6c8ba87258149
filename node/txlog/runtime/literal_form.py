"""In which form the stores of this cluster hold literals: as they were sent, or in the canonical form.

The bootstrap decides it for the whole life of the cluster (decisions/0101): literals are kept where the stores of every
founder can keep them. A later master, and one that is rebuilt, learns it with the view, so a manifest says ``rdf4j``
and means what the cluster was founded with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from txlog.config.units import AS_WRITTEN, can_keep_literals, server_of_engine
from txlog.model.view import View

UNDECIDED: Final = "undecided"
"""What events show before the master knows its cluster."""


class LiteralForm:
    """``engines``: of the workers of this data centre, as the manifest names them. ``view``: the view that this master
    has accepted, once it is final: installed, or a later one than the first."""

    def __init__(self, engines: Iterable[str], *, mixed: bool, view: Callable[[], View | None]) -> None:
        self._engines = set(engines)
        self._can_keep = can_keep_literals(self._engines, mixed=mixed)
        self._named = AS_WRITTEN in self._engines
        self._mixed = mixed
        self._view = view
        self._founded_with: bool | None = None

    @property
    def founded_with(self) -> bool | None:
        """Whether the cluster was founded to keep literals; None until this master knows its cluster."""
        if self._founded_with is None:
            view = self._view()
            if view is not None:
                first = view.bootstrap_configuration
                self._founded_with = first is not None and first.keeps_literals
        return self._founded_with

    @property
    def is_undecided(self) -> bool:
        """Whether the manifest leaves the form to the cluster, which this master does not know yet."""
        return self._can_keep and not self._named and self.founded_with is None

    @property
    def keeps(self) -> bool:
        """Whether the stores of this data centre hold literals as they were sent."""
        return self._named or (self._can_keep and self.founded_with is True)

    @property
    def contradicts_cluster(self) -> bool:
        """Whether the cluster keeps literals and the stores of this data centre do not: its manifest names an engine
        that cannot."""
        return self.founded_with is True and not self.keeps

    def engine_of(self, configured: str) -> str:
        """The engine of a worker, with the form that its store has."""
        return AS_WRITTEN if self.keeps and server_of_engine(configured) == server_of_engine(AS_WRITTEN) else configured

    @property
    def why_rewritten(self) -> str:
        """Why literals are brought into the canonical form, for people."""
        cannot = sorted(engine for engine in self._engines if server_of_engine(engine) != server_of_engine(AS_WRITTEN))
        if not self._engines:
            return "no worker of this data centre is named that keeps them"
        if cannot:
            return f"the engine {', '.join(cannot)} cannot keep them"
        if self._mixed:
            return "mixedEngines allows an engine that cannot keep them"
        return "this cluster was founded so: an engine of another data centre, or an earlier version (docs/upgrade.md)"
