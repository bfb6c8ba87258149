// Queries with their results, and the look-up of a transaction.
import type {EditorView} from '@codemirror/view';
import {type Live, Refused, type Transaction, ask, getJson, textOf} from './api';
import {type Child, count, h, plural, setText, table} from './dom';
import {type JsonTerm, type RdfTerm, type Statement, fromRows, parseLines, valueOf} from './statements';

const ROWS_SHOWN = 1000;
const ANSWER_BYTES_MAX = 64 << 20;
const CELL_MAX = 10_000;
const KEPT = 'txlog-query';
const EXAMPLES: Record<string, string> = {
  'Some statements': 'SELECT ?graph ?subject ?predicate ?object {\n  GRAPH ?graph { ?subject ?predicate ?object }\n} LIMIT 50',
  'Statements per graph': 'SELECT ?graph (COUNT(*) AS ?statements) {\n  GRAPH ?graph { ?subject ?predicate ?object }\n} GROUP BY ?graph ORDER BY DESC(?statements) LIMIT 50',
  'A graph of things': 'CONSTRUCT { ?subject ?predicate ?object } WHERE {\n  ?subject ?predicate ?object\n} LIMIT 60',
  'Classes': 'SELECT ?class (COUNT(?thing) AS ?things) {\n  ?thing a ?class\n} GROUP BY ?class ORDER BY DESC(?things) LIMIT 50',
  'Predicates': 'SELECT ?predicate (COUNT(*) AS ?uses) {\n  ?subject ?predicate ?object\n} GROUP BY ?predicate ORDER BY DESC(?uses) LIMIT 50',
};

interface Results { head: {vars?: string[]}; results?: {bindings: Record<string, JsonTerm>[]}; boolean?: boolean }

export class QueryView {
  readonly node = h('section', {class: 'view', 'aria-labelledby': 'query-title'});
  private readonly host = h('div', {class: 'editor'});
  // Only these two lines are read aloud by themselves: a table of a thousand rows would be, too.
  private readonly state = h('p', {role: 'status', class: 'dim'});
  private readonly lookedUp = h('p', {role: 'status', class: 'dim'});
  private readonly answer = h('div', {class: 'answer'});
  private readonly found = h('div');
  private readonly runButton = h('button', {type: 'button', onClick: () => void this.run()}, 'Run');
  private readonly stopButton = h('button', {type: 'button', class: 'quiet', disabled: true, onClick: () => this.running?.abort()}, 'Stop');
  private editor: EditorView | null = null;
  private running: AbortController | null = null;
  private repository = '';

  constructor() {
    const examples = h('select', {'aria-label': 'Examples', onChange: () => this.use(examples)},
      h('option', {value: ''}, 'Examples …'), ...Object.keys(EXAMPLES).map((name) => h('option', {value: name}, name)));
    const id = h('input', {id: 'txid', name: 'txid', placeholder: 'uk-1.4c9a0e5d1b7f3a22.17', autocomplete: 'off', spellcheck: 'false'});
    this.node.append(
      h('h2', {id: 'query-title'}, 'Query'), this.host,
      h('div', {class: 'buttons'}, this.runButton, this.stopButton, examples, h('span', {class: 'dim'}, 'Ctrl + Enter runs it')),
      this.state, this.answer, h('h2', {}, 'Look up a transaction'),
      h('form', {class: 'buttons', onSubmit: (event) => { event.preventDefault(); void this.lookUp(id.value.trim()); }},
        h('label', {for: 'txid'}, 'Transaction id'), id, h('button', {}, 'Look up')), this.lookedUp, this.found);
  }

  update(live: Live): void {
    this.repository = live.repository;
    if (!this.editor && this.node.isConnected) void this.loadEditor();
  }

  private async loadEditor(): Promise<void> {
    if (this.host.dataset.loading) return;
    this.host.dataset.loading = 'yes';
    const {createEditor} = await import('./editor');
    this.editor = createEditor(this.host, kept() ?? EXAMPLES['Some statements']!, () => void this.run());
  }

  private use(chosen: HTMLSelectElement): void {
    const text = EXAMPLES[chosen.value];
    if (text && this.editor) this.editor.dispatch({changes: {from: 0, to: this.editor.state.doc.length, insert: text}});
    chosen.value = '';
  }

  private async run(): Promise<void> {
    const text = this.editor?.state.doc.toString() ?? '';
    keep(text);
    this.running?.abort();
    const mine = this.running = new AbortController();
    this.stopButton.disabled = false;
    setText(this.state, 'Running …');
    this.answer.replaceChildren();
    const began = performance.now();
    try {
      const answer = await ask(`repositories/${encodeURIComponent(this.repository)}`, {
        method: 'POST', body: text, signal: mine.signal,
        headers: {'Content-Type': 'application/sparql-query', Accept: 'application/sparql-results+json, application/n-quads;q=0.9, application/n-triples;q=0.8'}});
      const body = await textOf(answer, ANSWER_BYTES_MAX);
      const took = `${Math.round(performance.now() - began)} ms · ${answer.headers.get('TxLog-Worker') ?? 'this master'}`;
      if (this.running === mine) this.answer.replaceChildren(...this.render(answer.headers.get('Content-Type') ?? '', body, took));
    } catch (error) {
      if (this.running !== mine) return; // another query runs
      setText(this.state, '');
      const stopped = error instanceof DOMException;
      this.answer.replaceChildren(h('p', {class: 'error', role: 'alert'}, stopped ? 'Stopped.' : (error as Error).message));
    } finally {
      if (this.running === mine) this.stopButton.disabled = true;
    }
  }

  private render(type: string, body: string, took: string): HTMLElement[] {
    if (!type.includes('json')) {
      const lines = body.split('\n').filter(Boolean);
      const statements = parseLines(body, ROWS_SHOWN);
      const more = lines.length > ROWS_SHOWN ? ` · the first ${count(ROWS_SHOWN)} are shown` : '';
      const hasGraphs = statements.some((one) => one.graph);
      const rows = statements.map((one) => [one.subject, one.predicate, one.object, ...(hasGraphs ? [one.graph] : [])].map(termCell));
      setText(this.state, `${plural(lines.length, 'statement')} · ${took}${more}`);
      return [
        ...this.withGraph(table('Statements', ['Subject', 'Predicate', 'Object', ...(hasGraphs ? ['Graph'] : [])], rows, 'none'), statements)];
    }
    const recovery = JSON.parse(body) as Results;
    if (recovery.boolean !== undefined) {
      setText(this.state, `${recovery.boolean ? 'yes' : 'no'} · ${took}`);
      return [h('p', {}, h('strong', {}, recovery.boolean ? 'yes' : 'no'))];
    }
    const rows = recovery.results?.bindings ?? [];
    const columns = recovery.head.vars ?? [];
    const more = rows.length > ROWS_SHOWN ? ` · the first ${count(ROWS_SHOWN)} are shown` : '';
    setText(this.state, `${plural(rows.length, 'row')} · ${took}${more}`);
    return [
      ...this.withGraph(
        table('Results', columns, rows.slice(0, ROWS_SHOWN).map((row) => columns.map((name) => termCell(valueOf(row, name)))), 'no rows'),
        fromRows(columns, rows, ROWS_SHOWN))];
  }

  /** A table, and the choice to see the same as a graph where it is one. The graph's code is loaded when it is chosen. */
  private withGraph(rows: HTMLElement, statements: Statement[]): HTMLElement[] {
    if (!statements.length) return [rows];
    const place = h('div', {class: 'shown'}, rows);
    const choose = (button: HTMLElement, other: HTMLElement, shown: HTMLElement): void => {
      button.setAttribute('aria-pressed', 'true');
      other.setAttribute('aria-pressed', 'false');
      place.replaceChildren(shown);
    };
    const asTable = h('button', {type: 'button', class: 'quiet', 'aria-pressed': 'true', onClick: () => choose(asTable, asGraph, rows)}, 'Table');
    const asGraph: HTMLButtonElement = h('button', {type: 'button', class: 'quiet', 'aria-pressed': 'false', onClick: async () => {
      const {GraphView} = await import('./graph_view');
      choose(asGraph, asTable, new GraphView(statements).node);
    }}, 'Graph');
    return [h('div', {class: 'buttons', role: 'group', 'aria-label': 'Show the results as'}, asTable, asGraph), place];
  }

  private async lookUp(txid: string): Promise<void> {
    if (!txid) return;
    try {
      const recovery = await getJson<Transaction>(`txlog/transactions/${encodeURIComponent(txid)}`);
      setText(this.lookedUp, `Transaction ${txid} is found.`);
      this.found.replaceChildren(table(`Transaction ${txid}`, ['Field', 'Value'],
        Object.entries(recovery).map(([name, value]) => [name, typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value ?? '–')])));
    } catch (error) {
      const text = error instanceof Refused ? error.message : String(error);
      setText(this.lookedUp, '');
      this.found.replaceChildren(h('p', {class: 'error', role: 'alert'}, text));
    }
  }
}

function termCell(of: RdfTerm | null | undefined): Child {
  if (!of) return h('span', {class: 'dim'}, '–');
  if (of.kind === 'iri') return h('span', {class: 'iri'}, clipped(of.value));
  return h('span', {}, clipped(of.value), of.detail && h('span', {class: 'dim'}, of.detail.startsWith('@') ? of.detail : ` ${of.detail}`));
}

/** The text is kept while the tab is open, where the browser lets it: a long one is above its quota. */
function keep(text: string): void {
  try { sessionStorage.setItem(KEPT, text); } catch { /* it is in the editor all the same */ }
}

function kept(): string | null {
  try { return sessionStorage.getItem(KEPT); } catch { return null; }
}

/** One literal of many megabytes would stop the page. */
const clipped = (text: string): string =>
  (text.length > CELL_MAX ? `${text.slice(0, CELL_MAX)} … (${count(text.length)} characters)` : text);
