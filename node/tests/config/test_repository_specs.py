"""``spec.repositories``: what is refused, and where."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from txlog.config.cluster import ClusterSpec, TxLogCluster
from txlog.config.repository_specs import repository_worker_names

STOCK = {"name": "stock"}
FUSEKI = {"url": "http://stores:3030/s", "engine": "fuseki"}
LISTED: dict[str, Any] = {
    "dataCenter": "uk",
    "peers": [{"name": "uk", "masters": 1, "address": "uk"}],
    "repositories": [STOCK],
}


@pytest.fixture(autouse=True)
def preview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLOG_PREVIEWS", "sites, repositories")


@pytest.mark.parametrize("previews", [None, "", "repository"])
def test_without_the_preview_no_repository_is_listed(monkeypatch: pytest.MonkeyPatch, previews: str | None) -> None:
    monkeypatch.delenv("TXLOG_PREVIEWS")
    if previews is not None:
        monkeypatch.setenv("TXLOG_PREVIEWS", previews)
    with pytest.raises(ValidationError, match="several repositories are a preview"):
        ClusterSpec.model_validate(LISTED)
    assert ClusterSpec.model_validate(LISTED | {"repositories": []}).repositories == []


def test_a_repository_has_one_oxigraph_unless_its_workers_are_given() -> None:
    more = [STOCK, {"name": "Orders_1", "workers": {"external": [FUSEKI]}}, {"name": "far", "workers": {"replicas": 0}}]
    stock, orders, far = ClusterSpec.model_validate(LISTED | {"repositories": more}).repositories
    assert (stock.workers.count, stock.workers.engines) == (1, {"oxigraph"})
    assert (orders.workers.count, orders.workers.engines) == (1, {"fuseki"})
    assert (far.workers.count, far.workers.engines) == (0, set())
    assert repository_worker_names("uk", orders.name, 1) == ["uk-orders-1-worker-1"]


def repositories(*more: dict[str, Any]) -> dict[str, Any]:
    return {"repositories": [STOCK, *more]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (repositories(STOCK), "another name than the repository stock"),
        (repositories({"name": "Stock"}), "another name than the repository stock"),
        (repositories({"name": "a-b"}, {"name": "a_b"}), "another name than the repository a-b"),
        (repositories({"name": "System"}), "the log that names the repositories"),
        (repositories({"name": "a/b"}), "should match pattern"),
        (repositories({"name": ""}), "should match pattern"),
        (repositories({"name": "x" * 64}), "should match pattern"),
        (repositories({"name": "x" * 52}), "more than 63 characters"),
        (repositories(*({"name": f"r{n}"} for n in range(15))), "at most 15 items"),
        (repositories({"name": "o", "dataCenter": "us"}), "Extra inputs"),
        (repositories({"name": "o", "workers": {"replicas": -1}}), "greater than or equal to 0"),
        (repositories({"name": "o", "workers": {"replicas": 1, "external": [FUSEKI]}}), "either external or"),
        (repositories({"name": "o", "workers": {"external": []}}), "at least 1 item"),
        (repositories({"name": "o", "workers": {"external": [FUSEKI, FUSEKI]}}), "every worker once"),
        (repositories({"name": "o", "workers": {"engine": "blazegraph"}}), "'oxigraph', 'fuseki'"),
        (repositories({"name": "o", "workers": {"engine": "virtuoso"}}), "refuse where a worker is a virtuoso"),
        (
            repositories({"name": "o", "workers": {"external": [FUSEKI, {"url": "http://stores:7878"}]}}),
            "several engines",
        ),
        (
            {"durability": {"default": "archived"}, "archive": {"target": {"folder": {"path": "/a"}}}},
            "which have no archive yet",
        ),
    ],
)
def test_what_is_wrong_in_the_list_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ClusterSpec.model_validate(LISTED | change)


@pytest.mark.parametrize(("name", "first"), [("stock", None), ("catalogue", "Stock")])
def test_a_further_repository_has_another_name_than_the_first_one(name: str, first: str | None) -> None:
    document = {"apiVersion": "txlog.io/v1alpha1", "kind": "TxLogCluster", "metadata": {"name": name}}
    with pytest.raises(ValidationError, match=f"another name than the repository {first or name}"):
        TxLogCluster.model_validate(document | {"spec": LISTED | {"repository": first}})
