"""The W3C's tests of SPARQL, as their manifests say them."""
