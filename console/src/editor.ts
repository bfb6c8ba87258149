// The SPARQL editor. It is in a shadow root: its styles are then constructed sheets, which the policy of the page permits.
import {autocompletion, completeFromList} from '@codemirror/autocomplete';
import {defaultKeymap, history, historyKeymap} from '@codemirror/commands';
import {HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting} from '@codemirror/language';
import {sparql} from '@codemirror/legacy-modes/mode/sparql';
import {EditorState} from '@codemirror/state';
import {EditorView, keymap, lineNumbers, placeholder} from '@codemirror/view';
import {tags} from '@lezer/highlight';

const WORDS = ('SELECT CONSTRUCT DESCRIBE ASK WHERE FROM NAMED GRAPH OPTIONAL UNION MINUS FILTER BIND VALUES SERVICE EXISTS NOT IN AS DISTINCT REDUCED '
  + 'GROUP BY HAVING ORDER ASC DESC LIMIT OFFSET PREFIX BASE INSERT DELETE DATA WITH USING CLEAR DROP CREATE COUNT SUM MIN MAX AVG SAMPLE '
  + 'GROUP_CONCAT STR LANG DATATYPE BOUND IRI BNODE STRLEN SUBSTR UCASE LCASE CONTAINS STRSTARTS STRENDS REGEX REPLACE COALESCE IF YEAR MONTH DAY NOW').split(' ');
const language = StreamLanguage.define(sparql);
const colours = HighlightStyle.define([
  {tag: tags.keyword, color: 'var(--accent)', fontWeight: '600'}, {tag: tags.variableName, color: 'var(--c3)'},
  {tag: tags.string, color: 'var(--good)'}, {tag: tags.atom, color: 'var(--c4)'}, {tag: tags.comment, color: 'var(--dim)'},
  {tag: tags.number, color: 'var(--warn)'}, {tag: tags.operator, color: 'var(--dim)'}]);
const looks = EditorView.theme({
  '&': {fontSize: '0.9rem', backgroundColor: 'var(--card)', color: 'var(--text)', minHeight: '11rem', maxHeight: '50vh'},
  '.cm-content': {fontFamily: 'var(--mono)', caretColor: 'var(--text)'}, '.cm-scroller': {overflow: 'auto', minHeight: '11rem'},
  '.cm-gutters': {backgroundColor: 'var(--page)', color: 'var(--dim)', border: 'none'},
  '.cm-cursor': {borderLeftColor: 'var(--text)'}, '&.cm-focused': {outline: '2px solid var(--accent)'},
  '.cm-tooltip': {backgroundColor: 'var(--card)', color: 'var(--text)', borderColor: 'var(--line)'},
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': {backgroundColor: 'var(--chosen)'},
});

export function createEditor(host: HTMLElement, text: string, run: () => void): EditorView {
  const root = host.attachShadow({mode: 'open'});
  return new EditorView({
    root, parent: root as unknown as HTMLElement,
    state: EditorState.create({doc: text, extensions: [
      lineNumbers(), history(), bracketMatching(), language, syntaxHighlighting(colours), looks, EditorView.lineWrapping, placeholder('SELECT …'),
      EditorView.contentAttributes.of({'aria-label': 'SPARQL query; Escape and then Tab leaves the editor, Control and Enter runs it'}),
      autocompletion({override: [completeFromList(WORDS.map((label) => ({label, type: 'keyword'})))], activateOnTypingDelay: 250}),
      keymap.of([{key: 'Mod-Enter', run: () => { run(); return true; }}, ...defaultKeymap, ...historyKeymap])]}),
  });
}
