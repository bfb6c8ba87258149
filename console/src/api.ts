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

async function reasonOf(answer: Response): Promise<string> {
  const text = (await answer.text()).trim();
  try {
    const recovery = JSON.parse(text) as {message?: string; error?: string};
    return recovery.message || recovery.error || text;
  } catch {
    return text || `status ${answer.status}`;
  }
}

/** The snapshots of this master as they change. `onStatus`: whether they arrive, or why not. */
export function follow(onLive: (live: Live) => void, onStatus: (ok: boolean, why: string) => void): void {
  let source: EventSource | null = null;
  const open = async (): Promise<void> => {
    try {
      onLive(await getJson<Live>('txlog/live')); // a browser asks for credentials here, and not for an EventSource
    } catch (error) {
      const why = error instanceof Refused && error.status === 401 ? 'sign in as a reader: reload this page' : String((error as Error).message);
      onStatus(false, why);
      setTimeout(() => void open(), error instanceof Refused && error.status === 401 ? 15_000 : 1500);
      return;
    }
    source = new EventSource(`${ROOT}txlog/live`);
    source.onopen = () => onStatus(true, '');
    source.onmessage = (event: MessageEvent<string>) => onLive(JSON.parse(event.data) as Live);
    source.onerror = () => {
      onStatus(false, 'this master does not answer');
      if (source?.readyState === EventSource.CLOSED) setTimeout(() => void open(), 1500);
    };
  };
  void open();
}
