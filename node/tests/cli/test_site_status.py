"""``txlog site status``: of several masters' answers, the newest report of each link."""

from __future__ import annotations

from txlog.cli.site_commands import newest_reports


def test_the_newest_report_of_each_link_counts() -> None:
    old, new = ({"site": "lon", "other": "nyc", "reportedSecondsAgo": ago, "state": "Online"} for ago in (9.0, 1.0))
    other = {"site": "lon", "other": "par", "reportedSecondsAgo": 40.0, "state": "Silent"}
    assert newest_reports([[old, other], [new], []]) == [new, other]
    assert newest_reports([]) == []
