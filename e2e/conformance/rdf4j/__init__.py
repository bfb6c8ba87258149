"""A real RDF4J server, and the same requests to it and to a master. ``make rdf4j-differences``."""
