// Draws page.json of a role. Names come from peers, so text is only ever set as text.
"use strict";

const POLL_MS = 2000;
/** A picture has room for at least these samples. */
const SLOTS_MIN = 30;
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function element(tag, kind, text) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Sets the text of a node if it differs, so that a selection and a focus remain. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function scaled(value, units, step = 1000) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; unit += 1; }
  const digits = value !== 0 && Math.abs(value) < 10 && !(unit === 0 && Number.isInteger(value)) ? 2 : value % 1 && Math.abs(value) < 1000 ? 1 : 0;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

function seconds(value) {
  if (value === 0) return "0 s";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.1 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

function percent(value) {
  return `${(value * 100).toFixed(value > 0 && value < 0.1 ? 2 : 0)} %`;
}

const FORMATS = {
  count: (value) => value.toLocaleString("en", { maximumFractionDigits: 1 }),
  per_s: (value) => `${value.toLocaleString("en", { maximumFractionDigits: 1 })}/s`,
  bytes: (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"]),
  bits_per_s: (value) => scaled(value, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
  seconds,
  time: (value) => new Date(value * 1000).toLocaleString(),
  share: percent,
  ratio: percent,
  dollars: (value) => `$${value.toFixed(2)}`,
};

/** Splits a cell into its kind and its value; an empty cell is only a text. */
function split(cell) {
  return typeof cell === "string" ? ["text", ""] : Object.entries(cell)[0];
}

/** Whether cells of this kind are aligned as numbers. */
function isNumber(kind) {
  return kind in FORMATS && kind !== "share";
}

/** Shows a cell in a node. */
function show(node, cell) {
  const [kind, value] = split(cell);
  const format = FORMATS[kind];
  const text = format ? (Number.isFinite(value) ? format(value) : "") : value;
  const isState = kind === "good" || kind === "bad" || kind === "dim";
  const name = kind === "share" || isState ? kind : isNumber(kind) ? "number" : "";
  if (node.className !== name) node.className = name;
  if (kind !== "share") return setText(node, text);
  if (node.firstChild?.nodeName !== "PROGRESS") {
    const bar = element("progress");
    // The text says the same.
    bar.setAttribute("aria-hidden", "true");
    node.replaceChildren(bar, element("span"));
  }
  node.children[0].value = value;
  setText(node.children[1], text);
}

/** Makes `parent` have as many children as `items`, and updates each with its item. */
function each(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, place) => {
    if (place === parent.children.length) parent.append(make(item));
    update(parent.children[place], item);
  });
}

function showFacts(facts) {
  each(byId("facts"), facts, () => {
    const made = element("div");
    made.append(element("dt"), element("dd"));
    return made;
  }, (node, [name, cell]) => {
    setText(node.children[0], name);
    show(node.children[1], cell);
  });
}

async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // Without HTTPS, browsers copy only what is selected.
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

function makeLine() {
  const made = element("div", "line"), code = element("code"), button = element("button", "", "Copy"), picture = element("img");
  button.addEventListener("click", () => copy(code, button));
  picture.alt = "QR code of this line";
  made.append(code, button, picture);
  return made;
}

function showLine(node, line) {
  const [code, , picture] = node.children;
  setText(code, line.command);
  const source = line.qr_svg ? "data:image/svg+xml," + encodeURIComponent(line.qr_svg) : "";
  picture.hidden = !source;
  if (source && picture.src !== source) picture.src = source;
}

/** The history of a series: pointer and arrow keys read its values. */
function makeChart() {
  const made = element("figure"), caption = element("figcaption"), picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 100 40");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("tabindex", "0");
  picture.append(document.createElementNS(SVG, "path"), document.createElementNS(SVG, "line"));
  caption.append(element("b"), element("span"));
  made.append(caption, picture, element("small"));
  made.cursor = null;
  const move = (place) => { made.cursor = place; showCursor(made); };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    move(Math.round((event.clientX - box.left) / box.width * (made.slots - 1)) - (made.slots - made.series.values.length));
  });
  picture.addEventListener("pointerleave", () => move(null));
  picture.addEventListener("blur", () => move(null));
  picture.addEventListener("keydown", (event) => {
    const last = made.series.values.length - 1, now = made.cursor ?? last;
    const places = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, Escape: null };
    if (!(event.key in places)) return;
    event.preventDefault();
    move(places[event.key]);
  });
  return made;
}

function showCursor(made) {
  const { values, unit } = made.series, [, label] = made.firstChild.children;
  const [, line] = made.querySelector("svg").children;
  const isShown = made.cursor !== null && values.length > 0;
  const place = isShown ? Math.min(Math.max(made.cursor, 0), values.length - 1) : values.length - 1;
  if (isShown) made.cursor = place;
  const value = values[place], text = typeof value === "number" ? FORMATS[unit](value) : "no value";
  setText(label, isShown ? `${seconds((values.length - 1 - place) * made.step)} ago: ${text}` : text);
  const x = 100 * (made.slots - values.length + place) / (made.slots - 1);
  for (const [name, at] of [["x1", x], ["x2", x], ["y1", 0], ["y2", isShown ? 40 : 0]]) line.setAttribute(name, at);
}

function showChart(node, series, step) {
  if (node.series && node.series.name !== series.name) node.cursor = null;
  const slots = Math.max(series.values.length, SLOTS_MIN);
  Object.assign(node, { series, step, slots });
  const known = series.values.filter((value) => value !== null);
  const top = Math.max(...known, 0) || 1, format = FORMATS[series.unit];
  const first = slots - series.values.length;
  let path = "", isDown = false;
  series.values.forEach((value, place) => {
    if (value !== null) path += `${isDown ? "L" : "M"}${(100 * (first + place) / (slots - 1)).toFixed(2)} ${(39 - 38 * value / top).toFixed(2)}`;
    isDown = value !== null;
  });
  const [caption, picture, range] = node.children;
  setText(caption.children[0], series.name);
  picture.firstChild.setAttribute("d", path);
  const ends = known.length ? `${format(Math.min(...known))} to ${format(Math.max(...known))}` : "no values yet";
  const time = seconds(Math.max(series.values.length - 1, 0) * step);
  setText(range, known.length ? `${ends} in the last ${time}` : ends);
  picture.setAttribute("aria-label", `${series.name}, ${range.textContent}. Arrow keys read single values.`);
  showCursor(node);
}

function makeTable() {
  const made = element("section"), table = element("table"), head = element("thead"), titles = element("tr");
  // Tables keep their meaning where a phone shows rows as blocks.
  for (const [node, role] of [[table, "table"], [head, "rowgroup"], [titles, "row"]]) node.setAttribute("role", role);
  const body = element("tbody");
  body.setAttribute("role", "rowgroup");
  head.append(titles);
  table.append(head, body);
  made.append(element("h2"), table, element("p", "dim"));
  return made;
}

function cellNode(tag, role) {
  const made = element(tag);
  made.setAttribute("role", role);
  return made;
}

function showTable(node, table) {
  const [title, shown, rest] = node.children, [head, body] = shown.children;
  setText(title, table.title);
  shown.setAttribute("aria-label", table.title);
  shown.hidden = table.rows.length === 0;
  setText(rest, table.rows.length === 0 ? "none" : table.left_out ? `and ${table.left_out} others` : "");
  each(head.firstChild, table.columns, () => cellNode("th", "columnheader"), (th, name) => setText(th, name));
  // A column of numbers, and of rows without one, is aligned as its numbers are.
  table.columns.forEach((_, place) => {
    head.firstChild.children[place].className = table.rows.some((row) => isNumber(split(row[place])[0])) ? "number" : "";
  });
  each(body, table.rows, () => cellNode("tr", "row"), (tr, row) => {
    each(tr, row, () => tr.children.length ? cellNode("td", "cell") : cellNode("th", "rowheader"), show);
    row.forEach((cell, place) => {
      if (place > 0) tr.children[place].dataset.column = table.columns[place];
    });
  });
}

async function update() {
  let page;
  try {
    const answer = await fetch("page.json", { cache: "no-store" });
    page = await answer.json();
  } catch {
    setText(byId("note"), "The process does not answer: it has ended, or cannot be reached.");
    return;
  }
  setText(byId("note"), "");
  const role = `manyflow ${page.role}`;
  setText(byId("role"), page.title ? role : "");
  setText(byId("title"), page.title || role);
  document.title = page.title ? `${page.title} – ${role}` : role;
  showFacts(page.facts);
  each(byId("lines"), page.lines, makeLine, showLine);
  each(byId("charts"), page.series, makeChart, (node, series) => showChart(node, series, page.step_s));
  each(byId("tables"), page.tables, makeTable, showTable);
  document.documentElement.dataset.ready = "";
}

async function poll() {
  await update();
  setTimeout(poll, POLL_MS);
}
poll();
