"""The successor of a cluster that lost everything: a new cluster, founded from an archive alone."""
