from pathlib import Path

import pytest

from txlog.config.cluster import TxLogCluster
from txlog.config.manifest_reader import BadManifest, load_manifests
from txlog.model.durability import Durability
from txlog.model.errors import BadInput

EXAMPLES = Path(__file__).parents[3] / "examples"

UK = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata:
  name: catalogue
spec:
  dataCenter: uk
  peers:
  - name: uk
    masters: 2
    address: "uk-{index}.example.net"
  - name: us
    masters: 1
    address: us.example.net:7400
  maxPeerLag: 60s
"""
US = UK.replace("dataCenter: uk", "dataCenter: us")

FULL = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: catalogue, namespace: graphs}
spec:
  repository: catalogue
  dataCenter: uk
  peers:
  - {name: uk, masters: 2, address: "txlog-uk-{index}.example.net", voteWeight: 1}
  - {name: us, masters: 1, address: "txlog-us-{index}.example.net"}
  splitRecovery: sMART
  splitMode: Majority
  maxPeerLag: 60s
  roundTimeout: 2s
  idleInterval: 500ms
  maxClockSkew: 60s
  log: {keep: 7d, maxSize: 10Gi}
  durability: {default: applied, writeTimeout: 30s}
  nonDeterministicUpdates: refuse
  load: {sources: ["https://data.example.net/dumps/"], networks: [10.1.0.0/16], maxSize: 1Mi, timeout: 5s}
  masters: {storage: {size: 20Gi, storageClassName: fast}, resources: {requests: {cpu: 500m, memory: 1Gi}}}
  workers: {replicas: 2, engine: oxigraph, storage: {size: 50Gi}}
  pipeline: {mode: executors, executors: 2, executorCores: 4, executorCpu: 500m, executorMemory: 2Gi, resources: {limits: {cpu: 2}}}
  backup: {target: {s3: {bucket: backups, endpoint: "https://s3.example.net", secretRef: {name: s3}}}, schedule: "0 2 * * *", keep: 14}
  security: {tlsSecretRef: {name: tls}, peerTlsSecretRef: {name: peer-tls}, users: {secretRef: {name: users}}}
"""  # noqa: E501


def load(folder: Path, *texts: str) -> list[TxLogCluster]:
    for number, text in enumerate(texts):
        (folder / f"{number}.yaml").write_text(text)
    return [manifest.cluster for manifest in load_manifests(folder)]


def problems(folder: Path, *texts: str) -> list[str]:
    with pytest.raises(BadManifest) as caught:
        load(folder, *texts)
    assert isinstance(caught.value, BadInput)
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_every_field_of_the_design_page_is_taken(tmp_path: Path) -> None:
    (cluster,) = load(tmp_path, FULL)
    spec = cluster.spec
    assert (spec.split_recovery, spec.split_mode) == ("Smart", "Majority")
    assert (spec.max_peer_lag, spec.idle_interval, spec.log.keep) == (60_000, 500, 7 * 86_400_000)
    assert spec.masters.storage.size == 20 << 30
    assert spec.durability.default is Durability.APPLIED
    assert spec.non_deterministic_updates == "refuse"
    assert spec.load is not None
    assert (spec.load.max_size, spec.load.timeout, spec.load.networks) == (1 << 20, 5000, ["10.1.0.0/16"])
    assert spec.workers.replicas == 2
    assert spec.backup is not None
    assert spec.backup.target.s3 is not None
    assert spec.backup.target.s3.bucket == "backups"


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    (cluster,) = load(tmp_path, UK)
    assert cluster.repository == "catalogue"
    assert cluster.own_peer.nodes == ["uk-1", "uk-2"]
    assert cluster.own_peer.address_of(2) == "uk-2.example.net:7300"
    assert cluster.spec.peers[1].address_of(1) == "us.example.net:7400"
    assert (cluster.spec.round_timeout, cluster.spec.split_recovery) == (2000, "Smart")


def test_a_manifest_survives_being_written(tmp_path: Path) -> None:
    (cluster,) = load(tmp_path, FULL)
    assert TxLogCluster.model_validate_json(cluster.model_dump_json(by_alias=True)) == cluster


def test_the_examples_are_right() -> None:
    for folder in (each for each in EXAMPLES.iterdir() if each.is_dir()):
        assert load_manifests(folder)


def test_manifests_come_in_the_order_of_peers_from_files_and_documents(tmp_path: Path) -> None:
    assert [c.data_center for c in load(tmp_path, f"# nothing\n---\n{US}---\n{UK}")] == ["uk", "us"]
    assert [c.data_center for c in load(tmp_path, US, UK)] == ["uk", "us"]
    files = [tmp_path / "0.yaml", str(tmp_path / "1.yaml"), tmp_path]
    assert [m.line for m in load_manifests(files)] == [1, 1]


CASES = [
    # what is written instead of what, line, field, and what the message holds
    ("masters: 2", "masters: 0", 9, "spec.peers[0].masters", "is 0; expected a number of at least 1"),
    ("masters: 2", "masters: two", 9, "spec.peers[0].masters", 'is "two"; expected a whole number'),
    ("masters: 2", "masters: 1.5", 9, "spec.peers[0].masters", "is 1.5; expected a whole number"),
    ("masters: 2", "masters: 1000", 9, "spec.peers[0].masters", "expected a number of at most 64"),
    ("masters: 2", "masters: 2\n    voteweight: 1", 10, "spec.peers[0].voteweight", "expected voteWeight?"),
    ("masters: 2", "masters: 64", 7, "spec.peers", "expected at most 64 masters in all peers together; there are 65"),
    ("  name: catalogue", "  name: Catalogue!", 4, "metadata.name", 'is "Catalogue!"; expected a name of lower-case'),
    ("dataCenter: uk", "dataCenter: de", 6, "spec.dataCenter", 'is "de"; expected one of the peers (uk, us)'),
    ("  dataCenter: uk\n", "", 5, "spec.dataCenter", "is missing; expected the name of one of the peers"),
    ("name: us", "name: uk", 11, "spec.peers[1].name", 'is "uk"; expected every data centre once'),
    ("name: us", "name: uk-1", 11, "spec.peers[1].name", "expected another name; uk-1 is also the name of a master"),
    ("uk-{index}.example", "uk.example", 10, "spec.peers[0].address", "expected {index} in it, since there are 2"),
    ("uk-{index}.example", "uk-{index}-{node}.ex", 10, "spec.peers[0].address", "only thing in braces, not {node}"),
    ("us.example.net:7400", "us.example.net:74000", 13, "spec.peers[1].address", "expected host or host:port"),
    ("us.example.net:7400", "uk-1.example.net", 13, "spec.peers[1].address", "its own for every master"),
    (
        "maxPeerLag: 60s",
        "maxPeerLag: 60",
        14,
        "spec.maxPeerLag",
        "is 60; expected a duration: a whole number and one of",
    ),
    ("maxPeerLag: 60s", "maxPeerLag: 1ms", 14, "spec.maxPeerLag", 'is "1ms"; expected a duration from 1s to 1w'),
    ("maxPeerLag: 60s", "maxPeerLag: 1s", 5, "spec.roundTimeout", "expected a duration below maxPeerLag"),
    ("maxPeerLag: 60s", "leaveTimeout: 20m", 14, "spec.leaveTimeout", 'is "20m"; expected a duration from 0 to 10m'),
    ("maxPeerLag: 60s", "maxPeerlag: 60s", 14, "spec.maxPeerlag", "no such field; expected maxPeerLag?"),
    ("maxPeerLag: 60s", "idleInterval: 2s", 14, "spec.idleInterval", "expected a duration below roundTimeout (2s)"),
    (
        "maxPeerLag: 60s",
        "idleInterval: 500ms\n  roundTimeout: 500ms",
        14,
        "spec.idleInterval",
        'is "500ms"; expected a duration below roundTimeout (500ms), else a peer with nothing to do looks silent',
    ),
    (
        "maxPeerLag: 60s",
        "roundTimeout: 500ms",
        14,
        "spec.roundTimeout",
        'is "500ms"; expected a duration above idleInterval (1s unless given)',
    ),
    ("maxPeerLag: 60s", "splitRecovery: clever", 14, "spec.splitRecovery", "expected None, Simple or Smart"),
    ("maxPeerLag: 60s", "splitRecovery:", 14, "spec.splitRecovery", "expected a text"),
    ("maxPeerLag: 60s", "splitMode: majority", 14, "spec.splitMode", "expected Continue or Majority"),
    ("maxPeerLag: 60s", "workers: {replicas: 0}", 14, "spec.workers.replicas", "expected a number of at least 1"),
    ("maxPeerLag: 60s", "workers: {engine: mysql}", 14, "spec.workers.engine", 'is "mysql"; expected oxigraph'),
    (
        "maxPeerLag: 60s",
        "workers: {engine: virtuoso}",
        5,
        "spec.nonDeterministicUpdates",
        "expected refuse where a worker is a virtuoso",
    ),
    (
        "maxPeerLag: 60s",
        "mixedEngines: true\n  workers: {engine: rdf4j-as-written}",
        14,
        "spec.mixedEngines",
        "expected false where a worker is a virtuoso or an rdf4j-as-written",
    ),
    (
        "maxPeerLag: 60s",
        'mixedEngines: true\n  workers: {external: [{url: "http://a", engine: virtuoso}]}',
        14,
        "spec.mixedEngines",
        "expected false where a worker is a virtuoso",
    ),
    (
        "maxPeerLag: 60s",
        'workers: {external: [{url: "http://a"}, {url: "http://b", engine: fuseki}]}',
        5,
        "spec.mixedEngines",
        "expected true where the workers have several engines",
    ),
    ("maxPeerLag: 60s", "workers: {external: []}", 14, "spec.workers.external", "expected at least one element"),
    (
        "maxPeerLag: 60s",
        'workers: {replicas: 1, external: [{url: "http://a"}]}',
        14,
        "spec.workers.external",
        "either external or replicas, engine and storage, not both (replicas)",
    ),
    (
        "maxPeerLag: 60s",
        "workers: {external: [{url: ftp://a}]}",
        14,
        "spec.workers.external[0].url",
        "http:// or https",
    ),
    (
        "maxPeerLag: 60s",
        "pipeline: {mode: local, executors: 2}",
        14,
        "spec.pipeline.executors",
        "no executors with mode",
    ),
    (
        "maxPeerLag: 60s",
        "pipeline: {executorMemory: 2Gi}",
        14,
        "spec.pipeline.executorMemory",
        "no executorMemory with mode",
    ),
    (
        "maxPeerLag: 60s",
        "pipeline: {mode: executors, executorMemory: 1000Mi}",
        14,
        "spec.pipeline.executorMemory",
        "a size of at least 1Gi",
    ),
    ("maxPeerLag: 60s", "masters: {storage: {size: 20GB}}", 14, "spec.masters.storage.size", "expected a size"),
    ("maxPeerLag: 60s", "masters: {storage: {size: 1Mi}}", 14, "spec.masters.storage.size", "a size of at least 64Mi"),
    ("maxPeerLag: 60s", "durability: {default: fast}", 14, "spec.durability.default", "accepted, quorum, synced"),
    (
        "maxPeerLag: 60s",
        "nonDeterministicUpdates: ignore",
        14,
        "spec.nonDeterministicUpdates",
        'is "ignore"; expected effects or refuse',
    ),
    ("maxPeerLag: 60s", "updatesWithoutGraph: none", 14, "spec.updatesWithoutGraph", "expected default or all"),
    ("maxPeerLag: 60s", "load: {}", 14, "spec.load.sources", "is missing; expected"),
    ("maxPeerLag: 60s", "load: {sources: [ftp://h/]}", 14, "spec.load.sources[0]", 'is "ftp://h/"; expected'),
    ("maxPeerLag: 60s", "load: {sources: ['http://u@h/']}", 14, "spec.load.sources[0]", "expected"),
    ("maxPeerLag: 60s", "load: {sources: ['http://h/'], networks: [x]}", 14, "spec.load.networks[0]", "10.1.0.0/16"),
    ("maxPeerLag: 60s", "load: {sources: ['http://h/'], maxSize: 1Gi}", 14, "spec.load.maxSize", "of at most 16Mi"),
    ("maxPeerLag: 60s", "log: 7d", 14, "spec.log", 'is "7d"; expected a mapping of fields to values'),
    ("maxPeerLag: 60s", "peers2: x", 14, "spec.peers2", "no such field; expected peers?"),
    ("maxPeerLag: 60s", "backup: {keep: 3}", 14, "spec.backup.target", "is missing; expected where backups go"),
    (
        "maxPeerLag: 60s",
        "backup: {target: {s3: {bucket: abc}}, schedule: nightly}",
        14,
        "spec.backup.schedule",
        "five fields as in cron",
    ),
    (
        "maxPeerLag: 60s",
        "backup: {target: {folder: {path: /b}}, schedule: 0 24 * * *}",
        14,
        "spec.backup.schedule",
        'is "0 24 * * *"; expected for the hour a number from 0 to 23, not 24',
    ),
    ("maxPeerLag: 60s", "backup: {target: {}}", 14, "spec.backup.target", "expected either s3 or folder"),
    (
        "maxPeerLag: 60s",
        "backup: {target: {s3: {bucket: abc}, folder: {path: /b}}}",
        14,
        "spec.backup.target",
        "either s3 or folder, not both",
    ),
    (
        "maxPeerLag: 60s",
        "backup: {target: {folder: {path: b}}}",
        14,
        "spec.backup.target.folder.path",
        'is "b"; expected the whole path of a folder',
    ),
    ("kind: TxLogCluster", "kind: Pod", 2, "kind", 'is "Pod"; expected TxLogCluster'),
    ("txlog.io/v1alpha1", "txlog.io/v1", 1, "apiVersion", 'is "txlog.io/v1"; expected txlog.io/v1alpha1'),
    ("kind: TxLogCluster\n", "", 1, "kind", "is missing; expected TxLogCluster"),
    ("    masters: 2", "\tmasters: 2", 9, "", "a tab; expected spaces"),
    ("    masters: 2", "    masters: 2\n    masters: 3", 10, "", "the field masters is there twice"),
    ("dataCenter: uk", "dataCenter: {uk", 7, "", "not YAML"),
    ("maxPeerLag: 60s", "dataCenter2: !secret x", 14, "spec.dataCenter2", "no such field; expected dataCenter?"),
]


@pytest.mark.parametrize(("old", "new", "line", "field", "message"), CASES)
def test_an_error_says_where_and_what_is_expected(
    tmp_path: Path, old: str, new: str, line: int, field: str, message: str
) -> None:
    assert old in UK
    (said,) = problems(tmp_path, UK.replace(old, new, 1))
    assert said.startswith(f"0.yaml:{line}: {field}: " if field else f"0.yaml:{line}: ")
    assert message in said


MAJORITY = UK.replace("maxPeerLag: 60s", "splitMode: Majority\n  leaveTimeout: 7s")


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "message"),
    [
        (
            "masters: 1",
            "masters: 1\n    voteWeight: 2",
            13,
            "spec.peers[1].voteWeight",
            "is 2; expected less than",
        ),
        ("masters: 2", "masters: 1", 8, "spec.peers[0].voteWeight", "all 2 votes for each master with splitMode: Majo"),
        ("masters: 2", "masters: 2\n    voteWeight: 0", 12, "spec.peers[1].voteWeight", "us-1 has 1, so the others"),
    ],
)
def test_a_master_with_half_of_the_votes_is_refused_where_the_majority_goes_on(
    tmp_path: Path, old: str, new: str, line: int, field: str, message: str
) -> None:
    (cluster,) = load(tmp_path, MAJORITY)
    assert (cluster.spec.split_mode, cluster.spec.leave_timeout) == ("Majority", 7000)
    (said,) = problems(tmp_path, MAJORITY.replace(old, new, 1))
    assert said.startswith(f"0.yaml:{line}: {field}: ")
    assert message in said
    assert load(tmp_path, MAJORITY.replace(old, new, 1).replace("Majority", "Continue"))


def test_all_errors_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    broken = UK.replace("masters: 2", "masters: 0").replace("60s", "60").replace("name: catalogue", "nam: catalogue")
    said = problems(tmp_path, broken, US.replace("masters: 1", "masters: -1"))
    assert [each.split(": ")[:2] for each in said] == [
        ["0.yaml:3", "metadata.name"],
        ["0.yaml:4", "metadata.nam"],
        ["0.yaml:9", "spec.peers[0].masters"],
        ["0.yaml:14", "spec.maxPeerLag"],
        ["1.yaml:12", "spec.peers[1].masters"],
    ]


def test_a_data_centre_has_one_manifest(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, UK, UK)
    assert said == f'1.yaml:6: spec.dataCenter: is "uk" as in {tmp_path}/0.yaml:1; expected one manifest each'


def test_lines_count_from_the_beginning_of_the_file(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, f"{UK}---\n{US.replace('masters: 1', 'masters: no')}")
    assert said.startswith(f"0.yaml:{14 + 1 + 12}: spec.peers[1].masters")


PEERS_DIFFER = [
    ("us.example.net:7400", "us.example.net:7401", 13, "spec.peers[1].address"),
    ("masters: 2", "masters: 3", 9, "spec.peers[0].masters"),
    ("  maxPeerLag", "  - {name: de, masters: 1, address: de}\n  maxPeerLag", 7, "spec.peers"),
]


@pytest.mark.parametrize(("old", "new", "line", "field"), PEERS_DIFFER)
def test_peers_are_the_same_list_everywhere(tmp_path: Path, old: str, new: str, line: int, field: str) -> None:
    (said,) = problems(tmp_path, UK, US.replace(old, new))
    assert said.startswith(f"1.yaml:{line}: {field}: ")
    assert f"the same list in every data centre, as in {tmp_path}/0.yaml" in said


def test_the_order_of_peers_is_the_same_everywhere(tmp_path: Path) -> None:
    turned = UK.index("  - name: uk"), UK.index("  - name: us"), UK.index("  maxPeerLag")
    a, b, c = turned
    (said,) = problems(tmp_path, UK, US[:a] + US[b:c] + US[a:b] + US[c:])
    assert said.startswith('1.yaml:8: spec.peers[0]: is "us"; expected "uk"')


@pytest.mark.parametrize(
    ("extra", "field"), [("  repository: other\n", "spec.repository"), ("  splitMode: Majority\n", "spec.splitMode")]
)
def test_what_holds_for_the_cluster_is_the_same_everywhere(tmp_path: Path, extra: str, field: str) -> None:
    (said,) = problems(tmp_path, UK, US + extra)
    assert said.startswith(f"1.yaml:15: {field}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: holds no document"),
        ("# only a comment\n", ":1: holds no document"),
        ("hello\n", ":1: expected a TxLogCluster: a mapping"),
        ("- a\n- b\n", ":1: expected a TxLogCluster: a mapping"),
        ("%%%\n", ":1: not YAML"),
        ("a: 1\nb: \x00\n", ":2: not YAML: the character"),
        ("a: *b\n", ":1: not YAML: found undefined alias"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"{n}: &{n} [{','.join([f'*{m}'] * 9)}]\n" for m, n in zip("abcdef", "bcdefg", strict=True)),
            ":1: too deep or too large",
        ),
        ("a: " + "[" * 50 + "]" * 50 + "\n", ":1: too deep or too large"),
    ],
)
def test_what_is_no_manifest_is_named(tmp_path: Path, text: str, message: str) -> None:
    (said,) = problems(tmp_path, text)
    assert said.startswith(f"0.yaml{message}")


def test_what_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"kind: x\nname: \xff\xfe\n")
    (tmp_path / "b.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(BadManifest) as caught:
        load_manifests(tmp_path)
    first, second = caught.value.problems
    assert (first.line, first.message) == (2, "not text in UTF-8; expected YAML")
    assert "expected a manifest of at most" in second.message


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadManifest, match="no such file or folder"):
        load_manifests(tmp_path / "none.yaml")
    with pytest.raises(BadManifest, match=r"no \*.yaml file in this folder"):
        load_manifests([tmp_path])
    with pytest.raises(BadManifest, match="no manifest given"):
        load_manifests([])
