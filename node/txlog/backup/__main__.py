"""``python -m txlog.backup``."""

import sys

from txlog.backup.backup_job import main

if __name__ == "__main__":
    sys.exit(main())
