// Drives the console in a real Chromium: `node drive.mjs`, with one JSON command per line on stdin, one answer each.
// {do: 'open', url, chromium, shots} {do: 'healthy', txid} {do: 'recovery', backups} {do: 'load', files} {do: 'split'} {do: 'rejoined'} {do: 'close'}
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {chromium} from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const VIEWS = ['map', 'log', 'split', 'recovery', 'query', 'load', 'work'];
const PATIENCE_MS = 60_000;
const said = {checks: 0, failures: [], consoleErrors: [], outside: [], axe: [], firstPaintMs: null, updatesMs: [], views: VIEWS.length};
let browser; let page; let base; let shots; let expectsRefusal = false; let inspects = false;

function check(what, good) {
  said.checks += 1;
  if (!good) said.failures.push(what);
}

/** A check that polls: the page is live, and the machine may be busy. */
async function until(what, probe, patience = PATIENCE_MS) {
  const deadline = Date.now() + patience;
  let good = false;
  while (!good && Date.now() < deadline) {
    good = Boolean(await probe().catch(() => false));
    if (!good) await page.waitForTimeout(200);
  }
  check(what, good);
}

const text = (selector) => page.locator(selector).first().innerText();
const amount = (selector) => page.locator(selector).count();

async function go(view) {
  inspects = false;
  await page.click(`nav a[href="#${view}"]`);
  await page.waitForSelector(`#${view}-title`);
}

// Axe copies the sheets of shadow roots into style elements, which the policy of the page forbids. The browser reports that
// some time later, so such a report counts for nothing until the next view is opened.
async function looks(name) {
  inspects = true;
  await page.evaluate(AXE);
  const found = await page.evaluate(() => window.axe.run(document, {preload: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}));
  for (const one of found.violations) said.axe.push(`${name}: ${one.id}: ${one.nodes.map((node) => node.target.join(' ')).slice(0, 3).join('; ')}`);
  check(`${name}: nothing wider than the page`, await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth));
}

async function picture(name) {
  await page.screenshot({path: join(shots, `${name}.png`), fullPage: ['recovery', 'graph'].includes(name)});
}

async function open(command) {
  ({url: base, shots} = command);
  browser = await chromium.launch({executablePath: command.chromium, args: FLAGS, headless: true});
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, colorScheme: 'light'});
  page = await context.newPage();
  page.on('console', (message) => {
    const text = message.text();
    const isExpected = expectsRefusal && text.includes('Failed to load resource');
    const isOfAxe = inspects && text.startsWith('Applying inline style');
    if (message.type() === 'error' && !isExpected && !isOfAxe) said.consoleErrors.push(`${text} (${page.url()})`);
  });
  page.on('pageerror', (error) => said.consoleErrors.push(String(error)));
  page.on('request', (request) => { if (!request.url().startsWith(base)) said.outside.push(request.url()); });
  await page.goto(`${base}/console/`);
  await until('the first snapshot is shown', async () => (await text('#where')).includes('sees it'));
  said.firstPaintMs = await page.evaluate(() => Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1));
}

async function healthy({txid, masters, workers}) {
  await until('all is well, in one sentence', async () => (await page.getAttribute('#headline', 'data-level')) === 'good', 240_000);
  await until('every master is on the map', async () => (await amount('.master')) === masters);
  await until('every worker has a position', async () => (await amount('.worker[data-level="good"]')) === workers);
  await until('every link is drawn, both ways', async () => (await amount('.links .link.both')) === masters * (masters - 1) / 2);
  await page.click('summary');
  check('the links are a table, too', (await amount('.view table tbody tr')) === masters);
  await page.click('summary');
  await everyWidth('map', 'map');
  await go('log');
  await until('three plots', async () => (await amount('.plot canvas')) === 3);
  await until('every master has a share of the log', async () => (await amount('.view tbody tr')) === masters);
  await until('the latency is measured', async () => (await page.locator('.tiles dd').nth(3).innerText()).includes('ms'));
  const before = await text('.tiles dd');
  await until('the log grows before one\'s eyes', async () => (await text('.tiles dd')) !== before);
  await page.waitForTimeout(12_000); // the plots of the picture
  await everyWidth('log', 'log');
  await go('split');
  check('one view, no sides', (await amount('.side')) === 1);
  await looks('split');
  await go('work');
  check('workers are listed', (await amount('.view table tbody tr')) >= workers);
  await looks('work');
  await query(txid);
  await updates();
  await keyboard();
}

async function everyWidth(view, name) {
  for (const [width, height, scheme] of [[360, 740, 'dark'], [3840, 2160, 'light'], [1280, 800, 'dark'], [1280, 800, 'light']]) {
    await page.setViewportSize({width, height});
    if ((await page.getAttribute('html', 'data-theme')) !== scheme) await page.click('#theme');
    await page.waitForTimeout(600);
    await looks(`${view} ${width} ${scheme}`);
    if (width === 1280 && scheme === 'light') await picture(name);
    if (width === 360 && view === 'map') await picture(`${name}-phone`);
  }
}

async function query(txid) {
  await go('query');
  await page.waitForSelector('.cm-content');
  await page.selectOption('select', 'A graph of things');
  await page.click('text=Run');
  await until('a CONSTRUCT has statements', async () => (await amount('.answer tbody tr')) > 0);
  const statements = await amount('.answer tbody tr');
  await page.click('.answer button:has-text("Graph")');
  await until('they are drawn as a graph', async () => (await amount('.graph .thing')) > 1 && (await amount('.graph .arrow')) > 0);
  await everyWidth('graph', 'graph');
  await page.dispatchEvent('.graph .thing >> nth=0', 'click');
  await until('a node has its statements', async () => (await amount('.about li')) > 0);
  await page.click('.answer button:has-text("Table")');
  check('the table is there again', (await amount('.answer tbody tr')) === statements);
  await page.selectOption('select', 'Classes');
  await page.click('text=Run');
  await until('a query has rows', async () => (await amount('.answer tbody tr')) > 0);
  await looks('query');
  await page.click('.cm-content');
  await page.keyboard.press('Control+A');
  expectsRefusal = true;
  await page.keyboard.type('SELECT ?s { ?s ');
  await page.keyboard.press('Control+Enter');
  await until('an error is readable', async () => /MALFORMED|expected/i.test(await text('.answer .error')));
  await looks('a query with an error');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('ASK { ?s ?p ?o }');
  await page.keyboard.press('Control+Enter');
  await until('ASK is answered', async () => (await text('.answer strong')) === 'yes');
  await page.fill('#txid', 'nothing');
  await page.keyboard.press('Enter');
  await until('a wrong id is refused', async () => (await amount('.view .error')) > 0);
  await page.fill('#txid', txid);
  await page.keyboard.press('Enter');
  await until('a transaction is found', async () => (await text('caption >> nth=-1')).includes(txid) || (await page.content()).includes(`Transaction ${txid}`));
  expectsRefusal = false;
}

async function recovery({backups}) {
  await go('recovery');
  await until('every backup is on the time line', async () => (await amount('.timeline .backup')) >= backups, 240_000);
  await until('and in the table', async () => (await amount('.view table >> nth=0 >> tbody tr')) >= backups);
  await until('the archive is a band', async () => (await amount('.timeline .archived')) > 0);
  await until('there is a moment, with a command', async () => /txlog restore --to time:\S+Z/.test(await text('.command pre')));
  const before = await text('.command pre');
  await page.focus('#moment-slider');
  for (let at = 0; at < 5; at += 1) await page.keyboard.press('ArrowLeft');
  await until('another moment is another command', async () => (await text('.command pre')) !== before);
  check('which ends in a dry run first', (await text('.command pre')).endsWith('--dry-run'));
  await page.fill('#moment-field', '2020-01-01T00:00');
  await page.keyboard.press('Tab');
  await until('a moment before everything is not promised', async () => (await page.getAttribute('.verdict', 'data-level')) !== 'good');
  await page.click('.view table button >> nth=0');
  await until('a backup is a moment, too', async () => (await page.getAttribute('.verdict', 'data-level')) === 'good');
  const timeline = page.locator('.timeline');
  await timeline.click({position: {x: (await timeline.boundingBox()).width * 0.5, y: 30}});
  await until('a click picks a moment', async () => /time:/.test(await text('.command pre')));
  await everyWidth('recovery', 'recovery');
}

async function load({files, wrong}) {
  await go('load');
  await page.fill('#load-graph', 'urn:console:loaded');
  await page.setInputFiles('#load-files', files);
  await until('each file is a transaction', async () => (await amount('.upload[data-level="good"]')) === files.length);
  check('its progress is whole', (await page.$$eval('.upload progress', (all) => all.every((one) => one.value === 1))));
  check('with its id', /\d+ · [\w-]+\.[0-9a-f]{16}\.\d+/.test(await text('.upload .note')));
  expectsRefusal = true;
  await page.setInputFiles('#load-files', wrong);
  await until('a file that is wrong is refused, with the reason', async () => (await amount('.upload[data-level="bad"]')) === 1);
  check('which can be sent again', (await amount('.upload button:has-text("Again")')) === 1);
  expectsRefusal = false;
  await everyWidth('load', 'load');
}

/** From the answer to a write until the page shows an index at least as high. */
async function updates() {
  await go('map');
  for (let at = 0; at < 15; at += 1) {
    const took = await page.evaluate(async (number) => {
      const answer = await fetch('../repositories/' + document.getElementById('repository').textContent + '/statements', {
        method: 'POST', body: `INSERT DATA { <urn:console> <urn:at> ${number} }`,
        headers: {'Content-Type': 'application/sparql-update', 'TxLog-Durability': 'synced'}});
      const began = performance.now();
      const index = Number(answer.headers.get('TxLog-Position').split(':')[1]);
      for (;;) {
        if (Number(document.body.dataset.stable) >= index) return performance.now() - began;
        await new Promise((done) => setTimeout(done, 5));
      }
    }, at);
    said.updatesMs.push(took);
    await page.waitForTimeout(100 + 37 * at % 400);
  }
}

async function keyboard() {
  await page.goto(`${base}/console/`);
  await page.waitForSelector('.master');
  await page.keyboard.press('Tab');
  check('the first stop skips to the content', (await page.evaluate(() => document.activeElement.className)) === 'skip');
  for (const name of ['theme', 'map', 'log']) {
    await page.keyboard.press('Tab');
    check(`then ${name}`, (await page.evaluate(() => document.activeElement.id || document.activeElement.hash.slice(1))) === name);
  }
  await page.keyboard.press('Enter');
  await until('a view opens by keyboard', async () => (await amount('#log-title')) === 1);
}

async function split() {
  await go('map');
  await until('the sentence says that it is split', async () => (await text('#headline')).startsWith('Split.'), 180_000);
  check('as an alarm', (await page.getAttribute('#headline', 'data-level')) === 'bad');
  await until('a link is drawn as cut', async () => (await amount('.links .link.cut')) > 0);
  await looks('map in a split');
  await picture('split-map');
  await go('split');
  await until('two sides', async () => (await amount('.side')) === 2);
  await until('the open branches are drawn', async () => (await amount('svg.branches .open')) === 1);
  const before = await text('.side >> nth=0');
  await until('this side goes on', async () => (await text('.side >> nth=0')) !== before);
  await looks('split');
  await picture('split');
}

async function rejoined() {
  await until('all is well again', async () => (await page.getAttribute('#headline', 'data-level')) === 'good', 240_000);
  await until('one view again', async () => (await amount('.side')) === 1);
  await until('the rejoin is recorded with its branches', async () => (await amount('.rejoin svg.branches')) >= 1);
  await until('with what each side did', async () => /ordered \d+/.test(await text('.rejoin p')));
  await looks('after the rejoin');
  await picture('rejoined');
}

const steps = {open, healthy, recovery, load, split, rejoined, close: async () => { await browser?.close(); }};
for await (const line of createInterface({input: process.stdin})) {
  const command = JSON.parse(line);
  try {
    await steps[command.do](command);
  } catch (error) {
    check(`${command.do}: ${String(error).split('\n')[0]}`, false);
  }
  console.log(JSON.stringify(said));
  if (command.do === 'close') break;
}
