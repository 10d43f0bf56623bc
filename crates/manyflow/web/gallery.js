// The figures as a gallery: a card for each, with its network, or its first plot once it was run here.

import { byId, element } from "./format.js";
import * as server from "./server.js";
import { graph, Picture } from "./topology.js";

/** @typedef {import("./server.js").FigureEntry} FigureEntry */

/** Cards with a picture that shows what a figure is about, and a search. */
export class Gallery {
  /** @param {(id: string) => void} chosen Called with the id of a figure that a reader picks. */
  constructor(chosen) {
    this.chosen = chosen;
    /** @type {Map<string, {card: HTMLElement, text: string}>} */
    this.cards = new Map();
    // A network is drawn when its card comes in sight: to read all scenarios takes seconds.
    this.seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) this.#draw(/** @type {HTMLElement} */ (target));
    }, { rootMargin: "200px" });
    byId("search").addEventListener("input", () => this.#filter());
  }

  /** @param {FigureEntry[]} list */
  fill(list) {
    for (const entry of list) {
      const thumb = element("div", { class: "thumb", "aria-hidden": "true" });
      const card = element("button", { class: "card figure-card", "data-figure": entry.id }, thumb,
        element("strong", {}, entry.id), element("span", {}, entry.title), element("span", { class: "dim" }, entry.source ?? ""));
      card.addEventListener("click", () => this.chosen(entry.id));
      const text = `${entry.id} ${entry.title} ${entry.source ?? ""}`.toLowerCase();
      this.cards.set(entry.id, { card, text });
      this.seen.observe(card);
    }
    byId("cards").replaceChildren(...[...this.cards.values()].map(({ card }) => card));
    this.#filter();
  }

  /**
   * Shows a plot of a figure instead of its network.
   * @param {string} id
   * @param {number} run
   * @param {string} plot
   */
  showPlot(id, run, plot) {
    const card = this.cards.get(id)?.card;
    if (!card) return;
    this.seen.unobserve(card);
    const picture = element("img", { alt: "" });
    server.offer(picture, run, `${plot}.svg`);
    card.querySelector(".thumb")?.replaceChildren(picture);
  }

  /** Shows the cards whose texts have all words of the search. */
  #filter() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const { card, text } of this.cards.values()) {
      card.hidden = !words.every((/** @type {string} */ word) => text.includes(word));
      found += card.hidden ? 0 : 1;
    }
    byId("found").textContent = `${found} of ${this.cards.size}`;
  }

  /** @param {HTMLElement} card */
  async #draw(card) {
    this.seen.unobserve(card);
    const id = card.dataset.figure ?? "";
    const text = await server.figureText(id);
    const { description } = await server.post("check", { text, file: `${id}.toml`, fast: true, cell: 0 });
    const thumb = /** @type {HTMLElement} */ (card.querySelector(".thumb"));
    if (description?.map && !thumb.firstElementChild) new Picture(thumb, "").show(graph(description.map, -1), "");
  }
}
