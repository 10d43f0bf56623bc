// The network as a picture: nodes in columns by their distance from the senders, links with load, queue and losses.

import { digits, element, quantity } from "./format.js";
import { LINK_VALUES } from "./run.js";

/** @typedef {import("./server.js").NetworkMap} NetworkMap */
/** @typedef {{nodes: string[], ends: [number, number][], marks: number[], sessions: {name: string, links: Set<number>}[]}} Graph What a layer shows. */
/** @typedef {{load: number|null, rate: number, queue: number, fill: number|null, losses: number, price: number|null}} LinkLook */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string|number>} attributes
 * @param {...Node} children
 */
function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * Returns the network, or one of its overlays, as a graph.
 * @param {NetworkMap} map
 * @param {number} layer -1 for the network
 * @returns {Graph}
 */
export function graph(map, layer) {
  if (layer < 0) {
    const sessions = map.sessions.filter((session) => session.links.length);
    return {
      nodes: map.nodes,
      ends: map.links.map((link) => [link.from, link.to]),
      marks: map.sessions.map((session) => session.sender),
      sessions: sessions.map((session) => ({ name: session.name, links: new Set(session.links) })),
    };
  }
  const overlay = map.overlays[layer];
  const place = new Map(overlay.daemons.map((node, index) => [node, index]));
  const index = (/** @type {number} */ node) => place.get(node) ?? 0;
  const sessions = map.sessions.filter((session) => session.overlay?.[0] === layer);
  return {
    nodes: overlay.daemons.map((node) => map.nodes[node]),
    ends: overlay.links.map(([from, to]) => [index(from), index(to)]),
    marks: sessions.map((session) => index(session.sender)),
    sessions: sessions.map((session) => ({ name: session.name, links: new Set(session.overlay?.[1]) })),
  };
}

/**
 * Returns the column and row of each node: its distance from the roots, and a place among its neighbours.
 * @param {Graph} graph
 */
function arrange(graph) {
  const count = graph.nodes.length;
  /** @type {number[][]} */
  const near = Array.from({ length: count }, () => []);
  for (const [from, to] of graph.ends) {
    near[from].push(to);
    near[to].push(from);
  }
  // Senders at the edge of the network are on the left; without one, the first sender is.
  const degree = (/** @type {number} */ node) => new Set(near[node]).size;
  const edge = graph.marks.filter((node) => degree(node) === 1);
  let roots = edge.length && edge.length < count / 2 ? edge : graph.marks.slice(0, 1);
  if (!roots.length) roots = [0];
  const column = new Array(count).fill(-1);
  /** @type {number[][]} */
  const columns = [];
  for (let next of [roots, [...Array(count).keys()]]) {
    let depth = 0;
    next = next.filter((node) => column[node] < 0);
    if (columns.length) next = next.slice(0, 1);
    while (next.length) {
      const own = [...new Set(next)].filter((node) => column[node] < 0);
      for (const node of own) column[node] = depth;
      columns[depth] = [...(columns[depth] ?? []), ...own];
      next = own.flatMap((node) => near[node]).filter((node) => column[node] < 0);
      depth += 1;
    }
  }
  for (let node = 0; node < count; node += 1) {
    if (column[node] < 0) {
      column[node] = 0;
      columns[0].push(node);
    }
  }
  const row = new Array(count).fill(0);
  const settle = (/** @type {number[]} */ nodes) => nodes.forEach((node, place) => { row[node] = (place + 0.5) / nodes.length; });
  columns.forEach(settle);
  for (let round = 0; round < 8; round += 1) {
    for (const nodes of round % 2 ? [...columns].reverse() : columns) {
      const wanted = new Map(nodes.map((node) => {
        const others = near[node].filter((other) => column[other] !== column[node]);
        const mean = others.reduce((sum, other) => sum + row[other], 0) / others.length;
        return [node, others.length ? mean : row[node]];
      }));
      nodes.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
      settle(nodes);
    }
  }
  return { column, row, columns };
}

/** A picture of a graph, whose links change their looks. */
export class Picture {
  /**
   * @param {HTMLElement} host
   * @param {string} label
   */
  constructor(host, label) {
    this.host = host;
    this.label = label;
    /** @type {Graph|null} */
    this.graph = null;
    /** @type {{line: Element, badge: Element|null, title: Element}[]} */
    this.links = [];
    this.highlighted = "";
    this.width = 0;
    new ResizeObserver(() => {
      if (this.graph && this.host.clientWidth !== this.width) this.show(this.graph, this.highlighted);
    }).observe(host);
  }

  /**
   * Draws the nodes and links.
   * @param {Graph} graph
   * @param {string} highlighted The session whose links stand out, or an empty text.
   */
  show(graph, highlighted) {
    this.graph = graph;
    this.highlighted = highlighted;
    this.width = this.host.clientWidth;
    const { column, row, columns } = arrange(graph);
    const widest = Math.max(...columns.map((nodes) => nodes.length));
    const isSmall = graph.nodes.length > 60;
    const width = Math.max(this.width, 280);
    const gap = isSmall ? 13 : 34;
    const height = Math.min(isSmall ? 420 : 620, Math.max(110, widest * gap + 30));
    const margin = isSmall ? 16 : Math.min(48, 14 + 3.4 * Math.max(...graph.nodes.map((name) => name.length)));
    const x = (/** @type {number} */ node) => margin + (columns.length < 2 ? 0.5 : column[node] / (columns.length - 1)) * (width - 2 * margin);
    // Neighbours in the same column are joined by arcs, and columns of one node are staggered for them.
    const y = (/** @type {number} */ node) => 12 + row[node] * (height - 24);
    const session = graph.sessions.find((one) => one.name === highlighted);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": this.label });
    this.links = graph.ends.map(([from, to], number) => {
      const dim = session && !session.links.has(number);
      const link = this.#link(x(from), y(from), x(to), y(to), column[from] === column[to], isSmall);
      link.line.setAttribute("class", `link${session && !dim ? " chosen" : ""}${dim ? " faint" : ""}`);
      link.title.textContent = `${graph.nodes[from]}-${graph.nodes[to]}`;
      svg.append(link.line);
      return link;
    });
    const badges = shape("g", {});
    for (const link of this.links) if (link.badge) badges.append(link.badge);
    svg.append(badges);
    const senders = new Set(graph.marks);
    graph.nodes.forEach((name, node) => {
      const dot = shape("g", { class: senders.has(node) ? "node sender" : "node", transform: `translate(${x(node)} ${y(node)})` },
        shape("circle", { r: isSmall ? 3 : 7 }), titled(name));
      if (!isSmall) dot.append(textAt(name, 0, -11));
      svg.append(dot);
    });
    this.host.replaceChildren(svg);
  }

  /**
   * Draws one direction: a line beside the middle, so that both directions can be seen.
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {boolean} isSameColumn
   * @param {boolean} isSmall
   */
  #link(x1, y1, x2, y2, isSameColumn, isSmall) {
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const aside = isSmall ? 1 : 3;
    const [dx, dy] = [(-(y2 - y1) / length) * aside, ((x2 - x1) / length) * aside];
    const bend = isSameColumn ? Math.min(60, length * 0.4) : 0;
    const [mx, my] = [(x1 + x2) / 2 + dx + (bend ? Math.sign(dx || 1) * bend : 0), (y1 + y2) / 2 + dy];
    const title = shape("title", {});
    const path = bend ? `M${x1 + dx} ${y1 + dy}Q${mx} ${my} ${x2 + dx} ${y2 + dy}` : `M${x1 + dx} ${y1 + dy}L${x2 + dx} ${y2 + dy}`;
    const line = shape("path", { d: path, class: "link", "stroke-width": 1.2 }, title);
    const [bx, by] = bend ? [mx - (Math.sign(dx || 1) * bend) / 2, my] : [x1 + (x2 - x1) * 0.5 + dx * 3.4, y1 + (y2 - y1) * 0.5 + dy * 3.4];
    const badge = isSmall ? null : textAt("", bx, by + 4);
    badge?.setAttribute("class", "badge");
    return { line, badge, title };
  }

  /**
   * Changes the looks of all links.
   * @param {LinkLook[]} looks
   */
  update(looks) {
    const graph = this.graph;
    if (!graph) return;
    looks.forEach((look, number) => {
      const link = this.links[number];
      if (!link) return;
      const [from, to] = graph.ends[number].map((node) => graph.nodes[node]);
      const load = look.load ?? (look.rate > 0 ? 0.25 : 0);
      set(link.line, "stroke-width", (1.2 + 4.3 * Math.min(1, load)).toFixed(1));
      set(link.line, "data-queue", fillStep(look));
      set(link.line, "data-loss", look.losses > 0 ? "1" : "0");
      const parts = [];
      if (look.losses > 0) parts.push(`✕${digits(look.losses)}`);
      if (look.queue > 0) parts.push(digits(look.queue));
      if (look.price !== null && look.price >= 0.005) parts.push(`$${digits(look.price)}`);
      if (link.badge && link.badge.textContent !== parts.join(" ")) link.badge.textContent = parts.join(" ");
      const title = `${from}-${to}: ${describe(look)}`;
      if (link.title.textContent !== title) link.title.textContent = title;
    });
  }
}

/** @param {LinkLook} look */
export function describe(look) {
  const parts = [quantity(look.rate, "bit/s")];
  if (look.load !== null) parts.push(`${digits(look.load * 100)} % of its rate`);
  parts.push(`queue ${digits(look.queue)}`);
  if (look.losses > 0) parts.push(`${digits(look.losses)} lost`);
  if (look.price !== null) parts.push(`price $${digits(look.price)}`);
  return parts.join(", ");
}

/**
 * Returns how full a queue is, in five steps.
 * @param {LinkLook} look
 */
function fillStep(look) {
  if (look.queue <= 0) return "0";
  const fill = look.fill ?? Math.min(1, look.queue / 100);
  return String(1 + Math.min(3, Math.floor(fill * 4)));
}

/**
 * @param {Element} node
 * @param {string} name
 * @param {string} value
 */
function set(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** @param {string} text */
function titled(text) {
  const title = shape("title", {});
  title.textContent = text;
  return title;
}

/**
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
function textAt(text, x, y) {
  const made = shape("text", { x, y, "text-anchor": "middle" });
  made.textContent = text;
  return made;
}

/**
 * Returns the looks of all links of a layer at a sample of a run.
 * @param {import("./run.js").Run} run
 * @param {number} layer -1 for the network
 * @param {number} place The index of the sample.
 * @returns {LinkLook[]}
 */
export function looks(run, layer, place) {
  const map = /** @type {NetworkMap} */ (run.description.map);
  if (layer >= 0) {
    const links = run.overlays[place]?.[layer] ?? [];
    return links.map(([waiting, price]) => ({ load: waiting > 0 ? Math.min(1, waiting / 100) : 0, rate: 0, queue: waiting, fill: Math.min(1, waiting / 100), losses: 0, price }));
  }
  const now = run.links[place];
  if (!now?.length) return [];
  // Rates and losses are of the last interval of some length, because single packets would flicker.
  const since = Math.max(0, place - 2);
  const before = place > 0 ? run.links[since] : new Float64Array(now.length);
  const seconds = place > 0 ? run.times[place] - run.times[since] : run.times[0];
  return map.links.map((link, number) => {
    const at = number * LINK_VALUES;
    const change = (/** @type {number} */ value) => now[at + value] - before[at + value];
    const rate = seconds > 0 ? (change(1) * 8) / seconds : 0;
    const queue = now[at];
    return {
      load: link.rate ? rate / link.rate : null,
      rate,
      queue,
      fill: link.queue_packets ? queue / link.queue_packets : null,
      losses: change(2) + change(3),
      price: null,
    };
  });
}

/**
 * Fills a table with the links.
 * @param {HTMLElement} table
 * @param {Graph} graph
 * @param {LinkLook[]} all
 */
export function fillTable(table, graph, all) {
  const head = element("thead", {}, element("tr", {}, ...["Link", "Rate", "Load", "Queue", "Lost", "Price"].map((name) => element("th", { scope: "col" }, name))));
  const rows = all.map((look, number) => {
    const [from, to] = graph.ends[number].map((node) => graph.nodes[node]);
    const cells = [quantity(look.rate, "bit/s"), look.load === null ? "–" : `${digits(look.load * 100)} %`, digits(look.queue), digits(look.losses), look.price === null ? "–" : `$${digits(look.price)}`];
    return element("tr", {}, element("th", { scope: "row" }, `${from}-${to}`), ...cells.map((cell) => element("td", {}, cell)));
  });
  table.replaceChildren(head, element("tbody", {}, ...rows));
}
