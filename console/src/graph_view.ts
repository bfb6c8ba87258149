// Statements as a graph: things as nodes, predicates as arrows. d3-force computes where; the drawing is plain SVG.
import {type SimulationLinkDatum, type SimulationNodeDatum, forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY} from 'd3-force';
import {h, plural, s, setAttr} from './dom';
import {type RdfTerm, type Statement, localName} from './statements';

export const NODES_MAX = 250;
const TICKS = 220;
const ROOM = 1000;
const LABELLED_EDGES = 90;
const LABEL_LENGTH = 26;
const RDF_TYPE = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type';
const RADIUS = {iri: 11, blank: 7, literal: 6, class: 13} as const;
type Kind = keyof typeof RADIUS;

interface GraphNode extends SimulationNodeDatum { id: string; term: RdfTerm; kind: Kind; degree: number }
interface GraphEdge extends SimulationLinkDatum<GraphNode> { source: GraphNode; target: GraphNode; names: string[] }

/** The nodes and arrows of the first statements, up to {@link NODES_MAX} nodes. */
export function graphOf(statements: Statement[]): {nodes: GraphNode[]; edges: GraphEdge[]; shown: number} {
  const nodes = new Map<string, GraphNode>();
  const edges = new Map<string, GraphEdge>();
  let shown = 0;
  const nodeOf = (term: RdfTerm, kind: Kind, own: string): GraphNode => {
    // The same literal of two things is two nodes: a shared "1" would tie everything together.
    const id = term.kind === 'literal' ? `${own} ${term.value} ${term.detail}` : term.value;
    const found = nodes.get(id) ?? {id, term, kind, degree: 0};
    if (kind === 'class') found.kind = 'class';
    nodes.set(id, found);
    return found;
  };
  for (const {subject, predicate, object} of statements) {
    if (nodes.size >= NODES_MAX) break;
    shown += 1;
    const source = nodeOf(subject, subject.kind, '');
    const isClass = predicate.value === RDF_TYPE && object.kind === 'iri';
    const target = nodeOf(object, isClass ? 'class' : object.kind, subject.value + predicate.value);
    source.degree += 1;
    target.degree += 1;
    const key = `${source.id}\n${target.id}`;
    const name = predicate.value === RDF_TYPE ? 'a' : localName(predicate.value);
    const edge = edges.get(key) ?? {source, target, names: []};
    if (!edge.names.includes(name)) edge.names.push(name);
    edges.set(key, edge);
  }
  return {nodes: [...nodes.values()], edges: [...edges.values()], shown};
}

/** One drawing that can be moved and enlarged. The table beside it says the same for readers of screens. */
export class GraphView {
  readonly node: HTMLElement;
  private readonly canvas = s('svg', {class: 'graph', role: 'img', tabindex: 0});
  private readonly world = s('g');
  private readonly about = h('div', {class: 'about', 'aria-live': 'polite'}, h('p', {class: 'dim'}, 'Click a node for its statements. Drag to move, scroll to enlarge.'));
  private box = {x: 0, y: 0, width: 100, height: 100};
  private whole = this.box;
  private dragged: {x: number; y: number} | null = null;

  constructor(private readonly statements: Statement[]) {
    const {nodes, edges, shown} = graphOf(statements);
    layOut(nodes, edges);
    setAttr(this.canvas, 'aria-label', `A graph of ${plural(nodes.length, 'node')} and ${plural(edges.length, 'arrow')}; the table says the same`);
    this.canvas.append(s('defs', {}, s('marker', {id: 'arrow', viewBox: '0 0 10 10', refX: 9, refY: 5, markerWidth: 7, markerHeight: 7, orient: 'auto-start-reverse'},
      s('path', {d: 'M0 0L10 5L0 10z', class: 'tip'}))), this.world);
    this.world.append(...edges.map((one) => drawEdge(one, edges.length <= LABELLED_EDGES)), ...nodes.map((one) => this.drawNode(one)));
    const zoom = (text: string, label: string, factor: number): HTMLElement =>
      h('button', {type: 'button', class: 'quiet', 'aria-label': label, onClick: () => this.zoom(factor)}, text);
    this.node = h('div', {class: 'graph-box'},
      h('div', {class: 'buttons'}, zoom('+', 'Enlarge', 0.8), zoom('−', 'Reduce', 1.25),
        h('button', {type: 'button', class: 'quiet', onClick: () => this.show(this.whole)}, 'Whole graph'),
        h('span', {class: 'dim'}, shown < statements.length ? `the first ${plural(shown, 'statement')} of ${statements.length}` : plural(shown, 'statement'))),
      this.canvas, this.about);
    this.whole = extentOf(nodes);
    this.world.style.fontSize = `${Math.min(24, 12 * Math.max(1, this.whole.width / ROOM)).toFixed(1)}px`;
    this.show(this.whole);
    this.listen();
  }

  private show(box: {x: number; y: number; width: number; height: number}): void {
    this.box = box;
    setAttr(this.canvas, 'viewBox', `${box.x} ${box.y} ${box.width} ${box.height}`);
  }

  private zoom(factor: number, atX = 0.5, atY = 0.5): void {
    const {x, y, width, height} = this.box;
    const [w, t] = [width * factor, height * factor];
    if (w > 40 && w < this.whole.width * 8) this.show({x: x + (width - w) * atX, y: y + (height - t) * atY, width: w, height: t});
  }

  private listen(): void {
    this.canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const box = this.canvas.getBoundingClientRect();
      this.zoom(event.deltaY > 0 ? 1.15 : 0.87, (event.clientX - box.x) / box.width, (event.clientY - box.y) / box.height);
    }, {passive: false});
    this.canvas.addEventListener('pointerdown', (event) => { this.dragged = {x: event.clientX, y: event.clientY}; });
    this.canvas.addEventListener('pointermove', (event) => {
      if (!this.dragged || !event.buttons) return;
      const scale = this.box.width / this.canvas.getBoundingClientRect().width;
      this.show({...this.box, x: this.box.x - (event.clientX - this.dragged.x) * scale, y: this.box.y - (event.clientY - this.dragged.y) * scale});
      this.dragged = {x: event.clientX, y: event.clientY};
    });
    this.canvas.addEventListener('keydown', (event) => {
      const step = this.box.width / 12;
      const moves: Record<string, [number, number]> = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]};
      const move = moves[event.key];
      if (move) { event.preventDefault(); this.show({...this.box, x: this.box.x + move[0], y: this.box.y + move[1]}); }
      if (event.key === '+') this.zoom(0.8);
      if (event.key === '-') this.zoom(1.25);
    });
  }

  private drawNode(one: GraphNode): SVGElement {
    const r = RADIUS[one.kind] + Math.min(8, Math.sqrt(one.degree));
    return s('g', {class: `thing ${one.kind}`, transform: `translate(${one.x!.toFixed(1)} ${one.y!.toFixed(1)})`, onClick: () => this.select(one)},
      s('title', {}, one.term.value), s('circle', {r: r.toFixed(1)}), s('text', {y: (r + 13).toFixed(1)}, labelOf(one.term)));
  }

  private select(one: GraphNode): void {
    const own = this.statements.filter(({subject, object}) => subject.value === one.term.value || object.value === one.term.value).slice(0, 50);
    this.about.replaceChildren(h('h3', {}, one.term.value), h('ul', {}, ...own.map(({subject, predicate, object}) => h('li', {},
      h('span', {class: 'dim'}, subject.value === one.term.value ? '' : `${labelOf(subject)} `), h('b', {}, localName(predicate.value)), ' ',
      object.value === one.term.value ? 'this' : object.value, object.detail && h('span', {class: 'dim'}, ` ${object.detail}`)))));
  }
}

function layOut(nodes: GraphNode[], edges: GraphEdge[]): void {
  const simulation = forceSimulation(nodes)
    .force('links', forceLink<GraphNode, GraphEdge>(edges).id((one) => one.id).distance((one) => 72 + 9 * Math.min(one.source.degree, one.target.degree)).strength(0.5))
    .force('charge', forceManyBody<GraphNode>().strength((one) => -200 - 25 * one.degree).distanceMax(480))
    .force('room', forceCollide<GraphNode>((one) => RADIUS[one.kind] + 20))
    .force('x', forceX(0).strength(0.06)).force('y', forceY(0).strength(0.12)).stop();
  simulation.tick(TICKS);
}

function extentOf(nodes: GraphNode[]): {x: number; y: number; width: number; height: number} {
  const xs = nodes.map((one) => one.x ?? 0);
  const ys = nodes.map((one) => one.y ?? 0);
  const [x, y] = [Math.min(...xs) - 90, Math.min(...ys) - 40];
  return {x, y, width: Math.max(300, Math.max(...xs) - x + 90), height: Math.max(200, Math.max(...ys) - y + 50)};
}

function drawEdge({source, target, names}: GraphEdge, labelled: boolean): SVGElement {
  const [ax, ay, bx, by] = [source.x!, source.y!, target.x!, target.y!];
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const end = RADIUS[target.kind] + Math.min(8, Math.sqrt(target.degree)) + 3;
  const [x, y] = [bx - (bx - ax) / length * end, by - (by - ay) / length * end];
  const text = names.join(', ');
  return s('g', {class: 'arrow'}, s('title', {}, text),
    s('path', {d: `M${ax.toFixed(1)} ${ay.toFixed(1)}L${x.toFixed(1)} ${y.toFixed(1)}`, 'marker-end': 'url(#arrow)'}),
    labelled && s('text', {x: ((ax + bx) / 2).toFixed(1), y: ((ay + by) / 2 - 3).toFixed(1)}, text.slice(0, LABEL_LENGTH)));
}

function labelOf(term: RdfTerm): string {
  const text = term.kind === 'iri' ? localName(term.value) : term.kind === 'literal' ? `“${term.value}”` : term.value;
  return text.length > LABEL_LENGTH ? `${text.slice(0, LABEL_LENGTH - 1)}…` : text;
}
