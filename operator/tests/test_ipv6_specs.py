"""Clusters whose pods have addresses of IPv6."""

import json
import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from observations import AROUND, manifest
from pydantic import ValidationError

from txlog.config.cluster import ADDRESS_PATTERN, PeerSpec
from txlog_operator.specs import desired_objects
from txlog_operator.specs.common import remote_master_url

IPV6 = replace(AROUND, ip_family="IPv6")


def test_pods_listen_in_the_family_of_their_addresses() -> None:
    for around, host, store in ((AROUND, "0.0.0.0", "0.0.0.0:7878"), (IPV6, "::", "[::]:7878")):
        found = {(each["kind"], each["metadata"]["name"]): each for each in desired_objects(manifest(), around)}
        reported = json.loads(found["ConfigMap", "catalogue-masters"]["data"]["uk-1.json"])
        assert reported["host"] == host
        template = found["StatefulSet", "catalogue-worker"]["spec"]["template"]
        assert template["spec"]["containers"][0]["command"][-1] == store


def test_services_have_that_family_and_otherwise_the_clusters() -> None:
    def services(around: object) -> list[object]:
        found = desired_objects(manifest(), around)  # type: ignore[arg-type]
        return [each["spec"].get("ipFamilies") for each in found if each["kind"] == "Service"]

    assert services(AROUND) == [None] * 3
    assert services(IPV6) == [["IPv6"]] * 3


@pytest.mark.parametrize(
    ("address", "first", "names_port"),
    [
        ("[fd00:10::{index}]", "[fd00:10::1]:7300", False),
        ("[fd00:10::{index}]:7400", "[fd00:10::1]:7400", True),
        ("uk-{index}.example.net", "uk-1.example.net:7300", False),
        ("uk-{index}.example.net:7400", "uk-1.example.net:7400", True),
    ],
)
def test_a_literal_address_is_in_brackets(address: str, first: str, names_port: bool) -> None:
    peer = PeerSpec(name="uk", masters=2, address=address)
    assert peer.address_of(1) == first
    assert peer.names_port == names_port
    parts = urlsplit(f"http://{first}")
    assert (parts.hostname or "").strip("[]") in first
    assert parts.port in (7300, 7400)


@pytest.mark.parametrize(
    "address", ["fd00::{index}", "[fd00::{index}", "[fd00::1]x", "[uk-{index}]", "[]:7300:1", "[fe80::1%eth0]"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="address"):
        PeerSpec(name="uk", masters=1, address=address)


def test_the_pattern_is_one_that_editors_and_the_api_server_read() -> None:
    assert "(?" not in ADDRESS_PATTERN
    assert re.match(ADDRESS_PATTERN, "[fd00::1]:7300")


def test_clients_reach_a_master_at_its_literal_address() -> None:
    cluster = manifest()
    peer = PeerSpec(name="us", masters=1, address="[fd00::7]")
    assert remote_master_url(cluster, peer, 1) == "http://[fd00::7]:7300"
    secured = manifest(security={"peerTlsSecretRef": {"name": "a"}})
    assert remote_master_url(secured, peer, 1) == "http://[fd00::7]:7300"
    other = PeerSpec(name="us", masters=1, address="[fd00::7]:7301")
    assert remote_master_url(secured, other, 1) is None
