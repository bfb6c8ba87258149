// RDF statements as a person sees them: from N-Triples and N-Quads lines, or from the rows of a query.

export interface RdfTerm { kind: 'iri' | 'blank' | 'literal'; value: string; detail: string }
export interface Statement { subject: RdfTerm; predicate: RdfTerm; object: RdfTerm; graph: RdfTerm | null }
export interface JsonTerm { type: string; value: string; 'xml:lang'?: string; datatype?: string }

const TERM = /<([^>]*)>|_:([^\s]+)|"((?:[^"\\]|\\.)*)"(?:@([A-Za-z][\w-]*)|\^\^<([^>]*)>)?/gy;
const ESCAPES: Record<string, string> = {t: '\t', b: '\b', n: '\n', r: '\r', f: '\f', '"': '"', "'": "'", '\\': '\\'};
const XSD_STRING = 'http://www.w3.org/2001/XMLSchema#string';

/** The statements of a text in N-Triples or N-Quads, at most `most`. Lines with anything else are passed over. */
export function parseLines(text: string, most: number): Statement[] {
  const found: Statement[] = [];
  for (const line of text.split('\n')) {
    const terms = termsOf(line);
    const [subject, predicate, object, graph] = terms;
    if (subject && predicate && object) found.push({subject, predicate, object, graph: graph ?? null});
    if (found.length >= most) break;
  }
  return found;
}

function termsOf(line: string): RdfTerm[] {
  const terms: RdfTerm[] = [];
  let at = 0;
  while (at < line.length) {
    if (/\s/.test(line[at]!)) { at += 1; continue; }
    TERM.lastIndex = at;
    const match = TERM.exec(line);
    if (!match) break; // the final dot, or a form that is not shown as a graph
    terms.push(termOf(match));
    at = TERM.lastIndex;
  }
  return terms;
}

function termOf(match: RegExpExecArray): RdfTerm {
  const [, iri, blank, text, language, datatype] = match;
  if (iri !== undefined) return {kind: 'iri', value: unescape(iri), detail: ''};
  if (blank !== undefined) return {kind: 'blank', value: `_:${blank}`, detail: ''};
  return {kind: 'literal', value: unescape(text ?? ''), detail: detailOf(language, datatype)};
}

const unescape = (text: string): string => text.replace(/\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))/g,
  (whole, short: string | undefined, long: string | undefined, one: string | undefined) =>
    (one === undefined ? characterOf(parseInt((short ?? long)!, 16)) ?? whole : ESCAPES[one] ?? whole));

/** None for a number that is no character: one such escape must not hide the other rows. */
const characterOf = (code: number): string | null => (code <= 0x10ffff ? String.fromCodePoint(code) : null);

const detailOf = (language: string | undefined, datatype: string | undefined): string =>
  (language ? `@${language}` : datatype && datatype !== XSD_STRING ? localName(datatype) : '');

export function fromJson(term: JsonTerm): RdfTerm {
  if (term.type === 'uri') return {kind: 'iri', value: term.value, detail: ''};
  if (term.type === 'bnode') return {kind: 'blank', value: `_:${term.value}`, detail: ''};
  return {kind: 'literal', value: term.value, detail: detailOf(term['xml:lang'], term.datatype)};
}

/** What a row binds a variable to; null where it does not. A variable may be called as something that each object has. */
export function valueOf(row: Record<string, JsonTerm>, name: string): RdfTerm | null {
  return Object.hasOwn(row, name) ? fromJson(row[name]!) : null;
}

const ROLES: [RegExp, 'subject' | 'predicate' | 'object'][] = [[/^(s|subj|subject)$/i, 'subject'], [/^(p|pred|predicate)$/i, 'predicate'], [/^(o|obj|object)$/i, 'object']];

/** The rows of a SELECT as statements, when three of its columns are named as the parts of one; else none. */
export function fromRows(columns: string[], rows: Record<string, JsonTerm>[], most: number): Statement[] {
  const names = ROLES.map(([pattern]) => columns.find((one) => pattern.test(one)));
  const [subject, predicate, object] = names;
  if (!subject || !predicate || !object) return [];
  return rows.filter((row) => row[subject] && row[predicate] && row[object]).slice(0, most).map((row) => (
    {subject: fromJson(row[subject]!), predicate: fromJson(row[predicate]!), object: fromJson(row[object]!), graph: null}));
}

/** The last part of an IRI. */
export function localName(iri: string): string {
  const name = iri.replace(/[/#:]+$/, '').split(/[/#:]/).at(-1);
  return name || iri;
}
