// Data centres, masters, links, and workers with their positions.
import type {Live, LiveMaster} from './api';
import {count, h, refresh, s, setAttr, setText, table} from './dom';
import {colourOf, type History} from './history';
import {arrives, lagOf, lagText, levelOfWorker, linkOf, sides} from './summary';

const WORDS = {both: 'both ways', 'one-way': 'one way only', cut: 'cut', unknown: 'not known'} as const;

export class MapView {
  readonly node = h('section', {class: 'view', 'aria-labelledby': 'map-title'});
  private readonly board = h('div', {class: 'board'});
  private readonly links = s('svg', {class: 'links', 'aria-hidden': 'true'});
  private readonly centres = h('div', {class: 'centres'});
  private readonly matrix = h('div');
  private readonly parts = new Map<string, HTMLElement>();
  private live: Live | null = null;

  constructor() {
    this.board.append(this.links, this.centres);
    this.node.append(
      h('h2', {id: 'map-title'}, 'Data centres and links'), this.board,
      h('ul', {class: 'legend', 'aria-label': 'Kinds of links'},
        ...Object.entries(WORDS).map(([kind, text]) => h('li', {},
          s('svg', {width: 34, height: 8, 'aria-hidden': 'true'}, s('path', {d: 'M1 4H33', class: `link ${kind}`})), text))),
      h('details', {}, h('summary', {}, 'Who receives from whom, as a table'), this.matrix));
    new ResizeObserver(() => this.drawLinks()).observe(this.board);
  }

  update(live: Live, history: History): void {
    this.live = live;
    const structure = [live.masters.map((one) => [one.node, one.dataCenter]), live.workers.map((one) => [one.dataCenter, one.name])];
    refresh(this.centres, structure, () => this.build(live));
    const rates = history.rates();
    const groups = sides(live);
    for (const master of live.masters) this.updateMaster(master, rates[master.node] ?? 0, groups.findIndex((each) => each.includes(master)));
    this.updateWorkers(live);
    const all = live.masters.map((one) => one.node);
    refresh(this.matrix, [live.hears, all], () => [table('Messages that arrive', ['at ↓ from →', ...all], all.map((to) => [
      h('strong', {}, to), ...all.map((from) => (from === to ? '·' : {true: 'yes', false: 'no', null: '?'}[String(arrives(live, from, to))] ?? '?'))]))]);
    this.drawLinks();
  }

  private build(live: Live): HTMLElement[] {
    this.parts.clear();
    const found: HTMLElement[] = [];
    // Workers may be known of a data centre whose masters have left.
    for (const name of [...new Set([...live.masters, ...live.workers].map((one) => one.dataCenter))]) {
      const masters = live.masters.filter((one) => one.dataCenter === name);
      const workers = live.workers.filter((one) => one.dataCenter === name);
      found.push(h('article', {class: 'centre', 'aria-label': `data centre ${name}`},
        h('h3', {}, name, h('span', {class: 'dim'}, ' data centre')),
        h('ul', {class: 'masters', 'aria-label': 'masters'}, ...masters.map((one) => this.buildMaster(one))),
        h('ul', {class: 'workers', 'aria-label': 'workers'}, ...workers.map((one) => this.buildWorker(name, one.name)))));
    }
    return found;
  }

  private part<T extends HTMLElement>(key: string, made: T): T {
    this.parts.set(key, made);
    return made;
  }

  private buildMaster({node}: LiveMaster): HTMLElement {
    return this.part(`master ${node}`, h('li', {class: 'master'},
      h('span', {class: 'dot'}), h('b', {}, node), this.part(`state ${node}`, h('span', {class: 'note'})),
      this.part(`rate ${node}`, h('span', {class: 'rate'}))));
  }

  private buildWorker(centre: string, name: string): HTMLElement {
    const key = `${centre}/${name}`;
    return this.part(`worker ${key}`, h('li', {class: 'worker'},
      h('span', {class: 'name'}, name), this.part(`pill ${key}`, h('span', {class: 'pill'})),
      h('span', {class: 'bar', 'aria-hidden': 'true'}, this.part(`fill ${key}`, h('i'))),
      this.part(`lag ${key}`, h('span', {class: 'note'}))));
  }

  private updateMaster(master: LiveMaster, rate: number, side: number): void {
    const {node} = master;
    const item = this.parts.get(`master ${node}`)!;
    setAttr(item, 'data-level', master.present ? 'good' : master.inView ? 'warn' : 'bad');
    setAttr(item, 'data-side', String(side));
    item.style.setProperty('--own', `var(${colourOf(this.live!, node)})`);
    const state = master.self ? this.live!.state : master.present ? 'in the view' : master.inView ? 'silent' : 'out of the view';
    setText(this.parts.get(`state ${node}`)!, master.self ? `this master · ${state}` : state);
    setText(this.parts.get(`rate ${node}`)!, rate ? `${rate < 10 ? rate.toFixed(1) : count(rate)}/s` : '');
  }

  private updateWorkers(live: Live): void {
    const lags = live.workers.map((one) => lagOf(live, one) ?? 0);
    const scale = Math.max(100, ...lags);
    live.workers.forEach((worker, at) => {
      const key = `${worker.dataCenter}/${worker.name}`;
      const lag = lagOf(live, worker);
      // Nothing arrives from a data centre on the other side of a split: what is shown of it is old.
      const old = live.masters.every((one) => one.dataCenter !== worker.dataCenter || !one.present);
      setAttr(this.parts.get(`worker ${key}`)!, 'data-level', old ? 'wait' : levelOfWorker(live, worker));
      setText(this.parts.get(`pill ${key}`)!, old ? 'last known' : worker.differs ? 'differs' : worker.state);
      const index = worker.index === null ? '' : `at ${count(worker.index)} · `;
      setText(this.parts.get(`lag ${key}`)!, `${index}${lagText(lag)}${worker.hold === null ? '' : ` · held at ${count(worker.hold)}`}`);
      this.parts.get(`fill ${key}`)!.style.inlineSize = `${lag === null ? 0 : 100 * (1 - 0.96 * lags[at]! / scale)}%`;
    });
  }

  private drawLinks(): void {
    const live = this.live;
    if (!live || !this.node.isConnected) return;
    const box = this.board.getBoundingClientRect();
    setAttr(this.links, 'viewBox', `0 0 ${Math.round(box.width)} ${Math.round(box.height)}`);
    const places = live.masters.map(({node}) => {
      const dot = this.parts.get(`master ${node}`)?.querySelector('.dot')?.getBoundingClientRect();
      return dot ? {node, x: dot.x + dot.width / 2 - box.x, y: dot.y + dot.height / 2 - box.y} : null;
    });
    const moves = live.origins.length > 0;
    const key: unknown[] = [];
    const paths: SVGElement[] = [];
    places.forEach((a, at) => places.slice(at + 1).forEach((b) => {
      if (!a || !b) return;
      const kind = linkOf(live, a.node, b.node);
      const [mx, my] = bend(a, b, box.width, paths.length);
      const d = `M${a.x.toFixed(0)} ${a.y.toFixed(0)}Q${mx.toFixed(0)} ${my.toFixed(0)} ${b.x.toFixed(0)} ${b.y.toFixed(0)}`;
      key.push([kind, d]);
      paths.push(s('path', {d, class: `link ${kind}${moves && kind === 'both' ? ' moves' : ''}`}));
      if (kind === 'cut' || kind === 'one-way') {
        const [x, y] = [(a.x + 2 * mx + b.x) / 4, (a.y + 2 * my + b.y) / 4];
        const d2 = kind === 'cut' ? `M${x - 6} ${y - 6}l12 12m0-12l-12 12` : arrow(live, a, b, x, y);
        paths.push(s('circle', {cx: x, cy: y, r: 11, class: `mark ${kind}`}), s('path', {d: d2, class: `sign ${kind}`}));
      }
    }));
    refresh(this.links, key, () => paths);
  }
}

/** The control point of a link: between centres beside each other it passes above them, between stacked ones at their side. */
function bend(a: {x: number; y: number}, b: {x: number; y: number}, width: number, number: number): [number, number] {
  const middle = (a.x + b.x) / 2;
  if (Math.abs(a.y - b.y) > 60) return [width + 30 - 14 * (number % 3), (a.y + b.y) / 2];
  const far = Math.abs(a.x - b.x) > 320;
  const apex = far ? 16 + 12 * (number % 3) : Math.max(10, a.y - 34);
  return [middle, (4 * apex - a.y - b.y) / 2];
}

/** An arrow in the direction in which messages still arrive. */
function arrow(live: Live, a: {node: string; x: number; y: number}, b: {node: string; x: number; y: number}, x: number, y: number): string {
  const forward = arrives(live, a.node, b.node) === true;
  const angle = Math.atan2(b.y - a.y, b.x - a.x) + (forward ? 0 : Math.PI);
  const at = (turn: number, length: number): string => `${(x + length * Math.cos(angle + turn)).toFixed(1)} ${(y + length * Math.sin(angle + turn)).toFixed(1)}`;
  return `M${at(Math.PI, 6)}L${at(0, 6)}M${at(0.9, 5)}L${at(0, 6)}L${at(-0.9, 5)}`;
}

