"""``python -m txlog.server``: :mod:`txlog.server.main` over the compiled modules, if they exist and fit."""

import sys

from txlog.native import install_import_hook

if __name__ == "__main__":
    install_import_hook()
    from txlog.server.main import main

    sys.exit(main())
