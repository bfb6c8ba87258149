"""The API server of a data centre, spoken to as its administrator."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any, Final

from e2e.cluster.layout import ClusterSite, ClusterUnavailable

PATIENCE_S: Final = 10.0
TOKEN: Final = "admin"


class ApiServerClient:
    """:class:`ClusterUnavailable` with the server's words when it refuses or does not answer."""

    def __init__(self, site: ClusterSite) -> None:
        self.site = site
        self._trusted = ssl.create_default_context(cafile=str(site.folder / "pki" / "ca.crt"))

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.read(path))
        return answer

    def items(self, path: str) -> list[dict[str, Any]]:
        """Of a list of objects."""
        found: list[dict[str, Any]] = self.get(path)["items"]
        return found

    def read(self, path: str) -> bytes:
        """What is there, as it is (metrics, logs)."""
        return self._request("GET", path, None)

    def apply(self, path: str, told: dict[str, Any], manager: str) -> None:
        """Server-side apply of one object at its own path."""
        self._request("PATCH", f"{path}?fieldManager={manager}&force=true", told)

    def delete(self, path: str) -> None:
        self._request("DELETE", path, None)

    def is_answering(self, path: str) -> bool:
        try:
            self.read(path)
        except ClusterUnavailable:
            return False
        return True

    def _request(self, method: str, path: str, told: dict[str, Any] | None) -> bytes:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        if told is not None:
            headers["Content-Type"] = "application/apply-patch+yaml"
        body = None if told is None else json.dumps(told).encode()
        asked = urllib.request.Request(self.site.api + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE_S, context=self._trusted) as answer:
                said: bytes = answer.read()
                return said
        except urllib.error.HTTPError as error:
            raise ClusterUnavailable(
                f"{method} {path}: {error.code} {error.read()[:500].decode(errors='replace')}"
            ) from None
        except OSError as error:
            raise ClusterUnavailable(f"{method} {path}: {error}") from None
