// Numbers with their units, as people read them.

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const SMALL = [[1, ""], [1e-3, "m"], [1e-6, "µ"]];

/**
 * Returns a number with three digits.
 * @param {number} value
 */
export function digits(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toPrecision(3);
  const places = Math.max(0, 2 - Math.floor(Math.log10(size)));
  return String(Number(value.toFixed(places)));
}

/**
 * Returns a quantity with a prefix for rates and times: 3.2 Mbit/s, 20 ms.
 * @param {number|null|undefined} value
 * @param {string} unit
 */
export function quantity(value, unit) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const table = unit === "s" && size < 1 ? SMALL : unit.startsWith("bit") || unit.startsWith("B") ? PREFIXES : null;
  if (!table || size === 0) return `${digits(value)}${unit ? ` ${unit}` : ""}`;
  const [factor, prefix] = /** @type {[number, string]} */ (table.find(([factor]) => size >= Number(factor)) ?? table[table.length - 1]);
  return `${digits(value / factor)} ${prefix}${unit}`;
}

/**
 * Returns a time in the run.
 * @param {number} seconds
 */
export const time = (seconds) => (seconds > 0 && seconds < 0.1 ? `${digits(seconds * 1000)} ms` : `${digits(seconds)} s`);

const COUNT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/**
 * Returns a large count: 1.84M.
 * @param {number} value
 */
export const count = (value) => COUNT.format(value);

/** The colours of Okabe and Ito, which colour-blind readers can distinguish, for light and dark pages. */
const LIGHT = ["#0072b2", "#d55e00", "#007f5f", "#b6508d", "#8f6400", "#2b7fb8", "#5a5a5a"];
const DARK = ["#56b4e9", "#ff8c42", "#2fc79a", "#e39ac6", "#e6b43c", "#8fcdf2", "#b0b0b0"];

/** Whether the page is dark. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * Returns the colour of a series.
 * @param {number} index
 */
export const color = (index) => (isDark() ? DARK : LIGHT)[index % LIGHT.length];

/**
 * Returns the value of a colour of the style sheet.
 * @param {string} name
 */
export const styled = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * Creates an element.
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node|string)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/**
 * Returns the element of an id, which the page has.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}
