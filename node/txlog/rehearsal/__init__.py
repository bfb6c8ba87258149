"""Rehearses a recovery: the archive becomes a cluster and a store in a throw-away place, and is compared with a live
worker. Nothing of it knows an address of the cluster but those that it reads from."""
