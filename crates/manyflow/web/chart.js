// A chart over time. uPlot draws axes, grid and cursor; the lines are drawn here, because each series has times of its
// own and grows while it is shown.

import { color, digits, element, quantity, styled, time as timeText } from "./format.js";
import { lastAtMost } from "./run.js";

/** @typedef {import("./run.js").Series} Series */
/** @typedef {{series: Series[], name: string, isDashed: boolean}} Layer The series of one of the runs that are compared. */

/** @type {any} */
const uPlot = /** @type {any} */ (globalThis).uPlot;

const HEIGHT = 190;
/** The number of series that the legend shows before it is opened. */
const LISTED = 8;
/** The number of series above which lines are thin. */
const MANY = 12;

/** The charts that are drawn in the next frames. @type {Set<Chart>} */
const waiting = new Set();
let isScheduled = false;
/** The time in ms that a frame may spend on charts. */
const FRAME_BUDGET_MS = 10;

function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    const began = performance.now();
    for (const chart of waiting) {
      waiting.delete(chart);
      chart.draw();
      if (performance.now() - began > FRAME_BUDGET_MS) break;
    }
    if (waiting.size) schedule();
  });
}

export class Chart {
  /**
   * @param {string} title
   * @param {string} unit
   * @param {string} group The cursors of the charts of a group move together.
   * @param {Node[]} tools Links and buttons beside the title.
   * @param {string} help A sentence below the title.
   */
  constructor(title, unit, group, tools = [], help = "") {
    this.title = title;
    this.unit = unit;
    /** @type {Layer[]} */
    this.layers = [];
    this.from = 0;
    this.to = 1;
    /** The part of the time that is shown, or null for all. @type {[number, number]|null} */
    this.zoom = null;
    /** Receives the time that was selected by mouse. @type {(zoom: [number, number]|null) => void} */
    this.onZoom = (zoom) => {
      this.zoom = zoom;
      this.touch();
    };
    /** The time of the marker. */
    this.marked = 0;
    /** @type {Set<string>} */
    this.hidden = new Set();
    this.isOpen = false;
    this.legendDrawn = 0;
    /** A timer that draws the legend. */
    this.later = 0;
    this.unitLabel = element("span", { class: "dim unit" });
    this.plot = element("div", { class: "plot", role: "img", "aria-label": title });
    this.legend = element("div", { class: "legend" });
    this.root = element("section", { class: "card chart", "aria-label": title },
      element("div", { class: "row" }, element("h3", {}, title), this.unitLabel, element("span", { class: "grow" }), ...tools),
      ...(help ? [element("p", { class: "dim help" }, help)] : []), this.plot, this.legend);
    this.root.dataset.title = title;
    /** @type {any} */
    this.u = null;
    this.group = group;
    new ResizeObserver(() => this.#resize()).observe(this.plot);
    this.isVisible = true;
    new IntersectionObserver((entries) => {
      this.isVisible = entries[entries.length - 1].isIntersecting;
      if (this.isVisible) this.touch();
    }, { rootMargin: "300px" }).observe(this.root);
  }

  /** Draws the chart in one of the next frames. */
  touch() {
    waiting.add(this);
    schedule();
  }

  /**
   * @param {Layer[]} layers
   * @param {number} from
   * @param {number} to
   * @param {number} marked
   */
  show(layers, from, to, marked) {
    Object.assign(this, { layers, from, to, marked });
    this.touch();
  }

  /** Draws everything again, for example in other colours. */
  rebuild() {
    this.u?.destroy();
    this.u = null;
    this.legendDrawn = 0;
    this.legend.replaceChildren();
    this.touch();
  }

  draw() {
    if (!this.isVisible || !this.root.isConnected || this.plot.clientWidth === 0) return;
    const u = this.u ?? this.#build();
    const [low, high] = this.#range();
    const [from, to] = this.zoom ?? [this.from, this.to];
    const { x, y } = u.scales;
    if (x.min !== from || x.max !== to || y.min !== low || y.max !== high) {
      u.batch(() => {
        u.setScale("x", { min: from, max: to });
        u.setScale("y", { min: low, max: high });
      });
    } else {
      u.redraw(false, false);
    }
    this.#drawLegend();
  }

  /** @returns {[number, number]} */
  #range() {
    let low = 0;
    let high = 0;
    for (const { series } of this.layers) {
      for (const one of series) {
        if (this.hidden.has(one.label)) continue;
        low = Math.min(low, one.least);
        high = Math.max(high, one.most);
      }
    }
    return low === high ? [0, 1] : [low * 1.05, high * 1.05];
  }

  #resize() {
    const width = this.plot.clientWidth;
    if (this.u && width > 0 && width !== this.u.width) this.u.setSize({ width, height: HEIGHT });
    this.touch();
  }

  #build() {
    const axis = { stroke: () => styled("--dim"), font: "12px system-ui, sans-serif", ticks: { stroke: () => styled("--line"), width: 1, size: 4 }, grid: { stroke: () => styled("--line"), width: 1 } };
    const options = {
      width: this.plot.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: this.group }, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: false, auto: false }, y: { auto: false } },
      series: [{}, { show: true, paths: () => null, points: { show: false } }],
      axes: [
        { ...axis, size: 28, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits.map((split) => timeText(split)) },
        { ...axis, size: 52, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => this.#values(splits) },
      ],
      hooks: {
        draw: [(/** @type {any} */ u) => this.#lines(u)],
        setCursor: [() => this.#drawLegend()],
        setSelect: [(/** @type {any} */ u) => this.#select(u)],
      },
    };
    this.u = new uPlot(options, [[this.from, this.to], [0, 0]], this.plot);
    this.u.over.addEventListener("dblclick", () => this.onZoom(null));
    return this.u;
  }

  /** @param {any} u */
  #select(u) {
    if (u.select.width < 4) return;
    const [from, to] = [u.select.left, u.select.left + u.select.width].map((left) => u.posToVal(left, "x"));
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.onZoom([from, to]);
  }

  /** @param {number[]} splits */
  #values(splits) {
    const most = Math.max(...splits.map(Math.abs));
    const rate = /^(bit|B)/.test(this.unit);
    const [factor, prefix] = rate && most >= 1e9 ? [1e9, "G"] : rate && most >= 1e6 ? [1e6, "M"] : rate && most >= 1e3 ? [1e3, "k"]
      : this.unit === "s" && most < 1 ? [1e-3, "m"] : [1, ""];
    const label = `${prefix}${this.unit}`;
    if (this.unitLabel.textContent !== label) this.unitLabel.textContent = label;
    return splits.map((split) => digits(split / factor));
  }

  /** @param {any} u */
  #lines(u) {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineJoin = "round";
    // The compared run is below the other one.
    for (const { series, isDashed } of [...this.layers].reverse()) {
      ctx.setLineDash(isDashed ? [5 * ratio, 4 * ratio] : []);
      ctx.lineWidth = (series.length > MANY ? 1 : 1.6) * ratio;
      ctx.globalAlpha = isDashed ? 0.6 : series.length > MANY ? 0.7 : 1;
      series.forEach((one, index) => {
        if (this.hidden.has(one.label)) return;
        ctx.strokeStyle = color(index);
        ctx.beginPath();
        trace(ctx, one, u);
        ctx.stroke();
      });
    }
    ctx.globalAlpha = 1;
    ctx.setLineDash([]);
    ctx.strokeStyle = styled("--mark");
    ctx.lineWidth = ratio;
    const x = Math.round(u.valToPos(this.marked, "x", true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }

  /** Writes the values at the cursor or at the marked time, some times in a second. */
  #drawLegend() {
    const now = performance.now();
    const cursor = this.u?.cursor.left;
    const isHovered = cursor !== undefined && cursor !== null && cursor >= 0;
    if (now - this.legendDrawn < 100 && !isHovered) {
      clearTimeout(this.later);
      this.later = window.setTimeout(() => this.#drawLegend(), 120);
      return;
    }
    this.legendDrawn = now;
    const time = isHovered ? this.u.posToVal(cursor, "x") : this.marked;
    const [main, compared] = this.layers;
    const all = main?.series ?? [];
    // Of many series, those with the highest values come first.
    const sorted = all.length > LISTED ? [...all].sort((one, other) => other.most - one.most) : all;
    const listed = this.isOpen ? sorted : sorted.slice(0, LISTED);
    this.#fillLegend(listed, all);
    listed.forEach((one, index) => {
      const entry = /** @type {HTMLElement} */ (this.legend.children[index]);
      const other = compared?.series.find((known) => known.label === one.label);
      const both = other ? `${quantity(one.at(time), one.unit)} / ${quantity(other.at(time), one.unit)}` : quantity(one.at(time), one.unit);
      const value = /** @type {HTMLElement} */ (entry.lastElementChild);
      if (value.textContent !== both) value.textContent = both;
    });
  }

  /**
   * Makes the entries of the legend, if they have changed.
   * @param {Series[]} listed
   * @param {Series[]} all
   */
  #fillLegend(listed, all) {
    const count = all.length;
    const key = JSON.stringify([count, this.isOpen, listed.map((one) => one.label), [...this.hidden]]);
    if (this.legend.dataset.key === key && this.legend.childElementCount) return;
    const focused = [...this.legend.children].indexOf(/** @type {Element} */ (document.activeElement));
    this.legend.dataset.key = key;
    const entries = listed.map((one) => this.#entry(one, all.indexOf(one)));
    if (count > LISTED) {
      const more = element("button", { class: "quiet", "aria-expanded": String(this.isOpen) }, this.isOpen ? "show fewer" : `and ${count - LISTED} more`);
      more.addEventListener("click", () => {
        this.isOpen = !this.isOpen;
        this.legendDrawn = 0;
        this.touch();
      });
      entries.push(more);
    }
    this.legend.replaceChildren(...entries);
    if (focused >= 0) /** @type {HTMLElement} */ (this.legend.children[Math.min(focused, entries.length - 1)])?.focus();
  }

  /**
   * @param {Series} one
   * @param {number} index
   */
  #entry(one, index) {
    const isShown = !this.hidden.has(one.label);
    const swatch = element("span", { class: "dot" });
    swatch.style.background = color(index);
    const entry = element("button", { class: "entry", "aria-pressed": String(isShown) }, swatch, element("span", {}, one.label), element("span", { class: "value" }));
    entry.addEventListener("click", () => {
      if (isShown) this.hidden.add(one.label);
      else this.hidden.delete(one.label);
      this.legendDrawn = 0;
      this.touch();
    });
    return entry;
  }
}

/**
 * Adds the line of a series to the path. Of points in the same column of pixels, the extremes are drawn.
 * @param {CanvasRenderingContext2D} ctx
 * @param {Series} series
 * @param {any} u
 */
function trace(ctx, series, u) {
  const { times, values, ends, isLevel } = series;
  const { min, max } = u.scales.x;
  const first = Math.max(0, lastAtMost(times, min));
  const last = Math.min(times.length - 1, lastAtMost(times, max) + 1);
  const { left, top, width, height } = u.bbox;
  const across = width / (max - min);
  const { min: low, max: high } = u.scales.y;
  const up = height / (high - low);
  const toX = (/** @type {number} */ time) => left + (time - min) * across;
  const toY = (/** @type {number} */ value) => top + height - (value - low) * up;
  let end = lastAtMost(ends, times[first] ?? 0) + 1;
  let isDown = false;
  let column = -1;
  let y = 0;
  let least = 0;
  let most = 0;
  const flush = () => {
    if (column < 0) return;
    ctx.lineTo(column, least);
    ctx.lineTo(column, most);
    ctx.lineTo(column, y);
    column = -1;
  };
  for (let index = first; index <= last; index += 1) {
    if (isLevel && end < ends.length && ends[end] <= times[index]) {
      flush();
      if (isDown) ctx.lineTo(toX(ends[end]), y);
      while (end < ends.length && ends[end] <= times[index]) end += 1;
      isDown = false;
    }
    const x = Math.round(toX(times[index]));
    const next = toY(values[index]);
    if (!isDown) {
      ctx.moveTo(x, next);
      isDown = true;
    } else if (x === column) {
      least = Math.min(least, next);
      most = Math.max(most, next);
    } else {
      flush();
      if (isLevel) ctx.lineTo(x, y);
      column = x;
      least = next;
      most = next;
    }
    y = next;
  }
  flush();
  if (isLevel && isDown && last === times.length - 1) {
    const until = ends.find((one) => one > times[last]) ?? u.scales.x.max;
    const known = /** @type {any} */ (series).until ?? until;
    ctx.lineTo(toX(Math.min(until, known)), y);
  }
}
