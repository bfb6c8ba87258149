"""``python -m txlog.backup``."""

import sys

from txlog.backup.job import main

if __name__ == "__main__":
    sys.exit(main())
