"""Repositories as objects of a cluster: they are listed, created and removed, through TxLog's own paths and RDF4J's.

A request writes an entry of the system log, and is answered when that is stable, with what counts. So any master may
be asked, and two requests for one name at two masters give one repository.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from txlog.auth import ALL_RIGHTS, Rights, Role, Scope
from txlog.auth.authenticator import Authenticator, list_rights
from txlog.config.process_config import NodeConfig
from txlog.config.units import parse_duration
from txlog.http.route_table import UNKNOWN_REPOSITORY, authorization_header
from txlog.http.router import Request, Response, Route, json_response, read_body, seconds_parameter
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, NotFound, OneRepository, RepositoryRefused, TxLogError, Unavailable
from txlog.model.view import STRATEGIES
from txlog.runtime.worker_state import RegisteredWorker
from txlog.server.admin.configuration import MODES, RETENTION_MS_MIN
from txlog.server.frontdoor.repositories import BODY_BYTES_MAX, refuse_deletion_with_query
from txlog.server.frontdoor.repository_config import parse_repository_config
from txlog.server.further_logs import FurtherLogs
from txlog.server.log_service import LogService
from txlog.server.system_log import SystemLog
from txlog.system.catalogue import (
    BY_REQUEST,
    FIRST_LOG,
    BeginRemoval,
    CatalogueRefusal,
    CreateRepository,
    RepositoryRecord,
    RepositorySettings,
    RepositoryState,
    WantRepository,
)

LIST_PATH: Final = "/txlog/repositories"
WAIT_S_MAX: Final = 60.0
_EXPECTED: Final = '{"splitRecovery": "Smart", "splitMode": "Continue", "keyRetention": "24h"}, each optional'
_MESSAGES: Final = {
    CatalogueRefusal.BAD_NAME: "1 to 63 letters, digits, - and _, with a letter or digit at both ends, not `system`",
    CatalogueRefusal.TOO_MANY: "this cluster has as many repositories as its masters serve; remove one first",
    CatalogueRefusal.REMOVING: "it is being removed; ask again when it is gone",
    CatalogueRefusal.FIRST_REPOSITORY: "the first repository is not removed; DELETE its /statements to empty it",
    CatalogueRefusal.NAMED_BY_MANIFEST: "a manifest names it; take it out there first",
}


class RepositorySettingsRequest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The settings of a new log; None: those of the first one. ``wanted_by``, ``unwanted_by``: the data centre whose
    manifest lists the repository, or lists it no more."""

    split_recovery: str | None = None
    split_mode: str | None = None
    key_retention: str | None = None
    wanted_by: str | None = None
    unwanted_by: str | None = None


class RepositoryHost(Protocol):
    """The process with its logs."""

    config: NodeConfig
    logs: dict[int, LogService]

    @property
    def first(self) -> LogService: ...


class RepositoryRequests:
    """``/txlog/repositories``, and ``PUT`` and ``DELETE`` of RDF4J's ``/repositories/{id}``. ``guard``: asked once more
    where a path needs a higher role for what it does."""

    def __init__(self, host: RepositoryHost, further: FurtherLogs, guard: Authenticator | None) -> None:
        self._host = host
        self._further = further
        self._guard = guard

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", LIST_PATH, self.list_all),
            Route("GET", f"{LIST_PATH}/{{name}}", self.get),
            Route("PUT", f"{LIST_PATH}/{{name}}", self.create),
            Route("DELETE", f"{LIST_PATH}/{{name}}", self.remove),
        ]

    # The list

    async def list_all(self, request: Request, _: Mapping[str, str]) -> Response:
        """See :meth:`describe`."""
        return json_response(self.describe(await list_rights(self._guard, authorization_header(request))))

    async def get(self, request: Request, names: Mapping[str, str]) -> Response:
        """One repository of the list."""
        if self._guard is not None:
            await self._guard.authorize(authorization_header(request), Role.READER, names["name"])
        for one in self.describe()["repositories"]:
            if one["name"] == names["name"]:
                return json_response(one)
        raise _unknown(names["name"])

    def names(self) -> list[str]:
        """Every repository. Until the system log is read, those of which this master has a log."""
        system = self._further.system
        if system is not None and system.catalogue is not None:
            return [record.name for record in system.catalogue.kept()]
        return list(dict.fromkeys([self._host.first.repository, *self._further.known_names()]))

    def describe(self, rights: Rights = ALL_RIGHTS) -> dict[str, Any]:
        """``{"operational", "behind", "nextLog", "repositories": [{"name", "log", "clusterId", "state", "stable",
        "applied", "workers": {"working", "of"}, "wantedBy", "failed"}]}``. ``operational``: whether each group of
        workers of this data centre has a working one. ``rights``: whose list it is. ``behind``: this master's system
        log may lack entries.
        ``nextLog``: the number of the next log; a lower one that is not listed is removed for good. 0: this master has
        not read the system log, or the list may lack repositories that its client may not see."""
        system = self._further.system
        catalogue = system.catalogue if system is not None else None
        found = [self._describe(record) for record in catalogue.kept()] if catalogue is not None else []
        if not found:
            found = [self._describe_log(FIRST_LOG, self._host.first.repository, [], None)]
        found = [one for one in found if rights.allow(Role.READER, one["name"])]
        groups = [one["workers"] for one in found if one["workers"]["of"]]
        working = [group for group in groups if group["working"]]
        operational = "full" if len(working) == len(groups) else "partial" if working else "none"
        behind = SYSTEM_LOG in self._further.failed or (system is not None and not system.is_at_work)
        is_whole = rights.allow(Role.READER, Scope.CLUSTER)
        next_log = catalogue.next_number if catalogue is not None and is_whole else 0
        return {"operational": operational, "behind": behind, "nextLog": next_log, "repositories": found}

    def _describe(self, record: RepositoryRecord) -> dict[str, Any]:
        wanted_by = sorted(name or "request" for name in record.wanted_by)
        found = self._describe_log(record.number, record.name, wanted_by, self._further.reason(record.number))
        if record.state is not RepositoryState.FOUNDED:
            found["state"] = record.state.value
        return found

    def _describe_now(self, record: RepositoryRecord) -> dict[str, Any]:
        """The repository as the catalogue has it by now."""
        system = self._further.system
        assert system is not None, "a repository was created by it"
        return self._describe(_record(system, record.number))

    def _describe_log(self, number: int, name: str, wanted_by: list[str], failed: str | None) -> dict[str, Any]:
        service = self._host.logs.get(number)
        found: dict[str, Any] = {
            "name": name,
            "log": number,
            "clusterId": "",
            "state": "Failed" if failed else "Starting",
            "stable": 0,
            "applied": 0,
            "workers": {"working": 0, "of": 0},
            "wantedBy": wanted_by,
            "failed": {self._host.config.node: failed} if failed else {},
        }
        if service is not None:
            durability = service.loop.durability
            found["clusterId"], found["state"] = service.loop.status.cluster_id, service.context.state
            found["stable"], found["applied"] = durability.stable.value, durability.applied.value
            group = service.registry.workers.values()
            working = sum(_is_working(worker, found["stable"]) for worker in group)
            found["workers"] = {"working": working, "of": len(group)}
        return found

    # Creation

    async def create(self, request: Request, names: Mapping[str, str]) -> Response:
        """Creates a repository: 201, 202 when it is not open here in time, or its request is not in the log yet. 200
        where it exists, and the request is about the manifest of a data centre."""
        asked = _parse_request(await read_body(request, BODY_BYTES_MAX))
        settings, by = self._parse_settings(asked), self._parse_manifest(asked)
        deadline = self._deadline(request)
        if by != BY_REQUEST and (known := await self._change_want(names["name"], asked, deadline)) is not None:
            return json_response(self._describe_now(known), 200)
        record = await self._create(names["name"], settings, deadline, by)
        is_open = await self._wait_until_open(record, deadline)
        location = {"Location": f"{LIST_PATH}/{record.name}"}
        return json_response(self._describe_now(record), 201 if is_open else 202, location)

    async def create_by_client(self, request: Request, names: Mapping[str, str]) -> Response:
        """RDF4J's ``PUT`` of a repository that does not exist: 204, 202 when it is not open here in time."""
        body, name = await read_body(request, BODY_BYTES_MAX), names[UNKNOWN_REPOSITORY]
        if self._guard is not None:
            await self._guard.authorize(authorization_header(request), Role.ADMIN, Scope.CLUSTER)
        further = self._host.config.repositories
        if further is None or further.create != "anybody":
            known = "this cluster has the repositories that its manifests name"
            raise OneRepository(f"{known}; {name[:80]} cannot be made here", "", "RepositoriesByManifest")
        parse_repository_config(body, request.headers.get("Content-Type", ""), name)
        deadline = self._deadline(request)
        settings = self._parse_settings(RepositorySettingsRequest())
        record = await self._create(name, settings, deadline, BY_REQUEST)
        if await self._wait_until_open(record, deadline):
            return json_response(None, 204)
        return json_response(self._describe_now(record), 202, {"Location": f"{LIST_PATH}/{record.name}"})

    async def _create(self, name: str, settings: RepositorySettings, deadline: float, by: str) -> RepositoryRecord:
        """Writes ``create`` with the next number until one counts or another reason is given, then ``want``."""
        if name.lower() == self._host.first.repository.lower():
            raise _refusal(CatalogueRefusal.NAME_TAKEN, name)
        system = await self._further.found_system(deadline)
        while True:
            catalogue = system.catalogue
            assert catalogue is not None, "a system log at work has a catalogue"
            entry = CreateRepository(catalogue.next_number, name, settings)
            refusal: str | None = catalogue.find_refusal(entry) or await system.submit(entry, deadline)
            if not refusal:
                break
            if refusal != CatalogueRefusal.NUMBER_TAKEN:
                raise _refusal(refusal, name)
        with contextlib.suppress(Unavailable):  # the repository exists: its client is not asked to create it again
            await system.submit(WantRepository(name, by, True), deadline)
        return _record(system, entry.number)

    async def _change_want(
        self, name: str, asked: RepositorySettingsRequest, deadline: float
    ) -> RepositoryRecord | None:
        """Writes that a manifest lists the repository, or lists it no more. None where it is to be created first."""
        known = self._further.system
        record = known.catalogue.find(name) if known is not None and known.catalogue is not None else None
        if record is None:
            if asked.unwanted_by is not None:
                raise _unknown(name)
            return None
        by, is_wanted = asked.wanted_by or asked.unwanted_by or "", asked.wanted_by is not None
        system = await self._further.found_system(deadline)
        if (by in record.wanted_by) is not is_wanted:
            refusal = await system.submit(WantRepository(name, by, is_wanted), deadline)
            if refusal:
                raise _refusal(refusal, name)
        return _record(system, record.number)

    async def _wait_until_open(self, record: RepositoryRecord, deadline: float) -> bool:
        """Whether this master serves the log in time, and a worker here is at work, if this data centre has some."""
        system = self._further.system
        assert system is not None, "a repository was created by it"

        def is_open() -> bool:
            service = self._host.logs.get(record.number)
            if service is None or not service.context.is_ready or not _record(system, record.number).wanted_by:
                return False
            group = self._describe_log(record.number, record.name, [], None)["workers"]
            return not group["of"] or group["working"] > 0

        while not is_open():
            if time.monotonic() >= deadline or system.has_ended or record.number in self._further.failed:
                return False
            # A log that becomes ready is no event of the system log, and a worker reports at any time.
            await system.wait_until(is_open, min(deadline, time.monotonic() + 0.05))
        return True

    def _parse_manifest(self, asked: RepositorySettingsRequest) -> str:
        """The data centre whose manifest the request is about; :data:`BY_REQUEST` for one of a client."""
        if asked.wanted_by is not None and asked.unwanted_by is not None:
            raise BadInput("wantedBy and unwantedBy: one of both")
        by = asked.wanted_by if asked.wanted_by is not None else asked.unwanted_by
        if by is None:
            return BY_REQUEST
        known = dict.fromkeys(one.data_center for one in self._host.first.loop.status.configured_members)
        if by not in known:
            raise BadInput(f"data centre {by[:80]!r}: one of {', '.join(known)}")
        return by

    def _parse_settings(self, asked: RepositorySettingsRequest) -> RepositorySettings:
        config, status = self._host.config, self._host.first.loop.status
        recovery = asked.split_recovery or config.split_recovery
        mode = asked.split_mode or status.split_mode
        if recovery not in STRATEGIES:
            raise BadInput(f"splitRecovery {recovery[:20]!r}: one of {', '.join(STRATEGIES)}")
        if mode not in MODES:
            raise BadInput(f"splitMode {mode[:20]!r}: one of {', '.join(MODES)}")
        now = status.configuration
        retention_ms = now.key_retention_ms if now is not None else config.key_retention_ms
        if asked.key_retention is not None:
            try:
                retention_ms = parse_duration(asked.key_retention)
            except ValueError as wrong:
                raise BadInput(f"keyRetention: {wrong}") from None
        if retention_ms < RETENTION_MS_MIN:
            raise BadInput("keyRetention: a second at least")
        members = status.configured_members
        total = sum(one.weight for one in members)
        heavy = next((one.node for one in members if 2 * one.weight >= total), None)
        if mode == "Majority" and heavy is not None:
            raise BadInput(f"splitMode Majority, but {heavy} has at least half of all votes")
        return RepositorySettings(recovery, mode, retention_ms)

    # Removal

    async def remove(self, request: Request, names: Mapping[str, str]) -> Response:
        """Removes a repository: 204 when its name is free, 202 when it is not in time."""
        return await self._remove(names["name"], self._deadline(request))

    async def remove_by_client(self, name: str, request: Request) -> Response:
        """RDF4J's ``DELETE`` of this repository."""
        refuse_deletion_with_query(request)
        return await self._remove(name, self._deadline(request))

    async def _remove(self, name: str, deadline: float) -> Response:
        if name == self._host.first.repository:
            raise _refusal(CatalogueRefusal.FIRST_REPOSITORY, name)
        known = self._further.system
        if known is None or known.catalogue is None or known.catalogue.find(name) is None:
            raise _unknown(name)
        system = await self._further.found_system(deadline)
        record = known.catalogue.find(name)
        if record is None:
            raise _unknown(name)
        if record.state is not RepositoryState.REMOVING:
            refusal = await system.submit(BeginRemoval(record.number), deadline)
            if refusal and refusal != CatalogueRefusal.REMOVING:
                raise _refusal(refusal, name)
        is_gone = await system.wait_until(lambda: not _record(system, record.number).is_kept, deadline)
        return json_response(None, 204) if is_gone else json_response(self._describe_now(record), 202)

    def _deadline(self, request: Request) -> float:
        default = min(self._host.config.write_timeout_s, WAIT_S_MAX)
        return time.monotonic() + seconds_parameter(request.query.get("wait"), "wait", default, WAIT_S_MAX)


def _parse_request(body: bytes) -> RepositorySettingsRequest:
    try:
        return msgspec.json.decode(body or b"{}", type=RepositorySettingsRequest)
    except DECODE_ERRORS as wrong:
        raise BadInput(f"expected {_EXPECTED}: {wrong}") from None


def _record(system: SystemLog, number: int) -> RepositoryRecord:
    catalogue = system.catalogue
    assert catalogue is not None, "it had this record"
    return catalogue.records[number]


def _is_working(worker: RegisteredWorker, stable: int) -> bool:
    """Whether a worker executes its log. One of an empty log has no position: the first transaction gives it one."""
    is_at_start = stable == 0 and worker.error is None
    return worker.state == "Working" and (worker.position is not None or is_at_start)


def _unknown(name: str) -> NotFound:
    return NotFound(f"unknown repository {name[:80]}")


def _refusal(refusal: str, name: str) -> TxLogError:
    """The error for a client whose entry changed nothing, or would change nothing."""
    if refusal == CatalogueRefusal.UNKNOWN:
        return _unknown(name)
    if refusal == CatalogueRefusal.NAME_TAKEN:
        text = f"REPOSITORY EXISTS: repository already exists: {name[:80]}, or one that differs by case"
        return RepositoryRefused("RepositoryExists", text)
    text = f"repository {name[:80]}: {_MESSAGES.get(CatalogueRefusal(refusal), refusal)}"
    return BadInput(text) if refusal == CatalogueRefusal.BAD_NAME else RepositoryRefused(refusal, text)
