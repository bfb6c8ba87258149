"""Safeguards of repositories that manifests name, one each taken out. Imports nothing of ``txlog``.

The simulator has no supervisor and no pipeline, so that tests kill them.
"""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_SPECS = "txlog/config/repository_specs.py"
_PLAN = "txlog/local/repository_plan.py"
_WANT = "txlog/local/repository_want.py"
_WANTS = "txlog/local/repository_wants.py"
_BELLS = "txlog/pipeline/repository_bells.py"
_CONFIGS = "txlog/pipeline/repository_configs.py"
_LANES = "txlog/pipeline/worker_lanes.py"
_REQUESTS = "txlog/server/repository_requests.py"
_SPECS_TEST = "node/tests/config/test_repository_specs.py"
_PLAN_TEST = "node/tests/local/test_repository_plan.py"
_WANTS_TEST = "node/tests/local/test_repository_wants.py"
_BELLS_TEST = "node/tests/pipeline/test_repository_bells.py"
_SERVER_TEST = "node/tests/server/test_wanted_repositories.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"repositories-{name}", "R25", False, (SourceEdit(file, old, new),), test=test)


_RIGHTS = "txlog/auth/rights.py"
_TABLE = "txlog/http/route_table.py"
_DIRECTORY = "txlog/server/repository_directory.py"
_FURTHER = "txlog/server/further_logs.py"
_SCHEDULES = "txlog/local/scheduled_backups.py"
_RIGHTS_TEST = "node/tests/access/test_rights.py"
_DOOR_TEST = "node/tests/server/test_repository_rights.py"
_ENDS_TEST = "node/tests/server/test_repository_ends.py"
_SCHEDULES_TEST = (
    "node/tests/local/test_scheduled_backups.py::test_backups_of_a_repository_end_with_it_and_one_runs_at_a_time"
)

RIGHTS_AND_BACKUPS: tuple[Mutant, ...] = (
    _mutant(
        "a-role-for-one-is-for-all",
        _RIGHTS,
        "have >= role and about in (Scope.ANY_REPOSITORY, name) for name",
        "have >= role for name",
        _RIGHTS_TEST,
    ),
    _mutant(
        "a-role-for-one-is-for-the-cluster",
        _RIGHTS,
        "return about is not Scope.CLUSTER and any(",
        "return any(about is Scope.CLUSTER for _ in self.by_repository) or any(",
        _RIGHTS_TEST,
    ),
    _mutant(
        "roles-without-the-preview", _RIGHTS, "        if not by_repository:\n", "        if False:\n", _RIGHTS_TEST
    ),
    _mutant(
        "an-administrator-of-one-is-one-of-all",
        "txlog/auth/route_roles.py",
        "is Role.ADMIN and key not in _ADMIN_OF_ONE_ROUTES",
        "is Role.ADMIN and False",
        _RIGHTS_TEST,
    ),
    _mutant(
        "the-fast-path-asks-about-no-repository",
        "txlog/auth/authenticator.py",
        "return user is not None and user.rights.allow(role, repository)",
        "return user is not None and user.rights.allow(role, Scope.ANY_REPOSITORY)",
        f"{_DOOR_TEST}::test_the_fast_path_asks_about_the_repository",
    ),
    _mutant(
        "an-unknown-name-is-about-the-cluster",
        _TABLE,
        "named = names.get(UNKNOWN_REPOSITORY) if repository is None else repository",
        "named = repository",
        f"{_DOOR_TEST}::test_rights_are_by_name_and_outlive_the_repository",
    ),
    _mutant(
        "paths-without-a-name-are-about-the-cluster",
        _DIRECTORY,
        "*with_roles(bare, self._guard, name)",
        "*with_roles(bare, self._guard)",
        f"{_DOOR_TEST}::test_paths_without_a_name_are_about_the_first_repository",
    ),
    _mutant(
        "a-list-shows-what-one-may-not-read",
        "txlog/server/frontdoor/repository_list.py",
        "            if rights.allow(Role.READER, name)\n        ]",
        "            if True\n        ]",
        f"{_DOOR_TEST}::test_lists_show_what_a_user_may_read",
    ),
    _mutant(
        "a-list-with-gaps-proves-a-removal",
        _REQUESTS,
        "catalogue.next_number if catalogue is not None and is_whole else 0",
        "catalogue.next_number if catalogue is not None else 0",
        f"{_DOOR_TEST}::test_lists_show_what_a_user_may_read",
    ),
    _mutant(
        "backups-of-all-repositories-in-one-folder",
        "txlog/backup/target.py",
        'self._folder = f"{REPOSITORIES_FOLDER}/{repository}"',
        "self._folder = REPOSITORIES_FOLDER",
        "node/tests/backup/test_nested_targets.py::test_the_same_names_are_apart",
    ),
    _mutant(
        "backups-of-a-removed-repository",
        _SCHEDULES,
        'return "." in group and group not in',
        "return not group and group not in",
        _SCHEDULES_TEST,
    ),
    _mutant("backups-at-once", _SCHEDULES, "    return data_center + dot\n", "    return group\n", _SCHEDULES_TEST),
    _mutant(
        "a-full-disk-ends-a-log",
        _FURTHER,
        "            if is_disk_full(wrong):\n",
        "            if False:\n",
        f"{_ENDS_TEST}::test_a_repository_is_created_when_the_disk_has_room_again",
    ),
    _mutant(
        "a-late-fault-closes-another-log",
        _FURTHER,
        "        if record is None or record.number == number:\n",
        "        if True:\n",
        f"{_ENDS_TEST}::test_a_late_fault_of_a_removed_log_does_not_close_the_one_with_its_name",
    ),
    _mutant(
        "a-removed-log-that-is-not-open-is-not-exported",
        _FURTHER,
        "            return await self._export_closed(record)\n",
        "            return None\n",
        f"{_ENDS_TEST}::test_what_a_removed_log_lacks_is_exported_after_a_restart",
    ),
    _mutant(
        "a-name-that-is-being-removed-is-taken",
        "txlog/system/catalogue.py",
        "return CatalogueRefusal.REMOVING if is_ending else",
        "return CatalogueRefusal.NAME_TAKEN if is_ending else",
        "node/tests/system/test_repository_catalogue.py",
    ),
    _mutant(
        "an-unreachable-worker-promises-reads",
        "txlog/server/frontdoor/repositories.py",
        'one.worker.state != "Unreachable" for one in',
        "bool(one) for one in",
        "node/tests/server/test_repository_without_workers.py::"
        "test_a_repository_without_workers_is_named_while_the_others_go_on",
    ),
    _mutant(
        "no-configuration-in-binary-rdf",
        "txlog/server/frontdoor/repository_config.py",
        "    BINARY: read_rdf,",
        "    # BINARY: read_rdf,",
        "node/tests/server/test_repository_config.py",
    ),
)

REPOSITORY_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "without-the-preview",
        _SPECS,
        "    if not is_preview_on(REPOSITORIES_PREVIEW):\n",
        "    if False:\n",
        _SPECS_TEST,
    ),
    _mutant("labels-of-two-are-one", _SPECS, "        if label in known:\n", "        if False:\n", _SPECS_TEST),
    _mutant(
        "dropped-stores-end",
        _PLAN,
        "if each.key not in named and each.data_center in here",
        "if False",
        _PLAN_TEST,
    ),
    _mutant(
        "masters-forget-the-system-log",
        _PLAN,
        "    if not records.was_used:\n",
        "    if not records.repositories:\n",
        _PLAN_TEST,
    ),
    _mutant(
        "removed-as-a-young-master-says",
        _WANT,
        "    if record.number >= listed.next_log:\n",
        "    if False:\n",
        _WANTS_TEST,
    ),
    _mutant(
        "manifest-makes-a-removed-one-again",
        _WANT,
        "    if record.number == 0:\n",
        "    if record.number == 0 or record.is_wanted:\n",
        _WANTS_TEST,
    ),
    _mutant(
        "stores-of-the-removed-one-serve-the-new-one",
        _WANT,
        "record.number in (0, found.log)",
        "True",
        _WANTS_TEST,
    ),
    _mutant(
        "one-master-is-asked",
        _WANTS,
        "                last = wrong\n",
        "                raise\n",
        _WANTS_TEST,
    ),
    _mutant(
        "polled-while-its-batch-runs",
        _BELLS,
        "            self._changed.wait_for(lambda: self._done >= mine or self._is_stopped)\n",
        "",
        _BELLS_TEST,
    ),
    _mutant(
        "every-repository-has-rows",
        _BELLS,
        "if after < bell <= upto}",
        "if bell <= upto}",
        _BELLS_TEST,
    ),
    _mutant(
        "locks-are-shared",
        _CONFIGS,
        'config.scratch_folder / "repositories" / repository',
        "config.scratch_folder",
        _BELLS_TEST,
    ),
    _mutant(
        "one-error-ends-the-task-of-all",
        _LANES,
        "            if not PipelineConfig.model_validate_json(config_json).repositories:\n                raise\n",
        "            raise\n",
        _BELLS_TEST,
    ),
    _mutant(
        "empty-log-has-no-worker",
        _REQUESTS,
        "(worker.position is not None or is_at_start)",
        "worker.position is not None",
        _SERVER_TEST,
    ),
    _mutant(
        "worker-without-a-log-works",
        _REQUESTS,
        "stable == 0 and worker.error is None",
        "stable == 0",
        _SERVER_TEST,
    ),
    *RIGHTS_AND_BACKUPS,
)
