"""Namespaces: the same at every master, each change once, not in any store."""

from __future__ import annotations

import pytest
from aiohttp import ClientResponse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from master_cluster import Cluster, until
from worker_driver import Served

from txlog.model.namespaces import (
    NamespaceChange,
    apply_namespace_changes,
    decode_namespace_change,
    encode_namespace_change,
)

PATH = "/repositories/demo/namespaces"
UPDATE = "application/sparql-update"
RESULTS = {"Accept": "application/sparql-results+json"}


async def change(cluster: Cluster, at: int, method: str, path: str, body: str = "", **headers: str) -> ClientResponse:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with cluster.session.request(method, cluster.url(at, path), data=body.encode(), headers=sent) as answer:
        await answer.read()
        return answer


async def table(cluster: Cluster, at: int, after: ClientResponse | None = None) -> dict[str, str]:
    headers = dict(RESULTS)
    if after is not None:
        headers["TxLog-Min-Position"] = after.headers["TxLog-Position"]
    told = await cluster.get(at, PATH, headers=headers)
    assert told["head"]["vars"] == ["prefix", "namespace"]
    return {row["prefix"]["value"]: row["namespace"]["value"] for row in told["results"]["bindings"]}


async def test_all_masters_agree_on_namespaces(three: Cluster) -> None:
    assert await table(three, 0) == {}
    for at, (prefix, name) in enumerate((("ex", "http://example.org/"), ("", "urn:x:"), ("a.b", "http://b.org/ü#"))):
        answer = await change(three, at, "PUT", f"{PATH}/{prefix}", name)
        assert answer.status == 204
        assert answer.headers["TxLog-Durability"] == "synced"
    last = await change(three, 2, "PUT", f"/rdf4j-server{PATH}/ex", "http://example.com/")
    wanted = {"ex": "http://example.com/", "": "urn:x:", "a.b": "http://b.org/ü#"}
    for at in range(3):
        assert await table(three, at, last) == wanted
        assert await three.get(at, f"{PATH}/ex") == "http://example.com/"
        assert await three.get(at, f"{PATH}/") == "urn:x:"
    gone = await change(three, 0, "DELETE", f"{PATH}/ex")
    assert gone.status == 204
    again = await change(three, 0, "DELETE", f"{PATH}/never")
    del wanted["ex"]
    assert await table(three, 1, again) == wanted
    answer = await change(three, 1, "GET", f"{PATH}/ex")
    assert answer.status == 404
    cleared = await change(three, 2, "DELETE", PATH)
    assert cleared.status == 204
    assert await table(three, 0, cleared) == {}


async def test_namespaces_outlive_the_process(three: Cluster) -> None:
    await change(three, 0, "PUT", f"{PATH}/ex", "http://example.org/")
    last = await change(three, 1, "PUT", f"{PATH}/ex", "http://example.com/")
    await three.crash(0, 1, 2)
    await three.start()
    for at in range(3):
        assert await table(three, at, last) == {"ex": "http://example.com/"}


async def test_a_repeated_change_counts_once(three: Cluster) -> None:
    first = await change(three, 0, "PUT", f"{PATH}/ex", "urn:1:", Idempotency_Key="k-1")
    await change(three, 1, "PUT", f"{PATH}/ex", "urn:2:", TxLog_Min_Position=first.headers["TxLog-Position"])
    repeated = await change(three, 2, "PUT", f"{PATH}/ex", "urn:1:", Idempotency_Key="k-1")
    assert repeated.status == 204
    for at in range(3):
        assert await table(three, at, repeated) == {"ex": "urn:2:"}
    other = await change(three, 2, "PUT", f"{PATH}/ex", "urn:3:", Idempotency_Key="k-1")
    assert other.status == 409


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("PUT", "/ex", "", 400, "No namespace name found in request body"),
        ("PUT", "/ex", "not/absolute", 400, "Invalid namespace"),
        ("PUT", "/ex", "http://a b", 400, "Invalid namespace"),
        ("PUT", "/ex", "urn:" + "x" * 3000, 400, "Invalid namespace"),
        ("PUT", "/ex", "urn:txlog:system:x", 400, "belong to TxLog"),
        ("PUT", "/1x", "urn:x:", 400, "Invalid prefix: 1x"),
        ("PUT", "/" + "x" * 200, "urn:x:", 400, "Invalid prefix"),
        ("PUT", "/a%20b", "urn:x:", 400, "Invalid prefix"),
        ("PUT", "/ex", "u" * 9000, 413, "8192 bytes"),
        ("GET", "/ex", "", 404, "Undefined prefix: ex"),
        ("POST", "/ex", "urn:x:", 405, "not possible"),
    ],
)
async def test_what_is_no_namespace(one: Cluster, method: str, path: str, body: str, status: int, says: str) -> None:
    async with one.session.request(method, one.url(0, PATH + path), data=body.encode()) as answer:
        text = await answer.text()
        assert (answer.status, answer.content_type) == (status, "text/plain"), text
        assert says in text
    async with one.session.put(one.url(0, f"{PATH}/ok"), data=b"urn:\xff") as answer:
        assert answer.status == 400
    assert (await change(one, 0, "GET", "/repositories/other/namespaces")).status == 404
    assert await table(one, 0) == {}


async def test_no_store_ever_sees_a_namespace(served: Served) -> None:
    cluster = served.cluster
    answer = await change(cluster, 0, "PUT", f"{PATH}/ex", "http://example.org/")
    assert answer.status == 204
    assert answer.headers["TxLog-Durability"].startswith("applied")
    await served.send("POST", "/statements", 'INSERT DATA { <urn:a> <urn:b> "c" }', 1, Content_Type=UPDATE)
    await until(lambda: len(served.store.graphs()) == 1)
    assert "namespace" not in served.store.graphs()[0]
    assert await cluster.get(0, "/repositories/demo/size") == "1"
    assert await table(cluster, 1, answer) == {"ex": "http://example.org/"}


_prefixes = st.sampled_from(["", "a", "b"])
_changes = st.one_of(
    st.builds(NamespaceChange, st.none(), st.none()),
    st.builds(NamespaceChange, _prefixes, st.none()),
    st.builds(NamespaceChange, _prefixes, st.sampled_from(["urn:1:", "urn:2:"])),
)


@given(st.lists(_changes, max_size=20))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_change_reads_as_it_was_written(changes: list[NamespaceChange]) -> None:
    keys = [encode_namespace_change(one, f"n{at}") for at, one in enumerate(changes)]
    assert [decode_namespace_change(key) for key in keys] == changes
    table: dict[str, str] = {}
    for one in changes:
        if one.prefix is None:
            table = {}
        else:
            table = {k: v for k, v in table.items() if k != one.prefix}
            if one.name is not None:
                table[one.prefix] = one.name
    assert apply_namespace_changes(["uk-1.00c0ffee00c0ffee.7", *keys]) == table


TRANSACTION = "application/x-rdftransaction"
ADD = "<add><uri>urn:s</uri><uri>urn:p</uri><literal>1</literal></add>"


async def test_a_transaction_in_xml_changes_namespaces_and_data(served: Served) -> None:
    cluster = served.cluster
    await change(cluster, 0, "PUT", f"{PATH}/old", "urn:old:")
    await change(cluster, 0, "PUT", f"{PATH}/gone", "urn:gone:")
    first = cluster.service(0).loop.durability.stable.value
    changes = (
        '<setNamespace prefix="a" name="urn:1:"/><removeNamespace prefix="gone"/>'
        f'{ADD}<setNamespace prefix="a" name="urn:a:"/><removeNamespace prefix="never"/>'
    )
    where = "/repositories/demo/statements"
    body = f"<transaction>{changes}</transaction>"
    done = await change(cluster, 0, "POST", where, body, Content_Type=TRANSACTION)
    assert done.status == 204
    assert await table(cluster, 0, done) == {"old": "urn:old:", "a": "urn:a:"}
    assert await served.quads() == ['<urn:s> <urn:p> "1" .']
    # What each prefix is in the end, and the data behind it.
    assert (
        int(done.headers["TxLog-Position"].split(":")[1])
        == cluster.service(0).loop.durability.stable.value
        == first + 4
    )
    only = (
        '<transaction><setNamespace prefix="x" name="urn:x:"/><clearNamespaces/>'
        '<setNamespace prefix="b" name="urn:b:"/></transaction>'
    )
    cleared = await change(cluster, 0, "POST", where, only, Content_Type=TRANSACTION)
    assert cleared.status == 204
    assert await table(cluster, 0, cleared) == {"b": "urn:b:"}
    assert cluster.service(0).loop.durability.stable.value == first + 6
    for wrong, status, headers in (
        (f'<transaction>{ADD}<setNamespace prefix="a" name="rel"/></transaction>', 400, {}),
        (f'<transaction>{ADD}<setNamespace prefix="a b" name="urn:a:"/></transaction>', 400, {}),
        (f'<transaction>{ADD}<setNamespace prefix="a"/></transaction>', 400, {}),
        (only, 400, {"Idempotency_Key": "k"}),
        (
            "<transaction>"
            + "".join(f'<setNamespace prefix="p{n}" name="urn:a:"/>' for n in range(1001))
            + "</transaction>",
            413,
            {},
        ),
    ):
        refused = await change(cluster, 0, "POST", where, wrong, Content_Type=TRANSACTION, **headers)
        assert refused.status == status
    assert cluster.service(0).loop.durability.stable.value == first + 6, "nothing of it is taken"


async def test_all_masters_agree_on_namespaces_of_a_transaction(three: Cluster) -> None:
    body = f'<transaction><setNamespace prefix="a" name="urn:a:"/>{ADD}</transaction>'
    where = "/repositories/demo/statements"
    done = await change(three, 1, "POST", where, body, Content_Type=TRANSACTION)
    assert done.status == 204
    for at in range(3):
        assert await table(three, at, done) == {"a": "urn:a:"}
