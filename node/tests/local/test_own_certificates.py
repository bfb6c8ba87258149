"""Certificates of a local cluster: made where a manifest asks for them, checked where somebody has put them."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from txlog.auth.tls import Certificates, check_hostname
from txlog.config.manifest_reader import ClusterManifest, load_manifests
from txlog.local import dev_ca, local_security
from txlog.local.dev_ca import make_certificates
from txlog.local.local_errors import CannotRun
from txlog.local.local_security import prepare_security, renew_certificates
from txlog.local.process_plan import make_plan, port_names
from txlog.local.state_folder import StateFolder
from txlog.local.store_program import StorePrograms
from txlog.server.main import read_config
from txlog.telemetry.event_log import EventLog

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-data-centres"
BOTH = "  security: {tlsSecretRef: {name: door}, peerTlsSecretRef: {name: peers}}\n"
PEERS = "  security: {peerTlsSecretRef: {name: peers}}\n"


def manifests(folder: Path, uk: str, us: str | None = None) -> list[ClusterManifest]:
    """The example, with that line in each ``spec``."""
    for file in EXAMPLE.iterdir():
        line = us if us is not None and file.name == "us.yaml" else uk
        (folder / file.name).write_text(file.read_text() + line)
    return load_manifests(folder)


def put(state: StateFolder, name: str, node: str) -> Path:
    """What `txlog up` makes for that master, as if somebody had put it there."""
    make_certificates(state.certificates, [node])
    (state.root / "secrets").mkdir(exist_ok=True)
    return (state.certificates / node).rename(state.secret(name))


def test_what_is_asked_for_and_not_there_is_made_once(state: StateFolder, tmp_path: Path) -> None:
    asked = manifests(tmp_path, BOTH)
    prepare_security(asked, state)
    first = {file: file.read_bytes() for file in state.certificates.rglob("*") if file.is_file()}
    assert sorted({file.parent.name for file in first}) == ["tls", "uk-1", "uk-2", "us-1"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in first)
    prepare_security(asked, state)
    assert first == {file: file.read_bytes() for file in state.certificates.rglob("*") if file.is_file()}
    for node in ("uk-1", "uk-2", "us-1"):
        Certificates(state.certificates / node, EventLog(node), node=node)
        for host in ("127.0.0.1", "localhost", "::1", node):
            check_hostname(state.certificates / node, host)
    assert state.trusted_file.read_bytes() == (state.certificates / "ca.crt").read_bytes()
    assert state.own_environment["TXLOG_CA_FILE"] == str(state.trusted_file)


def test_the_plan_speaks_tls_where_it_was_asked_for(state: StateFolder, tmp_path: Path) -> None:
    asked = manifests(tmp_path, BOTH)
    prepare_security(asked, state)
    ports = {name: 8000 + at for at, name in enumerate(port_names(asked))}
    plan = make_plan(asked, state, ports, StorePrograms("oxigraph", Path("/java")))
    assert sorted(plan.port_names) == sorted(ports)
    for node, config in plan.master_configs.items():
        assert config.tls_folder == config.peer_tls_folder == state.certificates / node
        assert config.peer_port == ports[f"{node}/peers"]
        (tmp_path / "node.json").write_text(config.model_dump_json())
        assert read_config(tmp_path / "node.json") == config
    assert [link.target_port for link in plan.links if link.target == "us-1"] == [ports["us-1/peers"]] * 2
    assert plan.topology.masters[0].url == "https://127.0.0.1:8000"
    assert plan.pipeline_configs["uk-pipeline"].masters == ["https://127.0.0.1:8000", "https://127.0.0.1:8001"]
    pipeline = next(program for program in plan.programs if program.role == "pipeline")
    assert pipeline.environment["TXLOG_CA_FILE"] == str(state.trusted_file)


def test_certificates_among_masters_alone_leave_the_door_plain(state: StateFolder, tmp_path: Path) -> None:
    asked = manifests(tmp_path, PEERS)
    prepare_security(asked, state)
    ports = {name: 8000 + at for at, name in enumerate(port_names(asked))}
    plan = make_plan(asked, state, ports, StorePrograms("oxigraph", Path("/java")))
    assert plan.master_configs["uk-1"].tls_folder is None
    assert plan.master_configs["uk-1"].peer_tls_folder is not None
    assert plan.topology.masters[0].url == "http://127.0.0.1:8000"
    assert not state.trusted_file.exists()
    assert "TXLOG_CA_FILE" not in state.own_environment


def test_a_cluster_without_tls_has_no_trace_of_it(state: StateFolder, tmp_path: Path) -> None:
    prepare_security(manifests(tmp_path, BOTH), state)
    plain = load_manifests(EXAMPLE)
    prepare_security(plain, state)
    assert not state.trusted_file.exists()
    assert not [name for name in port_names(plain) if "peers" in name]


@pytest.mark.parametrize(
    ("uk", "us", "says"),
    [
        (BOTH.replace(", peerTlsSecretRef: {name: peers}", ""), None, r"tlsSecretRef needs peerTlsSecretRef beside it"),
        (PEERS, "", r"us\.yaml: spec\.security\.peerTlsSecretRef is missing, and .*uk\.yaml has it"),
    ],
)
def test_half_of_it_is_refused(state: StateFolder, tmp_path: Path, uk: str, us: str | None, says: str) -> None:
    with pytest.raises(CannotRun, match=says):
        prepare_security(manifests(tmp_path, uk, us), state)


def test_what_somebody_has_put_there_is_checked_and_kept(state: StateFolder, tmp_path: Path) -> None:
    line = "  security: {tlsSecretRef: {name: NAME}, peerTlsSecretRef: {name: NAME}}\n"
    asked = manifests(tmp_path, line.replace("NAME", "uk-peers"), line.replace("NAME", "us-peers"))
    given = put(state, "us-peers", "us-1")
    (given / "ca.crt").write_bytes((given / "ca.crt").read_bytes() + b"\n# seen\n")
    prepare_security(asked, state)
    assert not (state.certificates / "us-1").exists()
    assert (state.certificates / "uk-1").exists()
    assert "# seen" in state.trusted_file.read_text()
    (given / "tls.key").unlink()
    with pytest.raises(
        CannotRun, match=r"us\.yaml: spec\.security\.peerTlsSecretRef: .*tls\.key: No such file.*makes its own"
    ):
        prepare_security(asked, state)


def test_a_certificate_of_another_master_or_another_address_is_refused(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(state, "peers", "us-1")
    with pytest.raises(CannotRun, match=r"peerTlsSecretRef: .*expected the DNS name uk-1.*it names us-1"):
        prepare_security(manifests(tmp_path, PEERS), state)
    state.secret("peers").rename(state.root / "away")
    monkeypatch.setattr(dev_ca, "CERTIFICATE_HOSTS", ("localhost", "10.0.0.1"))
    put(state, "door", "uk-1")
    monkeypatch.undo()
    with pytest.raises(CannotRun, match=r"tlsSecretRef: .*IP address mismatch.*127\.0\.0\.1"):
        prepare_security(manifests(tmp_path, BOTH), state)


async def test_what_ends_soon_is_made_anew_while_everything_runs(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = manifests(tmp_path, BOTH)
    monkeypatch.setattr(dev_ca, "CERTIFICATE_VALID_DAYS", dev_ca.RENEW_BEFORE_DAYS - 1)
    prepare_security(asked, state)
    monkeypatch.undo()
    file = state.certificates / "uk-1" / "tls.crt"
    before = file.read_bytes()
    monkeypatch.setattr(local_security, "RENEWAL_CHECK_INTERVAL_S", 0.05)
    keeping = asyncio.ensure_future(renew_certificates(asked, state))
    async with asyncio.timeout(30):
        while file.read_bytes() == before:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.05)
    keeping.cancel()
    now = x509.load_pem_x509_certificate(file.read_bytes())
    assert now.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > datetime.timedelta(
        days=dev_ca.CERTIFICATE_VALID_DAYS - 1
    )
    assert isinstance(state.trust.context(), ssl.SSLContext)


def test_another_authority_makes_everything_anew(state: StateFolder) -> None:
    make_certificates(state.certificates, ["uk-1"])
    before = (state.certificates / "uk-1" / "tls.crt").read_bytes()
    assert make_certificates(state.certificates, ["uk-1"]) == []
    (state.certificates / "ca.key").unlink()
    assert make_certificates(state.certificates, ["uk-1", "uk-2"]) == ["uk-1", "uk-2"]
    assert (state.certificates / "uk-1" / "tls.crt").read_bytes() != before
    Certificates(state.certificates / "uk-1", EventLog("uk-1"), node="uk-1")


def test_an_authority_of_an_earlier_version_is_kept(state: StateFolder) -> None:
    """Earlier versions wrote its key as PKCS #8."""
    make_certificates(state.certificates, ["uk-1"])
    file = state.certificates / dev_ca.CA_KEY_FILE
    key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    how = serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, how, serialization.NoEncryption()))
    assert make_certificates(state.certificates, ["uk-1", "uk-2"]) == ["uk-2"]
    Certificates(state.certificates / "uk-2", EventLog("uk-2"), node="uk-2")
    authorities = {(state.certificates / place / "ca.crt").read_bytes() for place in (".", "uk-1", "uk-2")}
    assert len(authorities) == 1
