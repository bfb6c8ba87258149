"""``spec.site`` and ``spec.sites``: what is refused, and where."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from txlog.config.cluster import ClusterSpec

NYC = {"name": "nyc", "urls": ["http://nyc:7300"]}
LINKED: dict[str, Any] = {
    "dataCenter": "uk",
    "peers": [{"name": "uk", "masters": 1, "address": "uk"}],
    "site": "lon",
    "sites": [NYC],
    "changeSets": {"enabled": True},
}


@pytest.fixture(autouse=True)
def preview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLOG_PREVIEWS", "other, sites")


@pytest.mark.parametrize("previews", [None, "", "site"])
def test_without_the_preview_no_site_is_listed(monkeypatch: pytest.MonkeyPatch, previews: str | None) -> None:
    monkeypatch.delenv("TXLOG_PREVIEWS")
    if previews is not None:
        monkeypatch.setenv("TXLOG_PREVIEWS", previews)
    with pytest.raises(ValidationError, match="links between sites are a preview"):
        ClusterSpec.model_validate(LINKED)
    assert ClusterSpec.model_validate(LINKED | {"sites": []}).site == "lon"


def test_another_site_is_listed_with_what_is_common() -> None:
    [site] = ClusterSpec.model_validate(LINKED).sites
    assert (site.name, site.mode, site.key, site.lag) == ("nyc", "active", "property", 1000)
    assert (site.token_secret_ref, site.offline) == (None, False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"site": None}, "the name of this site"),
        ({"site": "nyc"}, "the name of another site"),
        ({"site": "Lon"}, "should match pattern"),
        ({"changeSets": {"enabled": False}}, "a link reads the change sets"),
        ({"durability": {"graphs": [{"match": "https://ex.org/*"}]}}, "cannot wait"),
        ({"sites": [NYC, NYC | {"name": "par"}]}, "at most 1 item"),
        ({"sites": [NYC | {"mode": "standby"}]}, "Input should be 'active'"),
        ({"sites": [NYC | {"updaters": 2}]}, "Extra inputs"),
        ({"sites": [NYC | {"graphs": {"include": ["https://ex.org/"]}}]}, "Extra inputs"),
        ({"sites": [NYC | {"urls": []}]}, "at least 1 item"),
        ({"sites": [NYC | {"urls": ["ftp://nyc"]}]}, "should match pattern"),
        ({"sites": [NYC | {"key": "graph"}]}, "'property', 'subject' or 'quad'"),
        ({"sites": [NYC | {"lag": "2h"}]}, "lag"),
        ({"sites": [NYC | {"offline": "later"}]}, "valid boolean"),
    ],
)
def test_what_is_wrong_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ClusterSpec.model_validate({key: each for key, each in (LINKED | change).items() if each is not None})
