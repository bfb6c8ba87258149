"""A model of certification: updates that a master evaluates once, and that the log alone accepts or refuses."""
