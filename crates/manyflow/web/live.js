// Live roles, by the metrics that they serve: rates of counters, gauges, and the links of daemons.

import { Chart } from "./chart.js";
import { digits, element, quantity } from "./format.js";
import { Series } from "./run.js";
import { fillTable, Picture } from "./topology.js";

/**
 * @typedef {{labels: Record<string, string>, value: number|null}} LiveSample
 * @typedef {{name: string, help: string, is_counter: boolean, samples: LiveSample[]}} Family
 * @typedef {{error: string|null, families: Family[], status: any}} Role
 * @typedef {{time_s: number, roles: Role[]}} Look
 */

/** The time in seconds that charts show. */
const SHOWN_S = 300;
/** The metrics that have a chart from the beginning, without the prefix of the role: the most telling ones first. */
const FIRST = ["rate_bytes_per_second", "rate_bits_per_second", "bytes", "waves_joined", "groups_joined", "channels_joined", "packets_lost",
  "rtt_seconds", "published_messages", "delivered_messages", "link_queue_messages", "link_rtt_seconds", "link_price_dollars",
  "member_outstanding_frames", "member_bytes_to", "member_bytes_from", "member_up", "requests", "requests_in_progress", "failed", "units",
  "latency_milliseconds", "gateways", "relay_gateways", "joins", "relay_joins", "datagrams_forwarded", "relay_datagrams_forwarded",
  "datagrams_dropped", "relay_datagrams_dropped", "groups", "useful_bytes"];
/** The maximum number of charts of a role from the beginning. */
const FIRST_MAX = 6;

export class Live {
  /** @param {HTMLElement} host */
  constructor(host) {
    this.host = host;
    /** @type {RolePanel[]} */
    this.panels = [];
  }

  /** @param {string[]} urls */
  start(urls) {
    this.panels = urls.map((url) => new RolePanel(url));
    this.host.replaceChildren(...this.panels.map((panel) => panel.root));
    const events = new EventSource("attached/events");
    events.addEventListener("look", (event) => {
      /** @type {Look} */
      const look = JSON.parse(event.data);
      look.roles.forEach((role, index) => this.panels[index].take(look.time_s, role));
    });
    events.addEventListener("error", () => this.panels.forEach((panel) => panel.say("The lab does not answer.", true)));
  }

  rebuild() {
    for (const panel of this.panels) for (const chart of panel.charts.values()) chart.rebuild();
  }
}

/** A role: its charts, all its metrics, and the links of a daemon. */
class RolePanel {
  /** @param {string} url */
  constructor(url) {
    this.url = url;
    this.title = element("h3", {}, "Role");
    this.address = element("span", { class: "dim" }, url);
    this.state = element("span", { class: "dim", role: "status" }, "connecting");
    this.chartsBox = element("div", { class: "charts" });
    this.pictureBox = element("div", { class: "picture" });
    this.linksTable = element("table");
    this.links = element("section", { class: "card", hidden: "", "aria-label": `Links of ${url}` }, this.pictureBox,
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of links of ${url}` }, this.linksTable));
    this.table = element("tbody");
    const head = element("thead", {}, element("tr", {}, ...["Metric", "Value", "In a second", "Chart"].map((name) => element("th", { scope: "col" }, name))));
    this.root = element("section", { class: "role", "aria-label": url }, element("div", { class: "row" }, this.title, this.address, this.state), this.links, this.chartsBox,
      element("details", {}, element("summary", {}, "All metrics"), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Metrics of ${url}` }, element("table", {}, head, this.table))));
    /** The series of each family, by their labels. @type {Map<string, Map<string, Series>>} */
    this.series = new Map();
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    /** @type {Map<string, {value: number, time: number}>} */
    this.before = new Map();
    /** @type {Map<string, HTMLElement>} */
    this.rows = new Map();
    this.picture = new Picture(this.pictureBox, `The links of ${url}`);
    this.drawn = "";
    this.time = 0;
  }

  /**
   * @param {string} text
   * @param {boolean} isWrong
   */
  say(text, isWrong) {
    if (this.state.textContent !== text) this.state.textContent = text;
    this.state.classList.toggle("wrong", isWrong);
  }

  /**
   * @param {number} time
   * @param {Role} role
   */
  take(time, role) {
    this.time = time;
    if (role.error !== null) {
      this.say(role.error, true);
      this.before.clear();
    } else {
      const name = kind(role.families);
      this.title.textContent = `${name[0].toUpperCase()}${name.slice(1)}`;
      this.say(`${role.families.length} metrics`, false);
    }
    for (const family of role.families) this.#takeFamily(time, family);
    if (role.families.length && this.charts.size === 0) this.#firstCharts(role.families);
    for (const [name, chart] of this.charts) {
      const series = [...(this.series.get(name)?.values() ?? [])];
      chart.show([{ series, name: this.url, isDashed: false }], Math.max(0, time - SHOWN_S), Math.max(time, 10), time);
    }
    if (role.status) this.#takeStatus(role.status);
  }

  /**
   * @param {number} time
   * @param {Family} family
   */
  #takeFamily(time, family) {
    const known = this.series.get(family.name) ?? new Map();
    this.series.set(family.name, known);
    for (const sample of family.samples) {
      if (sample.value === null) continue;
      const key = Object.entries(sample.labels).map(([name, value]) => `${name}=${value}`).join(", ");
      const series = known.get(key) ?? new Series(key || shortName(family.name), unit(family), { isLevel: !family.is_counter });
      known.set(key, series);
      const id = `${family.name}{${key}}`;
      const before = this.before.get(id);
      this.before.set(id, { value: sample.value, time });
      // A counter that is lower than before belongs to a new process.
      const rate = before && sample.value >= before.value ? (sample.value - before.value) / (time - before.time) : null;
      if (!family.is_counter) series.add(time, sample.value);
      else if (rate !== null) series.add(time, rate);
      this.#row(family, id, sample.value, family.is_counter ? rate : null);
    }
  }

  /**
   * Shows a metric in the table.
   * @param {Family} family
   * @param {string} id
   * @param {number} value
   * @param {number|null} rate
   */
  #row(family, id, value, rate) {
    let row = this.rows.get(id);
    if (!row) {
      const name = element("th", { scope: "row" }, id.replace("{}", ""));
      name.title = family.help;
      const button = element("button", { class: "quiet", "aria-label": `Chart of ${id.replace("{}", "")}` }, "chart");
      button.addEventListener("click", () => this.#toggle(family));
      row = element("tr", {}, name, element("td"), element("td"), element("td", {}, button));
      this.rows.set(id, row);
      this.table.append(row);
    }
    row.children[1].textContent = quantity(value, family.is_counter ? "" : unit(family));
    row.children[2].textContent = rate === null ? "" : quantity(rate, unit(family));
    row.querySelector("button")?.setAttribute("aria-pressed", String(this.charts.has(family.name)));
  }

  /** @param {Family[]} families */
  #firstCharts(families) {
    const role = families.filter((family) => !family.name.startsWith("process_"));
    const rank = (/** @type {Family} */ family) => FIRST.indexOf(shortName(family.name));
    const wanted = role.filter((family) => rank(family) >= 0).sort((one, other) => rank(one) - rank(other));
    for (const family of (wanted.length ? wanted : role).slice(0, FIRST_MAX)) this.#toggle(family);
  }

  /** Adds or removes the chart of a family. @param {Family} family */
  #toggle(family) {
    const chart = this.charts.get(family.name);
    if (chart) {
      chart.root.remove();
      this.charts.delete(family.name);
      return;
    }
    const title = shortName(family.name).replaceAll("_", " ").replace(/ (bytes|bits) per second$/, "").replace(/ (milli)?seconds$/, "");
    const made = new Chart(title[0].toUpperCase() + title.slice(1), unit(family), this.url, [], family.help);
    this.charts.set(family.name, made);
    this.chartsBox.append(made.root);
  }

  /** Shows a daemon and its neighbours. @param {any} status */
  #takeStatus(status) {
    const links = status.links ?? [];
    if (!links.length) return;
    this.links.hidden = false;
    const nodes = [status.name, ...links.map((/** @type {any} */ link) => link.name)];
    /** @type {[number, number][]} */
    const ends = links.map((/** @type {any} */ _, /** @type {number} */ index) => [0, index + 1]);
    const graph = { nodes, ends, marks: [0], sessions: [] };
    const key = nodes.join();
    if (this.drawn !== key) this.picture.show(graph, "");
    this.drawn = key;
    const all = links.map((/** @type {any} */ link) => {
      const before = this.before.get(`link ${link.name}`);
      this.before.set(`link ${link.name}`, { value: link.sent_bytes ?? 0, time: this.time });
      const rate = before ? Math.max(0, (8 * ((link.sent_bytes ?? 0) - before.value)) / (this.time - before.time)) : 0;
      return { load: link.is_up ? null : 0, rate, queue: link.queue_messages ?? 0, fill: null, losses: 0, price: link.price_dollars ?? null };
    });
    this.picture.update(all);
    fillTable(this.linksTable, graph, all);
  }
}

/** The prefix of the metrics of a role, with the role. */
const PREFIX = /^manyflow_(stream_send|stream_recv|[a-z]+)_/;

/** @param {string} name */
const shortName = (name) => name.replace(PREFIX, "");

/** @param {Family} family */
function unit(family) {
  const { name } = family;
  if (/bytes/.test(name)) return family.is_counter || /per_second/.test(name) ? "B/s" : "B";
  if (/bits_per_second/.test(name)) return "bit/s";
  if (/milliseconds/.test(name)) return "ms";
  if (/seconds/.test(name)) return family.is_counter ? "" : "s";
  return family.is_counter ? "1/s" : "";
}

/** Returns the role by the prefix of its metrics. @param {Family[]} families */
function kind(families) {
  const own = families.find((family) => family.name.startsWith("manyflow_"));
  const match = own?.name.match(PREFIX);
  return match ? match[1].replace("_", " ") : `${digits(families.length)} families`;
}
