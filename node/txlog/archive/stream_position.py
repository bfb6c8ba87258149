"""Where on a stream a master's log goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from txlog.archive.file_name import Node
from txlog.archive.path import StreamPaths
from txlog.client import MasterClient
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError, Unavailable
from txlog.model.hashes import chain_start
from txlog.telemetry.event_log import EventLog


class Standing(Enum):
    """How a place is to a master's log."""

    ON = "on"
    OFF = "off"
    ABOVE = "above"
    """Above the stable index: the master cannot know yet."""
    BELOW = "below"
    """Below the log start: the master no longer knows."""


HashLookup = Callable[[Node, int], bytes | None]
"""The chain hash at an index below a place, along the path to it; None when it is not known."""


class StreamPosition(NamedTuple):
    """``node``: the last archived place that is on the log of the master; None when every place is below its log start,
    or off its log. ``left``: the head of the path that the log leaves there; None when it leaves none. ``is_known``:
    False for a place above the stable index of the master."""

    node: Node | None
    left: Node | None = None
    is_known: bool = True


def compare_place(master: MasterClient, node: Node) -> Standing:
    """One request without entries."""
    try:
        master.log_page(node.index, node.hash, upto=node.index, keys=True, effect_names=True)
    except LogDiverged:
        return Standing.OFF
    except LogAhead:
        return Standing.ABOVE
    except LogNeedsRestore:
        return Standing.BELOW
    return Standing.ON


def read_stable(master: MasterClient) -> Node:
    """The stable place of a master."""
    stable = master.status().stable
    return Node(stable.index, bytes.fromhex(stable.hash))


def read_hash(master: MasterClient, index: int) -> bytes:
    """The chain hash at the log start of a master, or after it."""
    return master.log_page(index, upto=index, keys=True, effect_names=True).after.hash


def find_first_place(masters: Sequence[MasterClient], cluster: bytes, log: EventLog) -> Node:
    """The lowest log start of the masters: where a stream begins. ``Unavailable`` (``NoMaster``) when none tells."""
    found: list[Node] = []
    for master in masters:
        try:
            status = master.status()
            if not status.view.number:
                continue  # it learns the log of the others, which may begin later than at its first entry
            index = int((status.trim or {}).get("keptFrom", 0))
            at = Node(index, read_hash(master, index) if index else chain_start(cluster))
        except TxLogError as error:
            log.warning("MasterNotAsked", master=master.url, error=str(error))
            continue
        found.append(at)
    if not found:
        raise Unavailable("NoMaster", "no master says where its log begins")
    return min(found)


def verified_places(archive: Mapping[str, Any] | None, data_center: str) -> list[Node]:
    """The verified place of this data centre's stream, as the status of a master has it."""
    streams = (archive or {}).get("streams", ())
    found = [each.get("verified") for each in streams if each.get("dataCenter") == data_center]
    return [Node(int(each["index"]), bytes.fromhex(each["hash"])) for each in found if each]


def find_position(master: MasterClient, paths: StreamPaths, hash_at: HashLookup) -> StreamPosition:
    """The highest place of all paths that is on the master's log, by binary search along each path."""
    found = [_follow_path(master, paths.nodes_to(head), hash_at) for head in paths.heads]
    return max(found, key=_certainty)


def _certainty(found: StreamPosition) -> tuple[bool, bool, Node]:
    is_any = found.node is not None
    return is_any and found.is_known, is_any, found.node or Node(0, b"")


def _follow_path(master: MasterClient, nodes: list[Node], hash_at: HashLookup) -> StreamPosition:
    """Along a path the places are below the log start, then on the log, then off it, then above the stable index."""
    head = nodes[-1]
    low, high = -1, len(nodes) - 1
    standing, lowest = compare_place(master, head), Standing.BELOW
    if standing is Standing.ON:
        return StreamPosition(head)
    if standing is Standing.BELOW:
        return StreamPosition(None)
    while high - low > 1:
        middle = (low + high) // 2
        found = compare_place(master, nodes[middle])
        if found in (Standing.ON, Standing.BELOW):
            low, lowest = middle, found
        else:
            high, standing = middle, found
    if standing is Standing.ABOVE:
        # The log ends inside a file: whether it is that of the path, only its own end can tell.
        stable = read_stable(master)
        expected = hash_at(head, stable.index)
        if expected is None or expected == stable.hash:
            return StreamPosition(head, is_known=expected is not None)
    return StreamPosition(None if lowest is Standing.BELOW else nodes[low], head)
