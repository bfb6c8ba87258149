// What a master answers, with the types of its own OpenAPI document. All addresses are relative, so a proxy may serve the
// console under any path.
import type {components} from './generated/api';

export type Live = components['schemas']['Live'];
export type LiveMaster = Live['masters'][number];
export type LiveWorker = Live['workers'][number];
export type Recovery = components['schemas']['Recovery'];
export type Backup = Recovery['backups'][number];
export type Stream = Recovery['streams'][number];
export type Transaction = components['schemas']['Transaction'];

export interface SplitView {
  number: string | null; members: string[]; silent: string[]; strategy: string; base: number; apartAt: number | null;
  brought?: number | null;
}
export interface SplitRecord {
  at: number; state?: string; was?: string; view?: SplitView; before?: SplitView; end?: number; kept?: number | null;
}

/** An answer that is no success, in words for a person. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) { super(message); }
}

const ROOT = '../';

export async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(ROOT + path, {credentials: 'same-origin', cache: 'no-store', ...options});
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Refused(0, 'this master does not answer');
  }
  if (!answer.ok && answer.status !== 202) throw new Refused(answer.status, await reasonOf(answer));
  return answer;
}

export const getJson = async <T>(path: string): Promise<T> => (await ask(path)).json() as Promise<T>;

const REASON_MAX = 500;
const SILENCE_MS = 45_000;
const AGAIN_MS = 1500;
const SIGN_IN_MS = 15_000;

async function reasonOf(answer: Response): Promise<string> {
  const text = (await answer.text()).trim();
  let reason = text;
  try {
    const found = JSON.parse(text) as {message?: string; error?: string};
    reason = found.message || found.error || text;
  } catch { /* a proxy's page, or plain text */ }
  return (reason.length > REASON_MAX ? `${reason.slice(0, REASON_MAX)} …` : reason) || `status ${answer.status}`;
}

/** The text of an answer. A larger one is refused before the page runs out of memory. */
export async function textOf(answer: Response, most: number): Promise<string> {
  if (!answer.body) return '';
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  let size = 0;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return text + decoder.decode();
    size += value.byteLength;
    if (size > most) {
      await reader.cancel();
      throw new Refused(0, `The answer is larger than ${Math.round(most / 2 ** 20)} MiB. Add a LIMIT, or use a client.`);
    }
    text += decoder.decode(value, {stream: true});
  }
}

/**
 * The snapshots of this master as they change. `onStatus`: whether they arrive, or why not. A master sends something
 * every 15 s. An EventSource hides that, and reports no error when the other end has lost its power: the page would show
 * for hours that all is well.
 */
export function follow(onLive: (live: Live) => void, onStatus: (ok: boolean, why: string) => void): void {
  const run = async (): Promise<void> => {
    for (;;) {
      const pause = await listen(onLive, onStatus);
      await new Promise((done) => { setTimeout(done, pause); });
    }
  };
  void run();
}

/** Follows one connection to its end. Returns after how long the next one is due. */
async function listen(onLive: (live: Live) => void, onStatus: (ok: boolean, why: string) => void): Promise<number> {
  const stop = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const isAlive = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(), SILENCE_MS);
  };
  isAlive();
  try {
    const answer = await ask('txlog/live', {headers: {Accept: 'text/event-stream'}, signal: stop.signal});
    const reader = answer.body!.getReader();
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      isAlive();
      onStatus(true, '');
      const lines = (rest + decoder.decode(value, {stream: true})).split('\n');
      rest = lines.pop()!;
      for (const line of lines) if (line.startsWith('data: ')) onLive(JSON.parse(line.slice(6)) as Live);
    }
    onStatus(false, 'this master has ended the connection');
  } catch (error) {
    onStatus(false, whyOf(error));
    if (error instanceof Refused && error.status === 503) await lookOnce(onLive);
    if (error instanceof Refused && error.status === 401) return SIGN_IN_MS;
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
  return AGAIN_MS;
}

function whyOf(error: unknown): string {
  if (error instanceof Refused && error.status === 401) return 'sign in as a reader: reload this page';
  if (error instanceof DOMException && error.name === 'AbortError') return 'this master is silent';
  return error instanceof Refused ? error.message : 'this master does not answer';
}

/** Where too many pages follow this master, one snapshot is still to be had. */
async function lookOnce(onLive: (live: Live) => void): Promise<void> {
  try {
    onLive(await getJson<Live>('txlog/live'));
  } catch { /* the reason is shown already */ }
}
