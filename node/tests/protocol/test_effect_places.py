"""The places of synchronous transactions are a mapping, also where they come out of order."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from txlog.model.ids import Origin, Txid
from txlog.protocol.log.effect_places import EffectPlaces

_ORIGINS = (Origin("uk-1", 1), Origin("us-1", 2))
_TXIDS = st.builds(Txid, st.sampled_from(_ORIGINS), st.integers(1, 9))
_STEPS = st.one_of(
    st.tuples(st.just("set"), _TXIDS, st.integers(1, 30)),
    st.tuples(st.just("truncate"), st.none(), st.integers(0, 30)),
    st.tuples(st.just("trim"), st.none(), st.integers(0, 30)),
)


@given(st.lists(_STEPS, max_size=30))
def test_it_is_a_mapping(steps: list[tuple[str, Txid | None, int]]) -> None:
    places, expected = EffectPlaces(), dict[Txid, int]()
    for name, txid, index in steps:
        if txid is not None:
            places.set(txid, index)
            expected[txid] = index
        elif name == "truncate":
            places.truncate(index)
            expected = {one: at for one, at in expected.items() if at <= index}
        else:
            places.trim(index)
            expected = {one: at for one, at in expected.items() if at > index}
        assert dict(places.items()) == expected
        assert bool(places) == bool(expected)
        for origin in _ORIGINS:
            for seq in range(1, 10):
                assert places.get(Txid(origin, seq)) == expected.get(Txid(origin, seq), 0)


def test_a_transaction_takes_some_twenty_bytes() -> None:
    names = [Txid(_ORIGINS[0], seq) for seq in range(1, 50_001)]
    tracemalloc.start()
    try:
        places = EffectPlaces()
        for txid in names:
            places.set(txid, txid.seq + 1_000_000)
        assert tracemalloc.get_traced_memory()[0] <= 20 * len(names)
    finally:
        tracemalloc.stop()
