import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "client"))  # a master that answers what a test says
