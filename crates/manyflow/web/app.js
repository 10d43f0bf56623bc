// The page: picks, edits and runs scenarios, and shows their runs.

import { Chart } from "./chart.js";
import * as editor from "./editor.js";
import { fillExpectations, summary } from "./expectations.js";
import { byId, count, digits, element, time as timeText } from "./format.js";
import { Gallery } from "./gallery.js";
import { decode, encode } from "./link.js";
import { Live } from "./live.js";
import { Order } from "./order.js";
import { showTab, wireTabs, wireTheme } from "./page.js";
import { lastAtMost, Run, shortKey } from "./run.js";
import * as server from "./server.js";
import { showSweep, Sweep } from "./sweep.js";
import { fillTable, graph, looks, Picture } from "./topology.js";

/** @typedef {import("./server.js").Description} Description */

/** What is to be run. */
const wanted = {
  figure: "",
  file: "scenario.toml",
  /** The text of the figure, to see whether it was edited. */
  original: "",
  /** @type {Description|null} */
  description: null,
};

const order = new Order();
const gallery = new Gallery(async (id) => {
  byId("fast").checked = true;
  await choose(id);
  showTab("lab");
  await check();
});

/** The runs and sweeps of this page, the latest first. @type {(Run|Sweep)[]} */
const runs = [];
const shown = {
  /** @type {Run|null} */
  run: null,
  /** @type {Sweep|null} */
  sweep: null,
  /** @type {Run|null} */
  compared: null,
  time: 0,
  isFollowing: true,
  /** @type {Map<string, Chart>} */
  charts: new Map(),
  layer: -1,
};
const picture = new Picture(byId("picture"), "The network of the run");
const preview = new Picture(byId("preview"), "The network of the scenario");

// --- The scenario ---

const isEdited = () => editor.text() !== wanted.original;

/** @returns {import("./server.js").Wanted} */
function request() {
  const factor = Number(byId("speed").value) || null;
  return {
    text: editor.text(),
    file: wanted.file,
    fast: byId("fast").checked,
    cell: Number(byId("cell").value) || 0,
    seed: Number(byId("seed").value) || 1,
    speed: { factor, is_paused: false },
  };
}

/** @param {string} text */
function note(text) {
  byId("note").textContent = text;
}

/** The number of the latest check: answers to earlier ones come too late. */
let checks = 0;

/** Checks the text. Keeps the chosen cell if there is one of that number. */
async function check() {
  checks += 1;
  const number = checks;
  const { description, problem } = await server.post("check", request());
  if (number !== checks) return;
  editor.showProblem(problem ?? null);
  for (const id of ["run", "run-all"]) byId(id).disabled = !description;
  if (description) describe(description);
}

/** @param {Description} description */
function describe(description) {
  wanted.description = description;
  byId("title").textContent = description.title;
  byId("origin").textContent = description.source ?? "";
  byId("about-box").hidden = !description.about;
  byId("about").replaceChildren(...(description.about ?? "").split("\n\n").map((text) => element("p", {}, text.trim())));
  byId("cell-label").hidden = description.cell_count < 2;
  const options = description.cells.map((_, cell) => element("option", { value: String(cell) }, cellName(description, cell)));
  byId("cell").replaceChildren(...options);
  byId("cell").value = String(description.cell);
  const all = description.cell_count * description.seeds;
  byId("run-all").hidden = all < 2;
  byId("run-all").textContent = `Run all ${all}`;
  byId("run-all").title = `${description.cell_count} cells, ${description.seeds} seeds each`;
  byId("preview").hidden = !description.map;
  fillExpectations(byId("expected"), description.expectations);
  byId("expected").hidden = !description.expectations.length;
  if (description.map && !shown.run) preview.show(graph(description.map, -1), "");
}

/**
 * Names a cell by its values on the axes of the sweep.
 * @param {Description} description
 * @param {number} cell
 */
const cellName = (description, cell) => (description.cells[cell] ?? []).map((label, axis) => `${shortKey(description.axes[axis])} ${label}`).join(", ");

/**
 * Shows a figure, or a text that was made from it.
 * @param {string} figure
 * @param {string} [text]
 * @param {string} [file]
 */
async function choose(figure, text, file) {
  const known = [...byId("figure").options].some((option) => option.value === figure);
  wanted.figure = known ? figure : "";
  wanted.original = known ? await server.figureText(figure) : "";
  wanted.file = file ?? byId("figure").querySelector(`option[value="${CSS.escape(figure)}"]`)?.dataset.file ?? "scenario.toml";
  byId("figure").value = known ? figure : "";
  editor.setText(text ?? wanted.original);
}

async function permalink() {
  const state = {
    figure: wanted.figure,
    cell: Number(byId("cell").value) || 0,
    seed: Number(byId("seed").value) || 1,
    fast: byId("fast").checked,
    text: isEdited() ? editor.text() : undefined,
    file: isEdited() ? wanted.file : undefined,
  };
  return `#${await encode(state)}`;
}

/** Shows what the address stands for. @param {string} fragment */
async function open(fragment) {
  const state = await decode(fragment);
  if (!state) return false;
  byId("seed").value = String(state.seed);
  byId("fast").checked = state.fast;
  await choose(state.figure, state.text, state.file);
  byId("cell").replaceChildren(element("option", { value: String(state.cell) }, String(state.cell)));
  await check();
  return true;
}

// --- Runs ---

/** Starts a run, or all runs. @param {"runs"|"sweeps"} what */
async function start(what) {
  const buttons = [byId("run"), byId("run-all")];
  if (buttons[0].disabled) return;
  for (const button of buttons) button.disabled = true;
  try {
    const { description, problem } = await server.post(what, request());
    editor.showProblem(problem ?? null);
    if (description) begin(description);
  } catch (error) {
    note(/** @type {Error} */ (error).message);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

/** @param {Description} description */
function begin(description) {
  describe(description);
  const name = `${description.run}: ${description.id}`;
  const isOwn = isEdited();
  const edited = `${byId("fast").checked ? ", shortened" : ""}${isOwn ? ", edited" : ""}`;
  const cell = cellName(description, description.cell);
  const run = description.sweep_runs === undefined
    ? new Run(description, `${name}${cell ? `, ${cell}` : ""}, seed ${description.seed}${edited}`)
    : new Sweep(description, `${name}, all ${description.sweep_runs} runs${edited}`);
  runs.unshift(run);
  show(run);
  run.follow(() => {
    const plot = run instanceof Sweep ? run.conclusion?.figures[0] : undefined;
    if (plot && !isOwn) gallery.showPlot(description.id, run.number, plot.name);
    if (run === shown.run || run === shown.compared || run === shown.sweep) refresh();
  });
  note("");
}

/** @param {Run|Sweep} run */
function show(run) {
  shown.run = run instanceof Run ? run : null;
  shown.sweep = run instanceof Sweep ? run : null;
  shown.isFollowing = true;
  byId("empty").hidden = true;
  byId("results").hidden = false;
  byId("single").hidden = shown.run === null;
  byId("sweep").hidden = shown.sweep === null;
  byId("sweep-progress").hidden = true;
  if (shown.compared === run) shown.compared = null;
  fillRuns();
  if (run instanceof Sweep) {
    setPlaying(false);
    refresh();
    return;
  }
  byId("time").max = String(run.description.duration_s);
  byId("time").step = String(run.description.duration_s / 1000);
  makeCharts(run);
  fillLayers(run);
  refresh();
}

function fillRuns() {
  const option = (/** @type {Run|Sweep} */ run) => element("option", { value: String(run.number) }, run.name);
  byId("shown-run").replaceChildren(...runs.map(option));
  byId("shown-run").value = String((shown.run ?? shown.sweep)?.number ?? "");
  byId("compared-run").closest("label").hidden = shown.run === null;
  const others = runs.filter((run) => run instanceof Run && run !== shown.run);
  byId("compared-run").replaceChildren(element("option", { value: "" }, "nothing"), ...others.map(option));
  byId("compared-run").value = String(shown.compared?.number ?? "");
}

/** @param {Run} run */
function makeCharts(run) {
  const plots = run.description.plots.filter((plot) => plot.series.length);
  const old = shown.charts;
  shown.charts = new Map();
  for (const plot of plots) {
    const kept = old.get(plot.name);
    const chart = kept?.title === plot.title ? kept : new Chart(plot.title, plot.series[0].unit, "lab", exports(plot.name));
    chart.onZoom = setZoom;
    shown.charts.set(plot.name, chart);
  }
  byId("charts").replaceChildren(...[...shown.charts.values()].map((chart) => chart.root));
  setZoom(null);
}

/** @param {string} plot */
function exports(plot) {
  return ["csv", "svg"].map((kind) => {
    const link = element("a", { class: "quiet export", "data-plot": plot, "data-kind": kind, download: "" }, kind.toUpperCase());
    link.setAttribute("aria-label", `${kind.toUpperCase()} of ${plot}`);
    return link;
  });
}

/** Shows what is new in the runs. */
function refresh() {
  const { run, sweep } = shown;
  if (sweep) {
    refreshStatus(sweep, sweep.status);
    showSweep(sweep);
  }
  if (!run) return;
  if (shown.isFollowing) shown.time = run.time;
  byId("time").value = String(shown.time);
  byId("time-shown").textContent = timeText(shown.time);
  byId("follow").setAttribute("aria-pressed", String(shown.isFollowing));
  refreshStatus(run, statusOf(run));
  const { duration_s: duration } = run.description;
  run.description.plots.forEach((plot, index) => {
    const layers = [{ series: run.plots[index], name: run.name, isDashed: false }];
    const other = shown.compared;
    const match = other?.description.plots.findIndex((known) => known.name === plot.name) ?? -1;
    if (other && match >= 0) layers.push({ series: other.plots[match], name: other.name, isDashed: true });
    shown.charts.get(plot.name)?.show(layers, 0, duration, shown.time);
  });
  scheduleTopology();
}

/** @param {Run} run */
function statusOf(run) {
  if (run.state === "failed") return run.message;
  const share = Math.floor((100 * run.time) / run.description.duration_s);
  if (run.state === "running") return `${share} % simulated${run.isPaused ? ", paused" : ""}`;
  return `${timeText(run.description.duration_s)} in ${timeText(run.conclusion?.seconds ?? 0)}, ${count(run.conclusion?.transmissions ?? 0)} packets`;
}

/** @param {Run|Sweep} run @param {string} status */
function refreshStatus(run, status) {
  const isRunning = run.state === "running";
  byId("stop").disabled = !isRunning;
  byId("pause").disabled = !isRunning || run instanceof Sweep;
  byId("pause").setAttribute("aria-pressed", String(isRunning && run instanceof Run && run.isPaused));
  if (byId("progress").textContent !== status) byId("progress").textContent = status;
  byId("progress").classList.toggle("wrong", run.state === "failed");
  byId("results").dataset.state = run.state;
  if (byId("results").dataset.concluded !== conclusionKey()) conclude();
}

const conclusionKey = () => [shown.run, shown.sweep, shown.compared].map((run) => `${run?.number}${run?.state}`).join();

/** Shows measures and expectations, and offers the results as files. */
function conclude() {
  const { run, sweep, compared } = shown;
  byId("results").dataset.concluded = conclusionKey();
  const all = (run ?? sweep)?.conclusion?.expectations ?? [];
  fillExpectations(byId("expectations"), all);
  byId("expectations-summary").textContent = summary(all);
  byId("expectations-card").hidden = all.length === 0;
  byId("report").hidden = !(run ?? sweep)?.conclusion;
  const finished = run ?? sweep;
  if (finished?.conclusion) server.offer(byId("report"), finished.number, "report.html");
  const conclusion = run?.conclusion;
  byId("measures-card").hidden = !conclusion?.measures.length;
  for (const link of document.querySelectorAll("a.export")) {
    const { plot, kind } = /** @type {HTMLElement} */ (link).dataset;
    if (run && conclusion) server.offer(/** @type {HTMLElement} */ (link), run.number, `${plot}.${kind}`);
    /** @type {HTMLElement} */ (link).hidden = !conclusion;
  }
  if (!run || !conclusion) return;
  server.offer(byId("measures-csv"), run.number, "measures.csv");
  const names = ["Measure", run.name, ...(compared?.conclusion ? [compared.name, "Change"] : [])];
  const head = element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));
  const rows = conclusion.measures.map((measure) => {
    const other = compared?.conclusion?.measures.find((known) => known.name === measure.name);
    const cells = [measure.shown];
    if (compared?.conclusion) cells.push(other?.shown ?? "–", change(measure.value, other?.value));
    return element("tr", {}, element("th", { scope: "row" }, measure.name), ...cells.map((cell) => element("td", {}, cell)));
  });
  byId("measures").replaceChildren(head, element("tbody", {}, ...rows));
}

/**
 * @param {number|null} value
 * @param {number|null|undefined} other
 */
function change(value, other) {
  if (value === null || !other) return "–";
  const percent = (value / other - 1) * 100;
  return `${percent > 0 ? "+" : ""}${digits(percent)} %`;
}

// --- The network ---

/** @param {Run} run */
function fillLayers(run) {
  const { map } = run.description;
  byId("topology").hidden = !map;
  if (!map) return;
  const layers = [element("option", { value: "-1" }, "the network"), ...map.overlays.map((overlay, index) => element("option", { value: String(index) }, `overlay ${overlay.name}`))];
  byId("layer").replaceChildren(...layers);
  byId("layer").closest("label").hidden = map.overlays.length === 0;
  if (shown.layer >= map.overlays.length) shown.layer = -1;
  byId("layer").value = String(shown.layer);
  drawLayer(run);
}

/** @param {Run} run */
function drawLayer(run) {
  const { map } = run.description;
  if (!map) return;
  const drawn = graph(map, shown.layer);
  const chosen = byId("tree").value;
  const sessions = drawn.sessions.map((session) => element("option", {}, session.name));
  byId("tree").replaceChildren(element("option", { value: "" }, "all links"), ...sessions);
  byId("tree").closest("label").hidden = sessions.length === 0;
  byId("tree").value = drawn.sessions.some((session) => session.name === chosen) ? chosen : "";
  picture.show(drawn, byId("tree").value);
  scheduleTopology();
}

let topologyDue = 0;

/** Draws the states of the links soon. The looks of many links cost more than charts, so they change less often. */
function scheduleTopology() {
  if (topologyDue) return;
  const links = shown.run?.description.map?.links.length ?? 0;
  topologyDue = window.setTimeout(() => requestAnimationFrame(() => {
    topologyDue = 0;
    updateTopology();
  }), links > 60 ? 100 : 40);
}

function updateTopology() {
  const run = shown.run;
  if (!run?.description.map || !picture.graph) return;
  const place = Math.max(0, lastAtMost(run.times, shown.time + 1e-9));
  const all = looks(run, shown.layer, place);
  picture.update(all);
  if (byId("links-box").open) fillTable(byId("links"), picture.graph, all);
}

// --- Controls ---

/** @param {boolean} isOn */
function setPlaying(isOn) {
  byId("play").setAttribute("aria-pressed", String(isOn));
  byId("play").textContent = isOn ? "❚❚" : "▶";
  byId("play").setAttribute("aria-label", isOn ? "Pause the recorded run" : "Play the recorded run");
}

/** Plays a recorded run within ten seconds. */
function play() {
  const run = shown.run;
  if (!run) return;
  const isOn = byId("play").getAttribute("aria-pressed") !== "true";
  setPlaying(isOn);
  if (!isOn) return;
  shown.isFollowing = false;
  if (shown.time >= run.time * 0.999) shown.time = 0;
  let before = performance.now();
  const step = () => {
    if (byId("play").getAttribute("aria-pressed") !== "true" || shown.run !== run) return;
    const now = performance.now();
    shown.time = Math.min(run.time, shown.time + ((now - before) / 10_000) * run.description.duration_s);
    before = now;
    refresh();
    if (shown.time < run.time || run.state === "running") requestAnimationFrame(step);
    else setPlaying(false);
  };
  requestAnimationFrame(step);
}

/**
 * Shows a part of the time in all charts.
 * @param {[number, number]|null} zoom
 */
function setZoom(zoom) {
  for (const chart of shown.charts.values()) {
    chart.zoom = zoom;
    chart.touch();
  }
  byId("zoom-out").disabled = zoom === null;
}

/** Halves or doubles the time that is shown, around the marked time. @param {number} factor */
function zoomBy(factor) {
  const duration = shown.run?.description.duration_s ?? 1;
  const [from, to] = [...shown.charts.values()][0]?.zoom ?? [0, duration];
  const span = (to - from) * factor;
  if (span >= duration) {
    setZoom(null);
    return;
  }
  const start = Math.min(Math.max(0, shown.time - span / 2), duration - span);
  setZoom([start, start + span]);
}

function wire() {
  editor.onChange(check);
  byId("figure").addEventListener("change", async () => {
    await choose(byId("figure").value);
    await check();
  });
  byId("file").addEventListener("change", async () => {
    const [file] = byId("file").files;
    if (!file) return;
    await choose("", await file.text(), file.name);
    await check();
  });
  for (const id of ["fast", "cell"]) byId(id).addEventListener("change", check);
  byId("run").addEventListener("click", () => start("runs"));
  byId("run-all").addEventListener("click", () => start("sweeps"));
  byId("stop").addEventListener("click", () => {
    const run = shown.run ?? shown.sweep;
    if (run) server.stop(run.number);
  });
  byId("print").addEventListener("click", () => print());
  byId("wide").addEventListener("click", () => {
    const isWide = byId("view-lab").classList.toggle("wide");
    byId("wide").setAttribute("aria-pressed", String(isWide));
  });
  byId("pause").addEventListener("click", setPace);
  byId("speed").addEventListener("change", () => shown.run?.state === "running" && pace(shown.run));
  byId("permalink").addEventListener("click", copyPermalink);
  byId("save").addEventListener("click", save);
  byId("play").addEventListener("click", play);
  byId("time").addEventListener("input", () => {
    shown.time = Number(byId("time").value);
    shown.isFollowing = false;
    setPlaying(false);
    refresh();
  });
  byId("zoom-in").addEventListener("click", () => zoomBy(0.5));
  byId("zoom-out").addEventListener("click", () => zoomBy(2));
  byId("follow").addEventListener("click", () => {
    shown.isFollowing = true;
    setPlaying(false);
    refresh();
  });
  byId("shown-run").addEventListener("change", () => {
    const run = runs.find((run) => String(run.number) === byId("shown-run").value);
    if (run) show(run);
  });
  byId("compared-run").addEventListener("change", () => {
    const other = runs.find((run) => String(run.number) === byId("compared-run").value);
    shown.compared = other instanceof Run ? other : null;
    refresh();
  });
  byId("layer").addEventListener("change", () => {
    shown.layer = Number(byId("layer").value);
    if (shown.run) drawLayer(shown.run);
  });
  byId("tree").addEventListener("change", () => shown.run && drawLayer(shown.run));
  byId("links-box").addEventListener("toggle", updateTopology);
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      event.preventDefault();
      check().then(() => start("runs"));
    }
  });
  addEventListener("hashchange", () => open(location.hash));
}

function setPace() {
  const run = shown.run;
  if (!run) return;
  run.isPaused = !run.isPaused;
  pace(run);
  refresh();
}

/** @param {Run} run */
const pace = (run) => server.setPace(run.number, { factor: Number(byId("speed").value) || null, is_paused: run.isPaused });

async function copyPermalink() {
  const fragment = await permalink();
  history.replaceState(null, "", fragment);
  try {
    await navigator.clipboard.writeText(location.href);
    note("The link is in the clipboard. Another lab opens it with --open.");
  } catch {
    note("The link is the address of this page now.");
  }
}

function save() {
  const url = URL.createObjectURL(new Blob([editor.text()], { type: "text/plain" }));
  const link = element("a", { href: url, download: wanted.file.split("/").slice(-1)[0] });
  link.click();
  URL.revokeObjectURL(url);
}

async function main() {
  editor.readKeys();
  wire();
  wireTabs((name) => name === "order" && order.start());
  // Runs without a server have no speed, and there are no daemons.
  for (const id of ["pause", "speed-label", "tab-order"]) byId(id).hidden = server.isLocal;
  const live = new Live(byId("roles"));
  wireTheme(() => {
    for (const chart of shown.charts.values()) chart.rebuild();
    live.rebuild();
  });
  const [list, urls] = await Promise.all([server.figures(), server.attached()]);
  gallery.fill(list);
  const groups = new Map([[false, element("optgroup", { label: "Your files" })], [true, element("optgroup", { label: "Figures" })]]);
  for (const entry of list) {
    const option = element("option", { value: entry.id, "data-file": entry.file }, `${entry.id}: ${entry.title}`);
    groups.get(entry.is_built_in)?.append(option);
  }
  byId("figure").append(element("option", { value: "", hidden: "" }, "a file"), ...[...groups.values()].filter((group) => group.childElementCount));
  if (urls.length) {
    byId("tab-live").hidden = false;
    live.start(urls);
    if (!location.hash) showTab("live");
  }
  if (!(location.hash && await open(location.hash))) {
    const first = list.find((entry) => !entry.is_built_in) ?? list.find((entry) => entry.id === "webrc-9") ?? list[0];
    byId("fast").checked = first?.is_built_in ?? false;
    if (first) await choose(first.id);
    await check();
  }
  document.documentElement.dataset.ready = "true";
}

main();
