"""``txlog site status``: of several masters' answers, the newest report of each link."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from txlog.cli import site_commands
from txlog.cli.site_commands import newest_reports
from txlog.client.site_client import SiteClient, SiteOverview
from txlog.model.errors import NotFound, Unavailable
from txlog.sites.link_texts import describe_switch, has_followed


def test_the_newest_report_of_each_link_counts() -> None:
    old, new = ({"site": "lon", "other": "nyc", "reportedSecondsAgo": ago, "state": "Online"} for ago in (9.0, 1.0))
    other = {"site": "lon", "other": "par", "reportedSecondsAgo": 40.0, "state": "Silent"}
    answers = [SiteOverview([old, other]), SiteOverview([new]), SiteOverview([])]
    assert newest_reports(answers) == [new, other]
    assert newest_reports([]) == []


@pytest.mark.parametrize(
    ("link", "offline", "online"),
    [
        (None, False, False),
        ({"site": "lon", "state": "Online", "offlineBy": ""}, False, True),
        ({"site": "lon", "state": "Unreachable"}, False, True),
        ({"site": "lon", "state": "GoingOffline", "offlineBy": "lon"}, False, False),
        ({"site": "lon", "state": "Offline", "offlineBy": "lon"}, True, False),
        # The other site has it offline too: this one has done its part.
        ({"site": "lon", "state": "Offline", "offlineBy": "nyc"}, True, True),
    ],
)
def test_a_switch_is_followed_when_its_own_site_does(link: dict[str, Any] | None, offline: bool, online: bool) -> None:
    assert (has_followed(link, True), has_followed(link, False)) == (offline, online)


def test_a_switch_is_described_with_its_entry_and_with_what_the_link_does() -> None:
    link = {"site": "lon", "state": "Offline", "offlineBy": "nyc"}
    assert describe_switch({"site": "nyc", "offline": True, "index": 118}, link) == (
        "nyc is switched offline (entry 118); the link is Offline, taken offline by nyc"
    )
    assert describe_switch({"site": "nyc", "offline": False, "index": None}, None) == (
        "nyc is switched online (not in the log yet); the link is not reported"
    )


def test_an_order_whose_answer_is_lost_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be in the log. At another master it would be one more, and the transfer would begin again."""

    class Masters:
        masters = ("http://a", "http://b", "http://c")

        def open_client(self, url: str, _: float) -> Any:
            return nullcontext(SimpleNamespace(url=url))

    asked: list[str] = []

    def links(site: SiteClient) -> list[dict[str, Any]]:
        return [] if site.url == "http://a" else [{"site": "lon", "other": "nyc"}]

    def order(site: SiteClient, *_: object, **__: object) -> dict[str, Any]:
        asked.append(site.url)
        raise Unavailable("TimedOut", "no answer")

    monkeypatch.setattr(SiteClient, "site_links", links)
    monkeypatch.setattr(SiteClient, "order_state", order)
    masters: Any = Masters()
    with pytest.raises(Unavailable, match="no answer"):
        site_commands._order(masters, "nyc", takes=True)
    assert asked == ["http://b"]
    with pytest.raises(NotFound, match="no link from par"):
        site_commands._order(masters, "par", takes=True)
