"""RDF4J and SPARQL for clients, and writes as JSON lines."""
