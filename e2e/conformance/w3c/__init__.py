"""The W3C's tests of SPARQL: as their manifests say them, and carried out. ``make w3c``."""
