// What is to be done: duties, workers that differ, what keeps the log from being trimmed, backups.
import type {Live} from './api';
import {bytes, count, h, refresh, table} from './dom';
import {lagOf, lagText} from './summary';

export class WorkView {
  readonly node = h('section', {class: 'view', 'aria-labelledby': 'work-title'});
  private readonly body = h('div', {class: 'stack'});

  constructor() {
    this.node.append(h('h2', {id: 'work-title'}, 'Duties, backups and divergence'), this.body);
  }

  update(live: Live): void {
    const {trim} = live;
    const backups = trim.heldBackBy.filter((one) => one.kind.includes('backup'));
    const others = trim.heldBackBy.filter((one) => !one.kind.includes('backup'));
    refresh(this.body, [live.duties, live.workers, trim, live.findings, live.view.splitBackupAt], () => [
      table('Open duties', ['Kind', 'Worker', 'Why', 'Last error'],
        live.duties.map((one) => [one.kind, one.worker ?? '–', one.why, one.error ?? '–'])),
      table('Workers that differ, or that wait for a person', ['Worker', 'State', 'Graphs', 'Repair', 'What it says'],
        live.workers.filter((one) => one.differs || one.error || one.fault).map((one) => [
          one.name, one.state, one.differs ? String(one.differs.graphs ?? 'not known') : '–', one.repair ?? '–', one.error ?? one.fault ?? '–'])),
      table('Workers', ['Data centre', 'Worker', 'Engine', 'State', 'Index', 'Lag'], live.workers.map((one) => [
        one.dataCenter, one.name, one.engine, one.state, one.index === null ? '–' : count(one.index), lagText(lagOf(live, one))])),
      table('Backups that hold the log', ['Backup', 'Index', 'Note'], backups.map((one) => [one.name, count(Math.max(0, one.index)), one.why ?? ''])),
      table('What else needs the log', ['Kind', 'Name', 'Needed after index', 'Note'],
        others.map((one) => [one.kind, one.name, count(Math.max(0, one.index)), one.why ?? ''])),
      h('p', {class: 'dim'}, `Journal ${bytes(trim.bytes)} of ${bytes(trim.bytesMax)}${trim.alarm ? ' · nearly full' : ''}`
        + ` · kept from index ${count(trim.keptFrom)}${live.view.splitBackupAt === null ? '' : ` · split backup at ${count(live.view.splitBackupAt)}`}`),
      live.findings.length > 0 && table('Faults of links', ['Kind', 'Masters', 'What'], live.findings.map((one) => [one.kind, one.nodes.join(', '), one.text]))]);
  }
}
