"""Detects workers whose data differs, by comparing their digests at equal positions. Pure."""
