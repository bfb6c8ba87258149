"""A ``cluster.properties`` file is all that a master needs: read whole, refused by line, written back."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from txlog.config.cluster_properties import (
    GRAPHDB_ONLY_NAMES,
    NAMES,
    BadProperties,
    canonical_name,
    read_cluster_properties,
)
from txlog.config.cluster_properties_writer import write_masters
from txlog.config.live_settings import BadSettings, read_effective_settings, save_settings, with_changes
from txlog.config.preferences import KEYS, is_manifest_only, preference_key, property_name, read_changes
from txlog.model.configuration import Configuration, Master
from txlog.model.durability import Durability
from txlog.model.errors import BadInput

LEAST = "node-id=uk-2\nmaster-url=http://uk-2.example.net:7300/repositories/demo\n"
WHOLE = """\
# of the second master
node-id = uk-2
masterURL = http://uk-2.example.net:7300/rdf4j-server/repositories/demo
peer.1.id: us-1
peer.1.url: http://us.example.net/repositories/demo/
peer.7.id=uk-1
peer.7.url=http://uk-1.example.net:7300/repositories/demo
peer.7.vote-weight=2
split-recovery=simple
max-peer-lag=45s
durability=QUORUM
log-max-size=2Gi
journal-folder=/var/lib/txlog
listen-address=0.0.0.0:7301
worker.1.url=http://127.0.0.1:7878/
worker.2.id=uk-fuseki
worker.2.url=http://127.0.0.1:3030/ds
worker.2.engine=fuseki
mixed-engines=true
protect-single-worker=true
mode=NORMAL
load-sources=https://data.example.net/dumps/ http://10.1.0.7/one.ttl
load-networks=10.1.0.0/16
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "cluster.properties"
    path.write_bytes(text.encode())
    return path


def test_two_lines_are_a_master(tmp_path: Path) -> None:
    found = read_cluster_properties(written(tmp_path, LEAST))
    config = found.node
    assert (config.node, config.data_center, config.repository) == ("uk-2", "uk", "demo")
    assert (config.host, config.port) == ("uk-2.example.net", 7300)
    assert [peer.node for peer in config.peers] == ["uk-2"]
    assert config.journal_folder == tmp_path / "journal"
    assert config.peer_token_file == tmp_path / "peer-token"
    assert found.pipeline_config(tmp_path) is None
    assert (config.split_recovery, config.max_peer_lag_ms, config.split_mode) == ("Smart", 60_000, "Continue")


def test_all_that_it_can_say(tmp_path: Path) -> None:
    found = read_cluster_properties(written(tmp_path, WHOLE))
    config = found.node
    assert [(p.node, p.data_center, p.url, p.weight) for p in config.peers] == [
        ("uk-1", "uk", "http://uk-1.example.net:7300", 2),
        ("uk-2", "uk", "http://uk-2.example.net:7300", 1),
        ("us-1", "us", "http://us.example.net", 1),
    ], "in one order, whatever the file's: precedence is the same everywhere"
    assert (config.host, config.port) == ("0.0.0.0", 7301)
    assert (config.split_recovery, config.max_peer_lag_ms) == ("Simple", 45_000)
    assert (config.durability, config.log_bytes_max) == (Durability.QUORUM, 2 << 30)
    assert config.journal_folder == Path("/var/lib/txlog")
    assert [(w.name, w.url, w.engine) for w in config.workers] == [
        ("uk-worker-1", "http://127.0.0.1:7878", "oxigraph"),
        ("uk-fuseki", "http://127.0.0.1:3030/ds", "fuseki"),
    ]
    assert config.mixed_engines
    assert config.load is not None
    assert config.load.sources == ["https://data.example.net/dumps/", "http://10.1.0.7/one.ttl"]
    assert config.load.networks == ["10.1.0.0/16"]
    assert found.ignored_names == ["protect-single-worker"]
    assert found.local_masters == ["http://uk-2.example.net:7300", "http://uk-1.example.net:7300"]
    assert found.remote_masters == [["http://us.example.net"]]
    assert not found.runs_pipeline, "the first master of a data centre does"
    here = read_cluster_properties(written(tmp_path, WHOLE + "run-pipeline=true\n")).pipeline_config(
        tmp_path / "scratch"
    )
    assert here is not None
    assert (here.data_center, here.masters, len(here.workers)) == ("uk", found.local_masters, 2)


def test_three_files_agree_on_who_is_there_and_in_which_order(tmp_path: Path) -> None:
    nodes = ["uk-2", "uk-10", "us-1"]
    told = []
    for node in nodes:
        others = [other for other in nodes if other != node]
        lines = [f"node-id={node}", f"master-url=http://{node}.example.net/repositories/r"]
        for at, other in enumerate(reversed(others), start=1):
            lines += [f"peer.{at}.id={other}", f"peer.{at}.url=http://{other}.example.net/repositories/r"]
        told.append(read_cluster_properties(written(tmp_path, "\n".join(lines))).node.peers)
    assert told[0] == told[1] == told[2]
    assert [peer.node for peer in told[0]] == nodes


def test_masters_with_certificates_meet_at_their_own_ports(tmp_path: Path) -> None:
    text = (
        "node-id=uk-1\nmaster-url=https://a.example.net:7300/repositories/r\ntls-folder=tls\npeer-tls-folder=peer-tls\n"
        "peer-port=7400\npeer.1.id=uk-2\npeer.1.url=https://b.example.net:7300/repositories/r\n"
        "peer.2.id=uk-3\npeer.2.url=https://c.example.net/repositories/r\npeer.2.peer-port=7500\n"
    )
    found = read_cluster_properties(written(tmp_path, text))
    assert [peer.url for peer in found.node.peers[1:]] == ["http://b.example.net:7400", "http://c.example.net:7500"]
    assert (found.node.tls_folder, found.node.peer_port) == (tmp_path / "tls", 7400)
    assert found.local_masters == ["https://a.example.net:7300", "https://b.example.net:7300", "https://c.example.net"]


PEER = "peer.1.id=uk-1\npeer.1.url=http://uk-1.example.net/repositories/demo\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            ["F: master-url: is missing; expected master-url=http://", "F: node-id: is missing; expected node-id=uk-1"],
        ),
        (LEAST + "max-per-lag=1s\n", ["F:3: max-per-lag: no such property; expected max-peer-lag?"]),
        (LEAST + "zzzzzz=1\n", ["F:3: zzzzzz: no such property"]),
        (LEAST + "NodeID=uk-1\n", ["F:3: NodeID: is there twice, as in line 1; expected once"]),
        (LEAST + "max-peer-lag=\n", ["F:3: max-peer-lag: has no value; expected max-peer-lag=VALUE"]),
        (LEAST + "max-peer-lag=30\n", ['F:3: max-peer-lag: is "30"; expected a duration']),
        (LEAST + "max-peer-lag=1ms\n", ['F:3: max-peer-lag: is "1ms"; expected a duration from 1s to 1w']),
        (LEAST + "idle-interval=5s\n", ['F:3: idle-interval: is "5s"; expected a duration below roundTimeout (2s)']),
        (LEAST + "split-recovery=fast\n", ['F:3: split-recovery: is "fast"; expected None, Simple or Smart']),
        (LEAST + "split-mode=Half\n", ['F:3: split-mode: is "Half"; expected Continue or Majority']),
        (LEAST + PEER + "split-mode=majority\n", ["F:5: split-mode: Majority, but uk-1 has 1 of all 2 votes"]),
        (LEAST + "durability=soon\n", ['F:3: durability: is "soon"; expected accepted, synced, quorum, applied or']),
        (LEAST + "log-max-size=10\n", ['F:3: log-max-size: is "10"; expected a size: a number and one of']),
        (LEAST + "storage-size=1Mi\n", ['F:3: storage-size: is "1Mi"; expected a size of at least 64Mi']),
        (LEAST + "listen-address=7300\n", ['F:3: listen-address: is "7300"; expected HOST:PORT']),
        (LEAST + "listen-address=a:99999\n", ["expected a whole number from 1 to 65535"]),
        (LEAST + "mixed-engines=yes\n", ['F:3: mixed-engines: is "yes"; expected true or false']),
        (LEAST + "mode=MUTE\n", ['F:3: mode: is "MUTE"; expected normal, or no such line: it is set while']),
        (LEAST + "peer.1.id=uk-1\n", ["F:3: peer.1.url: is missing; expected peer.1.url=VALUE"]),
        (LEAST + "\n\npeer.3.url=http://h/repositories/demo\n", ["F:5: peer.3.id: is missing"]),
        (LEAST + "peer.1.uri=x\n", ["F:3: peer.1.uri: no such property; expected one of peer.<n>.id, peer.<n>.url"]),
        (LEAST + PEER.replace("demo", "other"), ['F:4: peer.1.url: is of the repository "other"; expected "demo"']),
        (LEAST + PEER.replace("uk-1", "uk-2"), ["F:3: peer.1.id: uk-2 is there twice"]),
        (LEAST + PEER + PEER.replace("peer.1", "peer.2").replace("id=uk-1", "id=uk-3"), ["F:6: peer.2.url: http://uk"]),
        (LEAST + PEER.replace("id=uk-1", "id=Master"), ['F:3: peer.1.id: is "Master"; expected small letters']),
        (LEAST + PEER.replace("id=uk-1", "id=london"), ["F:3: peer.1.data-center: is missing; expected peer.1.data-c"]),
        (
            LEAST.replace("uk-2\n", "london\n"),
            ["F:1: data-center: is missing; expected data-center=NAME, since london"],
        ),
        (LEAST.replace("/repositories/demo", ""), ["F:2: master-url: is", "expected an RDF4J repository's URL"]),
        (LEAST.replace("http:", "ftp:"), ["F:2: master-url: is", "expected an RDF4J repository's URL"]),
        (LEAST.replace("7300", "7300000"), ["F:2: master-url: is", "expected an RDF4J repository's URL"]),
        (LEAST.replace("http:", "https:"), ["F:2: master-url: is https; expected a tls-folder"]),
        (LEAST + "tls-folder=tls\n", ["F:2: master-url: is http; expected https"]),
        (LEAST + "peer-tls-folder=tls\n", ["peer-tls-folder and peer-port: expected both or none"]),
        (LEAST + "worker.1.engine=oxigraph\n", ["F:3: worker.1.url: is missing"]),
        (LEAST + "worker.1.url=store\n", ['F:3: worker.1.url: is "store"; expected a URL of a store']),
        (
            LEAST + "worker.1.url=http://s\nworker.2.url=http://s/\n",
            ["F:4: worker.2: uk-worker-2 or http://s is there"],
        ),
        (
            LEAST + "worker.1.url=http://s\nworker.1.engine=blazegraph\n",
            ["F:4: worker.1.engine: is", "oxigraph, fuseki, rdf4j, virtuoso or rdf4j-as-written"],
        ),
        (
            LEAST + "mixed-engines=true\nworker.1.url=http://s\nworker.1.engine=virtuoso\n",
            ["F:3: mixed-engines: a virtuoso is not mixed"],
        ),
        (
            LEAST + "worker.1.url=http://s\nworker.1.engine=virtuoso\n",
            ["F:3: worker.1: a virtuoso takes no effects; expected non-deterministic-updates=refuse"],
        ),
        (
            LEAST + "mixed-engines=true\nworker.1.url=http://s\nworker.1.engine=rdf4j-as-written\n",
            ["F:3: mixed-engines: a rdf4j-as-written is not mixed"],
        ),
        (LEAST + "load-sources=ftp://h/\n", ['F:3: load-sources: is "ftp://h/"; expected URLs with spaces between']),
        (LEAST + "load-networks=10.0.0.0/8\n", ["F:3: load-networks: is of no use without load-sources"]),
        (LEAST + "load-sources=http://h/\nload-networks=ten\n", ['F:4: load-networks: is "ten"; expected networks']),
        ("a=1\nb=2\n", ["F:1: a: no such property", "F:2: b: no such property"]),
    ],
)
def test_every_mistake_is_named_with_its_line(tmp_path: Path, text: str, said: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadProperties) as caught:
        read_cluster_properties(path)
    for part in said:
        assert part.replace("F:", f"{path}:") in str(caught.value)


def test_what_is_no_text_and_what_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_bytes(b"node-id=uk-1\n\xff\n")
    with pytest.raises(BadProperties, match=f"{path}:2: not text in UTF-8"):
        read_cluster_properties(path)
    path.write_bytes(b"#" * (1 << 20) + b"##")
    with pytest.raises(BadProperties, match="above 1048576 bytes"):
        read_cluster_properties(path)
    with pytest.raises(BadProperties, match="cannot be read: No such file or directory"):
        read_cluster_properties(tmp_path / "nothing.properties")


def test_settings_are_written_back_between_what_people_wrote(tmp_path: Path) -> None:
    text = "# ours\r\n" + LEAST + "  MaxPeerLag : \\\n   60000ms  \nleave-timeout=1s\n\n! times\nround-timeout=3s"
    path = written(tmp_path, text)
    path.chmod(0o640)
    config = read_cluster_properties(path).node
    new = with_changes(
        config, read_effective_settings(config), read_changes({"splitRecovery": "simple", "leave-timeout": None}), 1.0
    )
    save_settings(config, new)
    assert path.read_bytes().decode() == (
        "# ours\r\n" + LEAST + "  MaxPeerLag : \\\n   60000ms  \n\n! times\nround-timeout=3s\nsplit-recovery=Simple\n"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert not (config.journal_folder).exists(), "nothing is kept in two places"
    again = read_effective_settings(config)
    assert (again.preferences, set(again.settings)) == (new.preferences, {"splitRecovery", "roundTimeout"})
    save_settings(config, with_changes(config, again, read_changes({"max-peer-lag": "90s", "roundTimeout": "4s"}), 1.0))
    assert path.read_text().endswith("MaxPeerLag=90s\n\n! times\nround-timeout=4s\nsplit-recovery=Simple\n")
    before = path.stat().st_mtime_ns, path.stat().st_ino
    save_settings(config, read_effective_settings(config))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before, "nothing changed, nothing is written"


def test_a_file_that_was_broken_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    path = written(tmp_path, LEAST)
    config = read_cluster_properties(path).node
    live = read_effective_settings(config)
    path.write_text(LEAST + "max-peer-lag=never\n")
    with pytest.raises(BadInput, match="maxPeerLag is 'never'"):
        save_settings(config, with_changes(config, live, read_changes({"leaveTimeout": "1s"}), 1.0))
    assert path.read_text() == LEAST + "max-peer-lag=never\n"
    with pytest.raises(BadSettings, match=f"{path}:3: max-peer-lag"):
        read_effective_settings(config)


def test_masters_that_come_and_go_are_written_back(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    masters = [
        Master("uk-1", "uk", 2),
        Master("uk-2", "uk", 1),
        Master("uk-3", "uk", 1, urls=["http://uk-3.example.net:7300/"]),
        Master("paris", "fr", 3, urls=["http://paris.example.net"]),
        Master("unreached", "fr", 1),
    ]
    now = Configuration(masters, majority=False, key_retention_ms=1000, removed=["us-1"])
    assert write_masters(path, "uk-2", "demo", now)
    text = path.read_text()
    assert "us-1" not in text
    assert "us.example.net" not in text
    assert text.endswith(
        "peer.8.id=uk-3\npeer.8.url=http://uk-3.example.net:7300/repositories/demo\n"
        "peer.9.id=paris\npeer.9.url=http://paris.example.net/repositories/demo\n"
        "peer.9.data-center=fr\npeer.9.vote-weight=3\n"
    )
    assert [peer.node for peer in read_cluster_properties(path).node.peers] == ["paris", "uk-1", "uk-2", "uk-3"]
    assert not write_masters(path, "uk-2", "demo", now), "once is enough"


def test_a_folder_that_takes_no_file_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, LEAST)
    config = read_cluster_properties(path).node
    live = read_effective_settings(config)
    (tmp_path / f"{path.name}.new").mkdir()  # refused to root, too
    with pytest.raises(IsADirectoryError):
        save_settings(config, with_changes(config, live, read_changes({"leaveTimeout": "1s"}), 1.0))
    assert path.read_text() == LEAST


def test_names_are_known_in_each_spelling_and_to_whoever_sets_them_live() -> None:
    for name in (*NAMES, *GRAPHDB_ONLY_NAMES):
        camel = "".join(part.capitalize() for part in name.split("-"))
        assert canonical_name(name) == canonical_name(camel) == canonical_name(camel[0].lower() + camel[1:]) == name
        if name in map(property_name, KEYS):
            assert property_name(preference_key(name)) == name
        else:
            assert is_manifest_only(name), "txlog set -f passes over it"
