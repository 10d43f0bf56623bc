// The text of the scenario: CodeMirror with the keys and values of scenario files, and their descriptions. The first
// error is marked at its line, and stands below.

import * as cm from "./vendor/codemirror/codemirror.min.js";
import { byId, element } from "./format.js";
import { Keys, keyAt, place } from "./schema.js";
import { schema } from "./server.js";

/** @type {HTMLElement} */
const problemLine = byId("problem");

/** The keys of scenario files, once they have been read. */
let keys = new Keys({});
let changed = () => {};
let timer = 0;
/** @type {import("./server.js").Problem|null} */
let problem = null;

/** Reads the keys of scenario files. */
export async function readKeys() {
  keys = new Keys(await schema());
}

/** @param {any} context */
function complete(context) {
  const at = place(context.state.sliceDoc(0, context.pos));
  if (!at || (!at.prefix && !context.explicit)) return null;
  const options = at.isValue
    ? keys.values(at.path).map((label) => ({ label, type: "enum" }))
    : keys.of(at.path).map(([label, schema]) => ({ label, type: "property", info: schema.description }));
  return options.length ? { from: context.pos - at.prefix.length, options, validFor: /^["\w-]*$/ } : null;
}

/** @param {any} view @param {number} pos */
function describe(view, pos) {
  const line = view.state.doc.lineAt(pos);
  const found = keyAt(view.state.sliceDoc(0, line.to).split("\n"), pos - line.from);
  const description = found && keys.description(found.path);
  if (!found || !description) return null;
  const dom = element("div", { class: "described" }, element("strong", {}, found.path.join(".")), element("p", {}, description));
  return { pos: line.from + found.from, end: line.from + found.to, create: () => ({ dom }) };
}

const COLORS = cm.HighlightStyle.define([
  { tag: cm.tags.comment, color: "var(--dim)", fontStyle: "italic" },
  { tag: [cm.tags.propertyName, cm.tags.atom], color: "var(--accent)" },
  { tag: cm.tags.string, color: "var(--met)" },
  { tag: cm.tags.number, color: "var(--q3-text)" },
]);

/** The looks within the editor, which the page's style sheet does not reach. */
const LOOKS = cm.EditorView.theme({
  "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--field)", fontSize: "12.5px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "DejaVu Sans Mono", monospace', lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--field)", color: "var(--dim)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 7%, transparent)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)", maxWidth: "26rem", fontFamily: "system-ui, sans-serif" },
  ".cm-tooltip .described": { padding: ".4rem .6rem" },
  ".cm-tooltip p": { margin: ".2rem 0 0" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionInfo": { padding: ".4rem .6rem" },
});

// In a tree of its own, CodeMirror adds its rules as style sheets that the page's policy allows.
const root = byId("editor").attachShadow({ mode: "open" });
const host = element("div");
root.append(host);

const view = new cm.EditorView({
  parent: host,
  root,
  state: cm.EditorState.create({
    extensions: [
      // The page runs the scenario at Ctrl+Enter.
      cm.Prec.highest(cm.keymap.of([{ key: "Mod-Enter", run: () => true }])),
      cm.lineNumbers(), cm.lintGutter(), cm.history(), cm.bracketMatching(), cm.closeBrackets(), cm.highlightActiveLine(),
      cm.StreamLanguage.define(cm.toml), cm.syntaxHighlighting(COLORS), LOOKS,
      cm.autocompletion({ override: [complete] }), cm.hoverTooltip(describe),
      cm.keymap.of([...cm.closeBracketsKeymap, ...cm.completionKeymap, ...cm.lintKeymap, ...cm.historyKeymap, ...cm.defaultKeymap]),
      cm.EditorView.contentAttributes.of({ "aria-label": "The scenario, in TOML", tabindex: "0", spellcheck: "false" }),
      cm.EditorView.updateListener.of((/** @type {any} */ update) => {
        if (!update.docChanged || update.transactions.some((/** @type {any} */ one) => one.isUserEvent("page"))) return;
        clearTimeout(timer);
        timer = window.setTimeout(() => changed(), 250);
      }),
    ],
  }),
});

/** The place of the error's line in the text. */
function lineOfProblem() {
  return view.state.doc.line(Math.min(Math.max(problem?.line ?? 1, 1), view.state.doc.lines));
}

/** Moves the cursor to the line of the error. */
function showLine() {
  const { from, to } = lineOfProblem();
  view.dispatch({ selection: { anchor: from, head: to }, effects: cm.EditorView.scrollIntoView(from, { y: "center" }) });
  view.focus();
}

/** @param {import("./server.js").Problem|null} found */
export function showProblem(found) {
  problem = found;
  problemLine.replaceChildren();
  /** @type {object[]} */
  let marks = [];
  if (found) {
    const { from, to } = lineOfProblem();
    marks = [{ from, to, severity: "error", message: found.message }];
    const jump = element("button", { class: "jump" }, `Line ${found.line}`);
    jump.addEventListener("click", showLine);
    problemLine.append(jump, ` ${found.message}`);
  }
  view.dispatch(cm.setDiagnostics(view.state, marks));
}

/** @param {string} text */
export function setText(text) {
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: 0 }, userEvent: "page", scrollIntoView: true });
  showProblem(null);
}

export const text = () => view.state.doc.toString();

/**
 * Replaces the text as a reader does who pastes.
 * @param {string} text
 */
export function paste(text) {
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, userEvent: "input.paste" });
}

/** Returns the text that is selected. */
export const selected = () => view.state.sliceDoc(view.state.selection.main.from, view.state.selection.main.to);

/**
 * Calls `call` some time after each change by the reader.
 * @param {() => void} call
 */
export function onChange(call) {
  changed = call;
}
