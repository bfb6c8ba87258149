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
)
