"""The hello of a master and the reply to it: its own position, and its knowledge of the peer (rules 1, 2)."""

from __future__ import annotations

from typing import Final

from txlog.model.configuration import Configuration
from txlog.model.errors import PeerFault
from txlog.model.view import NO_VIEW
from txlog.protocol.events import ClockReading
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.membership.bootstrap import ClusterBootstrap
from txlog.protocol.membership.configuration_changes import ConfigurationChanges
from txlog.protocol.outbox import Outbox
from txlog.protocol.replication.peer_progress import PeerProgress
from txlog.protocol.views.view_state import FOREVER_MS, ViewState
from txlog.wire.messages import Hello, HelloReply, KnownIncarnation, LogTruncatedBelow
from txlog.wire.protocol_level import PROTOCOL_LEVEL

EARLY_HELLO_MS: Final = 20
"""Between two hellos of a master that catches up with others while they write, in milliseconds."""


class Handshake:
    """Sends this master's hello, which asks for a reply, and answers the hellos of others."""

    def __init__(
        self,
        local: LocalMaster,
        views: ViewState,
        bootstrap: ClusterBootstrap,
        changes: ConfigurationChanges,
        outbox: Outbox,
    ) -> None:
        self._local = local
        self._views = views
        self._bootstrap = bootstrap
        self._changes = changes
        self._outbox = outbox
        self._sent_ms = -FOREVER_MS

    def poll(self, complete: bool, lacks_newer_position: bool, now: ClockReading) -> int:
        """Send a hello to the others when it is due. ``complete``: all configured masters are in the view and present.
        ``lacks_newer_position``: this master has caught up with what the others reported, so it asks early. Then they
        see how little it lacks. Returns when the next one is due, in ``mono`` milliseconds."""
        settings, bootstrap = self._local.settings, self._bootstrap
        is_settled = bootstrap.is_finished and self._views.is_settled
        if is_settled and complete:
            return now.mono + settings.round_timeout_ms
        every = settings.idle_interval_ms if is_settled else settings.repeat_ms
        if lacks_newer_position:
            every = min(every, EARLY_HELLO_MS)
        if now.mono >= self._sent_ms + every:
            self._sent_ms = now.mono
            self._views.fetched_since_hello = 0
            hello = build_hello(self._views)
            for node in bootstrap.others:
                self._outbox.send(node, hello)
        return self._sent_ms + every

    def on_hello(self, peer: str, hello: Hello, peers: list[PeerProgress]) -> None:
        """Answer a hello. A master that is not listed here gets an answer too, so that it knows, and counts for
        nothing. ``peers``: the other members of this master's view."""
        if not hello.cluster:
            self._bootstrap.check_members(peer, hello.members)
        try:
            self._changes.check_listed(peer)
        except PeerFault:
            if hello.cluster:
                self._outbox.send(peer, build_hello_reply(hello, self._views, peers))
            raise
        self._local.clock.on_peer_clock(peer, hello.clock_ms)
        self._local.peer_levels.on_level(peer, hello.level)
        self._views.needs_check = True
        self._outbox.send(peer, build_hello_reply(hello, self._views, peers))
        log = self._views.log_state
        if log is not None and hello.view == NO_VIEW and hello.log_index < log.log_index.start:
            # The master may lack no payload and request nothing, and yet be below what was trimmed meanwhile.
            self._outbox.send(peer, LogTruncatedBelow(log.log_index.start, log.log_index.log_start_hash))
        self._views.on_hello(hello)


def build_hello(views: ViewState) -> Hello:
    """This master's position and view, as a hello."""
    agreement, known = views.log_state, views.failure_detector.known_connectivity()
    return Hello(
        views.local.node,
        views.local.birth,
        views.local.start,
        list(views.local.settings.members),
        views.accepted.cluster_id if views.accepted is not None and not views.bootstrap_unconfirmed else b"",
        views.number,
        [(o.node, o.birth, q.held) for o, q in sorted(agreement.by_origin.items())] if agreement is not None else [],
        views.is_stopped,
        views.failure_detector.live_peers(),
        views.backup_index,
        [(node, hears) for node, hears, _ in known],
        agreement.log_index.length if agreement is not None else 0,
        agreement.log_index.hash if agreement is not None else b"",
        [age_ms for _, _, age_ms in known],
        views.local.clock.wall_ms,
        PROTOCOL_LEVEL,
    )


def build_hello_reply(who: Hello, views: ViewState, peers: list[PeerProgress]) -> HelloReply:
    """What this master knows of the node id that asks, its question included, and this master's view."""
    agreement = views.log_state
    held = [q.held for q in agreement.queues] if agreement is not None and views.accepted is not None else []
    heard = {one.birth: one for one in _known_incarnations(who.node, views, peers)}
    before = heard.get(who.birth, KnownIncarnation(who.birth, 0, 0, 0))
    heard[who.birth] = KnownIncarnation(who.birth, max(before.start, who.start), before.seq, before.counter)
    return HelloReply(
        views.local.node,
        views.local.birth,
        views.local.start,
        list(views.local.settings.members),
        list(heard.values()),
        views.accepted,
        views.installed,
        held,
        _configuration(views),
        views.local.settings.strategy,
        views.local.clock.wall_ms,
        PROTOCOL_LEVEL,
        views.local.settings.keeps_literals,
    )


def _configuration(views: ViewState) -> Configuration | None:
    """The configuration in force here."""
    agreement, view = views.log_state, views.accepted
    if agreement is None or view is None or view.bootstrap_configuration is None:
        return None
    return agreement.configurations.at_index(agreement.stable).configuration


def _known_incarnations(node: str, views: ViewState, peers: list[PeerProgress]) -> list[KnownIncarnation]:
    """The incarnations known of the node. The stamps of its transactions do not bound its counter: a view that it has
    not accepted may have reassigned them. They may also have been fetched from there before this process began."""
    agreement = views.log_state
    if agreement is None:
        members = views.accepted.members if views.installed and views.accepted is not None else []
        return [KnownIncarnation(m.birth, 0, 0, 0) for m in members if m.node == node]
    claims = {p.origin: p.replica_state for p in peers}
    heard: list[KnownIncarnation] = []
    for queue in agreement.queues:
        if queue.origin.node == node:
            claim = claims.get(queue.origin)
            start, own_seq, counter = (claim.start, claim.own_seq, claim.counter) if claim else (0, 0, 0)
            heard.append(KnownIncarnation(queue.origin.birth, start, max(queue.held, own_seq), counter))
    return heard
