// Files as transactions, one after the other, with their progress.
import {type Live} from './api';
import {bytes, h, setText} from './dom';
import {NAMES, isCompressed, mediaOf} from './media';

const LEVELS: [string, string][] = [['synced', 'it is in the log of all masters'], ['accepted', 'this master has it'], ['applied', 'a worker here has it']];
const WAIT_S = 120;

/** One file: its row, and the request that sends it. A repeat has the same key, so it takes effect once. */
class Upload {
  readonly node: HTMLLIElement;
  private readonly bar = h('progress', {max: 1, value: 0});
  private readonly state = h('span', {class: 'note'}, 'waits');
  private readonly button = h('button', {type: 'button', class: 'quiet', onClick: () => this.press()}, 'Cancel');
  private readonly key = `console.${[...crypto.getRandomValues(new Uint8Array(12))].map((one) => one.toString(16).padStart(2, '0')).join('')}`;
  private request: XMLHttpRequest | null = null;
  private finish: (() => void) | null = null;
  isOver = false;

  constructor(private readonly file: File, private readonly graph: string, private readonly level: string, private readonly again: (one: Upload) => void,
    private readonly announce: (text: string) => void) {
    setLabel(this.bar, `Progress of ${file.name}`);
    setLabel(this.button, `Cancel: ${file.name}`);
    this.node = h('li', {class: 'upload', 'data-level': 'wait'}, h('span', {class: 'name'}, file.name), h('span', {class: 'dim'}, bytes(file.size)), this.button, this.bar, this.state);
  }

  /** Sends the file; returns when there is an answer, or none is to come. */
  send(repository: string): Promise<void> {
    const type = mediaOf(this.file.name);
    if (this.isOver) return Promise.resolve();
    if (!type) {
      this.end('bad', `not a format that TxLog reads; expected ${NAMES.join(', ')}, or one of them with .gz`);
      return Promise.resolve();
    }
    return new Promise((done) => {
      this.finish = done;
      const request = this.request = new XMLHttpRequest(); // fetch() does not report the progress of a request's body
      const query = this.graph ? `?context=${encodeURIComponent(`<${this.graph}>`)}` : '';
      request.open('POST', `../repositories/${encodeURIComponent(repository)}/statements${query}`);
      request.setRequestHeader('Content-Type', type);
      request.setRequestHeader('Idempotency-Key', this.key);
      request.setRequestHeader('TxLog-Durability', this.level);
      request.setRequestHeader('Prefer', `wait=${WAIT_S}`);
      if (isCompressed(this.file.name)) request.setRequestHeader('Content-Encoding', 'gzip');
      request.upload.onprogress = (event) => this.progress(event.loaded, event.total);
      request.upload.onload = () => setText(this.state, `sent; waits until ${LEVELS.find(([name]) => name === this.level)?.[1]} …`);
      request.onload = () => this.answer(request);
      request.onerror = () => this.end('bad', 'this master does not answer; the same file again takes effect once');
      request.onabort = () => this.end('warn', 'cancelled; it may have taken effect if it was sent whole');
      setText(this.state, 'sends …');
      request.send(this.file);
    });
  }

  private progress(sent: number, total: number): void {
    this.bar.value = total ? sent / total : 0;
    setText(this.state, `${bytes(sent)} of ${bytes(total)}`);
  }

  private answer(request: XMLHttpRequest): void {
    const txid = request.getResponseHeader('TxLog-Transaction');
    if (request.status < 300 && txid) {
      const position = request.getResponseHeader('TxLog-Position')?.split(':')[1];
      this.end(request.status === 202 ? 'warn' : 'good', `${request.status === 202 ? 'accepted, but not at that level yet' : this.level}${position ? ` at index ${position}` : ''} · ${txid}`);
    } else if (request.status < 300) {
      this.end('good', 'it contains no statement, so there is no transaction');
    } else {
      this.end('bad', request.responseText.trim().slice(0, 500) || `status ${request.status}`);
    }
  }

  private end(level: 'good' | 'warn' | 'bad', text: string): void {
    this.isOver = true;
    this.node.dataset.level = level;
    if (level === 'good') this.bar.value = 1;
    setText(this.state, text);
    setText(this.button, level === 'good' ? 'Remove' : 'Again');
    setLabel(this.button, `${level === 'good' ? 'Remove' : 'Send again'}: ${this.file.name}`);
    this.announce(`${this.file.name}: ${text}`);
    this.finish?.();
    this.finish = null;
  }

  private press(): void {
    if (!this.isOver && this.request) this.request.abort();
    else if (!this.isOver) this.end('warn', 'cancelled before it was sent');
    else if (this.node.dataset.level === 'good') this.node.remove();
    else {
      this.isOver = false;
      this.node.dataset.level = 'wait';
      setText(this.button, 'Cancel');
      setLabel(this.button, `Cancel: ${this.file.name}`);
      setText(this.state, 'waits');
      this.bar.value = 0;
      this.again(this);
    }
  }
}

export class LoadView {
  readonly node = h('section', {class: 'view', 'aria-labelledby': 'load-title'});
  private readonly list = h('ul', {class: 'uploads', 'aria-label': 'Files'});
  private readonly graph = h('input', {id: 'load-graph', name: 'graph', placeholder: 'http://example.org/graph', autocomplete: 'off', spellcheck: 'false'});
  private readonly level = h('select', {id: 'load-level'}, ...LEVELS.map(([name, text]) => h('option', {value: name}, `${name}: ${text}`)));
  private readonly said = h('p', {role: 'status', class: 'unseen'});
  private readonly queue: Upload[] = [];
  private isRunning = false;
  private repository = '';

  constructor() {
    const files = h('input', {type: 'file', id: 'load-files', multiple: true, accept: [...NAMES, '.gz'].join(','), onChange: () => { this.take(files.files); files.value = ''; }});
    const zone = h('div', {class: 'zone'}, h('label', {for: 'load-files'}, 'Choose RDF files, or drop them here'), files,
      h('p', {class: 'dim'}, `${NAMES.join(' ')}, also with .gz. Each file is one transaction: all of it takes effect, or nothing.`));
    zone.addEventListener('dragover', (event) => { event.preventDefault(); zone.dataset.over = 'yes'; });
    zone.addEventListener('dragleave', () => { delete zone.dataset.over; });
    zone.addEventListener('drop', (event) => { event.preventDefault(); delete zone.dataset.over; this.take(event.dataTransfer?.files ?? null); });
    this.node.append(h('h2', {id: 'load-title'}, 'Load files'),
      h('div', {class: 'fields'},
        h('label', {for: 'load-graph'}, 'Graph'), this.graph, h('label', {for: 'load-level'}, 'Wait until'), this.level),
      h('p', {class: 'dim'}, 'Without a graph, statements go to the graphs that the file names, else to the default graph.'),
      zone, this.list, this.said,
      h('p', {class: 'dim'}, 'Very large files: ', h('code', {}, 'txlog load FILE'), ' sends them in pieces, through all masters at once.'));
  }

  update(live: Live): void {
    this.repository = live.repository;
  }

  private take(files: FileList | null): void {
    for (const file of files ?? []) this.add(new Upload(file, this.graph.value.trim(), this.level.value, (one) => this.add(one), (text) => setText(this.said, text)));
  }

  private add(one: Upload): void {
    if (!one.node.isConnected) this.list.append(one.node);
    this.queue.push(one);
    void this.run();
  }

  private async run(): Promise<void> {
    if (this.isRunning) return;
    this.isRunning = true;
    try {
      for (let one = this.queue.shift(); one; one = this.queue.shift()) await one.send(this.repository);
    } finally {
      this.isRunning = false; // a file that cannot be sent at all must not stop those that are dropped later
    }
  }
}

const setLabel = (node: Element, text: string): void => node.setAttribute('aria-label', text);
