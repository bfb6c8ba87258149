// A split while it lasts, and the ones that this master has seen: sides, branches, and the rejoin.
import {type Live, Refused, type SplitRecord, getJson} from './api';
import {count, h, names, plural, refresh, s, utc} from './dom';
import type {History} from './history';
import {sides} from './summary';

export class SplitView {
  readonly node = h('section', {class: 'view', 'aria-labelledby': 'split-title'});
  private readonly now = h('div');
  private readonly past = h('div');
  private records: SplitRecord[] = [];
  private problem = '';
  private askedFor = '';

  constructor() {
    this.node.append(h('h2', {id: 'split-title'}, 'Splits and rejoins'), this.now, h('h3', {}, 'What this master has seen'), this.past);
  }

  update(live: Live, history: History): void {
    const wanted = `${live.state} ${live.view.number}`;
    if (wanted !== this.askedFor) {
      this.askedFor = wanted;
      void this.load();
    }
    const groups = sides(live).map((group) => group.map((one) => one.node));
    const since = history.stateSince();
    const fork = openFork(this.records);
    refresh(this.now, [groups, live.state, live.view, live.log.end, since, fork, this.problem], () => [
      h('div', {class: 'sides'}, ...groups.map((group, at) => this.side(live, group, at))),
      live.state === 'Isolated' ? openDiagram(live, groups, fork) : null,
      h('p', {class: 'dim'}, `View ${live.view.number ?? 'none'} · ${live.state}`
        + `${since === null ? '' : ` since ${utc(since)} or longer`} · split mode ${live.view.splitMode} · recovery ${live.view.splitRecovery ?? 'not known'}`)]);
    const rejoins = this.records.filter((one) => one.view && one.before && one.before.silent.some((node) => one.view!.members.includes(node)));
    refresh(this.past, [this.records, this.problem], () => [
      this.problem && h('p', {class: 'empty'}, this.problem),
      ...rejoins.reverse().slice(0, 10).map((one) => this.rejoin(one)),
      !this.problem && !rejoins.length && h('p', {class: 'empty'}, 'No split has ended yet.'),
      this.records.length > 0 && h('details', {}, h('summary', {}, 'All records'), h('ol', {class: 'records'},
        ...this.records.slice(-40).reverse().map((one) => h('li', {}, h('time', {}, utc(one.at)), ' ', describe(one)))))]);
  }

  private side(live: Live, group: string[], at: number): HTMLElement {
    const alone = live.masters.length === group.length;
    const title = alone ? 'One view' : at === 0 ? 'This side' : 'The other side';
    const text = alone ? 'All masters order transactions together.'
      : at === 0 ? (live.state === 'Isolated' ? `Continues alone: the log is at ${count(live.log.end)}.` : `Waits: ${plural(live.queue.transactions, 'transaction')} without an order.`)
        : 'Cannot be reached from here. It may continue alone, too; its branch becomes known at the rejoin.';
    return h('article', {class: 'side', 'data-side': at}, h('h3', {}, title), h('p', {class: 'members'}, names(group)), h('p', {}, text));
  }

  private rejoin(one: SplitRecord): HTMLElement {
    const before = one.before!;
    const view = one.view!;
    const fork = Math.max(0, before.apartAt ?? view.apartAt ?? before.base);
    const end = one.end ?? fork;
    const mine = Math.max(0, end - fork);
    const kept = one.kept ?? null;
    const moved = kept === null ? 0 : Math.max(0, end - kept);
    const merged = view.brought ?? null;
    const theirs = merged === null ? null : Math.max(0, merged - fork - mine);
    const here = before.members.filter((node) => !before.silent.includes(node));
    return h('article', {class: 'rejoin'},
      h('h4', {}, `${utc(one.at)} · view ${view.number}`),
      diagram({fork, mine, theirs, here, away: before.silent, moved, joined: merged}),
      h('p', {}, `${names(here)} ordered ${plural(mine, 'transaction')} alone; ${names(before.silent)} brought `
        + `${theirs === null ? 'an unknown number' : plural(theirs, 'transaction')}. `
        + (moved ? `${plural(moved, 'transaction')} of this side moved to a later index.` : 'No transaction of this side moved.')));
  }

  private async load(): Promise<void> {
    try {
      this.records = (await getJson<{records: SplitRecord[]}>('txlog/splits')).records;
      this.problem = '';
    } catch (error) {
      this.problem = error instanceof Refused && error.status === 403 ? 'The records of splits need the role admin.' : (error as Error).message;
    }
  }
}

/** Where the log forked for the split that is open. */
function openFork(records: SplitRecord[]): number | null {
  const last = records.findLast((one) => one.view);
  if (!last?.view?.silent.length) return null;
  return last.view.apartAt ?? last.view.base;
}

function describe(one: SplitRecord): string {
  if (one.view) return `view ${one.view.number}: ${names(one.view.members)}${one.view.silent.length ? `; silent: ${names(one.view.silent)}` : ''}`;
  return `state ${one.state}`;
}

function openDiagram(live: Live, groups: string[][], fork: number | null): SVGElement | null {
  if (fork === null) return null;
  return diagram({fork, mine: Math.max(0, live.log.end - fork), theirs: null, here: groups[0] ?? [], away: groups.slice(1).flat(), moved: 0, joined: null, open: true});
}

interface Shape {
  fork: number; mine: number; theirs: number | null; here: string[]; away: string[]; moved: number; joined: number | null; open?: boolean;
}

/** Trunk, two branches, and their join. The branch that kept its indexes is drawn as the straight line. */
function diagram(of: Shape): SVGElement {
  const text = `${of.here.join(', ')}: ${count(of.mine)}; ${of.away.join(', ')}: ${of.theirs === null ? 'not known' : count(of.theirs)}`;
  const [up, down] = of.moved ? ['away', 'here'] : ['here', 'away'];
  const label = (side: string, y: number): SVGElement[] => {
    const mine = side === 'here';
    const amount = mine ? plural(of.mine, 'transaction') : of.theirs === null ? 'not known here yet' : plural(of.theirs, 'transaction');
    return [s('text', {x: 320, y: y - 10, class: 'lane'}, (mine ? of.here : of.away).join(', ')), s('text', {x: 320, y: y + 21, class: 'amount'}, amount)];
  };
  return s('svg', {class: 'branches', viewBox: '0 0 640 150', role: 'img', 'aria-label': `branches after index ${of.fork}: ${text}`},
    s('path', {d: 'M10 45H120', class: 'trunk'}),
    s('path', {d: 'M120 45H500', class: `branch ${up}`}),
    s('path', {d: `M120 45C170 45 150 115 200 115H${of.open ? 500 : 440}${of.open ? '' : 'C490 115 470 45 520 45'}`, class: `branch ${down}${of.open ? ' open' : ''}`}),
    of.open ? null : s('path', {d: 'M500 45H630', class: 'trunk'}),
    s('circle', {cx: 120, cy: 45, r: 6, class: 'knot'}), of.open ? null : s('circle', {cx: 520, cy: 45, r: 6, class: 'knot'}),
    s('text', {x: 120, y: 24, class: 'amount'}, `fork at ${count(of.fork)}`),
    of.open || of.joined === null ? null : s('text', {x: 540, y: 24, class: 'amount'}, `joined to ${count(of.joined)}`),
    ...label(up!, 45), ...label(down!, 115));
}
