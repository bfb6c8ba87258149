"""A model of several logs: transactions that all of their parts agree on, and cuts through all logs."""
