"""Transactions of megabytes between real masters: their payloads go ahead of the posts, or with them."""

from __future__ import annotations

import pytest
from master_cluster import Cluster, until

NQUADS = {"Content-Type": "application/n-quads", "TxLog-Durability": "synced", "Prefer": "wait=60"}
JSON = {"Accept": "application/json"}


def body(mark: str) -> bytes:
    """Some two megabytes."""
    return "".join(f'<urn:{mark}:{at}> <urn:p> "{at:090}" .\n' for at in range(18_000)).encode()


async def logs(cluster: Cluster, upto: int) -> list[list[tuple[str, int]]]:
    """Chain hash and length of each entry's payload, as each master has them."""

    async def all_there() -> bool:
        told = [await cluster.get(at, "/txlog/status") for at in range(3)]
        return all(one["stable"]["index"] >= upto for one in told)

    await until(all_there)
    pages = [await cluster.get(at, "/txlog/log?after=0&maxBytes=100000000", headers=JSON) for at in range(3)]
    return [[(entry["hash"], len(str(entry["payload"]))) for entry in page["entries"]] for page in pages]


async def test_a_large_payload_goes_ahead_of_its_post(three: Cluster) -> None:
    await three.post(0, "/repositories/demo/statements", body("a"), headers=NQUADS)
    await three.write(0, 'INSERT DATA { <urn:s> <urn:p> "small" }')
    found = await logs(three, 2)
    assert found[0] == found[1] == found[2]
    assert found[0][0][1] > 1 << 20
    assert three.service(0).payload_transfer.substituted == 2, "both others got its name instead of itself"
    assert [three.service(at).payload_transfer.missed for at in range(3)] == [0, 0, 0]
    assert not any(three.service(at).payload_transfer._received.get("uk-1") for at in (1, 2)), (
        "and keep it no longer than they need to"
    )
    assert [three.service(at).journal.staged_used for at in range(3)] == [1, 1, 1], "on each disk before its record"


async def test_what_was_forgotten_comes_with_the_post(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, forgetful = three.service(0).payload_transfer, three.service(1).payload_transfer
    real = sender.replicate

    async def spread(kind: int, key: str, payload: bytes, content: bytes) -> None:
        await real(kind, key, payload, content)
        forgetful._received.clear()

    monkeypatch.setattr(sender, "replicate", spread)
    await three.post(0, "/repositories/demo/statements", body("b"), headers=NQUADS)
    found = await logs(three, 1)
    assert found[0] == found[1] == found[2]
    assert (forgetful.missed, three.service(2).payload_transfer.missed, sender.substituted) == (1, 0, 2)


async def test_a_master_that_does_not_know_these_notices_gets_it_whole(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.runtime.payload_transfer.ACK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(three.service(2).payload_transfer, "on_notice", lambda peer, topic, told: None)
    await three.post(0, "/repositories/demo/statements", body("c"), headers=NQUADS)
    found = await logs(three, 1)
    assert found[0] == found[1] == found[2]
    assert three.service(0).payload_transfer.substituted == 1
