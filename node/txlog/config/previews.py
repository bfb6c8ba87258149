"""Capabilities that can be tried before they are released. Each is off unless an environment variable names it."""

from __future__ import annotations

import os
from typing import Final

PREVIEWS_VARIABLE: Final = "TXLOG_PREVIEWS"
"""Names of previews, with commas."""
SITES_PREVIEW: Final = "sites"
"""Links between sites (decision 124)."""
REPOSITORIES_PREVIEW: Final = "repositories"
"""Repositories beside the first one, named by a manifest (decision 126)."""


def is_preview_on(name: str) -> bool:
    """Whether this process may use the preview."""
    return name in (each.strip() for each in os.environ.get(PREVIEWS_VARIABLE, "").split(","))
