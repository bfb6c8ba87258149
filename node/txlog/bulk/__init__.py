"""Bulk loads: many quads come into the workers without going through the log (decision 125)."""
