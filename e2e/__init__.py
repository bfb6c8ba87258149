"""Whole clusters: the demonstration on real data, faults in real processes, and end-to-end tests."""
