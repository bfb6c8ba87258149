from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))  # real masters
sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))  # real stores
from master_cluster import clusters as clusters
