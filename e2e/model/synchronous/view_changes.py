"""View changes as messages that may be lost between any two steps, and the posts of rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from e2e.model.synchronous.anchors import AnchorRules
from e2e.model.synchronous.branches import BranchRules
from e2e.model.synchronous.clients import ModelClients
from e2e.model.synchronous.masters import ModelMaster, ModelPost, ViewProposal
from e2e.model.synchronous.network import (
    AcceptedMessage,
    AcceptMessage,
    InstallMessage,
    ModelMessage,
    ModelNetwork,
    PrepareMessage,
    ReportMessage,
)
from e2e.model.synchronous.readers import LogReaders
from e2e.model.synchronous.values import Mode


@dataclass(slots=True, eq=False)
class ViewChanges:
    """What masters do with messages. ``note``: called after a view is installed."""

    mode: Mode
    anchors: AnchorRules
    branches: BranchRules
    network: ModelNetwork
    readers: LogReaders
    clients: ModelClients
    masters: list[ModelMaster]
    note: Callable[[ModelMaster], None]

    def propose(self, master: ModelMaster, members: tuple[int, ...]) -> None:
        """Ask for reports."""
        number = (max(master.promised[0], master.highest_seen) + 1, master.number)
        master.proposal = ViewProposal(number, members)
        for each in members:
            self.network.send(master.number, each, PrepareMessage(number))

    def post(self, master: ModelMaster) -> None:
        """One post to each member."""
        if not master.is_active:
            return
        message = master.next_post()
        for each in master.view.members:
            if each != master.number:
                self.network.send(master.number, each, message)

    def receive(self, sender: int, receiver: int, message: ModelMessage) -> None:
        """One message arrives."""
        master = self.masters[receiver]
        if isinstance(message, PrepareMessage):
            self._prepare(sender, master, message)
        elif isinstance(message, ReportMessage):
            self._collect(master, message)
        elif isinstance(message, AcceptMessage):
            self._accept(sender, master, message)
        elif isinstance(message, AcceptedMessage):
            self._count_accepted(sender, master, message)
        elif isinstance(message, InstallMessage):
            if master.view.number == message.number == master.promised and not master.installed:
                self._install(master)
        else:
            self._take_post(sender, master, message)

    def _prepare(self, sender: int, master: ModelMaster, message: PrepareMessage) -> None:
        number = message.number
        master.highest_seen = max(master.highest_seen, number[0])
        if number < master.promised or number == master.promised == master.view.number:
            return
        if master.promised != number:
            if master.installed and master.is_on_chain(master.worker.index, master.worker.hash):
                self.readers.back_up(master)
            master.promised = number
        self.network.send(master.number, sender, ReportMessage(number, master.report()))

    def _collect(self, master: ModelMaster, message: ReportMessage) -> None:
        proposal = master.proposal
        if proposal is None or proposal.number != message.number or proposal.closed is not None:
            return
        proposal.reports[message.report.master] = message.report
        if set(proposal.reports) != set(proposal.members):
            return
        if all(report.is_learner for report in proposal.reports.values()):
            master.proposal = None
            return
        winner, closed, merged, by_decision = self.branches.close(proposal.reports, proposal.members)
        view = self.anchors.open_view(
            proposal.number, proposal.members, winner.view, proposal.reports, closed, self._is_late
        )
        if self.mode is Mode.MAJORITY and not view.quorate:
            master.proposal = None
            return
        self.clients.counts["rejoins"] += merged
        self.clients.counts["rejoins won by a decision"] += by_decision
        assert view.anchor is not None
        self.clients.counts["doomed"] += len(view.anchor.doomed) if view.quorate else 0
        proposal.closed = view, closed
        for each in proposal.members:
            self.network.send(master.number, each, AcceptMessage(view, closed, master.start))
        before = winner.view.anchor
        if view.quorate and before is not None and before.electorate != view.anchor.electorate:
            self.clients.counts["electorates changed"] += 1
            if not self.network.is_whole and self.network.chance.random() < 0.5:
                self.network.part_by_weight(master.number, view.members, view.anchor.electorate)

    def _is_late(self, txid: str) -> bool:
        return self.clients.now >= self.clients.due[txid]

    def _accept(self, sender: int, master: ModelMaster, message: AcceptMessage) -> None:
        view = message.view
        if view.number != master.promised or view.number <= master.view.number:
            return
        master.accept(view, message.closed, message.start)
        self.persist_all(master)
        self.network.send(master.number, sender, AcceptedMessage(view.number))

    def _count_accepted(self, sender: int, master: ModelMaster, message: AcceptedMessage) -> None:
        proposal = master.proposal
        if proposal is None or proposal.number != message.number:
            return
        proposal.accepted.add(sender)
        if proposal.accepted == set(proposal.members):
            for each in proposal.members:
                self.network.send(master.number, each, InstallMessage(message.number))

    def _install(self, master: ModelMaster) -> None:
        master.installed = True
        master.stable = master.base_length
        self.clients.counts["views installed"] += 1
        self.clients.assertions.install(master.view)
        worker = master.worker
        if not master.is_on_chain(worker.index, worker.hash):
            self.readers.restore(master, master)
        self.note(master)

    def _take_post(self, sender: int, master: ModelMaster, post: ModelPost) -> None:
        if post.view != master.view.number:
            return
        if not master.installed and master.promised == post.view:
            self._install(master)
        newest = (post.boots, post.number)
        if not master.is_active or newest <= master.last_posts.get(sender, (0, 0)):
            return
        master.last_posts[sender] = newest
        for entry in post.queue:
            if not master.has(entry.txid):
                master.queue[entry.txid] = entry
                self.clients.assertions.persisted(master.number, entry.txid)
            master.counter = max(master.counter, entry.stamp)
        master.pending.append((sender, post))
        self._fetch_log(self.masters[sender], master, post.length)

    def _fetch_log(self, source: ModelMaster, master: ModelMaster, length: int) -> None:
        """The log of a member of the same view that is ahead; the request or its answer may be lost."""
        own = len(master.log)
        if self.network.loses():
            return
        if (
            length > own
            and source.view is master.view
            and source.installed
            and not source.down
            and source.log[:own] == master.log
        ):
            for entry in source.log[own:length]:
                master.append(entry)
            self.persist_all(master, own)

    def persist_all(self, master: ModelMaster, begin: int = 0) -> None:
        """What is in the log from an index on, and in the queue, is on the master's disk."""
        for entry in master.log[begin:]:
            self.clients.assertions.persisted(master.number, entry.txid)
        for txid in master.queue:
            self.clients.assertions.persisted(master.number, txid)
