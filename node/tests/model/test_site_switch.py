"""Switches of links: the last one of a site counts, and the manifest's own value is known apart."""

from __future__ import annotations

import pytest

from txlog.model.site_switch import (
    SiteSwitch,
    SwitchOrigin,
    SwitchState,
    apply_site_switches,
    decode_site_switch,
    encode_site_switch,
)

OPERATOR, MANIFEST = SwitchOrigin.OPERATOR, SwitchOrigin.MANIFEST


@pytest.mark.parametrize("origin", [OPERATOR, MANIFEST])
@pytest.mark.parametrize("is_offline", [True, False])
def test_a_switch_is_read_back(origin: SwitchOrigin, is_offline: bool) -> None:
    switch = SiteSwitch("new-york", is_offline, origin)
    assert decode_site_switch(encode_site_switch(switch, "ab12")) == switch


@pytest.mark.parametrize(
    "key",
    ["", "site", "site ", "site a nyc", "site a nyc asleep operator", "site a nyc offline king", "point a nyc offline"],
)
def test_other_names_are_no_switches(key: str) -> None:
    assert decode_site_switch(key) is None


def test_a_site_whose_name_is_none_is_not_encoded() -> None:
    with pytest.raises(AssertionError):
        encode_site_switch(SiteSwitch("new york", True, OPERATOR), "ab12")


def test_the_last_switch_of_a_site_counts_and_the_manifest_is_remembered() -> None:
    def key(is_offline: bool, origin: SwitchOrigin, site: str = "nyc") -> str:
        return encode_site_switch(SiteSwitch(site, is_offline, origin), "x")

    rows = [
        (9, key(False, OPERATOR)),
        (3, key(True, MANIFEST)),
        (5, key(True, OPERATOR, "par")),
        (7, "point a before-the-import"),
    ]
    assert apply_site_switches(rows) == {"nyc": SwitchState(False, True, 9), "par": SwitchState(True, False, 5)}
    assert apply_site_switches([*rows, (11, key(False, MANIFEST))])["nyc"] == SwitchState(False, False, 11)
    assert apply_site_switches([]) == {}
