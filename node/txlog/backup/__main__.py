"""``python -m txlog.backup``."""

import logging
import sys

from txlog.backup.backup_job import JOB, main
from txlog.telemetry.json_log import install_json_log

if __name__ == "__main__":
    install_json_log(JOB, logging.WARNING)
    sys.exit(main())
