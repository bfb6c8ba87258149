"""RDF4J, SPARQL and line-wise writing for clients."""
