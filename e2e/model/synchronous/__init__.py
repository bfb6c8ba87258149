"""A model of synchronous transactions: quorums, decisions in the log, view changes whose messages get lost."""
