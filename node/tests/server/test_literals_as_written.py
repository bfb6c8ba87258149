"""The door of a master whose workers hold literals as they were sent (``rdf4j-as-written``)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from master_cluster import UPDATE, Cluster, until
from pydantic import ValidationError

from txlog.client import MasterClient
from txlog.config.process_config import NodeConfig, WorkerConfig
from txlog.config.units import AS_WRITTEN
from txlog.model.errors import BadInput, Unavailable
from txlog.runtime.worker_notices import WorkerNotice
from txlog.runtime.worker_state import PipelineReport, RegisteredWorker, WorkerMarker

STATEMENTS = "/repositories/demo/statements"
XSD = "http://www.w3.org/2001/XMLSchema#"
REFUSE = {"non_deterministic_updates": "refuse"}


def _workers(*engines: str) -> list[dict[str, str]]:
    return [{"name": f"w-{n}", "url": f"http://127.0.0.1:{n}", "engine": engine} for n, engine in enumerate(engines, 1)]


async def _send(cluster: Cluster, method: str, body: str = "", media: str = "", **query: str) -> tuple[int, str, str]:
    headers = {"TxLog-Durability": "synced"} | ({"Content-Type": media} if media else {})
    async with cluster.session.request(
        method, cluster.url(0, STATEMENTS), data=body or None, headers=headers, params=query
    ) as answer:
        return answer.status, answer.headers.get("TxLog-Literals", ""), await answer.text()


def _engines(cluster: Cluster) -> list[str]:
    return [worker.engine for worker in cluster.service(0).context.registry.workers.values()]


async def _payloads(cluster: Cluster) -> list[str]:
    def read() -> list[str]:
        master = MasterClient(f"http://127.0.0.1:{cluster.ports[0]}", 20.0)
        try:
            page = master.log_page(0, None, 1 << 40, 1 << 20)
        finally:
            master.close()
        return [entry.payload.decode() for entry in page.entries if entry.payload]

    return await asyncio.to_thread(read)


@pytest.mark.parametrize(
    ("changes", "form", "kept"),
    [
        ({"workers": _workers(AS_WRITTEN), **REFUSE}, AS_WRITTEN, f'"01"^^<{XSD}int>'),
        ({"workers": _workers("rdf4j")}, AS_WRITTEN, f'"01"^^<{XSD}int>'),
        ({"workers": _workers("rdf4j"), "mixed_engines": True}, "oxigraph", f'"1"^^<{XSD}integer>'),
    ],
)
async def test_a_removal_names_the_form_that_stores_hold(
    clusters: Callable[..., Cluster], changes: dict[str, Any], form: str, kept: str
) -> None:
    cluster = clusters(1, **changes)
    await cluster.start()
    status, named, _ = await _send(cluster, "DELETE", obj=f'"01"^^<{XSD}int>')
    assert (status, named) == (204, form)
    status, named, _ = await _send(cluster, "POST", f'<urn:a> <urn:b> "01"^^<{XSD}int> .', "application/n-triples")
    assert (status, named) == (204, form)
    removal, added = await _payloads(cluster)
    assert kept in removal
    assert f'"01"^^<{XSD}int>' in added


CANONICAL = f'<urn:a> <urn:b> "1"^^<{XSD}integer> .'
OTHERS = [
    ("application/n-triples", f'<urn:a> <urn:b> "01"^^<{XSD}int> .'),
    ("application/sparql-update", f'INSERT DATA {{ <urn:a> <urn:b> "1.10"^^<{XSD}decimal> }}'),
    ("application/sparql-update", f'DELETE WHERE {{ ?s <urn:b> "01"^^<{XSD}integer> }}'),
]


@pytest.mark.parametrize(("here", "there"), [(AS_WRITTEN, "oxigraph"), ("rdf4j", AS_WRITTEN)])
async def test_where_another_data_centre_holds_other_forms_these_are_refused_by_name(
    clusters: Callable[..., Cluster], here: str, there: str
) -> None:
    cluster = clusters(1, workers=_workers(here), mixed_engines=here == "rdf4j", **REFUSE)
    await cluster.start()
    app = cluster.service(0)
    for media, body in OTHERS[: 3 if here == AS_WRITTEN else 2]:
        assert (await _send(cluster, "POST", body, media))[0] == 204
    known = app.context.registry.known
    known.remote["us"] = {"us-worker-1": RegisteredWorker("us-worker-1", "http://127.0.0.1:9", there)}
    with pytest.raises(BadInput, match="hold what it looks at in two forms"):
        app.routes.writes._portability.check_effects()
    for media, body in OTHERS:
        status, _, text = await _send(cluster, "POST", body, media)
        assert status == 400, body
        assert f"are {AS_WRITTEN} and would keep it" in text
    status, _, text = await _send(cluster, "DELETE", obj=f'"01"^^<{XSD}integer>')
    assert status == (400 if here == AS_WRITTEN else 204), text
    computed = "INSERT { ?s <urn:c> ?x } WHERE { ?s <urn:b> ?o BIND(?o * 1.5 AS ?x) }"
    assert (await _send(cluster, "POST", computed, "application/sparql-update"))[0] in (400, 409)
    assert (await _send(cluster, "POST", CANONICAL, "application/n-triples"))[0] == 204
    tagged = '<urn:a> <urn:b> "x"@en-US .'
    assert (await _send(cluster, "POST", tagged, "application/n-triples"))[0] == 204


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": _workers(AS_WRITTEN, "rdf4j")},
        {"workers": _workers(AS_WRITTEN), "mixed_engines": True},
    ],
)
async def test_a_master_has_such_workers_alone(clusters: Callable[..., Cluster], changes: dict[str, Any]) -> None:
    cluster = clusters(1)
    with pytest.raises(ValidationError, match=f"expected {AS_WRITTEN} for all or none"):
        NodeConfig(**(cluster.configs[0] | changes))


CANNOT = "the engine oxigraph cannot keep them"


@pytest.mark.parametrize(
    ("workers", "changes", "event", "why"),
    [
        (["rdf4j", "rdf4j"], {}, "LiteralsKept", ""),
        ([AS_WRITTEN], {}, "LiteralsKept", ""),
        (["rdf4j"], {"mixed_engines": True}, "LiteralsRewritten", "mixedEngines allows an engine"),
        (["rdf4j", "oxigraph"], {"mixed_engines": True}, "LiteralsRewritten", CANNOT),
        (["oxigraph"], {}, "LiteralsRewritten", CANNOT),
        ([], {}, "LiteralsRewritten", "no worker of this data centre"),
    ],
)
async def test_a_new_cluster_keeps_forms_where_its_engines_do_and_names_what_does_not(
    clusters: Callable[..., Cluster], workers: list[str], changes: dict[str, Any], event: str, why: str
) -> None:
    cluster = clusters(1, workers=_workers(*workers), **changes)
    await cluster.start()
    await until(lambda: event in cluster.logged(0))
    lines = [json.loads(line) for line in cluster.logs[0].getvalue().splitlines()]
    [found] = [line for line in lines if line["event"] == event]
    assert why in found.get("why", "")
    assert cluster.service(0).context.literals.keeps is (event == "LiteralsKept")
    assert _engines(cluster) == [AS_WRITTEN if event == "LiteralsKept" else engine for engine in workers]


async def test_a_cluster_goes_on_as_it_was_founded(clusters: Callable[..., Cluster]) -> None:
    """One of an earlier version, whose stores hold canonical forms: its founding record does not say that they are
    kept. A manifest without ``mixedEngines`` changes nothing."""
    cluster = clusters(1, workers=_workers("rdf4j"), mixed_engines=True)
    await cluster.start()
    await cluster.stop()
    cluster.configs[0] |= {"mixed_engines": False}
    await cluster.start()
    assert (await _send(cluster, "POST", OTHERS[0][1], OTHERS[0][0]))[:2] == (204, "oxigraph")
    assert _engines(cluster) == ["rdf4j"]
    await until(lambda: cluster.logged(0).count("LiteralsRewritten") == 2)
    await cluster.stop()
    cluster.configs[0] |= {"workers": _workers(AS_WRITTEN)}  # the way over: rebuilt stores, and the engine by its name
    await cluster.start()
    assert (await _send(cluster, "POST", OTHERS[0][1], OTHERS[0][0]))[:2] == (204, AS_WRITTEN)


@pytest.mark.parametrize("changes", [{"mixed_engines": True}, {"workers": _workers("oxigraph")}])
async def test_a_manifest_that_no_longer_keeps_forms_is_named_and_refuses_them(
    clusters: Callable[..., Cluster], changes: dict[str, Any]
) -> None:
    cluster = clusters(1, workers=_workers("rdf4j"))
    await cluster.start()
    await cluster.stop()
    cluster.configs[0] |= changes
    await cluster.start()
    assert "LiteralsDiffer" in cluster.logged(0)
    for media, body in OTHERS:
        assert (await _send(cluster, "POST", body, media))[0] == 400
    assert (await _send(cluster, "POST", CANONICAL, "application/n-triples"))[0] == 204


async def test_where_one_data_centre_cannot_keep_forms_none_does(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, workers=_workers("rdf4j"))
    cluster.configs[1] |= {"workers": _workers("oxigraph")}
    await cluster.start()
    assert [cluster.service(at).context.literals.keeps for at in (0, 1)] == [False, False]
    assert (await _send(cluster, "POST", OTHERS[0][1], OTHERS[0][0]))[:2] == (204, "oxigraph")


async def test_a_worker_that_is_added_holds_what_the_others_hold(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=_workers("rdf4j"))
    await cluster.start()
    registry = cluster.service(0).context.registry
    await until(lambda: _engines(cluster) == [AS_WRITTEN])
    registry.add(WorkerConfig(name="w-2", url="http://127.0.0.1:2", engine="rdf4j"))
    assert _engines(cluster) == [AS_WRITTEN, AS_WRITTEN]
    stale = RegisteredWorker("w-1", "http://127.0.0.1:1", "rdf4j", reported_at=1e12)
    registry.on_notice(msgspec.json.encode(WorkerNotice("uk", [stale])), "uk-2")
    assert _engines(cluster) == [AS_WRITTEN, AS_WRITTEN]


async def test_a_master_that_does_not_know_its_cluster_gives_nothing_to_its_stores(
    clusters: Callable[..., Cluster],
) -> None:
    """It would apply in one form and read in another. What it learns later is what the cluster was founded with, also
    where it begins with an empty journal."""
    cluster = clusters(2, workers=_workers("rdf4j"))
    await cluster.start(0, ready=False)
    await until(lambda: "Started" in cluster.logged(0))
    registry = cluster.service(0).context.registry
    [worker] = registry.workers.values()
    assert registry.literals.is_undecided
    assert (worker.engine, worker.paused_at) == ("rdf4j", 0)
    registry.report("w-1", msgspec.json.encode(PipelineReport(WorkerMarker(1, 0, bytes(16).hex()), "Working")))
    with pytest.raises(Unavailable):
        cluster.service(0).routes.reads.router.readable_workers()
    await cluster.start(1)
    await until(lambda: worker.engine == AS_WRITTEN)
    assert worker.paused_at is None
    assert cluster.service(0).routes.reads.router.readable_workers()


async def test_an_update_in_a_transaction_is_left_to_the_stores_where_none_can_be_copied(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(1, workers=_workers(AS_WRITTEN), **REFUSE)
    await cluster.start()
    text = "DELETE { ?s <urn:b> ?o } WHERE { ?s <urn:b> ?o FILTER(?o = 1) }"
    async with cluster.session.post(cluster.url(0, "/repositories/demo/transactions")) as begun:
        at = begun.headers["Location"]
    async with cluster.session.put(at, params={"action": "UPDATE"}, data=text, headers=UPDATE) as answer:
        assert answer.status == 204, await answer.text()
    async with cluster.session.put(at, params={"action": "COMMIT"}) as answer:
        assert answer.status == 200, await answer.text()
    [payload] = await _payloads(cluster)
    assert payload.startswith("DELETE")
