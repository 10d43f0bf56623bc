// The requests to the server. All paths are relative to the page, whose address holds the token.
// A page of one file has local.js instead, which has the same names and no server.

/**
 * @typedef {{line: number, key: string, message: string}} Problem The first error in a scenario.
 * @typedef {{what: string, label: string|null, observable: string, unit: string, scale: number}} SeriesInfo
 * @typedef {{name: string, title: string, y_label: string|null, y_unit: string|null, series: SeriesInfo[]}} PlotInfo
 * @typedef {{from: number, to: number, rate: number|null, delay_s: number, queue_packets: number|null}} MapLink
 * @typedef {{name: string, protocol: string, sender: number, receivers: number[], links: number[], overlay: [number, number[]]|null}} MapSession
 * @typedef {{name: string, daemons: number[], links: [number, number][], has_prices: boolean}} MapOverlay
 * @typedef {{nodes: string[], links: MapLink[], sessions: MapSession[], overlays: MapOverlay[]}} NetworkMap
 * @typedef {{id: string, title: string, source: string|null, about: string|null, cell: number, cells: string[][],
 *   cell_count: number, axes: string[], first_seed: number, seeds: number, duration_s: number, steady_from_s: number,
 *   plots: PlotInfo[], expectations: import("./expectations.js").Expected[], map: NetworkMap|null, run?: number, seed?: number,
 *   sweep_runs?: number}} Description
 * @typedef {{id: string, title: string, source: string|null, file: string, is_built_in: boolean}} FigureEntry
 * @typedef {{text: string, file: string, fast: boolean, cell: number, seed?: number, speed?: Speed}} Wanted
 * @typedef {{factor: number|null, is_paused: boolean}} Speed
 */

/** Whether the page has no server. */
export const isLocal = false;

/**
 * Reads JSON or text from the server.
 * @param {string} path
 * @returns {Promise<Response>}
 */
async function read(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error((await response.json()).message);
  return response;
}

/**
 * Sends JSON to the server.
 * @param {string} path
 * @param {object} body
 * @returns {Promise<{ok: boolean, value: any}>}
 */
async function send(path, body) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  return { ok: response.ok, value: await response.json() };
}

/** @returns {Promise<FigureEntry[]>} */
export const figures = async () => (await read("figures.json")).json();

/** @param {string} id @returns {Promise<string>} */
export const figureText = async (id) => (await read(`text?${encodeURIComponent(id)}`)).text();

/** The keys of scenario files. @returns {Promise<import("./schema.js").Schema>} */
export const schema = async () => (await read("schema.json")).json();

/** @returns {Promise<string[]>} */
export const attached = async () => (await read("attached.json")).json();

/**
 * Checks a scenario, or starts a run of it, or all of its runs.
 * @param {"check"|"runs"|"sweeps"} path
 * @param {Wanted} wanted
 * @returns {Promise<{description?: Description, problem?: Problem}>}
 */
export async function post(path, wanted) {
  // A check of a scenario that has an error is answered, too, so that the console stays empty.
  const { ok, value } = await send(path, wanted);
  if (!ok) throw new Error(value.message);
  return value.problem ? { problem: value.problem } : { description: value };
}

/**
 * Follows the events of a run until its end. Calls `changed` after each of them.
 * @param {number} run
 * @param {Record<string, (value: any) => void>} handlers By the kind of event; `done` and `failed` are the last.
 * @param {() => void} changed
 */
export function follow(run, handlers, changed) {
  const events = new EventSource(`runs/${run}/events`);
  for (const [kind, handle] of Object.entries(handlers)) {
    events.addEventListener(kind, (event) => {
      handle(JSON.parse(event.data));
      if (kind === "done" || kind === "failed") events.close();
      changed();
    });
  }
}

/**
 * Makes a link or a picture lead to a file of a run's results.
 * @param {HTMLElement} shown
 * @param {number} run
 * @param {string} file
 */
export const offer = (shown, run, file) => shown.setAttribute(shown.tagName === "IMG" ? "src" : "href", `runs/${run}/${encodeURIComponent(file)}`);

/** @param {number} run @param {Speed} speed */
export const setPace = (run, speed) => send(`runs/${run}/pace`, speed);

/** Cuts a daemon of ordered groups off, or heals its links. @param {number} daemon @param {boolean} isCut */
export const cut = (daemon, isCut) => send("order/cut", { daemon, is_cut: isCut });

/**
 * Sends a message of a member of ordered groups.
 * @param {number} member
 * @param {string[]} groups
 * @param {string} service
 * @param {string} text
 */
export const multicast = (member, groups, service, text) => send("order/send", { member, groups, service, text });

/** @param {number} run */
export const stop = (run) => send(`runs/${run}/stop`, {});
