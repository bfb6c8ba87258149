"""The hot rooms as compiled extensions: the same sources, through mypyc. See ``README.md``."""

from txlog.native.finder import install_import_hook, is_native

__all__ = ["install_import_hook", "is_native"]
