"""SPARQL on a copy of the data in memory, in a process of its own, whose memory and time are bounded."""
