import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[2] / "node/tests/server"))  # an authority, and what it issues
from control_plane import ROOT, ControlPlane, running


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with our resources in it."""
    with running(tmp_path_factory.mktemp("control-plane")) as found:
        found.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        found.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield found


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A new one for each test. It is never removed: without a kubelet its pods would not end."""
    name = f"t-{uuid4().hex[:10]}"
    plane.kubectl("create", "namespace", name)
    plane.kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=50s")  # pods need it
    return name
