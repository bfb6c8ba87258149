"""The door of a master whose workers hold literals as they were sent (``rdf4j-as-written``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import UPDATE, Cluster
from pydantic import ValidationError

from txlog.client import MasterClient
from txlog.config.process_config import NodeConfig
from txlog.config.units import AS_WRITTEN
from txlog.model.errors import BadInput
from txlog.runtime.worker_state import RegisteredWorker

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
        ({"workers": _workers("rdf4j")}, "oxigraph", f'"1"^^<{XSD}integer>'),
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
    cluster = clusters(1, workers=_workers(here), **REFUSE)
    await cluster.start()
    app = cluster.apps[0]
    assert app is not None
    for media, body in OTHERS:
        assert (await _send(cluster, "POST", body, media))[0] == 204
    known = app.context.registry.known
    known.remote["us"] = {"us-worker-1": RegisteredWorker("us-worker-1", "http://127.0.0.1:9", there)}
    with pytest.raises(BadInput, match="hold what it looks at in two forms"):
        app.http_api.writes._portability.check_effects()
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


@pytest.mark.parametrize(
    ("workers", "changes", "could"),
    [
        (["rdf4j", "rdf4j"], {}, True),
        (["rdf4j"], {"mixed_engines": True}, False),
        (["rdf4j", "oxigraph"], {"mixed_engines": True}, False),
        ([AS_WRITTEN], {}, False),
        ([], {}, False),
    ],
)
async def test_a_master_says_that_its_workers_could_keep_forms(
    clusters: Callable[..., Cluster],
    workers: list[str],
    changes: dict[str, Any],
    could: bool,
) -> None:
    cluster = clusters(1, workers=_workers(*workers), **changes)
    await cluster.start()
    app = cluster.apps[0]
    assert app is not None
    assert app.config.could_keep_literals is could


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
