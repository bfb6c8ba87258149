"""``python -m txlog.evaluation BYTES PARENT``: the process that a master keeps for what it evaluates itself."""

import sys

from txlog.evaluation.evaluator_process import main

main(sys.argv[1:])
