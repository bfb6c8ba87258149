// What a snapshot means for a person: the sides of a split, the state of each link, one sentence.
import type {Live, LiveMaster, LiveWorker} from './api';
import {count, names, plural} from './dom';

export type Level = 'good' | 'wait' | 'warn' | 'bad';
export type LinkState = 'both' | 'one-way' | 'cut' | 'unknown';
export const LAG_SHOWN = 1000;

/** The masters that order transactions together with this one, and the others, by whom they still receive from. */
export function sides(live: Live): LiveMaster[][] {
  const here = live.masters.filter((one) => one.present);
  const rest = live.masters.filter((one) => !one.present);
  const groups: LiveMaster[][] = [];
  for (const master of rest) {
    const group = groups.find((each) => each.some((other) => linkOf(live, master.node, other.node) === 'both'
      || other.dataCenter === master.dataCenter));
    if (group) group.push(master); else groups.push([master]);
  }
  return [here, ...groups];
}

/** Whether messages of `from` arrive at `to`; null where this master does not know. */
export function arrives(live: Live, from: string, to: string): boolean | null {
  const row = live.hears[to];
  return row ? row.includes(from) : null;
}

export function linkOf(live: Live, a: string, b: string): LinkState {
  const there = arrives(live, a, b);
  const back = arrives(live, b, a);
  if (there === null && back === null) return 'unknown';
  if (there === false && back === false) return 'cut';
  if (there === null || back === null) return (there ?? back) ? 'unknown' : 'cut';
  return there && back ? 'both' : 'one-way';
}

export const lagOf = (live: Live, worker: LiveWorker): number | null =>
  worker.index === null ? null : Math.max(0, live.log.stable - worker.index);

export function levelOfWorker(live: Live, worker: LiveWorker): Level {
  if (worker.differs?.wrong || ['Blocked', 'Refused', 'Diverged', 'NeedsRestore'].includes(worker.state)) return 'bad';
  if (worker.state === 'Unknown' || worker.index === null) return 'wait';
  if (worker.state !== 'Working' || worker.differs || worker.fault) return 'warn';
  return (lagOf(live, worker) ?? 0) > LAG_SHOWN ? 'warn' : 'good';
}

const nodes = (list: LiveMaster[]): string => names(list.map((one) => one.node));
const verb = (list: unknown[], one: string, many: string): string => (list.length === 1 ? one : many);

/** One sentence or two: what is going on, and what happens next. */
export function headline(live: Live): {level: Level; text: string} {
  const out = live.masters.filter((one) => !one.present);
  const [here = []] = sides(live);
  if (live.view.holding) return {level: 'bad', text: `The view cannot change: ${live.view.holding}`};
  if (live.state === 'Isolated') {
    return {level: 'bad', text: `Split. ${nodes(here)} ${verb(here, 'continues', 'continue')} as one side and `
      + `${verb(here, 'takes', 'take')} writes; ${nodes(out) || 'the other side'} cannot be reached. `
      + 'When the link is back, the branches become one log.'};
  }
  if (live.state === 'Suspected') {
    return {level: 'warn', text: `${nodes(out) || 'A member'} ${verb(out, 'is', 'are')} silent. Writes are accepted and wait. `
      + 'If the silence lasts, this side continues alone.'};
  }
  if (live.state === 'Rejoining') {
    return {level: 'warn', text: 'The sides have met again. Their branches are being merged into one log.'};
  }
  if (live.state !== 'Joined') return {level: 'warn', text: `${live.node} is ${live.state}.`};
  if (live.findings.length) return {level: 'warn', text: live.findings.map((one) => one.text).join('. ')};
  if (out.length) return {level: 'warn', text: `${nodes(out)} ${verb(out, 'is', 'are')} out of the view: ${out[0]?.why ?? 'reason not known'}.`};
  const wrong = live.workers.filter((one) => levelOfWorker(live, one) === 'bad');
  if (wrong.length) return {level: 'bad', text: `${names(wrong.map((one) => one.name))}: ${wrong[0]?.error ?? wrong[0]?.state}`};
  if (live.duties.length) return {level: 'warn', text: `${plural(live.duties.length, 'duty is', 'duties are')} open, first: ${live.duties[0]?.kind} ${live.duties[0]?.worker ?? ''} (${live.duties[0]?.why})`.replace('  ', ' ')};
  const slow = live.workers.filter((one) => levelOfWorker(live, one) !== 'good');
  const all = live.masters.length === 1 ? 'The master is in its view' : `All ${live.masters.length} masters are in one view`;
  if (slow.length) return {level: 'wait', text: `${all}; ${names(slow.map((one) => one.name))} ${verb(slow, 'is', 'are')} not there yet.`};
  return {level: 'good', text: `${all}, and ${live.workers.length === 1 ? 'the worker keeps' : `all ${live.workers.length} workers keep`} up.`};
}

export const lagText = (lag: number | null): string => (lag === null ? 'position not known' : lag ? `${count(lag)} behind` : 'up to date');
