// The frame of the page: its tabs and its colours.

import { byId } from "./format.js";

const TABS = ["lab", "gallery", "live", "order"];

/**
 * Switches between the views of the page.
 * @param {string} shownName
 */
export function showTab(shownName) {
  for (const name of TABS) {
    const isOn = name === shownName;
    byId(`tab-${name}`).setAttribute("aria-selected", String(isOn));
    byId(`tab-${name}`).tabIndex = isOn ? 0 : -1;
    byId(`view-${name}`).hidden = !isOn;
  }
}

/** @param {(name: string) => void} opened Called with the name of a tab that a reader opens. */
export function wireTabs(opened) {
  const open = (/** @type {string} */ name) => {
    opened(name);
    showTab(name);
  };
  for (const name of TABS) byId(`tab-${name}`).addEventListener("click", () => open(name));
  byId("tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const names = TABS.filter((name) => !byId(`tab-${name}`).hidden);
    const now = names.findIndex((name) => !byId(`view-${name}`).hidden);
    const next = names[(now + (event.key === "ArrowRight" ? 1 : names.length - 1)) % names.length];
    open(next);
    byId(`tab-${next}`).focus();
  });
}

/**
 * Wires the button of the colours: those of the system, light or dark.
 * @param {() => void} changed
 */
export function wireTheme(changed) {
  const names = ["", "light", "dark"];
  const apply = (/** @type {string} */ theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    byId("theme").setAttribute("aria-label", `Colours: ${theme || "as the system has them"}`);
    changed();
  };
  byId("theme").addEventListener("click", () => {
    const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length];
    localStorage.setItem("theme", next);
    apply(next);
  });
  apply(localStorage.getItem("theme") ?? "");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
