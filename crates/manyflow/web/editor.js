// The text of the scenario with line numbers, and its first error at its line.

import { byId } from "./format.js";

/** @type {HTMLTextAreaElement} */
const area = byId("text");
/** @type {HTMLElement} */
const gutter = byId("gutter");
/** @type {HTMLElement} */
const problemLine = byId("problem");

let lines = 0;
/** @type {import("./server.js").Problem|null} */
let problem = null;

function drawGutter() {
  const count = area.value.split("\n").length;
  if (count !== lines) {
    lines = count;
    gutter.replaceChildren(...Array.from({ length: count }, (_, index) => {
      const number = document.createElement("div");
      number.textContent = String(index + 1);
      return number;
    }));
  }
  for (const marked of gutter.querySelectorAll(".wrong")) marked.classList.remove("wrong");
  if (problem) gutter.children[problem.line - 1]?.classList.add("wrong");
  gutter.scrollTop = area.scrollTop;
}

/** Moves the cursor to the line of the error. */
function showLine() {
  if (!problem) return;
  const before = area.value.split("\n").slice(0, problem.line - 1);
  const start = before.reduce((sum, line) => sum + line.length + 1, 0);
  const end = area.value.indexOf("\n", start);
  area.focus();
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
  area.scrollTop = Math.max(0, (problem.line - 4) * lineHeight());
}

const lineHeight = () => parseFloat(getComputedStyle(area).lineHeight);

/** @param {import("./server.js").Problem|null} found */
export function showProblem(found) {
  problem = found;
  area.setAttribute("aria-invalid", String(found !== null));
  problemLine.replaceChildren();
  if (found) {
    const jump = document.createElement("button");
    jump.className = "jump";
    jump.textContent = `Line ${found.line}`;
    jump.addEventListener("click", showLine);
    problemLine.append(jump, ` ${found.message}`);
  }
  drawGutter();
}

/** @param {string} text */
export function setText(text) {
  area.value = text;
  area.scrollTop = 0;
  area.scrollLeft = 0;
  problem = null;
  drawGutter();
}

export const text = () => area.value;

/**
 * Calls `changed` some time after each change.
 * @param {() => void} changed
 */
export function onChange(changed) {
  let timer = 0;
  area.addEventListener("input", () => {
    drawGutter();
    clearTimeout(timer);
    timer = window.setTimeout(changed, 250);
  });
  area.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
}
