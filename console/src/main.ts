// The console: one page over the snapshots of one master.
import {type Live, follow} from './api';
import {plural, setAttr, setText} from './dom';
import {History} from './history';
import {LoadView} from './load_view';
import {LogView} from './log_view';
import {MapView} from './map_view';
import {QueryView} from './query_view';
import {RecoveryView} from './recovery_view';
import {SplitView} from './split_view';
import {headline} from './summary';
import {WorkView} from './work_view';

const views = {
  map: new MapView(), log: new LogView(), split: new SplitView(), recovery: new RecoveryView(), query: new QueryView(),
  load: new LoadView(), work: new WorkView(),
};
type Name = keyof typeof views;
const history = new History();
const content = document.getElementById('content')!;
const root = document.documentElement;
let live: Live | null = null;
let connected = false;
let problem = '';
let drawn = false;

const chosen = (): Name => (Object.hasOwn(views, location.hash.slice(1)) ? (location.hash.slice(1) as Name) : 'map');

function show(): void {
  if (location.hash === '#content') return;
  const name = chosen();
  for (const link of document.querySelectorAll<HTMLAnchorElement>('nav a')) {
    const here = link.hash === `#${name}`;
    if (here) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
    if (here) document.title = `${link.textContent} · TxLog console`;
  }
  content.replaceChildren(views[name].node);
  draw();
}

/** At most once per frame; only the view that is seen. */
function draw(): void {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    const bar = document.getElementById('headline')!;
    if (live) {
      const said = headline(live);
      setText(bar, connected ? said.text : `No connection to ${live.node}: ${problem}. What is shown is old.`);
      setAttr(bar, 'data-level', connected ? said.level : 'wait');
      setText(document.getElementById('repository')!, live.repository);
      // Not in the sentence above, which screen readers read whenever it changes.
      setText(document.getElementById('where')!, `${plural(live.log.stable, 'transaction')}, as ${live.node} in ${live.dataCenter} sees it`);
      setAttr(document.body, 'data-stable', String(live.log.stable));
      try {
        views[chosen()].update(live, history);
      } catch (error) {
        setText(bar, `This view cannot be drawn, and shows what was: ${String(error)}`);
        setAttr(bar, 'data-level', 'wait');
        throw error;
      }
    } else if (problem) setText(bar, `No answer yet: ${problem}`);
  });
}

function keptTheme(): string | null {
  try { return localStorage.getItem('txlog-theme'); } catch { return null; }
}

function theme(name: string): void {
  root.dataset.theme = name;
  const button = document.getElementById('theme')!;
  setText(button, name === 'dark' ? 'Light' : 'Dark');
  setAttr(button, 'aria-label', `Change to ${name === 'dark' ? 'light' : 'dark'} colours`);
  button.removeAttribute('aria-pressed');
  draw();
}

const wanted = keptTheme() ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
theme(wanted);
document.getElementById('theme')!.addEventListener('click', () => {
  const next = root.dataset.theme === 'dark' ? 'light' : 'dark';
  try { localStorage.setItem('txlog-theme', next); } catch { /* a browser that keeps nothing */ }
  theme(next);
});
window.addEventListener('hashchange', show);
setInterval(draw, 1000); // ages and rates change while nothing arrives
show();
follow((next) => { live = next; history.add(next); draw(); }, (ok, why) => { connected = ok; problem = why; draw(); });
