// The parts of CodeMirror that the editor uses. `scripts/lab-test` checks that the bundle is made of them.
export { EditorState, Prec } from "@codemirror/state";
export { EditorView, hoverTooltip, keymap, lineNumbers, highlightActiveLine } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { autocompletion, completionKeymap, closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
export { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting } from "@codemirror/language";
export { tags } from "@lezer/highlight";
export { toml } from "@codemirror/legacy-modes/mode/toml";
