from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "archive"))  # archivers in the test
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))  # real masters
sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))  # real stores
from master_cluster import clusters as clusters
from rehearsed_cluster import rehearsed as rehearsed
