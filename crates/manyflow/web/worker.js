// The thread of a simulator in a page of one file: it takes the module, then questions, and sends answers and events.
// crates/manyflow-lab-page is the other side.

/** @type {any} */
let wasm;

const view = (/** @type {number} */ place, /** @type {number} */ bytes) => new Uint8Array(wasm.memory.buffer, place, bytes);
const text = (/** @type {number} */ place, /** @type {number} */ bytes) => new TextDecoder().decode(view(place, bytes));

const report = (/** @type {number} */ place, /** @type {number} */ bytes) => postMessage(JSON.parse(text(place, bytes)));

/**
 * Returns the functions that a module imports. The library of plots also imports functions of browsers, for canvases, which
 * nothing calls.
 * @param {WebAssembly.Module} module
 */
function importsOf(module) {
  /** @type {Record<string, Record<string, any>>} */
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {};
    imports[from][name] = () => { throw new Error(`${from}.${name} was called`); };
  }
  imports.lab.event = report;
  return imports;
}

/** @param {object} question */
function ask(question) {
  const bytes = new TextEncoder().encode(JSON.stringify(question));
  view(wasm.input(bytes.length), bytes.length).set(bytes);
  const length = wasm.ask();
  return JSON.parse(text(wasm.output(), length));
}

onmessage = ({ data: { module, number, question } }) => {
  if (module) {
    wasm = new WebAssembly.Instance(module, importsOf(module)).exports;
    return;
  }
  postMessage({ number, ...ask(question) });
};
