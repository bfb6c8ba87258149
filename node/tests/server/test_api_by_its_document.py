"""Requests that nobody thought of, made from the API's own document (schemathesis), against a real master process.

``make fuzz-api``, with ``EXAMPLES=n`` for each operation; it takes a minute, so it is not among the tests of each run.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from master_cluster import Cluster
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi

EXAMPLES: Final = int(os.environ.get("EXAMPLES", "0"))
NOT_HERE: Final = {"GET /txlog/peer"}
"""Another protocol."""
BOUNDED: Final = {
    "GET /txlog/watch": {"until": "now"},
    "GET /txlog/doorbell": {"timeout": "0"},
    "GET /txlog/transactions/{txid}": {"wait": "0"},
    "DELETE /txlog/workers/{name}": {"timeout": "0"},
}
"""What would wait is asked not to."""
CHECKS: Final = (
    checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_headers_conformance,
    openapi.response_schema_conformance,
    openapi.unsupported_method,
)


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Whatever was drawn, as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def ask(url: str) -> list[str]:
    """The operations that were asked; raises what a check found, with the request as a curl command."""
    schema = schemathesis.openapi.from_url(f"{url}/txlog/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    asked = [operation for operation in operations if operation.label not in NOT_HERE]
    for operation in asked:
        ask_one(operation)
    return [operation.label for operation in asked]


def ask_one(operation: Any) -> None:
    bounds = BOUNDED.get(operation.label, {})

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: schemathesis.Case) -> None:
        case.query = {**(case.query or {}), **bounds}
        case.validate_response(case.call(timeout=60), checks=list(CHECKS))

    run()


@pytest.mark.skipif(not EXAMPLES, reason="make fuzz-api")
@pytest.mark.timeout(120 + EXAMPLES * 20)
async def test_no_request_from_its_document_breaks_a_master(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    try:
        cluster.spawn()
        await cluster.ready()
        asked = await asyncio.to_thread(ask, cluster.url(0))
        assert len(asked) > 30
        assert cluster.process(0).poll() is None, "it has ended"
        await cluster.write(0, "INSERT DATA { <urn:s> <urn:p> 1 }")
        log = (tmp_path / "uk-1.log").read_text()
        assert "InternalError" not in log
        assert "Traceback" not in log
    finally:
        await cluster.close()
