"""Requests that a page of another web site makes a browser send.

A browser sends them without asking whoever sits before it, with what it knows of us (a password), and from where it
stands (this very machine). Browsers say where such a request is from; everybody else sends neither header.
"""

from __future__ import annotations

from typing import Final

SAFE_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing; a page of another site cannot read their answer."""
TRUSTED_FETCH_SITES: Final = frozenset(("same-origin", "none"))


def is_cross_site(method: str, host: str | None, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a request that may change something comes from a page of another site. By ``Sec-Fetch-Site`` where it is
    sent, else by ``Origin`` beside ``Host``."""
    if method in SAFE_METHODS:
        return False
    if fetch_site is not None:
        return fetch_site not in TRUSTED_FETCH_SITES
    if origin is None:
        return False
    _, scheme, authority = origin.partition("://")
    return not scheme or authority.lower() != (host or "").lower()
