// What the page computes from what a master and a store answer, also from hostile answers.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {type Live, Refused, textOf} from '../../src/api';
import {utc} from '../../src/dom';
import {History} from '../../src/history';
import {isCompressed, mediaOf} from '../../src/media';
import {parseLines, valueOf} from '../../src/statements';
import {headline} from '../../src/summary';

const snapshot = (at: number, more: object = {}): Live => ({
  at, node: 'uk-1', dataCenter: 'uk', state: 'Joined', log: {stable: 1, end: 1}, origins: [{node: 'uk-1', transactions: 1}], latencyMs: {synced: 1, applied: 1},
  queue: {transactions: 0, bytes: 0}, workers: [{dataCenter: 'uk', name: 'w', state: 'Working', index: 1}], masters: [{node: 'uk-1', dataCenter: 'uk', present: true}],
  view: {}, findings: [], duties: [], hears: {}, ...more}) as unknown as Live;

test('a page that is open for days keeps minutes', () => {
  const history = new History();
  for (let at = 0; at < 10_000; at += 1) history.add(snapshot(at / 10));
  assert.ok(history.samples.length <= 1000, `${history.samples.length}`);
  history.add(snapshot(2000));
  assert.ok(history.samples.length <= 2);
});

test('a clock that is set back by a day lets nothing pile up', () => {
  const history = new History();
  history.add(snapshot(100_000, {origins: [{node: 'uk-1', transactions: 900}]}));
  for (let at = 0; at < 5000; at += 1) history.add(snapshot(13_600 + at / 2));
  assert.ok(history.samples.length <= 2 * 180 + 2, `${history.samples.length}`);
  assert.deepEqual(Object.keys(history.rates()), ['uk-1']);
});

test('the sentence of a quiet cluster does not change with each transaction', () => {
  const first = headline(snapshot(1)).text;
  assert.equal(headline(snapshot(2, {log: {stable: 900, end: 901}, workers: [{dataCenter: 'uk', name: 'w', state: 'Working', index: 900}]})).text, first);
  assert.match(first, /keeps up\.$/);
});

test('a variable may be called as what each object has', () => {
  const row = JSON.parse('{"s": {"type": "uri", "value": "urn:s"}}');
  for (const name of ['constructor', 'toString', '__proto__']) assert.equal(valueOf(row, name), null);
  assert.equal(valueOf(row, 's')?.value, 'urn:s');
  assert.equal(valueOf(JSON.parse('{"__proto__": {"type": "uri", "value": "urn:p"}}'), '__proto__')?.value, 'urn:p');
});

test('the name of a file leads to a format, or to none', () => {
  assert.equal(mediaOf('A.NT.GZ'), 'application/n-triples');
  assert.ok(isCompressed('A.NT.GZ'));
  for (const name of ['x.constructor', 'x.__proto__', 'toString', 'a.gz', '']) assert.equal(mediaOf(name), undefined);
});

test('markup in terms stays text', () => {
  const [statement] = parseLines('<urn:s> <urn:p> "<img src=x onerror=alert(1)>\\u003C\\n" .', 10);
  assert.equal(statement?.object.value, '<img src=x onerror=alert(1)><\n');
  assert.deepEqual(parseLines('no statement\n', 10), []);
  const [odd, next] = parseLines('<urn:s> <urn:p> "\\UFFFFFFFF\\uD800" .\n<urn:s> <urn:p> <urn:o> .', 10);
  assert.equal(odd?.object.value, '\\UFFFFFFFF\uD800');
  assert.equal(next?.object.value, 'urn:o');
});

test('a moment has its day and its zone', () => {
  assert.equal(utc(1_800_000_000), '2027-01-15 08:00:00Z');
});

test('an answer that is too large is refused before it is kept', async () => {
  let sent = 0;
  let cancelled = false;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) { sent += 1; controller.enqueue(new Uint8Array(1 << 20)); },
    cancel() { cancelled = true; }});
  await assert.rejects(textOf(new Response(body), 3 << 20), (error) => error instanceof Refused && /larger than 3 MiB. Add a LIMIT/.test(error.message));
  assert.ok(sent < 10 && cancelled);
  assert.equal(await textOf(new Response('zażółć'), 100), 'zażółć');
});
