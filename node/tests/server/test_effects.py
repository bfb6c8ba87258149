"""Updates that no two stores would carry out alike: evaluated once, and the same everywhere."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from master_cluster import SYNCED, UPDATE, Cluster, until
from worker_driver import Driver, OxigraphProcess

from txlog.model.errors import Unavailable
from txlog.server.frontdoor import evaluated_updates, evaluator_pool
from txlog.server.frontdoor.evaluator_pool import RemoteCopy
from txlog.workers.digest import digest

PEOPLE = "INSERT DATA { " + " ".join(f"<urn:p{n}> <urn:name> 'n{n}' ; <urn:age> {n} ." for n in range(40)) + " }"
NQUADS = "application/n-quads"
QUADS = {"Content-Type": NQUADS, "TxLog-Durability": "synced"}


def held(store: OxigraphProcess) -> list[str]:
    """Everything, over a connection of its own: the store's belongs to its driver."""
    with urllib.request.urlopen(urllib.request.Request(f"{store.url}/store", headers={"Accept": NQUADS})) as answer:
        return sorted(line for line in answer.read().decode().split("\n") if line)


class Pair:
    """Two masters, two stores; a write is applied by both when it is answered."""

    def __init__(self, cluster: Cluster, stores: list[OxigraphProcess], drivers: list[Driver]) -> None:
        self.cluster, self.stores, self.drivers = cluster, stores, drivers

    async def update(self, text: str, at: int = 0, status: int = 204, **headers: str) -> dict[str, str]:
        return await self.cluster.write(at, text, status, **{"TxLog_Durability": "applied-all", **headers})

    def same(self) -> list[str]:
        """What both hold."""
        first, second = (held(store) for store in self.stores)
        assert digest(line.encode() for line in first) == digest(line.encode() for line in second)
        assert first == second
        assert not [line for line in first if "_:" in line]
        return first

    @property
    def index(self) -> int:
        return self.cluster.service(0).loop.durability.stable.value


@pytest.fixture
async def pair(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Pair]:
    stores = [OxigraphProcess(tmp_path / f"store-{n}") for n in (1, 2)]
    workers = [{"name": f"w-{n}", "url": store.url} for n, store in enumerate(stores, 1)]
    cluster = clusters(2, workers=workers)
    await cluster.start()
    drivers = [Driver(cluster.url(0), f"w-{n}", store) for n, store in enumerate(stores, 1)]
    yield Pair(cluster, stores, drivers)
    for driver in drivers:
        await asyncio.to_thread(driver.close)
    for store in stores:
        store.kill()


CONSTRUCTS = {
    "UUID": ("INSERT { ?s <urn:id> ?u } WHERE { ?s <urn:name> ?n BIND(UUID() AS ?u) }", 40),
    "STRUUID": ("INSERT { ?s <urn:id> ?u } WHERE { ?s <urn:name> ?n BIND(STRUUID() AS ?u) }", 40),
    "RAND": ("INSERT { ?s <urn:id> ?u } WHERE { ?s <urn:name> ?n BIND(RAND() AS ?u) }", 40),
    "BNODE": ("INSERT { ?s <urn:id> ?u } WHERE { ?s <urn:name> ?n BIND(BNODE() AS ?u) }", 40),
    "a blank node": ("INSERT { ?s <urn:id> _:x . _:x <urn:of> ?n } WHERE { ?s <urn:name> ?n }", 40),
    "brackets": ("INSERT { ?s <urn:id> [ <urn:of> ?n ] } WHERE { ?s <urn:name> ?n }", 40),
    "a list": ("INSERT { ?s <urn:id> (?n 1) } WHERE { ?s <urn:name> ?n }", 40),
    "LIMIT": ("INSERT { ?s <urn:id> 1 } WHERE { SELECT ?s { ?s <urn:name> ?n } LIMIT 7 }", 7),
    "OFFSET": ("INSERT { ?s <urn:id> 1 } WHERE { SELECT ?s { ?s <urn:name> ?n } OFFSET 30 }", 10),
    "SAMPLE": ("INSERT { <urn:x> <urn:id> ?n } WHERE { SELECT (SAMPLE(?o) AS ?n) { ?s <urn:name> ?o } }", 1),
    "GROUP_CONCAT": ("INSERT { <urn:x> <urn:id> ?n } WHERE { SELECT (GROUP_CONCAT(?o) AS ?n) {?s <urn:name> ?o} }", 1),
    "every predicate": ("INSERT { ?s <urn:id> ?u } WHERE { ?s ?p 3 BIND(UUID() AS ?u) }", 1),
    "one solution": ("INSERT { ?u <urn:id> ?u } WHERE { BIND(UUID() AS ?u) }", 1),
    "a graph": ("INSERT { GRAPH <urn:g> { ?s <urn:id> ?u } } WHERE { ?s <urn:age> ?n BIND(UUID() AS ?u) }", 40),
}


async def test_each_construct_has_one_result_in_all_stores(pair: Pair) -> None:
    await pair.update(PEOPLE)
    people = pair.same()
    for construct, (text, count) in CONSTRUCTS.items():
        for at in (0, 1):
            answer = await pair.update(text, at)
            made = [line for line in pair.same() if " <urn:id> " in line]
            assert len(made) == count, construct
            assert answer["TxLog-Durability"] == "applied-all"
            assert int(answer["TxLog-Position"].split(":")[1]) == pair.index
            if "ID" in construct or "NODE" in construct or "blank" in construct:
                assert len({line.split(" ")[2] for line in made}) == count, f"{construct}: a value twice"
            await pair.update("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?p IN (<urn:id>, <urn:of>)) } ; DROP GRAPH "
                              "<urn:g> ; DELETE WHERE { ?s <http://www.w3.org/1999/02/22-rdf-syntax-ns#first> ?f ; "
                              "<http://www.w3.org/1999/02/22-rdf-syntax-ns#rest> ?r }")  # fmt: skip
            assert pair.same() == people, construct


async def test_what_goes_goes_and_several_operations_see_each_other(pair: Pair) -> None:
    await pair.update(PEOPLE)
    await pair.update(
        "DELETE { ?s <urn:age> ?a } INSERT { ?s <urn:key> ?u } "
        "WHERE { ?s <urn:age> ?a BIND(UUID() AS ?u) FILTER(?a < 5) } ;"
        "INSERT { ?u <urn:of> ?s } WHERE { ?s <urn:key> ?u } ; INSERT DATA { _:b <urn:of> <urn:p1> } ;"
        "INSERT { _:c <urn:one> ?s } WHERE { ?s <urn:key> ?u } ;"
        "INSERT { _:c <urn:two> ?s } WHERE { ?s <urn:key> ?u } ;"
        "INSERT { GRAPH <urn:g> { ?s <urn:age> ?a , 01 } } WHERE { ?s <urn:age> ?a FILTER(?a > 37) }"
    )
    now = pair.same()
    assert sum("<urn:age>" in line for line in now) == 35 + 4
    keys = {line.split(" ")[2] for line in now if "<urn:key>" in line}
    assert len(keys) == 5
    assert {line.split(" ")[0] for line in now if "<urn:of>" in line} > keys
    assert len({line.split(" ")[0] for line in now if line.startswith("<urn:txlog:bnode:")}) == 1 + 5 + 5


XSD = "http://www.w3.org/2001/XMLSchema#"
ODD = [
    *("01", "1.10", "1e0", "-0.0", "true", f"'1'^^<{XSD}int>", f"'12345678901234567890123'^^<{XSD}integer>"),
    *(f"'NaN'^^<{XSD}double>", f"'2020-01-01T24:00:00+00:00'^^<{XSD}dateTime>", f"'PT24H'^^<{XSD}duration>"),
    *("'abc'^^<urn:t>", "'a'@EN-us", "''", "' '", "'é\U0001f600'", "'<urn:a>'", "<urn:a>", "<http://x/é%20?q#f>"),
    r"""'a\tb\nc\rd\"e\\f\u0007\u007F\u0085\u2028'""",
]


async def test_odd_values_are_the_same_in_the_copy_and_in_the_stores(pair: Pair) -> None:
    """Else the condition would hold here and not there."""
    quads = [f"<urn:o{n}> <urn:v> {value} ." for n, value in enumerate(ODD)]
    await pair.update(f"INSERT DATA {{ {' '.join(quads)} GRAPH <urn:g> {{ {' '.join(quads)} }} }}")
    for n, where in enumerate(("?s <urn:v> ?o", "?s ?p ?o", "GRAPH ?g { ?s ?p ?o }")):
        await pair.update(f"INSERT {{ ?u <urn:made{n}> ?o }} WHERE {{ {where} BIND(UUID() AS ?u) }}")
        assert sum(f" <urn:made{n}> " in line for line in pair.same()) >= len(ODD), where
    for all_ in ("?s ?p ?o", "GRAPH ?g { ?s ?p ?o }"):
        await pair.update(f"DELETE {{ {all_} }} WHERE {{ SELECT * {{ {all_} }} LIMIT 1000 }}")
    assert pair.same() == []


async def test_what_changes_nothing_is_answered_like_any_other(pair: Pair) -> None:
    answer = await pair.update("INSERT { ?s <urn:id> ?u } WHERE { ?s <urn:name> ?n BIND(UUID() AS ?u) }")
    assert answer["TxLog-Transaction"]
    assert pair.same() == []


async def test_parameters_and_forms_are_evaluated_too(pair: Pair) -> None:
    await pair.update(PEOPLE)
    text = "INSERT { ?s <urn:id> ?u } WHERE { ?s <urn:name> ?n BIND(UUID() AS ?u) }"
    path = pair.cluster.url(1, "/repositories/demo/statements")
    form = {"update": text, "$s": "<urn:p3>", "insert-graph-uri": "urn:g"}
    async with pair.cluster.session.post(path, data=form, headers={"TxLog-Durability": "applied-all"}) as answer:
        assert answer.status == 204, await answer.text()
    [made] = [line for line in pair.same() if "<urn:id>" in line]
    assert made.startswith("<urn:p3> <urn:id> <urn:uuid:")
    assert made.endswith(" <urn:g> .")


async def test_writers_at_both_masters_lose_nothing(pair: Pair) -> None:
    """Each update takes one job of those that are open: a serial execution gives each job to one of them."""
    cluster = pair.cluster
    await pair.update("INSERT DATA { " + " ".join(f"<urn:j{n}> <urn:open> true ." for n in range(12)) + " }")
    take = (
        "DELETE { ?j <urn:open> true } INSERT { ?j <urn:taken> _:x } WHERE { SELECT ?j { ?j <urn:open> true } LIMIT 1 }"
    )
    done = asyncio.Event()

    async def noise(at: int) -> int:
        count = 0
        while not done.is_set():
            line = f'<urn:noise{at}> <urn:n> "{count}" .'
            await cluster.post(at, "/repositories/demo/statements", line, headers=QUADS)
            count += 1
        return count

    async def takes(at: int) -> list[int]:
        statuses = []
        for _ in range(6):
            async with cluster.session.post(
                cluster.url(at, "/repositories/demo/statements"), data=take, headers=SYNCED
            ) as answer:
                statuses.append(answer.status)
        return statuses

    noises = [asyncio.ensure_future(noise(at)) for at in (0, 1)]
    statuses = [status for each in await asyncio.gather(takes(0), takes(1), takes(0), takes(1)) for status in each]
    done.set()
    counts = await asyncio.gather(*noises)
    await pair.update("INSERT DATA { <urn:end> <urn:n> 1 }")
    now = pair.same()
    took = statuses.count(204)
    assert set(statuses) <= {204, 409}
    taken = [line for line in now if "<urn:taken>" in line]
    assert len({line.split(" ")[0] for line in taken}) == len(taken), "a job was taken twice"
    assert len(taken) == min(12, took), (took, statuses)
    assert sum("<urn:open>" in line for line in now) == 12 - len(taken)
    assert sum(line.startswith("<urn:noise") for line in now) == sum(counts)
    assert took >= 12, "hardly anything got through"


class Between:
    """Somebody else's write, each time before an effect gets its place."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, line: str, times: int) -> None:
        self.left = times
        original = RemoteCopy.evaluate

        async def evaluate(this: Any, *arguments: Any) -> Any:
            found = await original(this, *arguments)
            if self.left:
                self.left -= 1
                text = line.replace("N", str(self.left))
                await cluster.post(1, "/repositories/demo/statements", text, headers=QUADS)
                await until(
                    lambda: (
                        cluster.service(0).loop.durability.stable.value
                        == cluster.service(1).loop.durability.stable.value
                    )
                )
            return found

        monkeypatch.setattr(RemoteCopy, "evaluate", evaluate)


COUNTING = "INSERT { <urn:x> <urn:is> ?n . [] <urn:made> 1 } WHERE { SELECT (COUNT(*) AS ?n) { ?s <urn:name> ?o } }"


async def test_what_comes_between_and_was_not_looked_at_costs_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.update(PEOPLE)
    between = Between(pair.cluster, monkeypatch, "<urn:sN> <urn:other> <urn:o> .", 1)
    index = pair.index
    await pair.update(COUNTING)
    assert not between.left
    assert pair.index == index + 2, "it was tried again"
    assert sum('<urn:is> "40"' in line for line in pair.same()) == 1


async def test_what_comes_between_and_was_looked_at_is_seen_at_the_next_try(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.update(PEOPLE)
    between = Between(pair.cluster, monkeypatch, '<urn:sN> <urn:name> "more" .', 3)
    index = pair.index
    answer = await pair.update(COUNTING)
    assert not between.left
    assert pair.index == index + 3 + 4, "three tries in vain, and one more"
    assert int(answer["TxLog-Position"].split(":")[1]) == pair.index
    now = pair.same()
    assert [line for line in now if "<urn:is>" in line] == [
        '<urn:x> <urn:is> "43"^^<http://www.w3.org/2001/XMLSchema#integer> .'
    ]
    assert sum("<urn:made>" in line for line in now) == 1, "a try in vain left something"


async def test_a_delete_of_what_comes_between_is_noticed_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quad that it adds was there already, and goes meanwhile: only a try that sees that adds it."""
    await pair.update("INSERT DATA { <urn:a> <urn:name> 'x' . <urn:x> <urn:seen> true }")
    original = RemoteCopy.evaluate
    left = [1]

    async def evaluate(this: Any, *arguments: Any) -> Any:
        found = await original(this, *arguments)
        if left:
            left.clear()
            await pair.update("DELETE DATA { <urn:x> <urn:seen> true }", at=1)
        return found

    monkeypatch.setattr(RemoteCopy, "evaluate", evaluate)
    await pair.update("INSERT { <urn:x> <urn:seen> true } WHERE { SELECT ?s { ?s <urn:name> ?n } LIMIT 1 }")
    assert any("<urn:seen>" in line for line in pair.same())


async def test_who_is_always_overtaken_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.update(PEOPLE)
    Between(pair.cluster, monkeypatch, '<urn:sN> <urn:name> "more" .', evaluated_updates.ATTEMPTS_MAX)
    answer = await pair.update(COUNTING, status=409)
    assert "changed what this update looks at" in answer["body"]
    await pair.update("INSERT DATA { <urn:end> <urn:n> 1 }")
    assert not any("<urn:is>" in line or "<urn:made>" in line for line in pair.same())
    await pair.update(COUNTING)
    assert sum("<urn:is>" in line for line in pair.same()) == 1


async def test_a_worker_that_lags_is_good_enough(pair: Pair) -> None:
    await pair.update(PEOPLE)
    for driver in pair.drivers:
        await asyncio.to_thread(driver.pause)
    for n in range(5):
        await pair.cluster.write(0, f"INSERT DATA {{ <urn:late{n}> <urn:name> 'x' }}")
    await pair.cluster.write(1, COUNTING)
    for driver in pair.drivers:
        driver.resume()
    await pair.update("INSERT DATA { <urn:end> <urn:n> 1 }")
    assert sum('<urn:is> "45"' in line for line in pair.same()) == 1


async def test_without_a_worker_it_is_503_by_name(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    answer = await cluster.write(0, COUNTING, status=503)
    assert answer["TxLog-Error"] == "NoWorker"
    assert "Retry-After" in answer
    assert cluster.service(0).loop.durability.log_index == 0


async def test_a_store_that_is_down_is_passed_over_and_none_is_503(pair: Pair) -> None:
    await pair.update(PEOPLE)
    pair.stores[0].process.kill()
    pair.stores[0].process.wait(30)
    for _ in range(2):  # each is chosen first once
        pair.cluster.service(0).routes.writes._optimistic_updates._discard_copy()  # type: ignore[union-attr]
        await pair.cluster.write(0, COUNTING)
    pair.stores[1].process.kill()
    pair.stores[1].process.wait(30)
    pair.cluster.service(0).routes.writes._optimistic_updates._discard_copy()  # type: ignore[union-attr]
    answer = await pair.cluster.write(0, COUNTING, status=503)
    assert answer["TxLog-Error"] == "NoWorker"


async def test_what_is_too_large_is_said_by_name(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.update(PEOPLE)
    index = pair.index
    writer = pair.cluster.service(0).routes.writes._optimistic_updates
    assert writer is not None
    monkeypatch.setattr(writer, "_bytes_max", 1300)
    answer = await pair.update(CONSTRUCTS["UUID"][0], status=413)
    assert "one transaction may hold 1300" in answer["body"]
    assert pair.index == index
    await pair.update("INSERT { <urn:x> <urn:id> ?s } WHERE { SELECT ?s { ?s <urn:name> ?n } LIMIT 1 }")
    monkeypatch.setattr(evaluated_updates, "COPY_BYTES_MAX", 100)
    writer._discard_copy()
    answer = await pair.update(COUNTING, status=409)
    assert "larger than" in answer["body"]
    assert len([line for line in pair.same() if "<urn:id>" in line]) == 1


async def test_who_looks_at_too_much_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.update(PEOPLE)
    monkeypatch.setattr(evaluator_pool, "QUADS_READ_MAX", 40)
    await pair.update(CONSTRUCTS["LIMIT"][0].replace("urn:id", "urn:name"))
    index = pair.index
    answer = await pair.update(CONSTRUCTS["every predicate"][0], status=409)
    assert "looks at 87 quads, all there are; 40 are possible" in answer["body"]
    answer = await pair.update(CONSTRUCTS["LIMIT"][0].replace("urn:id", "urn:age"), status=409)
    assert "those with its predicates" in answer["body"]
    assert pair.index == index


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INSERT { ?s <urn:id> ?u } WHERE { ?s <urn:name> ?n BIND(UUID( AS ?u) }", "MALFORMED QUERY: error at 1:"),
        ("INSERT { ?s <urn:id> _:x } WHERE { ?s <urn:name> ?n ", "} is missing"),
        ("INSERT { ?s <urn:id> ?x } WHERE { ?s <urn:name> ?n BIND(BNODE('k') AS ?x) }", "BNODE is not deterministic"),
        ("LOAD <http://127.0.0.1:1/x>", "LOAD is not deterministic"),
        ("INSERT { ?s <urn:id> ?u } WHERE { SERVICE <urn:e> { ?s ?p ?u } }", "SERVICE is not deterministic"),
        ("INSERT { _:x <urn:id> ?g } WHERE { GRAPH ?g { ?s <urn:p> <urn:txlog:system:1> } }", "urn:txlog:system"),
    ],
)
async def test_what_is_wrong_is_400_and_reaches_no_log(one: Cluster, text: str, said: str) -> None:
    answer = await one.write(0, text, status=400)
    assert said in answer["body"]
    assert one.service(0).loop.durability.log_index == 0


async def test_a_key_is_refused_for_it_could_not_be_kept(one: Cluster) -> None:
    answer = await one.write(0, COUNTING, status=400, Idempotency_Key="k1")
    assert "Idempotency-Key" in answer["body"]


async def test_the_policy_refuses_by_name(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, non_deterministic_updates="refuse")
    await cluster.start()
    for text, construct in (
        (CONSTRUCTS["UUID"][0], "UUID"),
        (CONSTRUCTS["LIMIT"][0], "LIMIT"),
        (CONSTRUCTS["a blank node"][0], "a blank node"),
    ):
        answer = await cluster.write(0, text, status=400)
        assert answer["body"].startswith(construct)
        assert "nonDeterministicUpdates" in answer["body"]
    await cluster.write(0, CONSTRUCTS["one solution"][0])


async def test_lines_still_refuse_and_transactions_evaluate_at_once(pair: Pair) -> None:
    cluster = pair.cluster
    await pair.update(PEOPLE)
    line = json.dumps({"update": CONSTRUCTS["UUID"][0]})
    [told] = await cluster.post(0, "/txlog/transactions", line, status=200)
    assert told["error"] == "NotDeterministic"
    async with cluster.session.post(cluster.url(0, "/repositories/demo/transactions")) as answer:
        url = answer.headers["Location"]
    update = "INSERT { ?s <urn:x:drawn> ?u } WHERE { { SELECT ?s { ?s ?p ?o } LIMIT 1 } BIND(UUID() AS ?u) }"
    async with cluster.session.put(f"{url}?action=UPDATE", data=update, headers=UPDATE) as answer:
        assert answer.status == 204
    seen = f"{url}?action=GET&pred={quote('<urn:x:drawn>')}"
    async with cluster.session.put(seen, headers={"Accept": "application/n-quads"}) as answer:
        drawn = (await answer.text()).strip()
    assert drawn.count("urn:uuid:") == 1
    applied = {"TxLog-Durability": "applied-all"}
    async with cluster.session.put(f"{url}?action=COMMIT", headers=applied) as answer:
        assert answer.status == 200
    assert drawn in pair.same()


async def test_in_time_or_said_to_be_unknown(pair: Pair) -> None:
    """One master of two is gone: nothing gets its place, so nobody knows yet whether the effect counts."""
    await pair.update(PEOPLE)
    await pair.cluster.write(0, COUNTING)
    await pair.cluster.crash(1)
    answer = await pair.cluster.write(0, COUNTING, status=202, Prefer="wait=0.3")
    assert "not known yet whether" in answer["body"]
    assert answer["TxLog-Transaction"]


async def test_what_is_logged_and_cannot_be_followed_is_not_said_to_be_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.update(PEOPLE)
    await pair.update(COUNTING)
    index = pair.index

    async def fail(self: RemoteCopy, *_: Any) -> None:
        raise Unavailable("QueryTimeout", "made by a test")

    monkeypatch.setattr(RemoteCopy, "apply_operations", fail)
    answer = await pair.update(COUNTING, status=202)
    assert "not known yet whether" in answer["body"]
    monkeypatch.undo()
    assert pair.index == index + 1
    await pair.update(COUNTING)
    assert sum("<urn:made>" in line for line in pair.same()) == 3


async def test_a_copy_is_kept_and_given_up_when_nobody_needs_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = RemoteCopy.__init__

    def count(self: RemoteCopy, *arguments: Any) -> None:
        made.append(self)
        original(self, *arguments)

    monkeypatch.setattr(RemoteCopy, "__init__", count)
    await pair.update(PEOPLE)
    for _ in range(3):
        await pair.update(COUNTING)
    assert len(made) == 1
    monkeypatch.setattr(evaluated_updates, "COPY_IDLE_S", 0.05)
    await pair.update(COUNTING)
    writer = pair.cluster.service(0).routes.writes._optimistic_updates
    await until(lambda: writer is not None and writer._copy is None)
    await pair.update(COUNTING)
    assert len(made) == 2


# Data that is too large to copy


@pytest.fixture
def large(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Everything is too much to copy, what has one of a few predicates is not."""
    monkeypatch.setattr(evaluated_updates, "COPY_BYTES_MAX", 20_000)
    return pair


BULK = "INSERT DATA { " + " ".join(f"<urn:b{n}> <urn:bulk> '{'x' * 50}{n}' ." for n in range(400)) + " }"
TAKE = "DELETE { ?j <urn:open> true } INSERT { ?j <urn:taken> _:x } WHERE { SELECT ?j { ?j <urn:open> true } LIMIT 1 }"


def held_by(pair: Pair, at: int = 0) -> RemoteCopy | None:
    writer = pair.cluster.service(at).routes.writes._optimistic_updates
    assert writer is not None
    return writer._copy


async def test_of_large_data_what_an_update_names_is_copied(large: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = RemoteCopy.__init__

    def count(self: RemoteCopy, *arguments: Any) -> None:
        made.append(arguments[-1])
        original(self, *arguments)

    monkeypatch.setattr(RemoteCopy, "__init__", count)
    await large.update(BULK)
    await large.update(PEOPLE)
    await large.update("INSERT DATA { " + " ".join(f"<urn:j{n}> <urn:open> true ." for n in range(8)) + " }")
    for turn in range(3):
        await large.update(TAKE)
        # Data, and what names other predicates alone: the copy follows over them.
        await large.update(f"INSERT DATA {{ <urn:j{8 + turn}> <urn:open> true . <urn:o> <urn:other> {turn} }}", at=1)
        await large.update("DELETE { ?s <urn:age> ?a } WHERE { ?s <urn:age> ?a FILTER(?a > 38) }", at=1)
        await large.update("DELETE WHERE { <urn:o> ?p ?o }", at=1)
    now = large.same()
    assert sum("<urn:open>" in line for line in now) == 8
    assert sum("<urn:taken>" in line for line in now) == 3
    assert made == [frozenset(("<urn:open>", "<urn:taken>"))]
    await large.update(COUNTING)
    assert len(made) == 2, "other predicates, another copy"
    assert sum('<urn:is> "40"' in line for line in large.same()) == 1


async def test_what_shows_itself_on_all_data_only_makes_it_copy_anew(large: Pair) -> None:
    await large.update(BULK)
    await large.update("INSERT DATA { <urn:j1> <urn:open> true . <urn:j2> <urn:open> true . <urn:j2> <urn:wanted> 1 }")
    await large.update(TAKE.replace("true }", "true . ?j <urn:wanted> 1 }", 2))
    before = held_by(large)
    await large.update("INSERT { ?b <urn:open> true } WHERE { ?b <urn:bulk> ?o FILTER(STRENDS(?o, 'x7')) }")
    await large.update("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?s = <urn:b8>) }")
    await large.update(TAKE)
    assert held_by(large) is not before
    now = large.same()
    assert sum("<urn:taken>" in line for line in now) == 2
    assert sum("<urn:open>" in line for line in now) == 1
    assert not [line for line in now if "<urn:b8>" in line]


async def test_what_comes_between_on_all_data_only_leaves_it_unknown(
    large: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large.update(BULK)
    await large.update("INSERT DATA { <urn:j1> <urn:open> true . <urn:j2> <urn:open> true }")
    await large.update(TAKE)
    original = RemoteCopy.evaluate
    left = [1]

    async def evaluate(this: Any, *arguments: Any) -> Any:
        found = await original(this, *arguments)
        if left:
            left.clear()
            await large.update("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?s = <urn:b8>) }", at=1)
        return found

    monkeypatch.setattr(RemoteCopy, "evaluate", evaluate)
    answer = await large.update(TAKE, status=202)
    assert "not known yet whether" in answer["body"]
    await large.update(TAKE)


async def test_of_large_data_who_names_no_predicate_or_a_frequent_one_is_told(large: Pair) -> None:
    await large.update(BULK)
    index = large.index
    for text, says in (
        ("INSERT { ?s <urn:id> _:x } WHERE { ?s ?p 3 }", "the repository is larger than"),
        ("INSERT { ?s <urn:id> _:x } WHERE { ?s <urn:bulk> 3 }", "all that has the predicates which it names"),
    ):
        answer = await large.update(text, status=409)
        assert says in answer["body"]
    assert large.index == index
