"""``python -m txlog.evaluation BYTES PARENT``: the process in which a master evaluates updates and queries itself."""

import sys

from txlog.evaluation.evaluator_process import main

main(sys.argv[1:])
