"""A real S3 server: SeaweedFS on free loopback ports and a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from e2e.lib.ports import free_ports

BINARY = Path(sys.executable).parent / "weed"
BUCKET = "backups"
ACCESS, SECRET = "txlog-test", "txlog-test-secret"
DEADLINE_S = 60.0


class SeaweedProcess:
    """Runs from the start; what it holds is in the folder, and is there again after :meth:`kill` and :meth:`start`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names: tuple[str, ...] = ("master.port", "volume.port", "filer.port", "s3.port")
        names += tuple(f"{name}.grpc" for name in names)
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.url = f"http://127.0.0.1:{ports['s3.port']}"
        identity = {"name": "txlog", "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}], "actions": ["Admin"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.log = folder / "log"
        arguments = [f"-{name}={port}" for name, port in ports.items()]
        arguments += ["-dir", str(folder), "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-filer"]
        arguments += ["-s3.config", str(folder / "s3.json"), f"-s3.localSocket={folder / 's3.sock'}"]
        arguments += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"]
        arguments += ["-volume.max=10", "-master.volumeSizeLimitMB=64"]
        self._command = [str(BINARY), "server", *arguments]
        self.start()

    def start(self) -> None:
        """At the same address as before; ready when it returns."""
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
        self._await()

    def store(self, prefix: str | None = None) -> S3Store:
        """A client of the test's own."""
        return S3Store(
            BUCKET,
            prefix=prefix,
            endpoint=self.url,
            access_key_id=ACCESS,
            secret_access_key=SECRET,
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def _await(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        store = self.store()
        while True:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            try:
                obstore.put(store, "ready", b"ready")  # makes the bucket, too
                return
            except (BaseError, OSError):
                assert time.monotonic() < deadline, self.log.read_text()[-2000:]
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
