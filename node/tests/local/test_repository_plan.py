"""The processes of a machine whose manifests name several repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlog.config.manifest_reader import BadManifest, ClusterManifest, load_manifests
from txlog.config.process_config import BackupJobConfig, FolderConfig, PipelineConfig
from txlog.local.config_files import write_config_files
from txlog.local.process_plan import ProcessPlan, check_complete, make_plan, port_names
from txlog.local.repository_plan import planned_records
from txlog.local.repository_records import RepositoryRecords, read_repositories
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-data-centres"
STOCK = "  repositories: [{name: Stock, workers: {replicas: 2}}]\n"
STOCK_IN_US = "  repositories: [{name: Stock, workers: {external: [{url: 'http://stores:7878/'}]}}]\n"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setenv("TXLOG_PREVIEWS", "repositories")
    state = StateFolder(tmp_path / "state")
    state.prepare()
    return state


def manifests_with(folder: Path, uk: str = "", us: str = "") -> list[ClusterManifest]:
    """The example, with more in the ``spec`` of its data centres."""
    for name, more in (("uk", uk), ("us", us)):
        (folder / f"{name}.yaml").write_text((EXAMPLE / f"{name}.yaml").read_text() + more)
    return load_manifests([folder / "uk.yaml", folder / "us.yaml"])


def plan_of(manifests: list[ClusterManifest], state: StateFolder) -> ProcessPlan:
    check_complete(manifests)
    records = planned_records(manifests, read_repositories(state))
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests, repositories=records))}
    return make_plan(manifests, state, ports, StorePrograms("/bin/ox", Path("/java")), repositories=records)


def test_each_repository_has_stores_and_one_pipeline_applies_all(state: StateFolder, tmp_path: Path) -> None:
    plan = plan_of(manifests_with(tmp_path, STOCK, STOCK_IN_US), state)
    stores = [each.name for each in plan.programs if each.role == "worker"]
    assert stores == ["uk-worker-1", "uk-worker-2", "us-worker-1", "uk-stock-worker-1", "uk-stock-worker-2"]
    assert [each.name for each in plan.programs if each.role == "pipeline"] == ["uk-pipeline", "us-pipeline"]
    [stock] = plan.pipeline_configs["uk-pipeline"].repositories
    assert (stock.name, [each.name for each in stock.workers]) == ("Stock", stores[3:])
    [there] = plan.pipeline_configs["us-pipeline"].repositories
    assert [each.url for each in there.workers] == ["http://stores:7878"]
    assert [each.name for each in plan.topology.workers] == stores[:3], "what reads these means the first repository"
    further = plan.master_configs["uk-2"].repositories
    assert further is not None
    assert (further.create, further.workers) == ("manifest", {"Stock": stock.workers})
    assert set(stores) <= set(plan.port_names)


def test_duties_of_each_repository_are_its_own(state: StateFolder, tmp_path: Path) -> None:
    plan = plan_of(manifests_with(tmp_path, STOCK, STOCK_IN_US), state)
    assert list(plan.duty_configs) == ["uk", "us", "uk.stock", "us.stock"]
    duties = plan.duty_configs["uk.stock"]
    uk, us = (FolderConfig(folder=state.split_backups(group)) for group in ("uk.stock", "us.stock"))
    assert (duties.data_center, duties.target, duties.others) == ("uk", uk, [us])
    assert duties.masters[0] == f"{plan.duty_configs['uk'].masters[0]}/txlog/repositories/Stock"


def test_backups_of_a_repository_are_those_of_the_first_one_in_a_folder_of_its_own(
    state: StateFolder, tmp_path: Path
) -> None:
    policy = "  backup: {target: {folder: {path: /b}}, schedule: '@every 1h', keep: 3, incremental: true}\n"
    plan = plan_of(manifests_with(tmp_path, policy + STOCK, STOCK_IN_US), state)
    assert list(plan.backup_plans) == ["uk", "uk.stock"], "us has no target"
    first, stock = plan.backup_plans.values()
    assert stock.schedule == first.schedule == "@every 1h"
    assert (stock.config.keep, stock.config.incremental) == (3, True)
    assert stock.config.target == FolderConfig(folder=Path("/b"), repository="Stock")
    assert stock.config.masters == [f"{url}/txlog/repositories/Stock" for url in first.config.masters]
    assert plan.duty_configs["uk.stock"].others == [
        stock.config.target,
        FolderConfig(folder=state.split_backups("us.stock")),
    ], "a store is restored from them, too"
    write_config_files(plan, state)
    assert "repository" not in state.backup("uk").read_text(), "an older program reads it too"
    assert BackupJobConfig.model_validate_json(state.backup("uk.stock").read_bytes()) == stock.config


def test_a_repository_without_workers_here_is_not_backed_up_here(state: StateFolder, tmp_path: Path) -> None:
    policy = "  backup: {target: {folder: {path: /b}}}\n"
    none = "  repositories: [{name: Stock, workers: {replicas: 0}}]\n"
    plan = plan_of(manifests_with(tmp_path, policy + none, STOCK_IN_US), state)
    assert list(plan.backup_plans) == ["uk"]


def test_a_data_centre_may_order_a_repository_and_hold_none_of_it(state: StateFolder, tmp_path: Path) -> None:
    plan = plan_of(manifests_with(tmp_path, STOCK), state)
    assert plan.pipeline_configs["us-pipeline"].repositories == []
    further = plan.master_configs["us-1"].repositories
    assert further is not None, "every master has every log"
    assert further.workers == {}


def test_a_cluster_with_one_repository_is_planned_as_before(state: StateFolder, tmp_path: Path) -> None:
    plan = plan_of(manifests_with(tmp_path), state)
    write_config_files(plan, state)
    assert not (state.root / "repositories.json").exists()
    assert all(config.repositories is None for config in plan.master_configs.values())
    written = (state.pipeline("uk") / "config.json").read_text()
    assert "repositories" not in written, "an older program reads it too"
    assert PipelineConfig.model_validate_json(written).repositories == []


def test_stores_of_a_repository_stay_when_its_manifest_drops_it(state: StateFolder, tmp_path: Path) -> None:
    before = plan_of(manifests_with(tmp_path, STOCK), state)
    write_config_files(before, state)
    after = plan_of(manifests_with(tmp_path), state)
    [record] = after.repositories.repositories
    assert (record.key, record.is_wanted) == (("uk", "Stock"), False)
    assert after.topology.repository_workers == before.topology.repository_workers
    assert after.pipeline_configs["uk-pipeline"].repositories == before.pipeline_configs["uk-pipeline"].repositories
    again = planned_records(manifests_with(tmp_path, STOCK), after.repositories.with_number(record.key, 2))
    assert [(each.is_wanted, each.number) for each in again.repositories] == [(True, 2)]


def test_masters_know_the_system_log_after_the_last_repository_is_gone(state: StateFolder, tmp_path: Path) -> None:
    write_config_files(plan_of(manifests_with(tmp_path, STOCK), state), state)
    left = read_repositories(state).without(("uk", "Stock"))
    assert left == RepositoryRecords(was_used=True)
    state.write("repositories.json", left.model_dump())
    plan = plan_of(manifests_with(tmp_path), state)
    assert all(config.repositories is not None for config in plan.master_configs.values())


@pytest.mark.parametrize(
    ("uk", "us", "said"),
    [
        (STOCK, STOCK.replace("Stock", "stock"), 'is "stock"; expected "Stock"'),
        (STOCK, STOCK.replace("replicas: 2", "engine: fuseki"), "has workers of fuseki and oxigraph"),
    ],
)
def test_what_differs_between_data_centres_is_refused(
    state: StateFolder, tmp_path: Path, uk: str, us: str, said: str
) -> None:
    manifests = manifests_with(tmp_path, uk, us)
    with pytest.raises(BadManifest, match=said):
        check_complete(manifests)
