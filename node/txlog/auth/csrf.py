"""Detects requests that a page of another web site makes a browser send (CSRF).

A browser sends them without its user's consent. It adds the credentials that it has for TxLog, and sends from its own
host. Browsers name the origin of such a request; other clients send neither header.
"""

from __future__ import annotations

from typing import Final

SAFE_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing; a page of another site cannot read their answer."""
TRUSTED_FETCH_SITES: Final = frozenset(("same-origin", "none"))


def is_cross_site(method: str, host: str | None, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a request that may change something comes from a page of another site. ``Sec-Fetch-Site`` decides;
    without it, ``Origin`` is compared with ``Host``."""
    if method in SAFE_METHODS:
        return False
    if fetch_site is not None:
        return fetch_site not in TRUSTED_FETCH_SITES
    if origin is None:
        return False
    _, scheme, authority = origin.partition("://")
    return not scheme or authority.lower() != (host or "").lower()
