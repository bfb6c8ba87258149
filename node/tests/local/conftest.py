"""What the tests of local clusters share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from txlog.local.state_folder import StateFolder

sys.path.append(str(Path(__file__).parents[1] / "client"))  # a master that answers what a test says


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    """The state folder of a cluster, prepared and empty."""
    state = StateFolder(tmp_path / "state")
    state.prepare()
    return state
