"""The predecessor's bean over HTTP, as its scripts ask: at real masters."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from apart import states
from master_cluster import Cluster, until
from worker_driver import Served

BEAN = "ReplicationCluster:name=ClusterInfo/demo"
IN_A_PATH = quote(BEAN.replace("/", "!/"), safe="!/:=")


async def post(cluster: Cluster, body: Any, at: int = 0) -> Any:
    return await cluster.post(at, "/jolokia", json.dumps(body), 200)


def read(attribute: Any = None, bean: str = BEAN) -> dict[str, Any]:
    return {"type": "read", "mbean": bean} | ({"attribute": attribute} if attribute is not None else {})


async def test_attributes_are_read_in_all_its_ways(three: Cluster) -> None:
    await until(lambda: states(three) == {"Joined"})
    told = await three.get(0, f"/jolokia/read/{IN_A_PATH}/NodeID")
    assert (told["status"], told["value"]) == (200, "uk-1")
    assert told["request"] == read("NodeID")
    assert isinstance(told["timestamp"], int)
    whole = (await three.get(0, f"/jolokia/read/{IN_A_PATH}"))["value"]
    repository = "/repositories/demo"
    assert whole["SyncPeers"] == [f"uk-{at + 1} {three.url(at)}{repository}" for at in (1, 2)]
    assert whole["MasterURL"] == three.url(0) + repository
    assert (whole["SplitRecovery"], whole["MaxPeerLag"], whole["Mode"]) == ("Smart", "1m", "NORMAL")
    assert (whole["IsWritable"], whole["ReadOnly"], whole["Status"], whole["NodeStatus"]) == (True, False, 0, [])
    assert (whole["NumberOfTriples"], whole["CompletedTasks"], whole["LogMaxSize"]) == (None, [], "10Gi")
    assert whole["ClusterStatusSummary"].startswith("uk-1: Joined, stable at 0")
    assert (await post(three, read()))["value"] == whole
    assert (await post(three, read(bean="ReplicationCluster:name=ClusterInfo")))["value"] == whole
    assert (await post(three, read(bean="ReplicationCluster:*")))["value"][BEAN] == whole
    two = {"NodeID": "uk-1", "Mode": "NORMAL"}
    assert (await post(three, read(["NodeID", "Mode"])))["value"] == two
    assert (await three.get(0, f"/jolokia/read/{IN_A_PATH}/NodeID,Mode"))["value"] == two
    assert (await three.get(0, "/jolokia/search/ReplicationCluster:*"))["value"][0] == BEAN
    assert (await post(three, {"type": "search", "mbean": "java.lang:*"}))["value"] == []
    listed = (await three.get(0, "/jolokia/list"))["value"]["ReplicationCluster"]["name=ClusterInfo/demo"]
    assert set(listed["attr"]) == set(whole)
    written = {name for name, one in listed["attr"].items() if one["rw"]}
    assert written == {"SplitRecovery", "MaxPeerLag", "Mode", "ReadOnly"}
    assert set(listed["op"]) == {"addSyncPeer", "removeSyncPeer", "removeClusterNode"}
    for path in ("/jolokia", "/jolokia/version"):
        assert (await three.get(0, path))["value"]["info"] == {"product": "txlog"}


async def test_attributes_are_written_and_peers_come_and_go(three: Cluster) -> None:
    await until(lambda: states(three) == {"Joined"})
    told = await three.get(0, f"/jolokia/write/{IN_A_PATH}/MaxPeerLag/45s")
    assert (told["status"], told["value"]) == (200, "1m"), "the value of before"
    change = {"type": "write", "mbean": BEAN, "attribute": "MaxPeerLag", "value": 30_000}
    added = {"type": "exec", "mbean": BEAN, "operation": "addSyncPeer"}
    peer = {**added, "arguments": ["us-1", "http://127.0.0.1:9/repositories/demo"]}
    bulk = await post(three, [change, read("MaxPeerLag"), peer])
    assert [one["status"] for one in bulk] == [200, 200, 200], bulk
    assert [one["value"] for one in bulk] == ["45s", "30s", None]
    configuration = await three.get(1, "/txlog/configuration")

    async def known() -> bool:
        nonlocal configuration
        configuration = await three.get(1, "/txlog/configuration")
        return "us-1" in [m["node"] for m in configuration["masters"]]

    await until(known)
    new = configuration["masters"][-1]
    assert (new["dataCenter"], new["urls"]) == ("us", ["http://127.0.0.1:9"])
    (again,) = await post(three, [peer])
    assert (again["status"], again["error_type"]) == (409, "txlog.Conflict")
    muted = {"type": "write", "mbean": BEAN, "attribute": "Mode", "value": "MUTE"}
    assert (await post(three, muted, at=2))["status"] == 200

    async def is_muted() -> bool:
        return (await post(three, read("Mode"), at=2))["value"] == "MUTE"

    await until(is_muted)
    assert (await post(three, read("IsWritable"), at=2))["value"] is False


async def test_what_a_master_and_its_worker_have_done_is_counted(served: Served) -> None:
    cluster = served.cluster
    zero = (await post(cluster, read()))["value"]
    assert (zero["CompletedWrites"], zero["CompletedReads"], zero["AverageReadTime"]) == (0, 0, 0)
    for at in range(3):
        await cluster.write(0, f"INSERT DATA {{ <urn:s> <urn:p> {at} }}", TxLog_Durability="applied")
    async with cluster.session.get(cluster.url(0, "/repositories/demo?query=ASK{}")) as answer:
        assert answer.status == 200
        await answer.read()
    whole = (await post(cluster, read()))["value"]
    assert (whole["NumberOfTriples"], whole["CompletedWrites"]) == (3, 3)
    assert whole["CompletedReads"] == 1
    assert (whole["CompletedTasks"], whole["AverageTaskTimes"]) == ([3], [7])
    assert whole["NodeStatus"] == [f"[ON] {served.store.url}"]
    assert (await post(cluster, read("NumberOfTriples"), at=1))["value"] == 3, "any master of the data centre"


async def test_read_only_is_muted(three: Cluster) -> None:
    await until(lambda: states(three) == {"Joined"})

    async def seen(expected: bool) -> bool:
        value: bool = (await post(three, read("ReadOnly"), at=1))["value"]
        return value is expected

    for value, expected in (("true", True), (False, False)):
        told = await three.get(1, f"/jolokia/write/{IN_A_PATH}/ReadOnly/{value}")
        assert (told["status"], told["value"]) == (200, not expected)
        await until(lambda expected=expected: seen(expected))
    await three.write(1, "INSERT DATA { <urn:s> <urn:p> 1 }")


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        (read("NumberOfTriples"), 503, "no worker of this data centre is up to date"),
        (read("HeapMemoryUsage"), 404, "javax.management.AttributeNotFoundException"),
        (read("ProtectSingleWorker"), 404, "ProtectSingleWorker; a backup of a worker stops neither"),
        (read("MasterReplicationPort"), 404, "backups go to a folder or to S3"),
        ({"type": "write", "mbean": BEAN, "attribute": "MasterURL", "value": "x"}, 404, "what this master is started"),
        ({"type": "write", "mbean": BEAN, "attribute": "ReadOnly", "value": 1}, 400, "true or false"),
        ({"type": "exec", "mbean": BEAN, "operation": "addClusterNode"}, 404, "workers come by txlog worker add"),
        (read("NodeID", "java.lang:type=Memory"), 404, "javax.management.InstanceNotFoundException"),
        ({"type": "read"}, 400, "mbean: expected a text"),
        ({"type": "dance"}, 400, "one of read, write"),
        ({}, 400, "one of read, write"),
        (7, 400, "one of read, write"),
        (read({"a": 1}), 400, "attribute: a name"),
        ({"type": "write", "mbean": BEAN, "attribute": "NodeID", "value": "x"}, 404, "cannot be written"),
        ({"type": "write", "mbean": BEAN, "attribute": "SplitRecovery", "value": "Fast"}, 400, "None, Simple or Smart"),
        ({"type": "write", "mbean": BEAN, "attribute": "MaxPeerLag", "value": []}, 400, "expected a text"),
        ({"type": "write", "mbean": BEAN, "attribute": "MaxPeerLag", "value": True}, 400, "expected a text"),
        ({"type": "write", "mbean": BEAN, "attribute": "Mode", "value": "LOUD"}, 400, "NORMAL or MUTE"),
        (
            {"type": "exec", "mbean": BEAN, "operation": "backup"},
            404,
            "no operation backup; a master makes none: ask txlog backup create",
        ),
        ({"type": "exec", "mbean": BEAN, "operation": "addSyncPeer", "arguments": ["us-1"]}, 400, "2 arguments"),
        ({"type": "exec", "mbean": BEAN, "operation": "addSyncPeer", "arguments": [1, 2]}, 400, "are text"),
        ({"type": "exec", "mbean": BEAN, "operation": "addSyncPeer", "arguments": ["x", "http://h"]}, 400, "node id"),
        ({"type": "exec", "mbean": BEAN, "operation": "removeSyncPeer", "arguments": ["us-9"]}, 404, "us-9"),
    ],
)
async def test_refusals_are_answers_with_a_status(one: Cluster, asked: Any, status: int, says: str) -> None:
    (told,) = await post(one, [asked])
    assert (told["status"], told["request"]) == (status, asked)
    assert says in told["error"]
    assert "value" not in told


async def test_what_is_no_request_is_refused(one: Cluster) -> None:
    for body in ("{", "7", json.dumps([{}] * 201)):
        assert "expected" in await one.post(0, "/jolokia", body, 400)
    for path in ("dance", "read", "read/x/y", "exec", f"exec/{IN_A_PATH}", "write//", "%00", "{path*}"):
        assert (await one.get(0, f"/jolokia/{path}"))["status"] in (400, 404), path


async def test_a_page_of_another_site_changes_nothing_by_a_link(one: Cluster) -> None:
    path = f"/jolokia/write/{IN_A_PATH}/MaxPeerLag/45s"
    for method, headers in (
        ("GET", {"Sec-Fetch-Site": "cross-site"}),
        ("GET", {"Origin": "http://evil.example"}),
        ("HEAD", {}),
    ):
        async with one.session.request(method, one.url(0, path), headers=headers) as answer:
            assert answer.status == 403, (method, headers)
    assert (await post(one, read("MaxPeerLag")))["value"] == "1m"


async def test_a_worker_is_taken_out_by_its_url(one: Cluster) -> None:
    def remove(*arguments: Any) -> dict[str, Any]:
        return {"type": "exec", "mbean": BEAN, "operation": "removeClusterNode", "arguments": list(arguments)}

    for at in (1, 2, 3):
        worker = {"name": f"w-{at}", "url": f"http://127.0.0.1:{at}", "engine": "oxigraph"}
        await one.post(0, "/txlog/workers", None, 200, json=worker)
    before = [w["name"] for w in (await one.get(0, "/txlog/workers"))["workers"]]
    unknown, prefix, none = await post(one, [remove("http://127.0.0.1:22"), remove("http://127.0.0.1"), remove()])
    assert [unknown["status"], prefix["status"], none["status"]] == [404, 404, 400]
    assert "http://127.0.0.1:3" in unknown["error"]
    (done,) = await post(one, [remove("http://127.0.0.1:2/repositories/worker1")])
    assert (done["status"], done["value"]) == (200, None)
    path = "/jolokia/exec/ReplicationCluster:name=ClusterInfo/removeClusterNode/http:!/!/127.0.0.1:1!/"
    assert (await one.get(0, path))["status"] == 200
    left = [w["name"] for w in (await one.get(0, "/txlog/workers"))["workers"]]
    assert left == [name for name in before if name not in ("w-1", "w-2")]
    assert [url for url in (await post(one, [read("NodeStatus")]))[0]["value"] if url.endswith(":3")]
    for worker in left[:-1]:
        async with one.session.delete(one.url(0, f"/txlog/workers/{worker}?timeout=0")) as answer:
            assert answer.status == 200
    (last,) = await post(one, [remove("http://127.0.0.1:3")])
    assert last["status"] == 409
    assert "the last worker" in last["error"]
