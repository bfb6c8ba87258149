"""Pages of change sets between the process that makes them and masters, and long changes in a feed."""

from __future__ import annotations

import json

import pytest

from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.errors import PeerFault
from txlog.wire import change_feed
from txlog.wire.change_feed import (
    NDJSON_MEDIA_TYPE,
    RDF_PATCH_MEDIA_TYPE,
    SSE_MEDIA_TYPE,
    render_event,
    render_event_in_pieces,
)
from txlog.wire.change_page import (
    ChangePage,
    PageChange,
    change_event,
    change_set_token,
    decode_change_page,
    encode_change_page,
)

HASH = b"h" * 16


def change(index: int, kind: int = KIND_UPDATE, text: bytes = b"", graphs: tuple[str, ...] = ()) -> PageChange:
    return PageChange(index, bytes([index]) * 16, f"m.1.{index}", index, kind, "", "", text, list(graphs))


def test_a_page_comes_back_as_it_was_sent() -> None:
    page = ChangePage(4, HASH, [change(5, text=b"A <x:a> <x:p> 1 .\n"), change(6, graphs=("", "x:g"))], 2, 9)
    assert decode_change_page("it", encode_change_page(page)) == page


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "UnknownFormat"),
        (b"\x02", "UnknownFormat"),
        (b"\x01", "Malformed"),
        (b"\x01\x93\x01", "Malformed"),
        (encode_change_page(ChangePage(4, HASH, [change(5), change(7)], 2, 9)), "Malformed"),
        (encode_change_page(ChangePage(5, HASH, [change(5)], 2, 9)), "Malformed"),
    ],
)
def test_what_is_no_page_is_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(PeerFault) as wrong:
        decode_change_page("it", data)
    assert wrong.value.reason == reason


def test_an_entry_is_an_event_of_quads_whatever_it_was() -> None:
    event = change_event(change(5, KIND_UPDATE, b"D <x:a> <x:p> 1 .\n"), HASH, settled=False)
    assert (event.kind, event.payload, event.settled, event.id) == (
        "quads",
        "D <x:a> <x:p> 1 .\n",
        False,
        f"5:{'05' * 16}",
    )
    assert change_event(change(5, KIND_SKIP), HASH, settled=True).kind == "skip"
    large = change_event(change(5, KIND_QUADS, graphs=("", "x:g")), HASH, settled=True)
    assert (large.kind, large.graphs, large.payload) == ("large", ["", "x:g"], "")
    patch = render_event(large, RDF_PATCH_MEDIA_TYPE).decode()
    assert [line for line in patch.splitlines() if "large" in line] == ['H large "default" .', 'H large "x:g" .']


@pytest.mark.parametrize("form", [NDJSON_MEDIA_TYPE, RDF_PATCH_MEDIA_TYPE, SSE_MEDIA_TYPE])
def test_a_long_change_is_the_same_in_pieces(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "PIECE_CHARS", 50)
    text = "".join(f'A <x:{at}> <x:p> "a\\"\u2028\U0001f600" .\n' for at in range(40)).encode()
    event = change_event(change(5, KIND_QUADS, text), HASH, settled=True)
    pieces = list(render_event_in_pieces(event, form))
    assert len(pieces) > 10
    whole, expected = b"".join(pieces), render_event(event, form)
    if form == RDF_PATCH_MEDIA_TYPE:
        assert whole == expected
        return
    begin = expected.index(b"{")
    assert whole[:begin] == expected[:begin]
    assert json.loads(whole[begin:]) == json.loads(expected[begin:])
    assert whole[whole.rindex(b"}") :] == expected[expected.rindex(b"}") :]


def test_the_token_is_not_that_of_the_cluster() -> None:
    assert change_set_token(b"a") != change_set_token(b"b")
    assert "secret" not in change_set_token(b"secret")
