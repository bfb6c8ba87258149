"""Two sites begin a link only where each lists the other by its name, with the same kind of keys."""

from __future__ import annotations

from typing import Any

import pytest

from txlog.sites.link_agreement import is_agreed
from txlog.sites.link_errors import KeysDiffer, NamesDiffer, OtherLink
from txlog.sites.version_table import LinkIdentity

LON = LinkIdentity("lon", "nyc", "c1", "c2", "property")
REPORT: dict[str, Any] = {
    "site": "nyc",
    "other": "lon",
    "state": "Starting",
    "key": "property",
    "cluster": "c2",
    "otherCluster": "c1",
}


def test_sites_that_list_one_another_agree() -> None:
    assert is_agreed(LON, [REPORT])
    assert is_agreed(LON, [REPORT | {"other": "old", "state": "Silent"}, REPORT])


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [REPORT | {"other": "london", "state": "Silent"}],
        [REPORT | {"cluster": "", "otherCluster": ""}],
        [REPORT | {"otherCluster": ""}],
        [{"site": "nyc", "other": "lon", "state": "Online"}],
    ],
)
def test_a_site_that_does_not_report_the_link_yet_is_waited_for(reports: list[dict[str, Any]]) -> None:
    assert not is_agreed(LON, reports)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"other": "london"}, NamesDiffer),
        ({"site": "new-york"}, NamesDiffer),
        ({"other": "par"}, NamesDiffer),  # a ring: this site imports from one that imports from a third
        ({"key": "quad"}, KeysDiffer),
        ({"otherCluster": "c3"}, OtherLink),  # a ring whose third site has the name of this one
        ({"cluster": "c3"}, OtherLink),
    ],
)
def test_sites_that_do_not_list_one_another_are_named(changes: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        is_agreed(LON, [REPORT | changes])
