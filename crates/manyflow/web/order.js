// Ordered groups: the views and the last messages of each member, and the links of its daemon.

import { byId, color, element } from "./format.js";
import * as server from "./server.js";

/**
 * @typedef {{at: number, daemon: string, event: string, group: string, view: string, members: string[], cause: string, who: string|null,
 *   groups: string[], service: string, sender: string, payload: string, error: string}} MemberEvent
 */

/** The number of lines that a member shows. */
const LINES = 40;
/** The time in ms between two messages of a member that sends by itself. */
const PAUSE_MS = 500;

/** Returns the daemon in the name of a client, such as #nats-1#north. @param {string} name */
const place = (name) => name.split("#").slice(-1)[0];

export class Order {
  constructor() {
    /** @type {MemberPanel[]} */
    this.panels = [];
    this.timer = 0;
    this.sent = 0;
  }

  /** Starts the daemons, if this page has not done it. */
  start() {
    if (this.panels.length) return;
    this.panels = ["north", "east", "south"].map((name, index) => new MemberPanel(name, index));
    byId("order-members").replaceChildren(...this.panels.map((panel) => panel.root));
    byId("order-form").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.#send(Number(byId("order-from").value), byId("order-text").value);
    });
    byId("order-all").addEventListener("change", () => this.#setSending(byId("order-all").checked));
    const events = new EventSource("order/events");
    events.addEventListener("member", (event) => {
      /** @type {MemberEvent} */
      const taken = JSON.parse(event.data);
      this.panels[taken.at].take(taken);
    });
    events.addEventListener("links", (event) => {
      /** @type {{ends: [number, number][], up: boolean[]}} */
      const { ends, up } = JSON.parse(event.data);
      this.panels.forEach((panel, index) => panel.setCut(ends.every((pair, link) => !pair.includes(index) || !up[link])));
    });
    events.addEventListener("error", () => this.#say("The lab does not answer."));
    events.addEventListener("open", () => this.#say(""));
  }

  /** @param {string} text */
  #say(text) {
    byId("order-note").textContent = text;
  }

  /** @param {boolean} isOn */
  #setSending(isOn) {
    clearInterval(this.timer);
    if (!isOn) return;
    this.timer = setInterval(() => {
      this.sent += 1;
      this.panels.forEach((panel, index) => this.#send(index, `${panel.name} ${this.sent}`));
    }, PAUSE_MS);
  }

  /** @param {number} member @param {string} text */
  async #send(member, text) {
    const { ok, value } = await server.multicast(member, byId("order-to").value.split(" "), byId("order-service").value, text);
    this.#say(ok ? "" : value.message);
  }
}

/** A member and its daemon. */
class MemberPanel {
  /** @param {string} name @param {number} index */
  constructor(name, index) {
    this.name = name;
    this.isCut = false;
    this.button = element("button", { "aria-label": `Cut off ${name}` }, "Cut off");
    this.button.addEventListener("click", () => server.cut(index, !this.isCut));
    this.state = element("span", { class: "dim grow", role: "status" }, "linked");
    this.views = element("div");
    this.messages = element("ol", { class: "order-messages", tabindex: "0", "aria-label": `Messages and views at ${name}, the latest first` });
    this.root = element("section", { class: "card", "aria-label": name, "data-daemon": name },
      element("div", { class: "row" }, element("h3", {}, name), this.state, this.button), this.views, this.messages);
    /** The line of each group. @type {Map<string, HTMLElement>} */
    this.groups = new Map();
  }

  /** @param {boolean} isCut */
  setCut(isCut) {
    this.isCut = isCut;
    this.state.textContent = isCut ? "cut off" : "linked";
    this.state.classList.toggle("wrong", isCut);
    this.button.textContent = isCut ? "Heal" : "Cut off";
    this.button.setAttribute("aria-label", `${this.button.textContent} ${this.name}`);
  }

  /** @param {MemberEvent} event */
  take(event) {
    if (event.event === "delivered") {
      this.#line(place(event.sender), `${event.groups.join(", ")}: ${event.payload} (${event.service}, ${place(event.sender)})`);
    } else if (event.event === "view") {
      const members = event.members.map(place).join(" ");
      const cause = event.who ? `${event.cause} of ${place(event.who)}` : event.cause;
      this.#showGroup(event.group, `${event.group}: ${members} – view ${event.view}, ${cause}`, false);
      this.#line("", `${event.group}: view of ${members} (${cause})`);
    } else if (event.event === "transitional") {
      this.#showGroup(event.group, `${event.group}: others may miss messages until the next view`, true);
      this.#line("", `${event.group}: transitional signal`);
    } else {
      this.#line("", event.error);
    }
  }

  /** @param {string} group @param {string} text @param {boolean} isWrong */
  #showGroup(group, text, isWrong) {
    let line = this.groups.get(group);
    if (!line) {
      line = element("p", { class: "order-view", "data-group": group });
      this.groups.set(group, line);
      this.views.append(line);
    }
    line.textContent = text;
    line.classList.toggle("wrong", isWrong);
  }

  /** @param {string} sender The daemon of a message's sender; none for views. @param {string} text */
  #line(sender, text) {
    const line = element("li", sender ? {} : { class: "dim" }, text);
    const index = ["north", "east", "south"].indexOf(sender);
    if (index >= 0) line.style.borderLeftColor = color(index);
    this.messages.prepend(line);
    if (this.messages.childElementCount > LINES) this.messages.lastElementChild?.remove();
  }
}
