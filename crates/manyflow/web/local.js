// The lab without a server, for a page of one file: the simulator is WebAssembly in a worker. It has the names of
// server.js; there are neither live roles nor ordered groups, and a run has no speed.

/** @typedef {import("./server.js").Description} Description */

/** Whether the page has no server. */
export const isLocal = true;

/** @param {string} id */
const packed = (id) => document.getElementById(id)?.textContent ?? "";

/** The text of the worker, and the simulator's module. */
const ready = (async () => {
  const bytes = Uint8Array.from(atob(packed("simulator").trim()), (letter) => letter.charCodeAt(0));
  const module = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const script = URL.createObjectURL(new Blob([packed("worker")], { type: "text/javascript" }));
  return { script, module: await WebAssembly.compile(await new Response(module).arrayBuffer()) };
})();

/** A simulator in a thread of its own. */
class Lab {
  constructor() {
    /** @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void}>} */
    this.open = new Map();
    this.asked = 0;
    /** Takes the events of the run in progress. @type {(kind: string, value: any) => void} */
    this.onEvent = () => {};
    this.worker = this.#start();
  }

  async #start() {
    const { script, module } = await ready;
    const worker = new Worker(script);
    worker.onmessage = ({ data }) => this.#take(data);
    worker.onerror = (event) => {
      // A simulator that has panicked cannot go on; the next question gets another one.
      worker.terminate();
      this.worker = this.#start();
      this.#fail(event.message);
    };
    worker.postMessage({ module });
    return worker;
  }

  /**
   * @param {object} question
   * @returns {Promise<any>}
   */
  async ask(question) {
    const worker = await this.worker;
    this.asked += 1;
    const number = this.asked;
    return new Promise((resolve, reject) => {
      this.open.set(number, { resolve, reject });
      worker.postMessage({ number, question });
    });
  }

  /** @param {{number?: number, answer?: any, error?: string, kind?: string, value?: any}} message */
  #take({ number, answer, error, kind, value }) {
    if (number === undefined) {
      this.onEvent(kind ?? "", value);
      return;
    }
    const asked = this.open.get(number);
    this.open.delete(number);
    if (error === undefined) asked?.resolve(answer);
    else asked?.reject(new Error(error));
  }

  /** @param {string} message */
  #fail(message) {
    for (const { reject } of this.open.values()) reject(new Error(message));
    this.open.clear();
  }

  /** Ends the thread, whatever it does. */
  async end() {
    this.#fail("the run was stopped");
    (await this.worker).terminate();
  }
}

/** Answers everything that takes no time. */
const desk = new Lab();
/** The threads of runs, by the numbers that the page knows, with their own numbers. @type {Map<number, {lab: Lab, own: number}>} */
const runs = new Map();
let latest = 0;
/** The maximum number of runs that are kept for downloads: each has a thread and its memory. */
const KEPT_MAX = 8;

/** @returns {Promise<import("./server.js").FigureEntry[]>} */
export const figures = () => desk.ask({ ask: "figures" });

/** @param {string} id @returns {Promise<string>} */
export const figureText = (id) => desk.ask({ ask: "text", id });

/** @returns {Promise<import("./schema.js").Schema>} */
export const schema = () => desk.ask({ ask: "schema" });

/** @returns {Promise<string[]>} */
export const attached = async () => [];

/**
 * @param {"check"|"runs"|"sweeps"} path
 * @param {import("./server.js").Wanted} wanted
 * @returns {Promise<{description?: Description, problem?: import("./server.js").Problem}>}
 */
export async function post(path, wanted) {
  const lab = path === "check" ? desk : new Lab();
  const names = { check: "check", runs: "run", sweeps: "sweep" };
  const answer = await lab.ask({ ask: names[path], wanted });
  if (answer.problem) {
    if (lab !== desk) lab.end();
    return { problem: answer.problem };
  }
  if (lab === desk) return { description: answer };
  latest += 1;
  runs.set(latest, { lab, own: answer.run });
  const [oldest] = runs;
  if (runs.size > KEPT_MAX) {
    oldest[1].lab.end();
    runs.delete(oldest[0]);
  }
  return { description: { ...answer, run: latest } };
}

/**
 * @param {number} run
 * @param {Record<string, (value: any) => void>} handlers
 * @param {() => void} changed
 */
export function follow(run, handlers, changed) {
  const found = runs.get(run);
  if (!found) return;
  const began = performance.now();
  const handle = (/** @type {string} */ kind, /** @type {any} */ value) => {
    // The simulator has no clock.
    handlers[kind]?.(kind === "done" ? { ...value, seconds: (performance.now() - began) / 1000 } : value);
    changed();
  };
  found.lab.onEvent = handle;
  found.lab.ask({ ask: "make", run: found.own }).catch((error) => handle("failed", { message: error.message }));
}

/** @param {number} run @param {string} what @returns {Promise<{name: string, media_type: string, text: string}>} */
async function download(run, what) {
  const found = runs.get(run);
  if (!found) throw new Error("the run is no longer kept: run the scenario again");
  return found.lab.ask({ ask: "download", run: found.own, what });
}

/**
 * Makes a link or a picture lead to a file of a run's results. A link makes the file when it is used.
 * @param {HTMLElement} shown
 * @param {number} run
 * @param {string} what
 */
export function offer(shown, run, what) {
  const blob = async () => {
    const { name, media_type: type, text } = await download(run, what);
    return { name, url: URL.createObjectURL(new Blob([text], { type })) };
  };
  if (shown.tagName === "IMG") {
    blob().then(({ url }) => shown.setAttribute("src", url));
    return;
  }
  shown.setAttribute("href", "#");
  shown.onclick = async (event) => {
    event.preventDefault();
    const { name, url } = await blob();
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
  };
}

export const setPace = async () => {};

/** @param {number} run */
export const stop = async (run) => runs.get(run)?.lab.end();

export const cut = async () => ({ ok: false, value: { message: "this page has no daemons" } });

export const multicast = cut;
