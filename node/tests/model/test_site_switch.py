"""Switches of links: the last one of a site counts, and the manifest's own value is known apart."""

from __future__ import annotations

import pytest

from txlog.model.site_switch import (
    SiteSwitch,
    StateOrder,
    SwitchOrigin,
    SwitchState,
    apply_site_switches,
    decode_site_switch,
    decode_state_order,
    encode_site_switch,
    encode_state_order,
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


def test_an_order_counts_until_it_is_taken_back() -> None:
    take, keep = (encode_state_order(StateOrder("nyc", takes), "x") for takes in (True, False))
    assert decode_state_order(take) == StateOrder("nyc", True)
    assert decode_site_switch(take) is None, "an older program passes over it"
    assert decode_state_order(encode_site_switch(SiteSwitch("nyc", True, OPERATOR), "x")) is None
    offline = encode_site_switch(SiteSwitch("nyc", True, OPERATOR), "x")
    assert apply_site_switches([(3, take), (5, offline)])["nyc"] == SwitchState(True, False, 5, take_at=3)
    assert apply_site_switches([(3, offline), (5, take), (7, take)])["nyc"] == SwitchState(True, False, 3, take_at=7)
    assert apply_site_switches([(3, take), (5, keep)])["nyc"] == SwitchState(False, False, 0)
