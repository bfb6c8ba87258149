"""Compiles the hot packages with mypyc, from the same sources. See ``README.md``."""

from txlog.native.finder import install_import_hook, is_native

__all__ = ["install_import_hook", "is_native"]
