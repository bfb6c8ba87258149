"""``python -m txlog.native``: compile (``make native``) with mypyc. Without a C compiler it compiles nothing.

Each module is a C file of its own: all processors compile, and that in less time than one file with everything takes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from txlog.native.finder import BUILD_FOLDER, COMPILED_MODULES, MANIFEST, SOURCE_ROOT, source_digest, source_path

if TYPE_CHECKING:
    from distutils.extension import Extension as DistutilsExtension

    from setuptools import Extension

    AnyExtension = DistutilsExtension | Extension


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
            multi_file=True,
            target_dir=str(work / "c"),
        )
        _compile_objects(extensions, work / "tmp")
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


def _compile_objects(extensions: Sequence[AnyExtension], folder: Path) -> None:
    """Compile the C files of all extensions beside one another; what is left for each extension is to be linked."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    c_compiler = new_compiler()
    customize_compiler(c_compiler)
    include = sysconfig.get_paths()["include"]

    def compile_file(extension: AnyExtension, source: str) -> list[str]:
        return c_compiler.compile(
            [source], str(folder), None, [*extension.include_dirs, include], extra_postargs=extension.extra_compile_args
        )

    files = [(extension, source) for extension in extensions for source in extension.sources]
    largest_first = sorted(files, key=lambda file: Path(file[1]).stat().st_size, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda file: (file[0], compile_file(*file)), largest_first))
    for extension, made in objects:
        extension.extra_objects += made
    for extension in extensions:
        extension.sources = []


def compiler() -> str | None:
    """The C compiler that setuptools would call, if it is there."""
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
    print(f"compiling {len(COMPILED_MODULES)} modules, some minutes ...", file=sys.stderr)
    build(BUILD_FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
