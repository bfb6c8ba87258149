// The log as it grows: by origin, throughput, latency, lag.
import uPlot from 'uplot';
import type {Live} from './api';
import {bytes, count, duration, h, refresh, setText, table, utcClock} from './dom';
import {type History, WINDOW_S, colourOf, rateBetween} from './history';

const STEP_S = 1;

export class LogView {
  readonly node = h('section', {class: 'view', 'aria-labelledby': 'log-title'});
  private readonly tiles = new Map<string, HTMLElement>();
  private readonly origins = h('div');
  private readonly rate = new Chart('Transactions per second, by the master that accepted them', true);
  private readonly latency = new Chart('Milliseconds from accepted to synced and applied', false);
  private readonly lag = new Chart('Transactions that each worker is behind', false);

  constructor() {
    const tiles = h('dl', {class: 'tiles'});
    for (const name of ['Log end', 'Stable', 'Per second', 'Synced after', 'Applied after', 'Waiting for order']) {
      const value = h('dd', {}, '–');
      this.tiles.set(name, value);
      tiles.append(h('div', {}, h('dt', {}, name), value));
    }
    this.node.append(h('h2', {id: 'log-title'}, 'The log as it grows'), tiles, h('p', {class: 'dim'}, 'Times are in UTC.'), this.rate.node, this.origins, this.latency.node, this.lag.node);
  }

  update(live: Live, history: History): void {
    const rates = history.rates();
    const total = Object.values(rates).reduce((sum, one) => sum + one, 0);
    const set = (name: string, text: string): void => setText(this.tiles.get(name)!, text);
    set('Log end', count(live.log.end));
    set('Stable', count(live.log.stable));
    set('Per second', total < 10 ? total.toFixed(1) : count(total));
    set('Synced after', duration(live.latencyMs.synced));
    set('Applied after', duration(live.latencyMs.applied));
    set('Waiting for order', `${count(live.queue.transactions)} · ${bytes(live.queue.bytes)}`);
    const whole = Math.max(1, live.origins.reduce((sum, one) => sum + one.transactions, 0));
    refresh(this.origins, [live.origins, rates], () => [table('By origin', ['Master', 'In the log', 'Share', 'Now'],
      live.origins.map((one) => [
        h('span', {class: 'swatch'}, swatch(colourOf(live, one.node)), one.node), count(one.transactions),
        `${Math.round(100 * one.transactions / whole)} %`, `${(rates[one.node] ?? 0).toFixed(1)}/s`]), 'the log is empty')]);
    this.draw(live, history);
  }

  private draw(live: Live, history: History): void {
    const masters = live.masters.map((one) => one.node);
    const every = history.samples;
    if (every.length < 2) return;
    const samples = every.filter((one, at) => at === 0 || at === every.length - 1 || Math.floor(one.at / STEP_S) !== Math.floor(every[at - 1]!.at / STEP_S));
    const times = samples.slice(1).map((one) => one.at);
    const rates = samples.slice(1).map((one, at) => rateBetween(samples[at]!, one));
    this.rate.show(times, masters.map((node) => ({label: node, colour: colourOf(live, node), values: rates.map((one) => one[node] ?? 0)})));
    const rest = samples.slice(1);
    this.latency.show(times, [
      {label: 'synced', colour: '--c1', values: rest.map((one) => one.synced)},
      {label: 'applied', colour: '--c2', values: rest.map((one) => one.applied)}]);
    this.lag.show(times, live.workers.map((worker, at) => (
      {label: worker.name, colour: `--c${at % 8 + 1}`, values: rest.map((one) => one.lag[worker.name] ?? null)})));
  }
}

function swatch(colour: string): HTMLElement {
  const made = h('i', {class: 'box', 'aria-hidden': 'true'});
  made.style.background = `var(${colour})`;
  return made;
}

interface Series { label: string; colour: string; values: (number | null)[] }

/** One plot with its title and legend. `stacked`: areas above each other. */
class Chart {
  readonly node: HTMLElement;
  private readonly place = h('div', {class: 'plot', 'aria-hidden': 'true'});
  private readonly legend = h('p', {class: 'keys'});
  private plot: uPlot | null = null;
  private key = '';

  constructor(title: string, private readonly stacked: boolean) {
    this.node = h('figure', {}, h('figcaption', {}, title), this.place, this.legend);
    new ResizeObserver(() => this.plot?.setSize({width: this.place.clientWidth, height: this.height()})).observe(this.place);
  }

  private height(): number {
    return Math.max(150, Math.min(320, Math.round(this.place.clientWidth / 4)));
  }

  show(times: number[], series: Series[]): void {
    if (!this.place.clientWidth || !times.length) return;
    const last = times.at(-1)!;
    const stack: (number | null)[][] = [];
    let below = times.map(() => 0);
    for (const one of series) {
      if (this.stacked) {
        below = below.map((sum, at) => sum + (one.values[at] ?? 0));
        stack.push(below);
      } else stack.push(one.values);
    }
    const data = [times, ...(this.stacked ? stack.reverse() : stack)] as uPlot.AlignedData;
    const drawn = this.stacked ? [...series].reverse() : series;
    const key = JSON.stringify([drawn.map((one) => [one.label, one.colour]), document.documentElement.dataset.theme]);
    if (key !== this.key) {
      this.key = key;
      this.plot?.destroy();
      this.place.replaceChildren();
      this.plot = new uPlot(this.options(drawn), data, this.place);
      this.plot.root.querySelectorAll('[tabindex]').forEach((one) => one.removeAttribute('tabindex'));
      refresh(this.legend, drawn.map((one) => one.label), () => series.map((one) => h('span', {class: 'swatch'}, swatch(one.colour), one.label)));
    } else this.plot!.setData(data, false);
    this.plot!.batch(() => {
      this.plot!.setScale('x', {min: Math.min(last - 30, Math.max(times[0]!, last - WINDOW_S)), max: last});
      this.plot!.setScale('y', {min: 0, max: Math.max(1, ...stack.flat().map((one) => one ?? 0)) * 1.08});
    });
  }

  private options(series: Series[]): uPlot.Options {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const axis = {stroke: colour('--dim'), grid: {stroke: colour('--line'), width: 1}, ticks: {show: false}, font: '12px system-ui'};
    return {
      width: this.place.clientWidth, height: this.height(), legend: {show: false}, cursor: {show: false},
      scales: {x: {time: true, auto: false}, y: {auto: false}},
      axes: [{...axis, size: 30, space: 90, values: (_, ticks) => ticks.map((at) => utcClock(at))},
        {...axis, size: 58, values: (_, ticks) => ticks.map((at) => (at >= 10_000 ? `${at / 1000}k` : String(at)))}],
      series: [{}, ...series.map((one) => ({
        label: one.label, stroke: colour(one.colour), width: 1.6, points: {show: false}, spanGaps: true,
        ...(this.stacked ? {fill: colour(one.colour)} : {})}))],
    };
  }
}
