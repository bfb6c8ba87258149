"""``txlog ...``: what a person or a script asks of a cluster."""
