// The snapshots of a master: what arrives, what ends, what falls silent.
import assert from 'node:assert/strict';
import {mock, test} from 'node:test';
import {type Live, follow} from '../../src/api';

type Send = (text: string) => void;
interface Asked { accept: string; send: Send; end: () => void; aborted: boolean }

/** A master that answers each request as the next of `answers` says: a status, or 'stream'. */
function master(...answers: (number | 'stream')[]): Asked[] {
  const asked: Asked[] = [];
  globalThis.fetch = (async (_path: string, options: RequestInit = {}) => {
    const answer = answers[Math.min(asked.length, answers.length - 1)];
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({start(made) { controller = made; }});
    const one: Asked = {
      accept: new Headers(options.headers).get('Accept') ?? '', aborted: false,
      send: (text) => controller.enqueue(new TextEncoder().encode(text)), end: () => controller.close()};
    asked.push(one);
    options.signal?.addEventListener('abort', () => {
      one.aborted = true;
      try { controller.error(new DOMException('aborted', 'AbortError')); } catch { /* it has ended */ }
    });
    if (answer === 0) throw new TypeError('network');
    if (typeof answer === 'number') return new Response(JSON.stringify({message: `refused by ${answer}`, node: 'uk-1'}), {status: answer});
    return new Response(body);
  }) as typeof fetch;
  return asked;
}

const settle = async (): Promise<void> => { for (let at = 0; at < 50; at += 1) await Promise.resolve(); };

function followed(): {lives: Live[]; states: [boolean, string][]} {
  const lives: Live[] = [];
  const states: [boolean, string][] = [];
  follow((live) => lives.push(live), (ok, why) => states.push([ok, why]));
  return {lives, states};
}

test('snapshots arrive in pieces', async (context) => {
  mock.timers.enable({apis: ['setTimeout']});
  context.after(() => mock.timers.reset());
  const asked = master('stream');
  const {lives, states} = followed();
  await settle();
  asked[0]!.send('retry: 1000\n\ndata: {"at": 1}\n\nda');
  await settle();
  asked[0]!.send('ta: {"at": 2}\n\n: alive\n\n');
  await settle();
  assert.equal(asked[0]!.accept, 'text/event-stream');
  assert.deepEqual(lives.map((one) => one.at), [1, 2]);
  assert.deepEqual(states.at(-1), [true, '']);
});

test('a connection that has fallen silent is no connection', async (context) => {
  mock.timers.enable({apis: ['setTimeout']});
  context.after(() => mock.timers.reset());
  const asked = master('stream', 'stream');
  const {states} = followed();
  await settle();
  for (let at = 0; at < 6; at += 1) {
    asked[0]!.send(': alive\n\n');
    await settle();
    mock.timers.tick(30_000);
    await settle();
  }
  assert.equal(asked[0]!.aborted, false);
  assert.deepEqual(states.at(-1), [true, '']);
  mock.timers.tick(15_001);
  await settle();
  assert.equal(asked[0]!.aborted, true);
  assert.deepEqual(states.at(-1), [false, 'this master is silent']);
  mock.timers.tick(1500);
  await settle();
  assert.equal(asked.length, 2, 'it connects again');
  asked[1]!.send('data: {"at": 3}\n\n');
  await settle();
  assert.deepEqual(states.at(-1), [true, '']);
});

test('a master that never answers is given up, too', async (context) => {
  mock.timers.enable({apis: ['setTimeout']});
  context.after(() => mock.timers.reset());
  globalThis.fetch = ((_path: string, options: RequestInit = {}) => new Promise((_done, fail) => {
    options.signal?.addEventListener('abort', () => fail(new DOMException('aborted', 'AbortError')));
  })) as typeof fetch;
  const {states} = followed();
  await settle();
  mock.timers.tick(45_001);
  await settle();
  assert.deepEqual(states, [[false, 'this master is silent']]);
});

test('it connects again after an end, a refusal and a lost network, and says why not', async (context) => {
  mock.timers.enable({apis: ['setTimeout']});
  context.after(() => mock.timers.reset());
  const asked = master('stream', 401, 0, 'stream');
  const {states} = followed();
  await settle();
  asked[0]!.end();
  await settle();
  assert.deepEqual(states.at(-1), [false, 'this master has ended the connection']);
  mock.timers.tick(1500);
  await settle();
  assert.deepEqual(states.at(-1), [false, 'sign in as a reader: reload this page']);
  mock.timers.tick(14_000);
  await settle();
  assert.equal(asked.length, 2, 'a browser may ask a person each time');
  mock.timers.tick(1000);
  await settle();
  assert.deepEqual(states.at(-1), [false, 'this master does not answer']);
  mock.timers.tick(1500);
  await settle();
  assert.equal(asked.length, 4);
});

test('where too many follow a master, one snapshot is shown', async (context) => {
  mock.timers.enable({apis: ['setTimeout']});
  context.after(() => mock.timers.reset());
  master(503, 200);
  const {lives, states} = followed();
  await settle();
  assert.equal(lives.length, 1);
  assert.deepEqual(states.at(-1), [false, 'refused by 503']);
});
