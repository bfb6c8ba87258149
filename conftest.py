"""How the tests share two cores: those that start a JVM or a whole cluster run one after the other, beside the rest."""

from __future__ import annotations

import pytest

ONE_AFTER_THE_OTHER = ("cluster", "spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give them one group, which `--dist loadgroup` hands to one process; without `-n` it means nothing."""
    for item in items:
        if any(item.get_closest_marker(heavy) for heavy in ONE_AFTER_THE_OTHER):
            item.add_marker(pytest.mark.xdist_group("heavy"))
