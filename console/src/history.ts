// The last minutes as this page has seen them.
import type {Live} from './api';

export interface Sample {
  at: number; stable: number; end: number; counts: Record<string, number>; synced: number | null; applied: number | null;
  waiting: number; lag: Record<string, number | null>; state: string;
}
export const WINDOW_S = 180;
const SAMPLES_MAX = 1000;

/** Samples of the last minutes, and rates from them. */
export class History {
  readonly samples: Sample[] = [];
  private arrived = 0;

  add(live: Live): void {
    this.arrived = performance.now();
    // A clock that was set back, or another master's: without this, samples would pile up until it is there again.
    if (live.at < (this.samples.at(-1)?.at ?? 0)) this.samples.length = 0;
    this.samples.push({
      at: live.at, stable: live.log.stable, end: live.log.end,
      counts: Object.fromEntries(live.origins.map((one) => [one.node, one.transactions])),
      synced: live.latencyMs.synced, applied: live.latencyMs.applied, waiting: live.queue.transactions, state: live.state,
      lag: Object.fromEntries(live.workers.map((one) => [one.name, one.index === null ? null : Math.max(0, live.log.stable - one.index)])),
    });
    while (this.samples.length > 2 && (live.at - this.samples[0]!.at > WINDOW_S || this.samples.length > SAMPLES_MAX)) this.samples.shift();
  }

  /** Transactions per second of each master, over the last `seconds`. A master whose count fell (a rejoin) has none. */
  rates(seconds = 3): Record<string, number> {
    const last = this.samples.at(-1);
    if (!last) return {};
    // A master sends nothing while nothing changes, so a time without snapshots is one without transactions.
    const now = last.at + (performance.now() - this.arrived) / 1000;
    const first = this.samples.find((one) => now - one.at <= seconds) ?? last;
    return rateBetween(first, {...last, at: now});
  }

  /** When the present state began, as far as this page has seen it; seconds since 1970. */
  stateSince(): number | null {
    const last = this.samples.at(-1);
    const before = this.samples.findLastIndex((one) => one.state !== last?.state);
    return this.samples[before + 1]?.at ?? null;
  }
}

export function rateBetween(first: Sample, last: Sample): Record<string, number> {
  const took = Math.max(last.at - first.at, 0.2);
  const found: Record<string, number> = {};
  for (const [node, total] of Object.entries(last.counts)) {
    found[node] = Math.max(0, total - (first.counts[node] ?? 0)) / took;
  }
  return found;
}

/** One colour per master, in the order of the cluster. */
export const COLOURS = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7', '--c8'];
export const colourOf = (live: Live, node: string): string =>
  COLOURS[Math.max(0, live.masters.findIndex((one) => one.node === node)) % COLOURS.length]!;
