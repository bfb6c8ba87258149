"""The hot rooms as compiled extensions: the same sources, through mypyc. See ``README.md``."""

from txlog.native.finder import is_native, prefer_native

__all__ = ["is_native", "prefer_native"]
