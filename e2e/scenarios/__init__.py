"""Scenarios on clusters of this machine, each a command."""
