"""Changes of the configuration as one master makes and follows them (rule 20). They are made one at a time and are in
effect once stable. A master leaves the cluster only when everything that it accepted is persisted elsewhere.
"""

from __future__ import annotations

from typing import Final

from txlog.model.configuration import (
    CHANGE_CHARACTERS_MAX,
    LEAVING,
    MUTED,
    Configuration,
    ConfigurationChange,
    decode_configuration_change,
    encode_configuration_change,
)
from txlog.model.entry import KIND_CONFIG
from txlog.model.errors import BadInput, ChangePending, Conflict, Fatal, PeerFault, Refused, Unavailable
from txlog.model.hashes import content_hash
from txlog.model.ids import Origin, Txid
from txlog.protocol.events import Submission
from txlog.protocol.local_master import LocalMaster
from txlog.protocol.views.view_state import ViewState
from txlog.wire.messages import HelloReply

REMOVED: Final = "removed"
"""The role of a master that the configuration no longer lists; no listed master has it."""
_REMOVED_ERROR: Final = Unavailable("Removed", "this master is taken out of the cluster; ask another one")


def change_submission(view: tuple[int, int, str], after: int, configuration: Configuration, why: str) -> Submission:
    """A configuration change as a transaction. ``why`` is its payload, for people to read."""
    key, payload = encode_configuration_change(ConfigurationChange(view, after, configuration)), why.encode()
    return Submission(KIND_CONFIG, key, payload, content_hash(KIND_CONFIG, key, payload))


def _remaining(configuration: Configuration) -> list[str]:
    return [m.node for m in configuration.masters if m.role != LEAVING]


class ConfigurationChanges:
    """Decides which changes are allowed now, and which peers this master accepts messages from."""

    def __init__(self, local: LocalMaster, views: ViewState) -> None:
        self.local = local
        self.views = views

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force where this master's log is stable; None before the cluster is bootstrapped."""
        agreement = self.views.log_state
        if agreement is None or self.views.accepted is None or self.views.accepted.bootstrap_configuration is None:
            return None
        return agreement.configurations.at_index(agreement.stable).configuration

    @property
    def pending_change(self) -> Txid | None:
        """A change that waits for its index, or whose index is not stable yet."""
        agreement = self.views.log_state
        if agreement is None:
            return None
        for txid in agreement.configurations.held:
            queue = agreement.by_origin.get(txid.origin)
            if queue is None or txid.origin not in agreement.slots or txid.seq > max(queue.limit, queue.in_log):
                continue  # of another branch
            if txid.seq > queue.in_log or agreement.log_index.index_of(txid.origin, txid.seq) > agreement.stable:
                return txid
        return None

    def prepare_change(self, wanted: Configuration, why: str) -> Submission:
        """The submission that makes ``wanted`` follow the configuration in force. :class:`BadInput` when ``wanted`` is
        not valid, :class:`ChangePending`, or :class:`Conflict` where there is no configuration to change yet."""
        now = self.configuration
        if now is None:
            raise Conflict("the cluster is not founded with a configuration in its log: nothing can be changed yet")
        problem = wanted.validation_error()
        if problem:
            raise BadInput(problem)
        return change_submission(self.views.number, now.version, wanted, why)

    def change_error(self, one: Submission, another: bool) -> Refused | None:
        """Why this change is refused: one at a time (rule 20). ``another``: another change precedes it in the batch."""
        if self._role == REMOVED:
            return _REMOVED_ERROR  # no other master would receive it
        now, change = self.configuration, decode_configuration_change(one.key)
        if now is None or change is None or len(one.key) > CHANGE_CHARACTERS_MAX:
            return Conflict("this is no change of the configuration in force")
        pending = self.pending_change
        if another:
            return ChangePending("another change came with it; one at a time")
        if pending is not None:
            return ChangePending(f"{pending} changes the configuration and is not in effect yet; one at a time")
        if change.base_version != now.version:
            return ChangePending(f"it follows version {change.base_version}, in force is {now.version}: look again")
        few = self._majority_loss_error(now, change.configuration)
        if few is not None:
            return few
        cut_off = self._stranded_master(change.configuration)
        if cut_off:
            return Conflict(
                f"{cut_off} is out of the view, and may know none of the masters that would be left: it could not come "
                "back. Wait until it is in, or take it out, too"
            )
        return None

    def _majority_loss_error(self, now: Configuration, wanted: Configuration) -> Refused | None:
        """Where ``Majority`` binds, the present masters have to be able to change the view while the change is pending.
        So do the members of the view after it. A master that is out may come back without the log, and then votes for
        nothing."""
        view = self.views.accepted
        assert view is not None
        if not (self.views.majority_required or now.majority):
            return None
        if not self.views.is_active:  # the members of the next one are not known yet
            return ChangePending("the view is changing; ask again when the next one is there")
        if not wanted.has_majority(m.node for m in now.masters):
            return ChangePending(  # who is new is in no view
                "the new masters would have half of all votes or more while splitMode: Majority binds; "
                "ask again when the view is under Continue"
            )
        here = [m.node for m in view.members]
        if now.has_majority(here) and not wanted.has_majority(here):
            return Conflict(
                f"{', '.join(here)} are in the view, and would have half of all votes or less while splitMode: "
                "Majority binds. Wait until the others are in, or take them out first"
            )
        return None

    def _stranded_master(self, wanted: Configuration) -> str:
        """A master that is out while others are removed, and that may know none of the masters that stay; "" for none.
        It knows the masters that were configured at the log start."""
        agreement, view = self.views.log_state, self.views.accepted
        assert agreement is not None
        assert view is not None
        now = agreement.configurations.latest
        if {*_remaining(now)} <= {*_remaining(wanted)}:
            return ""
        early = {m.node for m in agreement.configurations.entries[0].configuration.masters}
        for node in _remaining(wanted):
            if view.member(node) is None and not (early & {*_remaining(wanted)}) - {node}:
                return node
        return ""

    def write_error(self) -> Refused | None:
        """Whether the configuration at the end of this master's log refuses it client writes."""
        if self._role in (LEAVING, REMOVED):
            return _REMOVED_ERROR
        if self._role == MUTED:
            return Unavailable("Muted", "this master takes no writes (txlog peer unmute); ask another one")
        return None

    @property
    def _role(self) -> str:
        """The role of this master at the end of its log; "" where no founding record defines one."""
        assert self.views.log_state is not None
        last = self.views.log_state.configurations.latest
        mine = last.master(self.local.node)
        if not last.masters:
            return ""
        return REMOVED if mine is None else mine.role

    # Accepted peers

    def check_listed(self, peer: str) -> None:
        """:class:`PeerFault` for unknown and removed masters, once there is a log to know them by."""
        views = self.views
        if self.configuration is None or views.is_configured(peer):
            return
        assert views.accepted is not None
        if views.accepted.member(peer) is not None:
            return  # it is on its way out
        raise self._unlisted_fault(peer)

    def _unlisted_fault(self, peer: str) -> PeerFault:
        now = self.configuration
        if now is not None and peer in now.removed:
            return PeerFault(peer, "Removed", "it was taken out of this cluster for good")
        return PeerFault(peer, "NotListed", "it is no master of this cluster; see txlog peer add")

    def _is_no_longer_needed(self, known: HelloReply) -> bool:
        """Whether this master's own log has removed it, and the others have persisted everything that it has. Then it
        has no reason to rejoin, though it was alone for a while."""
        now, agreement = self.configuration, self.views.log_state
        if now is None or agreement is None or known.accepted is None or self.local.node not in now.removed:
            return False
        held = dict(zip([Origin(*one) for one in known.accepted.origins], known.held, strict=False))
        return held.get(agreement.own.origin, 0) >= agreement.last_own_seq

    def check_removed(self, known: HelloReply) -> None:
        """:class:`Fatal` when a log that descends from this one has removed this master."""
        mine, theirs, configuration = self.views.accepted, known.accepted, known.configuration
        if (
            mine is None
            or theirs is None
            or configuration is None
            or not known.installed
            or theirs.has_member(self.views.origin)
        ):
            return
        if self.local.node in configuration.removed and (
            theirs.is_or_descends_from(mine.number) or self._is_no_longer_needed(known)
        ):
            raise Fatal("Removed", f"{known.node} says that {self.local.node} was taken out of the cluster for good")
