// To which moments a store can be restored: backups and archives along one time line, on which a person picks a moment
// and is shown the command.
import {type Backup, type Live, type Recovery, type Stream, getJson} from './api';
import {type Child, copyButton, count, h, plural, refresh, s, setAttr, setText, table, utc} from './dom';
import {Moment, baseOf, commandsOf, reachOf, timeOfBackup, verdictOf} from './recovery_plan';

const REFRESH_MS = 10_000;
const SPANS: [string, number][] = [['Everything', 0], ['The last day', 86_400], ['The last hour', 3600], ['The last 10 minutes', 600]];
const NARROW = 640;
const RIGHT = 14;
const LANE = 46;
const STEPS = 1000;

export class RecoveryView {
  readonly node = h('section', {class: 'view', 'aria-labelledby': 'recovery-title'});
  private readonly tiles = new Map<string, HTMLElement>();
  private readonly drawing = s('svg', {class: 'timeline', role: 'img', 'aria-labelledby': 'timeline-title', preserveAspectRatio: 'xMidYMid meet'});
  private readonly slider = h('input', {type: 'range', id: 'moment-slider', min: 0, max: STEPS, step: 1, onInput: () => this.slide()});
  private readonly field = h('input', {type: 'datetime-local', id: 'moment-field', step: 0.001, onChange: () => this.type()});
  private readonly span = h('select', {id: 'moment-span', onChange: () => this.draw()},
    ...SPANS.map(([name], at) => h('option', {value: at}, name)));
  private readonly chosen = h('div', {class: 'chosen'});
  private readonly said = h('p', {role: 'status', class: 'unseen'}); // the verdict alone is read aloud, not each command
  private readonly lists = h('div', {class: 'stack'});
  private recovery: Recovery | null = null;
  private problem = '';
  private askedAt = 0;
  private moment: Moment | null = null;
  private width = 1000;
  private drawnFrom = 0;
  private drawnTo = 1;

  constructor() {
    const tiles = h('dl', {class: 'tiles'});
    for (const name of ['Oldest moment', 'Newest moment', 'Backups', 'Archive']) {
      const value = h('dd', {}, '–');
      this.tiles.set(name, value);
      tiles.append(h('div', {}, h('dt', {}, name), value));
    }
    this.drawing.addEventListener('click', (event) => this.click(event));
    new ResizeObserver(() => this.draw()).observe(this.drawing);
    this.node.append(
      h('h2', {id: 'recovery-title'}, 'Recovery'),
      h('p', {class: 'lead'}, 'Pick a moment. A store of its own can be brought to it; the cluster continues unchanged.'), tiles,
      h('figure', {class: 'time'}, h('figcaption', {id: 'timeline-title'}, 'Backups and archives along the log'), this.drawing,
        h('div', {class: 'slide'}, h('label', {class: 'unseen', for: 'moment-slider'}, 'Moment'), this.slider),
        h('div', {class: 'pick'},
          h('label', {for: 'moment-field'}, 'Moment, in UTC'), this.field,
          h('label', {for: 'moment-span'}, 'Show'), this.span)),
      this.chosen, this.said, this.lists);
  }

  update(_live: Live): void {
    if (Date.now() - this.askedAt < REFRESH_MS) return;
    this.askedAt = Date.now();
    void this.load();
  }

  private async load(): Promise<void> {
    try {
      this.recovery = await getJson<Recovery>('txlog/recovery');
      this.problem = '';
    } catch (error) {
      this.problem = (error as Error).message;
    }
    this.draw();
  }

  // Choosing a moment

  private slide(): void {
    const at = this.drawnFrom + (this.drawnTo - this.drawnFrom) * Number(this.slider.value) / STEPS;
    this.choose({ms: Math.round(at * 1000), backup: null});
  }

  private type(): void {
    const ms = Date.parse(`${this.field.value}Z`);
    if (!Number.isNaN(ms)) this.choose({ms, backup: null});
  }

  private click(event: MouseEvent): void {
    const box = this.drawing.getBoundingClientRect();
    const x = (event.clientX - box.x) / box.width * this.width;
    const share = Math.min(1, Math.max(0, (x - this.left) / (this.width - this.left - RIGHT)));
    this.choose({ms: Math.round((this.drawnFrom + (this.drawnTo - this.drawnFrom) * share) * 1000), backup: null});
  }

  private chooseBackup(backup: Backup): void {
    const at = timeOfBackup(backup);
    this.choose({ms: Math.round((at ?? this.recovery!.at) * 1000), backup});
    this.chosen.scrollIntoView({block: 'nearest'});
  }

  private choose(moment: Moment): void {
    this.moment = moment;
    this.draw();
  }

  // Drawing

  private draw(): void {
    const recovery = this.recovery;
    if (!recovery) {
      refresh(this.chosen, [this.problem], () => [this.problem && h('p', {class: 'error', role: 'alert'}, this.problem)]);
      return;
    }
    this.width = Math.max(280, this.drawing.clientWidth || this.width);
    const reach = reachOf(recovery);
    this.moment ??= reach.to === null ? null : {ms: Math.floor(reach.to * 1000), backup: null};
    const own = recovery.streams.find((one) => one.dataCenter === recovery.dataCenter) ?? recovery.streams[0];
    setText(this.tiles.get('Oldest moment')!, reach.from === null ? 'none' : unbroken(utc(reach.from)));
    setText(this.tiles.get('Newest moment')!, reach.to === null ? 'none' : unbroken(utc(reach.to)));
    setText(this.tiles.get('Backups')!, count(recovery.backups.length));
    setText(this.tiles.get('Archive')!, own ? `${own.state}${own.delaySeconds === null ? '' : ` · ${own.delaySeconds.toFixed(1)} s`}` : 'none');
    this.scale(recovery, reach.from);
    refresh(this.drawing, [recovery, this.moment, this.span.value, this.width], () => this.lanes(recovery));
    setAttr(this.drawing, 'viewBox', `0 0 ${this.width} ${this.height(recovery)}`);
    this.showMoment(recovery);
    refresh(this.lists, [recovery.backups, recovery.streams, this.problem], () => this.tablesOf(recovery));
  }

  private scale(recovery: Recovery, from: number | null): void {
    const times = [from, ...recovery.marks.map((one) => one.at), ...recovery.backups.map(timeOfBackup)].filter((one) => one !== null);
    const span = SPANS[Number(this.span.value)]?.[1] ?? 0;
    const oldest = Math.min(recovery.at - 60, ...times);
    this.drawnTo = recovery.at;
    this.drawnFrom = span ? recovery.at - span : oldest - (recovery.at - oldest) * 0.02;
  }

  private height(recovery: Recovery): number {
    return this.lane * (2 + recovery.streams.length) + 40;
  }

  /** Where the lanes begin: beside their names, or below them where there is no room. */
  private get left(): number {
    return this.width < NARROW ? 8 : 120;
  }

  private get lane(): number {
    return this.width < NARROW ? LANE + 18 : LANE;
  }

  private x(at: number): number {
    return this.left + (this.width - this.left - RIGHT) * (at - this.drawnFrom) / (this.drawnTo - this.drawnFrom);
  }

  private visible(at: number | null): at is number {
    return at !== null && at >= this.drawnFrom && at <= this.drawnTo;
  }

  private lanes(recovery: Recovery): SVGElement[] {
    const height = this.height(recovery);
    const foot = (row: number): number => this.lane * (row + 1) - 8;
    const parts: SVGElement[] = [this.hatching()];
    const label = (row: number, text: string): void => { parts.push(s('text', {x: 4, y: this.lane * row + (this.width < NARROW ? 13 : 27), class: 'lane'}, text)); };
    label(0, 'Log');
    parts.push(...this.logLane(recovery));
    label(1, 'Backups');
    parts.push(s('path', {d: `M${this.left} ${foot(1) - 14}H${this.width - RIGHT}`, class: 'rail'}));
    for (const backup of recovery.backups) {
      const at = timeOfBackup(backup);
      if (!this.visible(at)) continue;
      const kind = backup.onLog === false ? ' off' : backup.split ? ' pinned' : '';
      parts.push(s('path', {d: `M${this.x(at).toFixed(1)} ${foot(1) - 24}l10 10l-10 10l-10 -10z`, class: `backup${kind}`}, s('title', {}, `${backup.name} at index ${count(backup.index)}`)));
    }
    recovery.streams.forEach((stream, at) => {
      label(2 + at, `Archive ${stream.dataCenter}`);
      parts.push(...this.streamLane(recovery, stream, foot(2 + at) - 24));
    });
    parts.push(...this.axis(height));
    if (this.moment && this.visible(this.moment.ms / 1000)) {
      const x = this.x(this.moment.ms / 1000).toFixed(1);
      parts.push(s('path', {d: `M${x} 4V${height - 34}`, class: 'now'}), s('circle', {cx: x, cy: 6, r: 6, class: 'handle'}));
    }
    return parts;
  }

  private hatching(): SVGElement {
    return s('defs', {}, s('pattern', {id: 'hatch', width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'},
      s('rect', {width: 3, height: 7, class: 'hatch'})));
  }

  /** How fast the log grew between two known entries. */
  private logLane(recovery: Recovery): SVGElement[] {
    const floor = this.lane - 8;
    const pairs = recovery.marks.slice(1).map((mark, at) => ({from: recovery.marks[at]!, to: mark}))
      .filter((one) => one.to.at > this.drawnFrom && one.to.at > one.from.at);
    const rates = pairs.map((one) => (one.to.index - one.from.index) / (one.to.at - one.from.at));
    const top = Math.log1p(Math.max(...rates, 0.001));
    return [
      s('path', {d: `M${this.left} ${floor}H${this.width - RIGHT}`, class: 'rail'}),
      ...pairs.map((one, at) => {
        const left = Math.max(this.left, this.x(one.from.at));
        const tall = Math.max(2, 30 * Math.log1p(rates[at]!) / top);
        return s('rect', {x: left.toFixed(1), y: (floor - tall).toFixed(1), width: Math.max(1, this.x(one.to.at) - left).toFixed(1), height: tall.toFixed(1), class: 'grown'},
          s('title', {}, `${count(one.from.index)} to ${count(one.to.index)}`));
      })];
  }

  private streamLane(recovery: Recovery, stream: Stream, y: number): SVGElement[] {
    const from = reachOf(recovery).from;
    const parts: SVGElement[] = [s('path', {d: `M${this.left} ${y + 10}H${this.width - RIGHT}`, class: 'rail'})];
    const band = (left: number, right: number, kind: string): void => {
      const [a, b] = [Math.max(this.left, this.x(left)), Math.min(this.width - RIGHT, this.x(right))];
      if (b > a) parts.push(s('rect', {x: a.toFixed(1), y, width: (b - a).toFixed(1), height: 20, rx: 5, class: kind}));
    };
    const until = stream.archived?.at ?? null;
    if (from === null || until === null) return parts;
    const proved = stream.verified?.at ?? null;
    band(from, until, 'archived');
    if (proved !== null) band(from, Math.min(proved, until), 'verified');
    return parts;
  }

  private axis(height: number): SVGElement[] {
    const ticks = this.width < NARROW ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
    return ticks.map((share) => {
      const at = this.drawnFrom + (this.drawnTo - this.drawnFrom) * share;
      const x = this.x(at);
      return s('g', {class: 'tick'}, s('path', {d: `M${x.toFixed(1)} 4V${height - 30}`}),
        s('text', {x: x.toFixed(1), y: height - 12, 'text-anchor': share === 1 ? 'end' : share === 0 && this.width < NARROW ? 'start' : 'middle'}, axisText(at, this.drawnTo - this.drawnFrom)));
    });
  }

  private showMoment(recovery: Recovery): void {
    const moment = this.moment;
    if (!moment) {
      refresh(this.chosen, ['nothing'], () => [h('p', {class: 'empty'},
        'There is no moment to restore to yet: no data centre has reported a verified backup or an archive.')]);
      return;
    }
    const share = (moment.ms / 1000 - this.drawnFrom) / (this.drawnTo - this.drawnFrom);
    if (document.activeElement !== this.slider) this.slider.value = String(Math.round(STEPS * share));
    setAttr(this.slider, 'aria-valuetext', utc(moment.ms / 1000));
    if (document.activeElement !== this.field) this.field.value = new Date(moment.ms).toISOString().slice(0, 23);
    const verdict = verdictOf(recovery, moment);
    const base = baseOf(recovery, moment);
    const commands = commandsOf(recovery, moment);
    setText(this.said, verdict.text);
    refresh(this.chosen, [moment, verdict, base, commands], () => [
      h('h3', {}, utc(moment.ms / 1000), moment.backup && h('span', {class: 'dim'}, ` · backup at index ${count(moment.backup.index)}`)),
      h('p', {class: 'verdict', 'data-level': verdict.level}, verdict.text),
      base && h('p', {class: 'dim'}, `It begins with the backup ${base.name} (${base.dataCenter}, index ${count(base.index)}).`),
      ...commands.flatMap((one) => [h('p', {class: 'step'}, one.text),
        h('div', {class: 'command'}, h('pre', {tabindex: 0, 'aria-label': one.text}, one.command), copyButton(one.command))])]);
  }

  private tablesOf(recovery: Recovery): Child[] {
    return [
      table('Backups', ['Made', 'Data centre', 'Index', 'Kind', 'Name', 'Moment'], [...recovery.backups].reverse().map((one) => [
        when(one.madeAt), one.dataCenter, count(one.index), kindOf(one), h('span', {class: 'long'}, one.name),
        h('button', {type: 'button', class: 'quiet', 'aria-label': `Choose ${one.name}`, onClick: () => this.chooseBackup(one)}, 'Choose')])),
      table('Archives', ['Data centre', 'State', 'Archived to', 'Proved to', 'Gaps', 'Where'], recovery.streams.map((one) => [
        one.dataCenter, one.error ? `${one.state}: ${one.error}` : one.state, placeText(one.archived), placeText(one.verified),
        one.gaps || one.losses ? `${plural(one.gaps, 'gap')}, ${plural(one.losses, 'loss', 'losses')}` : 'none', h('span', {class: 'long'}, one.stream || '–')]), 'no data centre archives its log'),
      this.problem && h('p', {class: 'error'}, this.problem)];
  }
}

const kindOf = (one: Backup): string =>
  one.onLog === false ? 'of another branch' : one.split ? 'pinned for a split' : one.onLog === null ? 'older than the kept log' : 'on the log';

const when = (at: number | null): Child => (at === null ? '–' : h('span', {class: 'when'}, utc(at)));
const unbroken = (text: string): string => text.replaceAll('-', '\u2011');
const placeText = (place: Stream['archived']): Child =>
  place ? h('span', {}, count(place.index), ' ', place.at !== null && h('span', {class: 'when dim'}, utc(place.at))) : '–';

function axisText(at: number, span: number): string {
  const text = new Date(at * 1000).toISOString();
  return span > 2 * 86_400 ? text.slice(0, 10) : span > 7200 ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, 19);
}
