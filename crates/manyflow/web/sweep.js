// All runs of a scenario at once: their progress, and then the figures, and the measures of each cell.

import { byId, element, time as timeText } from "./format.js";
import { shortKey } from "./run.js";
import * as server from "./server.js";

/**
 * @typedef {import("./server.js").Description} Description
 * @typedef {import("./expectations.js").Expectation} Expectation
 * @typedef {{labels: string[], seeds: number, values: string[]}} Row
 * @typedef {{expectations: Expectation[], measures: string[], rows: Row[], cells_left_out: number,
 *   figures: {name: string, title: string, note: string|null}[], failures: {message: string, replay: string}[],
 *   failed_runs: number, seconds: number}} Conclusion
 */

/** The runs of all cells and seeds, in progress or over. */
export class Sweep {
  /**
   * @param {Description} description
   * @param {string} name
   */
  constructor(description, name) {
    this.description = description;
    this.number = /** @type {number} */ (description.run);
    this.name = name;
    this.share = 0;
    this.ended = 0;
    this.runs = description.sweep_runs ?? 0;
    /** @type {"running"|"done"|"failed"} */
    this.state = "running";
    this.message = "";
    /** @type {Conclusion|null} */
    this.conclusion = null;
  }

  /**
   * Follows the events of the runs. Calls `changed` after each of them.
   * @param {() => void} changed
   */
  follow(changed) {
    server.follow(this.number, {
      progress: (/** @type {{share: number, ended: number, runs: number}} */ report) => {
        ({ share: this.share, ended: this.ended, runs: this.runs } = report);
      },
      done: (/** @type {Conclusion} */ conclusion) => {
        this.conclusion = conclusion;
        this.state = "done";
      },
      failed: (/** @type {{message: string}} */ { message }) => {
        this.state = "failed";
        this.message = message;
      },
    }, changed);
  }

  /** The state in words. */
  get status() {
    if (this.state === "failed") return this.message;
    if (this.state === "running") return `${Math.floor(100 * this.share)} % simulated, ${this.ended} of ${this.runs} runs done`;
    const failed = this.conclusion?.failed_runs ?? 0;
    return `${this.runs} runs in ${timeText(this.conclusion?.seconds ?? 0)}${failed ? `, ${failed} failed` : ""}`;
  }
}

/** Shows a sweep, while it runs and after it. @param {Sweep} sweep */
export function showSweep(sweep) {
  const bar = byId("sweep-progress");
  bar.hidden = sweep.state !== "running";
  bar.value = sweep.share;
  const { conclusion } = sweep;
  const key = `${sweep.number}${sweep.state}`;
  if (byId("sweep").dataset.shown === key) return;
  byId("sweep").dataset.shown = key;
  const plots = (conclusion?.figures ?? []).map((figure) => figureOf(sweep, figure));
  byId("sweep-figures").replaceChildren(...plots);
  byId("sweep-failures").replaceChildren(...(conclusion?.failures ?? []).map((failed) => element("li", {}, failed.message, " ", element("code", {}, failed.replay))));
  byId("sweep-failures").hidden = !conclusion?.failures.length;
  byId("sweep-measures-card").hidden = !conclusion?.measures.length;
  if (conclusion?.measures.length) fillMeasures(sweep, conclusion);
}

/**
 * @param {Sweep} sweep
 * @param {{name: string, title: string, note: string|null}} figure
 */
function figureOf(sweep, { name, title, note }) {
  const link = element("a", { class: "quiet", download: "", "aria-label": `SVG of ${title}` }, "SVG");
  const picture = element("img", { alt: title });
  for (const shown of [link, picture]) server.offer(shown, sweep.number, `${name}.svg`);
  const caption = element("figcaption", { class: "row" }, element("span", { class: "dim grow" }, note ?? ""), link);
  return element("figure", { class: "card plotted" }, picture, caption);
}

/**
 * @param {Sweep} sweep
 * @param {Conclusion} conclusion
 */
function fillMeasures(sweep, conclusion) {
  const axes = sweep.description.axes.map(shortKey);
  const names = [...axes, ...conclusion.measures, "Seeds"];
  const head = element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));
  const rows = conclusion.rows.map((row) => element("tr", {},
    ...row.labels.map((label) => element("th", { scope: "row" }, label)),
    ...[...row.values, String(row.seeds)].map((value) => element("td", {}, value))));
  byId("sweep-measures").replaceChildren(head, element("tbody", {}, ...rows));
  server.offer(byId("sweep-measures-csv"), sweep.number, "measures.csv");
  const left = conclusion.cells_left_out;
  byId("sweep-note").textContent = `Mean over the seeds, and half the width of its 95 % confidence interval (Student's t).${left ? ` The CSV has ${left} more cells.` : ""}`;
}
