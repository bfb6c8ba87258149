// What a chosen moment means: whether it can be reached, from which backup, and by which command.
import type {Backup, Recovery, Stream} from './api';
import {count, utc} from './dom';
import type {Level} from './summary';

/** `ms`: since 1970. `backup`: where the moment is exactly that of a backup. */
export interface Moment { ms: number; backup: Backup | null }
export interface Reach { from: number | null; to: number | null }
export interface Verdict { level: Level; text: string }
export interface Step { text: string; command: string }

const STORE = 'http://127.0.0.1:7890';

/** The time of its last transaction, else the time at which it was made. */
export const timeOfBackup = (one: Backup): number | null => one.at ?? one.madeAt;

/** The archive that a restore reads: that of this data centre, else the one that reaches furthest. */
export function streamOf(recovery: Recovery): Stream | null {
  const able = recovery.streams.filter((one) => one.archived !== null);
  return able.find((one) => one.dataCenter === recovery.dataCenter)
    ?? able.sort((a, b) => b.archived!.index - a.archived!.index)[0] ?? null;
}

const usable = (recovery: Recovery): Backup[] => recovery.backups.filter((one) => one.onLog !== false && timeOfBackup(one) !== null);

/** The moments between which a store can be restored; null where there is none. */
export function reachOf(recovery: Recovery): Reach {
  const times = usable(recovery).map((one) => timeOfBackup(one)!);
  const stream = streamOf(recovery);
  const first = recovery.marks[0];
  if (stream && first?.index === 1) times.push(first.at); // an archive of the whole log needs no backup
  if (!times.length) return {from: null, to: null};
  const to = stream?.archived?.at ?? Math.max(...times);
  return {from: Math.min(...times), to: Math.max(to, ...times)};
}

/** The newest backup that is not later than the moment. */
export function baseOf(recovery: Recovery, moment: Moment): Backup | null {
  if (moment.backup) return moment.backup;
  const before = usable(recovery).filter((one) => timeOfBackup(one)! * 1000 <= moment.ms);
  return before.sort((a, b) => a.index - b.index).at(-1) ?? null;
}

export function verdictOf(recovery: Recovery, moment: Moment): Verdict {
  const stream = streamOf(recovery);
  const base = baseOf(recovery, moment);
  if (moment.backup?.onLog === false) {
    return {level: 'warn', text: 'This backup holds another branch than the log of today.'};
  }
  if (moment.backup) return {level: 'good', text: 'Exactly this backup. No archive is needed.'};
  if (!stream) {
    return base ? {level: 'warn', text: 'There is no archive, so only the moments of backups can be restored. The newest backup before this moment is shown.'}
      : {level: 'bad', text: 'There is no backup before this moment, and no archive.'};
  }
  const end = stream.archived!.at;
  if (end !== null && moment.ms > end * 1000) {
    return {level: 'warn', text: `The archive ends at ${utc(end)} (index ${count(stream.archived!.index)}). A restore to this moment waits for the archiver.`};
  }
  if (!base) {
    return recovery.marks[0]?.index === 1
      ? {level: 'wait', text: 'There is no backup before this moment. The archive leads to it if the workers were empty before the first transaction.'}
      : {level: 'bad', text: 'There is no backup before this moment.'};
  }
  if (stream.gaps || stream.losses) {
    return {level: 'warn', text: 'The archive has gaps. The dry run says whether this moment is in one.'};
  }
  const proved = stream.verified?.at ?? null;
  return proved !== null && moment.ms <= proved * 1000
    ? {level: 'good', text: 'A backup and the archive lead to this moment. The archive was read back and proved beyond it.'}
    : {level: 'good', text: 'A backup and the archive lead to this moment.'};
}

/** What a person types: first a look, then the restore. */
export function commandsOf(recovery: Recovery, moment: Moment): Step[] {
  const stream = streamOf(recovery);
  const base = baseOf(recovery, moment);
  const store = {text: 'Start an empty store that belongs to no cluster:', command: 'oxigraph serve --location restored --bind 127.0.0.1:7890'};
  if (moment.backup || !stream) {
    return base ? [store, {text: 'Restore the backup into it:', command: `txlog restore ${base.name} --into ${STORE} --target TARGET`}] : [];
  }
  const target = stream.stream.split('/_archive/')[0] || 'TARGET';
  const which = recovery.streams.length > 1 ? ` --data-center ${stream.dataCenter}` : '';
  const empty = base ? '' : ' --base empty';
  const common = `txlog restore --to time:${new Date(moment.ms).toISOString()} --target ${quote(target)}${which}${empty}`;
  return [
    {text: 'Look first at what would be restored, from what:', command: `${common} --dry-run`},
    store,
    {text: 'Restore into it:', command: `${common} --into ${STORE}`}];
}

const quote = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
