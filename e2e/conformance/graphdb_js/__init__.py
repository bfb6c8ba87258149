"""GraphDB's JavaScript client (``graphdb`` of npm), unchanged, as pinned by ``package-lock.json``."""
