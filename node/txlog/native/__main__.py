"""``python -m txlog.native``: compile (``make native``) with mypyc. Without a C compiler it compiles nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from txlog.native.finder import BUILD_FOLDER, COMPILED_MODULES, MANIFEST, SOURCE_ROOT, source_digest, source_path


def build(folder: Path) -> None:
    """Compile all modules into ``folder``. It is replaced once every module is compiled."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    before = source_digest()
    with tempfile.TemporaryDirectory(prefix="txlog-native-") as made:
        work = Path(made)
        os.chdir(SOURCE_ROOT)
        paths = [str(source_path(module).relative_to(SOURCE_ROOT)) for module in COMPILED_MODULES]
        extensions = mypycify(
            ["--strict", "--ignore-missing-imports", f"--cache-dir={work / 'cache'}", *paths],
            opt_level="2",
            debug_level="0",
            target_dir=str(work / "c"),
        )
        distribution = Distribution({"name": "txlog-native", "ext_modules": extensions})
        command = distribution.get_command_obj("build_ext")
        command.build_lib, command.build_temp, command.parallel = str(work / "lib"), str(work / "tmp"), 2
        distribution.run_command("build_ext")
        files = {
            path.relative_to(work / "lib").as_posix().partition(".")[0].replace("/", "."): path
            for path in (work / "lib").rglob("*.so")
        }
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, path in files.items():
            shutil.copy(path, folder / f"{name}.so")
        manifest = {"digest": before, "files": {name: f"{name}.so" for name in files}}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def compiler() -> str | None:
    """The C compiler that setuptools would call, if it is there."""
    import sysconfig

    wanted = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return shutil.which(wanted) if headers.exists() else None


def main() -> int:
    """Compile the modules unless the last build has the same sources. Returns 0 also without a C compiler: a master
    then runs interpreted."""
    try:
        if json.loads((BUILD_FOLDER / MANIFEST).read_bytes()).get("digest") == source_digest():
            return 0
    except (OSError, ValueError):
        pass
    if compiler() is None:
        print("no C compiler with Python's headers here: the masters run interpreted, more slowly", file=sys.stderr)
        return 0
    print(f"compiling {len(COMPILED_MODULES)} modules, about a minute ...", file=sys.stderr)
    build(BUILD_FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
