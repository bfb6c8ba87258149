"""What ``make house`` counts: it counts right on a small checkout, and this checkout keeps every limit."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]


def house_module() -> ModuleType:
    if "house" not in sys.modules:
        spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["house"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["house"])
    return sys.modules["house"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "node/txlog/log/keeping.py": '"""Whoever asks."""\n\n\nclass Base:\n    def go(self) -> None:\n        pass\n',
        "node/txlog/log/deep.py": (
            "from txlog.log.keeping import Base\n\n\nclass One(Base): ...\n\n\nclass Two(One): ...\n"
        ),
        "node/txlog/log/other.py": "class Base: ...\n\n\ndef foot_of(x: int) -> int:\n" + "    x += 1\n" * 80,
        "charts/a.yaml": "rules:\n  - alert: Lost\n    expr: up == 0\n",
        "docs/index.md": "# A page\n\nGo [there](gone.md), [here](#a-page) and [back](#none). "
        + "word " * 50
        + "\n\n```\nwhoever\n```\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_it_counts_what_is_there(checkout: Path) -> None:
    house = house_module()
    counts, places = house.measure(house.House(checkout))
    assert places["gerund_modules"] == ["node/txlog/log/keeping.py"]
    assert places["class_names_twice"] == ["Base (2)"]
    assert counts["inheritance_depth_max"] == 3
    assert len(places["functions_over_70"]) == 1
    assert sorted(word.rpartition(" ")[2] for word in places["banned_words"]) == ["Whoever", "foot"]
    assert sorted(link.rpartition(" ")[2] for link in places["dead_links"]) == ["#none", "gone.md"]
    assert places["alerts_without_runbook"] == ["charts/a.yaml: Lost"]
    assert counts["docs_words_per_sentence_max"] == 50
    assert counts["public_documented_pct"] == 0
    assert set(house.exceeded(counts)) >= {"gerund_modules", "dead_links", "public_documented_pct"}


def test_a_method_is_documented_by_the_interface_that_its_class_implements(checkout: Path) -> None:
    house = house_module()
    (checkout / "node/txlog/log/port.py").write_text(
        'from typing import Protocol\n\n\nclass Port(Protocol):\n    """A port."""\n\n'
        '    def send(self) -> None:\n        """Send."""\n\n    def close(self) -> None: ...\n'
    )
    (checkout / "node/txlog/log/sender.py").write_text(
        "class Half:\n    def send(self) -> None: ...\n\n\n"
        "class Whole(Half):\n    def close(self) -> None: ...\n\n\n"
        "class Other:\n    def send(self) -> None: ...\n"
    )
    missing, _ = house.House(checkout).undocumented()
    names = [place.rpartition(" ")[2] for place in missing if "port.py" in place or "sender.py" in place]
    assert names == ["Port.close", "Half", "Whole", "Whole.close", "Other", "Other.send"]


def test_an_alert_with_a_runbook_and_a_page_counts_no_more(checkout: Path) -> None:
    house = house_module()
    (checkout / "charts/a.yaml").write_text("rules:\n  - alert: Lost\n    annotations: {runbook_url: x/Lost.md}\n")
    assert house.House(checkout).alerts_without_runbook() == ["charts/a.yaml: Lost"], "its page is not there"
    (checkout / "docs/reference/alerts").mkdir(parents=True)
    (checkout / "docs/reference/alerts/Lost.md").write_text("# Lost\n")
    assert house.House(checkout).alerts_without_runbook() == []


def test_this_checkout_keeps_every_limit() -> None:
    house = house_module()
    counts, places = house.measure(house.House())
    worse = {
        name: (counts[name], places.get(name, [])[:20]) for name, limit in house.LIMITS.items() if counts[name] > limit
    }
    assert not worse
    assert counts["public_documented_pct"] >= house.DOCUMENTED_PCT_MIN
