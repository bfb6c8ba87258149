"""Most of a master's start is Python and its libraries: none may come in unseen."""

from __future__ import annotations

import json
import subprocess
import sys

NEEDED = {
    *("aiohappyeyeballs", "aiohttp", "aiosignal", "attr", "frozenlist", "idna", "multidict", "propcache", "yarl"),
    *("annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"),
    *("httptools", "msgspec", "pyoxigraph", "uvloop", "zstandard", "txlog"),
}
"""aiohttp with what it needs, pydantic with what it needs, and what TxLog itself asks for."""

PROGRAM = """
import json, sys
before = set(sys.modules)
import txlog.server.main
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_a_start_loads_no_package_that_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    loaded = {name for name in json.loads(done.stdout) if name not in sys.stdlib_module_names}
    assert "txlog" in loaded
    assert {name for name in loaded if name.isidentifier() and not name.startswith("_")} - NEEDED <= {"cython_runtime"}
