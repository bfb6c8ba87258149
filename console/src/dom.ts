// Small helpers over the platform's own elements.

type Props = Record<string, string | number | boolean | null | undefined | ((event: Event) => void)>;
export type Child = Node | string | number | null | undefined | false;

/** An element. A function property named `onX` listens to the event `x`; null, undefined and false leave a property out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, props: Props = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  fill(made, props, children);
  return made;
}

/** The same for SVG. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K, props: Props = {}, ...children: Child[]
): SVGElementTagNameMap[K] {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  fill(made, props, children);
  return made;
}

function fill(made: Element, props: Props, children: Child[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === 'function') made.addEventListener(name.slice(2).toLowerCase(), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) made.append(child instanceof Node ? child : String(child));
  }
}

/** Changes a text only if it differs: screen readers and selections are left alone. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttr(node: Element, name: string, value: string): void {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

const built = new WeakMap<Element, string>();

/** Replaces the content of `node` only when `key` has changed since the last call. */
export function refresh(node: Element, key: unknown, build: () => Child[]): void {
  const text = JSON.stringify(key);
  if (built.get(node) === text) return;
  built.set(node, text);
  node.replaceChildren();
  fill(node, {}, build());
}

/** A table in a box that scrolls by itself, reachable by keyboard. */
export function table(caption: string, head: string[], rows: Child[][], empty = 'none'): HTMLElement {
  if (!rows.length) return h('p', {class: 'empty'}, `${caption}: ${empty}`);
  return h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption},
    h('table', {}, h('caption', {}, caption),
      h('thead', {}, h('tr', {}, ...head.map((text) => h('th', {scope: 'col'}, text)))),
      h('tbody', {}, ...rows.map((row) => h('tr', {}, ...row.map((cell) => h('td', {}, cell)))))));
}

/** Copies a text. Without the right to the clipboard it says so. */
export function copyButton(text: string): HTMLButtonElement {
  const made = h('button', {type: 'button', class: 'quiet', onClick: () => {
    navigator.clipboard.writeText(text).then(() => setText(made, 'Copied'), () => setText(made, 'Not allowed: select the text'));
    setTimeout(() => setText(made, 'Copy'), 3000);
  }}, 'Copy');
  return made;
}

const NUMBER = new Intl.NumberFormat('en');
export const count = (value: number): string => NUMBER.format(Math.round(value));

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${value < 10 && at ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export function duration(ms: number | null): string {
  if (ms === null) return '–';
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 10_000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** A moment, with its day: a page is open for days, and its readers are in several time zones. */
export const utc = (seconds: number): string => `${new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')}Z`;
export const utcClock = (seconds: number): string => new Date(seconds * 1000).toISOString().slice(11, 19);
export const names = (list: string[]): string =>
  list.length < 2 ? list.join('') : `${list.slice(0, -1).join(', ')} and ${list.at(-1)}`;
