"""Measuring commands: how fast the masters, the pipeline and the workers are, seen by a plain client."""
