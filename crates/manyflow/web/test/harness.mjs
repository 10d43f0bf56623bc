// Starts the lab, roles that it can attach to, and a browser.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

/** The packages are in the build folder, beside which this file is not. */
export const require = createRequire(`${process.env.LAB_MODULES}/`);
const { chromium } = require("playwright-core");

const PROGRAM = process.env.LAB_PROGRAM;
/** The time in ms for everything that a test waits for; far longer than anything takes. */
export const LIMIT_MS = 30_000;

/** A process of the program, ended by `stop`. */
export class Manyflow {
  constructor(...options) {
    this.process = spawn(PROGRAM, ["--json", ...options], { stdio: ["ignore", "pipe", "inherit"] });
    this.events = [];
    this.waiting = [];
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      this.events.push(JSON.parse(line));
      for (const look of this.waiting) look();
    });
  }

  /** Returns the first event of a kind, once the process has printed it. */
  event(kind) {
    return this.#find((event) => event.event === kind);
  }

  /** Returns the address at which a role serves its metrics. */
  async metrics() {
    const event = await this.#find((event) => event.event === "metrics" || event.metrics);
    return (event.metrics ?? event.url).replace("/metrics", "");
  }

  async #find(isWanted) {
    const find = () => this.events.find(isWanted);
    const deadline = Date.now() + LIMIT_MS;
    while (!find()) {
      if (this.process.exitCode !== null || Date.now() > deadline) throw new Error(`no such event: ${this.process.spawnargs.join(" ")}`);
      await Promise.race([new Promise((look) => this.waiting.push(look)), new Promise((look) => setTimeout(look, 200))]);
    }
    return find();
  }

  async stop() {
    if (this.process.exitCode !== null) return;
    const exited = new Promise((done) => this.process.once("exit", done));
    this.process.kill("SIGTERM");
    await exited;
  }
}

/** Starts a browser. The sandbox needs rights that root in a container lacks, and the pages are our own. */
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

/** Opens a page that remembers what it writes to the console. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  page.problems = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) page.problems.push(message.text());
  });
  page.on("pageerror", (error) => page.problems.push(String(error)));
  await page.goto(url);
  await page.locator("html[data-ready]").waitFor();
  return page;
}

/** Calls a function of the page's editor. A module that the page has loaded is not loaded again. */
const editor = (page, name, ...values) => page.evaluate(async ([name, values]) => {
  const module = await import(new URL("editor.js", location.href).href);
  return module[name](...values);
}, [name, values]);

/** Returns the text of the editor. */
export const text = (page) => editor(page, "text");

/** Returns the text that is selected in the editor. */
export const selected = (page) => editor(page, "selected");

/** Replaces the text of the editor, as a paste does. */
export const edit = async (page, change) => editor(page, "paste", change(await text(page)));

/** Runs the scenario to its end. */
export async function run(page) {
  const before = await page.locator("#shown-run option").count();
  await page.locator("#run:enabled").click();
  await page.waitForFunction((count) => document.querySelectorAll("#shown-run option").length > count, before);
  await page.locator('#results[data-state="done"]').waitFor();
}
