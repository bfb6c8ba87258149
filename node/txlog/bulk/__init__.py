"""Bulk loads: many quads come into the workers without going through the log (docs/how-to/bulk-load.md)."""
