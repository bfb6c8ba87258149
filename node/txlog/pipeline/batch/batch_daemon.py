"""Spark's Python daemon for a batch of its own. What the stream needs it does not load: that is 0.4 s of processor
before the first task."""

from txlog.pipeline.pyspark_daemon import BATCH_MODULE, main

if __name__ == "__main__":
    main((BATCH_MODULE,))
