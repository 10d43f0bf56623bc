// Expectations as a table: what is expected, what was found, the bound, the paper's value and the verdict.

import { element } from "./format.js";

/**
 * @typedef {{what: string, bounds: string, paper: string|null}} Expected As the file has it.
 * @typedef {{what: string, shown: string, bounds: string, verdict: string, note: string, paper: string|null}} Expectation
 */

const HEAD = ["Expected", "Found", "Bound", "Paper", "Verdict"];

/**
 * Shows expectations. Before a run they have neither a value nor a verdict.
 * @param {HTMLElement} table
 * @param {(Expected|Expectation)[]} all
 */
export function fillExpectations(table, all) {
  const hasPaper = all.some((one) => one.paper);
  const isJudged = all.some((one) => "verdict" in one);
  const isShown = (/** @type {string} */ name) => (name !== "Paper" || hasPaper) && (isJudged || (name !== "Found" && name !== "Verdict"));
  const names = HEAD.filter(isShown);
  const head = element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));
  const rows = all.map((one) => {
    const verdict = "verdict" in one ? one.verdict : "";
    /** @type {Record<string, (string|Node)[]>} */
    const cells = {
      Expected: [one.what],
      Found: "verdict" in one ? [one.shown, ...(one.note ? [element("div", { class: "dim" }, one.note)] : [])] : [],
      Bound: [one.bounds],
      Paper: [one.paper ?? ""],
      Verdict: [element("span", { class: "verdict" }, verdict)],
    };
    return element("tr", { class: verdict.replace(" ", "-") }, ...names.map((name) => element(name === "Expected" ? "th" : "td", name === "Expected" ? { scope: "row" } : {}, ...cells[name])));
  });
  table.replaceChildren(head, element("tbody", {}, ...rows));
}

/**
 * Counts verdicts in words: "5 of 6 expectations are met".
 * @param {Expectation[]} all
 */
export function summary(all) {
  const judged = all.filter((one) => one.verdict !== "not judged");
  const met = judged.filter((one) => one.verdict === "met");
  const rest = all.length - judged.length;
  const count = judged.length ? `${met.length} of ${judged.length} expectations ${judged.length === 1 ? "is" : "are"} met` : "";
  const others = rest ? `${rest} concern${rest === 1 ? "s" : ""} other cells` : "";
  return [count, others].filter(Boolean).join("; ");
}
