// By the name of a file, in which format it is.

const MEDIA = new Map(Object.entries({
  nt: 'application/n-triples', nq: 'application/n-quads', ttl: 'text/turtle', trig: 'application/trig',
  rdf: 'application/rdf+xml', xml: 'application/rdf+xml', owl: 'application/rdf+xml', jsonld: 'application/ld+json'}));
export const NAMES = [...MEDIA.keys()].map((one) => `.${one}`);

export const isCompressed = (name: string): boolean => name.toLowerCase().endsWith('.gz');

/** The media type; undefined for a name that says none. */
export const mediaOf = (name: string): string | undefined => MEDIA.get(name.toLowerCase().replace(/\.gz$/, '').split('.').at(-1) ?? '');
