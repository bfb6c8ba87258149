"""Clients that write and read."""
