"""Executes SPARQL on an in-memory copy of the data, in a separate process whose memory and time are bounded."""
