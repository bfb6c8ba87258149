"""``python -m txlog.evaluation BYTES PARENT``: the process that a master keeps for what it evaluates itself."""

import sys

from txlog.evaluation.serving import main

main(sys.argv[1:])
