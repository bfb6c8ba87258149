"""Catch-up by the net effect of the log. See README.md."""
