// A run as the page knows it: its series and the states of its links, from the events of the server.

import * as server from "./server.js";

/**
 * @typedef {import("./server.js").Description} Description
 * @typedef {{name: string, value: number|null, unit: string, shown: string}} Measure
 * @typedef {import("./expectations.js").Expectation} Expectation
 * @typedef {{measures: Measure[], expectations: Expectation[], ends: [number, number, string, number|null, number[]][],
 *   transmissions: number, receivers: number, seconds: number}} Conclusion
 * @typedef {{time_s: number, series?: {plot: number, line: number, of: string, channel: number|null, bin_s: number|null,
 *   is_level: boolean}[], points?: [number, [number, number][]][], links: number[][],
 *   overlays?: [number, number|null][][]}} Sample
 */

/**
 * Returns the last part of an axis' key, by which people know it: `rate` of `links.bottleneck.rate`.
 * @param {string} key
 */
export const shortKey = (key) => key.split(".").slice(-1)[0];

/** The number of values of a link in a sample: queue, bytes, drops, losses, marks. */
export const LINK_VALUES = 5;

/** Values over time. */
export class Series {
  /**
   * @param {string} label
   * @param {string} unit
   * @param {{shift?: number, isLevel?: boolean, scale?: number}} [kind]
   */
  constructor(label, unit, kind = {}) {
    this.label = label;
    this.unit = unit;
    /** Half of the interval of each value, which is drawn in its middle. */
    this.shift = kind.shift ?? 0;
    this.isLevel = kind.isLevel ?? false;
    this.scale = kind.scale ?? 1;
    /** @type {number[]} */
    this.times = [];
    /** @type {number[]} */
    this.values = [];
    /** @type {number[]} */
    this.ends = [];
    this.least = 0;
    this.most = 0;
  }

  /** @param {number} time @param {number} value */
  add(time, value) {
    const scaled = value * this.scale;
    this.times.push(time - this.shift);
    this.values.push(scaled);
    if (scaled > this.most) this.most = scaled;
    if (scaled < this.least) this.least = scaled;
  }

  /**
   * Returns the value at a time, or undefined if there is none.
   * @param {number} time
   */
  at(time) {
    const place = lastAtMost(this.times, time + this.shift);
    if (place < 0) return undefined;
    const ended = this.ends.some((end) => end > this.times[place] && end <= time);
    return ended ? undefined : this.values[place];
  }
}

/**
 * Returns the index of the last time that is at most `time`, or -1.
 * @param {number[]} times
 * @param {number} time
 */
export function lastAtMost(times, time) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** A run that is in progress or over. */
export class Run {
  /**
   * @param {Description} description
   * @param {string} name
   */
  constructor(description, name) {
    this.description = description;
    this.number = /** @type {number} */ (description.run);
    this.name = name;
    /** The series of each plot. @type {Series[][]} */
    this.plots = description.plots.map(() => []);
    /** @type {{plot: number, line: number, of: string, channel: number|null, series: Series}[]} */
    this.series = [];
    /** @type {number[]} */
    this.times = [];
    /** The values of all links at each time. @type {Float64Array[]} */
    this.links = [];
    /** The messages that wait, and prices, of each link of each overlay at each time. @type {[number, number|null][][][]} */
    this.overlays = [];
    /** @type {"running"|"done"|"failed"} */
    this.state = "running";
    this.message = "";
    this.isPaused = false;
    /** @type {Conclusion|null} */
    this.conclusion = null;
  }

  get time() {
    return this.times.length ? this.times[this.times.length - 1] : 0;
  }

  /**
   * Follows the events of the run. Calls `changed` after each of them.
   * @param {() => void} changed
   */
  follow(changed) {
    server.follow(this.number, {
      samples: (/** @type {Sample[]} */ samples) => {
        for (const sample of samples) this.#take(sample);
      },
      done: (/** @type {Conclusion} */ conclusion) => {
        this.conclusion = conclusion;
        this.state = "done";
        for (const [plot, line, of, channel, ends] of conclusion.ends) {
          const known = this.series.find((one) => one.plot === plot && one.line === line && one.of === of && one.channel === channel);
          if (known) known.series.ends = ends;
        }
      },
      failed: (/** @type {{message: string}} */ { message }) => {
        this.state = "failed";
        this.message = message;
      },
    }, changed);
  }

  /** @param {Sample} sample */
  #take(sample) {
    for (const begun of sample.series ?? []) {
      const info = this.description.plots[begun.plot].series[begun.line];
      const name = info.label ?? "";
      const channel = begun.channel === null ? "" : ` ${begun.channel}`;
      const label = begun.channel === null && name ? name : `${name || begun.of}${channel}`;
      const kind = { shift: (begun.bin_s ?? 0) / 2, isLevel: begun.is_level, scale: info.scale };
      const series = new Series(label, info.unit, kind);
      this.series.push({ plot: begun.plot, line: begun.line, of: begun.of, channel: begun.channel, series });
      this.plots[begun.plot].push(series);
      this.#distinguish(begun.plot, begun.line);
    }
    for (const [number, points] of sample.points ?? []) {
      const { series } = this.series[number];
      for (const [time, value] of points) series.add(time, value);
    }
    const links = new Float64Array(sample.links.length * LINK_VALUES);
    sample.links.forEach((values, link) => links.set(values, link * LINK_VALUES));
    this.times.push(sample.time_s);
    this.links.push(links);
    this.overlays.push(sample.overlays ?? []);
  }

  /**
   * Names the subjects of a line that stands for several of them.
   * @param {number} plot
   * @param {number} line
   */
  #distinguish(plot, line) {
    const same = this.series.filter((one) => one.plot === plot && one.line === line && one.channel === null);
    const label = this.description.plots[plot].series[line].label;
    if (same.length > 1 && label) for (const one of same) one.series.label = `${label}, ${one.of}`;
  }
}
