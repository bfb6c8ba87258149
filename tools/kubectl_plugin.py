"""``kubectl txlog`` as one file: a zip that Python runs. It holds the part of the plugin that needs Python's own
library alone, and the modules of TxLog that this part imports. Nothing in it is compiled.

``python tools/kubectl_plugin.py FILE``. The same sources give the same bytes.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SHEBANG: Final = b"#!/usr/bin/env python3\n"
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
MAIN: Final = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("kubectl txlog needs Python 3.11 or newer, this is " + sys.version.split()[0])
from kubectl_txlog.one_file import main

main()
"""
LISTED: Final = """\
import json, sys
before = set(sys.modules)
import kubectl_txlog.one_file
print(json.dumps({name: module.__file__ for name, module in sys.modules.items()
    if name not in before and getattr(module, "__file__", None)}))
"""


def build(file: Path) -> None:
    """Write the file, and make it a program."""
    packed = io.BytesIO(SHEBANG)
    packed.seek(0, io.SEEK_END)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted({**dict(_modules()), "__main__.py": MAIN.encode()}.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    part.write_bytes(packed.getvalue())
    part.chmod(0o755)
    part.replace(file)


def _modules() -> Iterator[tuple[str, bytes]]:
    """Each file of the zip by its name: what the plugin imports at its start."""
    done = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, check=True)
    imported = {name: Path(path) for name, path in json.loads(done.stdout).items()}
    for name, path in imported.items():
        top = name.partition(".")[0]
        if top in ("txlog", "kubectl_txlog"):
            yield _name_in_zip(name, path), path.read_bytes()
        elif "site-packages" in path.parts:
            raise SystemExit(f"the one file must need no library, and it imports {name}: {path}")


def _name_in_zip(module: str, path: Path) -> str:
    if path.suffix != ".py":
        raise SystemExit(f"{module} is compiled: {path}; set TXLOG_NATIVE=0")
    return module.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected python tools/kubectl_plugin.py FILE")
    build(Path(sys.argv[1]))
