"""Whether either site has taken the link offline, as the masters of both report it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from txlog.client.site_client import SiteClient
from txlog.model.errors import TxLogError
from txlog.sites.log_reader import SiteMasters

POLL_S: Final = 1.0


class LinkSwitches:
    """The switches of a link between ``here`` and ``there``. What was known last stays while a site does not answer.
    ``wants_offline``: the value of the own manifest, which counts when it has changed. ``index``: the last final entry
    of the other site's log, ``index_here``: of the own one. ``is_answering``: whether the other site has answered the
    last question. ``take_at``: the entry of the order to take its state, 0: none. ``taken_at``: the entry with which
    the other site has begun to take the state of this one, as its link reports, 0: none; ``anchor``: as it reports."""

    def __init__(self, here: SiteMasters, there: SiteMasters, wants_offline: bool, clock: Callable[[], float]) -> None:
        self._here = here
        self._there = there
        self._wants_offline = wants_offline
        self._clock = clock
        self._polled_at = clock() - 1e6
        self._is_offline_here: bool | None = None
        self._is_offline_there: bool | None = None
        self.index = self.index_here = 0
        self.take_at = self.taken_at = self.anchor = 0
        self.is_answering = False

    @property
    def is_known(self) -> bool:
        """Whether enough is known to import, or to be offline."""
        return self._is_offline_here is not None and (self._is_offline_here or self._is_offline_there is not None)

    @property
    def offline_by(self) -> str:
        """The site that has taken the link offline; empty: none."""
        if self._is_offline_here:
            return self._here.name
        return self._there.name if self._is_offline_there else ""

    def poll(self, asks_there: bool = True) -> None:
        """Ask again after :data:`POLL_S`. ``asks_there``: False while the other site is known not to answer."""
        if self._clock() - self._polled_at < POLL_S:
            return
        self._polled_at = self._clock()
        with suppress(TxLogError):
            self._is_offline_here = self._ask_here()
        self.is_answering = False
        if not asks_there:
            return
        try:
            overview = self._there.ask(SiteClient.site_overview)
        except TxLogError:
            return
        self.is_answering = True
        self.index = overview.index
        self._is_offline_there = overview.is_offline(self._here.name)
        names = self._there.name, self._here.name
        report = next((each for each in overview.links if (each.get("site"), each.get("other")) == names), {})
        self.taken_at, self.anchor = (int(report.get(name, 0)) for name in ("takenAt", "anchor"))

    def _ask_here(self) -> bool:
        other, wants = self._there.name, self._wants_offline
        overview = self._here.ask(SiteClient.site_overview)
        self.index_here, self.take_at = overview.index, overview.take_at(other)
        # Compared once: two data centres whose manifests differ would switch it for ever.
        if self._is_offline_here is None and overview.manifest_offline(other) != wants:
            self._here.ask(lambda master: master.switch_site(other, offline=wants, by_manifest=True))
            return wants
        return overview.is_offline(other)
