"""What a master says of itself, and what it has heard of another, when one of them looks around (rules 1, 2)."""

from __future__ import annotations

from txlog.model.configuration import Configuration
from txlog.protocol.peers import Peer
from txlog.protocol.views import Views
from txlog.wire.messages import Hello, HelloReply, KnownIncarnation


def who_now(views: Views) -> Hello:
    """Where this master is."""
    agreement, told = views.agreement, views.around.told()
    return Hello(
        views.settings.node,
        views.birth,
        views.start,
        list(views.settings.members),
        views.accepted.cluster_id if views.accepted is not None and not views.unfounded else b"",
        views.number,
        [(o.node, o.birth, q.held) for o, q in sorted(agreement.by_origin.items())] if agreement is not None else [],
        views.stopped,
        views.around.heard_itself(),
        views.backup_at,
        [(node, hears) for node, hears, _ in told],
        agreement.history.length if agreement is not None else 0,
        agreement.history.hash if agreement is not None else b"",
        [age_ms for _, _, age_ms in told],
    )


def known_to(who: Hello, views: Views, peers: list[Peer]) -> HelloReply:
    """What has been heard of the node id that asks, its question included, and where this master is."""
    agreement = views.agreement
    held = [q.held for q in agreement.queues] if agreement is not None and views.accepted is not None else []
    heard = {one.birth: one for one in _heard_of(who.node, views, peers)}
    before = heard.get(who.birth, KnownIncarnation(who.birth, 0, 0, 0))
    heard[who.birth] = KnownIncarnation(who.birth, max(before.start, who.start), before.seq, before.counter)
    return HelloReply(
        views.settings.node,
        views.birth,
        views.start,
        list(views.settings.members),
        list(heard.values()),
        views.accepted,
        views.installed,
        held,
        _configuration(views),
        views.settings.strategy,
    )


def _configuration(views: Views) -> Configuration | None:
    """What is in force here."""
    agreement, view = views.agreement, views.accepted
    if agreement is None or view is None or view.founding is None:
        return None
    return agreement.configurations.place(agreement.stable).configuration


def _heard_of(node: str, views: Views, peers: list[Peer]) -> list[KnownIncarnation]:
    """The stamps of its transactions say nothing of its counter: a view that it has not accepted may have given them
    others, and they may have been fetched from there, before this process began, too."""
    agreement = views.agreement
    if agreement is None:
        members = views.accepted.members if views.installed and views.accepted is not None else []
        return [KnownIncarnation(m.birth, 0, 0, 0) for m in members if m.node == node]
    claims = {p.origin: p.claim for p in peers}
    heard: list[KnownIncarnation] = []
    for queue in agreement.queues:
        if queue.origin.node == node:
            claim = claims.get(queue.origin)
            start, own_seq, counter = (claim.start, claim.own_seq, claim.counter) if claim else (0, 0, 0)
            heard.append(KnownIncarnation(queue.origin.birth, start, max(queue.held, own_seq), counter))
    return heard
