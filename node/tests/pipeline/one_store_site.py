"""A data centre with one real store, and the log that it executes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feed_stub import FeedStub, StubLog
from store_process import Store

from txlog.config.process_config import PipelineConfig


class OneStoreSite:
    """``settings``: further fields of the pipeline's configuration."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.log = StubLog()
        self.feed = FeedStub(self.log, ["w1"])
        self.store = Store(folder / "w1")
        self.config = PipelineConfig.model_validate(
            {
                "data_center": "uk",
                "masters": [self.feed.url],
                "workers": [{"name": "w1", "url": self.store.url}],
                "scratch_folder": folder / "scratch",
                **settings,
            }
        )

    def close(self) -> None:
        """End feed and store."""
        self.feed.stop()
        self.store.kill()
