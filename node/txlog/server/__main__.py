"""``python -m txlog.server``: :mod:`txlog.server.main` over the compiled rooms, where they are there and fit."""

import sys

from txlog.native import prefer_native

if __name__ == "__main__":
    prefer_native()
    from txlog.server.main import main

    sys.exit(main())
