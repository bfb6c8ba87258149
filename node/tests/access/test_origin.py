from __future__ import annotations

import pytest

from txlog.auth import is_cross_site


@pytest.mark.parametrize(
    ("method", "host", "origin", "fetch_site", "foreign"),
    [
        ("POST", "h:1", None, None, False),  # no browser
        ("POST", None, None, None, False),
        ("POST", "h:1", "http://h:1", None, False),
        ("POST", "H:1", "http://h:1", None, False),
        ("POST", "h:1", "http://h:2", None, True),
        ("POST", "h:1", "http://h", None, True),
        ("POST", "h:1", "https://evil.example", None, True),
        ("POST", "h:1", "null", None, True),
        ("POST", "h:1", "h:1", None, True),
        ("POST", "h:1", "", None, True),
        ("POST", None, "http://h:1", None, True),
        # Behind a proxy of its own the host is another one; the browser knows better.
        ("POST", "inner:1", "https://outer", "same-origin", False),
        ("POST", "h:1", None, "none", False),
        ("POST", "h:1", "http://h:1", "cross-site", True),
        ("POST", "h:1", "http://h:2", "same-site", True),
        ("POST", "h:1", None, "whatever", True),
        ("PUT", "h:1", "http://other", None, True),
        ("DELETE", "h:1", "http://other", None, True),
        ("PATCH", "h:1", "http://other", None, True),
        ("GET", "h:1", "http://other", "cross-site", False),
        ("HEAD", "h:1", "http://other", None, False),
        ("OPTIONS", "h:1", "http://other", "cross-site", False),
    ],
)
def test_who_asks(method: str, host: str | None, origin: str | None, fetch_site: str | None, foreign: bool) -> None:
    assert is_cross_site(method, host, origin, fetch_site) is foreign
