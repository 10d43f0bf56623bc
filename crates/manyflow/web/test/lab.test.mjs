// The lab in a real browser: open, run, edit, error, compare, scrub, attach, ordered groups, export, token, narrow pages, accessibility.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import { Manyflow, edit, launch, openPage, require, run, selected, text } from "./harness.mjs";

/** A scenario whose runs take a moment. */
const SMALL = `title = "Two flows share a link"
run.duration = "20 s"
nodes.dumbbells.D = { left = 2, right = 2 }
[[links]]
all-of = "D"
delay = "10 ms"
[[links]]
name = "bottleneck"
between = ["D-router-0", "D-router-1"]
rate = "2 Mbit/s"
queue = "20 packets"
[[sessions]]
name = "tcp"
protocol = "tcp"
sender = "D-left-0"
receivers = ["D-right-0"]
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "D-left-1"
receivers = ["D-right-1"]
webrc.session-rate = "10 Mbit/s"
[[measure]]
name = "tcp"
what = "received-rate"
of = "tcp"
[[plots]]
name = "rates"
title = "Rates"
series = [{ what = "received-rate", of = "tcp", label = "TCP" }, { what = "received-rate", of = "webrc", label = "WEBRC" }]
`;

/** Two expectations, of which one misses its bound. */
const EXPECTED = `[[expect]]
what = "TCP gets something"
value = "mean(tcp)"
at-least = "1 kbit/s"
paper = "4.2 Mbit/s"
source = "this test"
[[expect]]
what = "TCP gets nearly everything"
value = "mean(tcp) / speed"
at-least = 0.9
source = "this test"
[[measure]]`;
/** A sweep of two cells with three seeds each. */
const SWEPT = `[parameters]
speed = "2 Mbit/s"
[sweep]
speed = ["1 Mbit/s", "4 Mbit/s"]
[[links]]`;

let folder;
let lab;
/** The roles, the sender first. */
const roles = [];
let url;
let browser;

/** Starts a role, which ends with the tests. */
function start(...options) {
  roles.push(new Manyflow(...options));
  return roles.at(-1);
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyflow-lab-"));
  await writeFile(join(folder, "small.toml"), SMALL);
  await writeFile(join(folder, "sent"), "x".repeat(20_000_000));
  const any = "127.0.0.1:0";
  const pages = ["--metrics", any];
  const sender = start("send", join(folder, "sent"), "--rate", "1Mbit/s", "--listen", any, "--publish", any, "--forever", ...pages);
  const { url: session } = await sender.event("published");
  const relay = start("relay", "--session", session, "--listen", any, ...pages);
  const { listen } = await relay.event("started");
  const receiver = start("recv", session, "--relay", listen, "--output", join(folder, "received"), ...pages);
  const daemon = start("daemon", "--insecure", "--name", "a", "--listen", any, "--clients", any, ...pages);
  const { daemons } = await daemon.event("started");
  start("daemon", "--insecure", "--name", "b", "--link", `a=${daemons}`, "--listen", any, "--clients", any);
  const service = start("switch", "--listen", any, "--member", "one=127.0.0.1:9", ...pages);
  const watched = [sender, relay, receiver, daemon, service];
  const attach = await Promise.all(watched.map(async (role) => ["--attach", await role.metrics()]));
  lab = new Manyflow("lab", join(folder, "small.toml"), ...attach.flat());
  ({ url } = await lab.event("started"));
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await Promise.all([lab, ...roles].map((process) => process?.stop()));
  await rm(folder, { recursive: true, force: true });
});

/** Opens the page at the scenarios, with the small one. */
async function openLab(options) {
  const page = await openPage(browser, url, options);
  await page.locator("#tab-lab").click();
  return page;
}

/** Checks that the console stayed empty, and closes the page. */
async function close(page) {
  assert.deepEqual(page.problems, []);
  await page.context().close();
}

/** Returns the status of a request with these headers. */
const statusOf = (address, headers = {}, method = "GET") => new Promise((resolve, reject) => {
  const request = http.request(address, { headers, method }, (response) => {
    response.resume();
    resolve(response.statusCode);
  });
  request.on("error", reject).end();
});

test("only the address with the token, and only under its own name, is answered", async () => {
  const { origin, host, pathname } = new URL(url);
  assert.equal(await statusOf(url), 200);
  assert.equal(await statusOf(`${origin}/`), 403);
  assert.equal(await statusOf(`${origin}/figures.json`), 403);
  assert.equal(await statusOf(`${origin}${pathname.replace(/[0-9a-f]\/$/, "/")}`), 403);
  assert.equal(await statusOf(url, { host: `lab.example:${new URL(url).port}` }), 403);
  assert.equal(await statusOf(url, { host }), 200);
  assert.equal(await statusOf(url, { origin: "http://other.example" }), 403);
  assert.equal(await statusOf(`${url}runs`, { "content-type": "text/plain" }, "POST"), 415);
  assert.equal(await statusOf(`${url}../../etc/passwd`), 403);
});

test("a run shows the series that the command prints", async () => {
  const page = await openLab();
  assert.match(await page.locator("#title").textContent(), /Two flows share a link/);
  await run(page);
  await promisify(execFile)(process.env.LAB_PROGRAM, ["sim", join(folder, "small.toml"), "--out", folder]);
  const printed = await readFile(join(folder, "small", "rates.csv"), "utf8");
  const [exported] = await Promise.all([page.waitForEvent("download"), page.locator('a[data-plot="rates"][data-kind="csv"]').click()]);
  assert.equal(await readFile(await exported.path(), "utf8"), printed);
  // What the page draws is the same, too: its legend has the last value, which the file has last.
  const charts = await page.locator("#charts .chart h3").allTextContents();
  assert.deepEqual(charts, ["Rates", "Channels that receivers have joined", "Queues", "Packets that queues drop, in each interval"]);
  const last = printed.trim().split("\n").filter((line) => line.includes("tcp/")).at(-1).split(",").at(-1);
  await page.waitForFunction((rate) => {
    const shown = document.querySelector('[data-title="Rates"] .entry .value')?.textContent ?? "";
    return shown.endsWith("Mbit/s") && Math.abs(parseFloat(shown) - rate / 1e6) < 0.02;
  }, Number(last));
  const [picture] = await Promise.all([page.waitForEvent("download"), page.locator('a[data-plot="rates"][data-kind="svg"]').click()]);
  assert.match(await readFile(await picture.path(), "utf8"), /<svg /);
  assert.match(picture.suggestedFilename(), /^small-cell0-seed1-rates\.svg$/);
  await close(page);
});

test("an error is shown at its line, and goes away when it is mended", async () => {
  const page = await openLab();
  await edit(page, (text) => text.replace("rate = \"2 Mbit/s\"", "rat = \"2 Mbit/s\""));
  const line = SMALL.split("\n").findIndex((text) => text.startsWith("rate = ")) + 1;
  const marked = page.locator("#editor .cm-gutter-lint .cm-gutterElement:has(.cm-lint-marker-error)");
  await marked.waitFor();
  assert.match(await page.locator("#problem").textContent(), /there is no key `rat`; did you mean `rate`\?/);
  assert.equal(await page.locator("#run").isDisabled(), true);
  await page.locator("#problem .jump").click();
  assert.equal(await selected(page), 'rat = "2 Mbit/s"');
  assert.equal(await page.locator("#problem .jump").textContent(), `Line ${line}`);
  await edit(page, (text) => text.replace("rat = ", "rate = "));
  await page.locator("#run:enabled").waitFor();
  assert.equal(await page.locator("#problem").textContent(), "");
  assert.equal(await marked.count(), 0);
  await close(page);
});

test("the editor completes keys and values, and describes them", async () => {
  const page = await openLab();
  const content = page.locator("#editor .cm-content");
  const option = (name) => page.locator("#editor .cm-tooltip-autocomplete .cm-completionLabel", { hasText: new RegExp(`^${name}$`) });
  await content.press("Control+End");
  await page.keyboard.type("\n[[meas");
  // CodeMirror takes no Enter in the moment in which a list appears, so a click chooses.
  await option("measure").click();
  // The closing brackets are there already.
  await page.keyboard.press("End");
  await page.keyboard.type("\nname = \"loss\"\nwh");
  await option("what").waitFor();
  await page.locator("#editor .cm-completionInfo", { hasText: "observable" }).waitFor();
  await option("what").click();
  await page.keyboard.type(" = ");
  await page.keyboard.press("Control+Space");
  await option('"loss-probability"').waitFor();
  await page.keyboard.type("\"loss-pro");
  await option('"loss-probability"').click();
  assert.match(await text(page), /\[\[measure\]\]\nname = "loss"\nwhat = "loss-probability"/);
  await page.locator("#editor .cm-line", { hasText: "queue = " }).first().hover({ position: { x: 12, y: 8 } });
  await page.locator("#editor .cm-tooltip-hover", { hasText: "links.queue" }).filter({ hasText: "capacity of the queue" }).waitFor();
  await close(page);
});

test("the editor knows the key at any place of a text", async () => {
  const page = await openLab();
  const places = [
    ["ti", "", "ti"], ["[[sess", "", "sess"], ["[nodes.dumb", "nodes", "dumb"], ["[nodes]\ndumbbells.D.le", "nodes.dumbbells.D", "le"],
    ["[run]\nduration = \"1", "run.duration", '"1'], ["[[plots]]\nseries = [\n  { what = \"a\" },\n  { wh", "plots.series", "wh"],
    ["links = [{ between = [\"A\", \"B\"], ra", "links", "ra"], ["[[links]] # one\nde", "links", "de"],
    ["[[sessions]]\ntcp = { variant = ", "sessions.tcp.variant", ""], ["[[expect]]\nwhat = \"a = b\"\nval", "expect", "val"],
    ["[sweep]\ntogether = [\n  [\"a\", \"b\"],\n]\nlo", "sweep", "lo"], ["about = \"\"\"\n[run]\n\"\"\"\nso", "", "so"],
    ["# comm", null], ["x = 3 # com", null], ["about = \"\"\"\nsome te", null],
  ];
  const found = await page.evaluate(async (texts) => {
    const { place } = await import(new URL("schema.js", location.href).href);
    return texts.map((text) => place(text));
  }, places.map(([text]) => text));
  const shown = found.map((place) => (place ? [place.path.join("."), place.prefix] : [null]));
  assert.deepEqual(shown, places.map(([, ...rest]) => rest));
  await close(page);
});

test("all runs of a sweep give verdicts beside the paper's values, measures with confidence, and one file", async () => {
  const page = await openLab();
  await edit(page, (text) => `${text.replace("[[measure]]", EXPECTED)}`.replace('rate = "2 Mbit/s"', 'rate = "speed"').replace("[[links]]", SWEPT).replace('run.duration = "20 s"', 'run.duration = "20 s"\nrun.seeds = 3'));
  await page.locator("#run-all:has-text('Run all 6')").click();
  assert.deepEqual(await page.locator("#expected tbody td").allTextContents(), ["at least 1 kbit/s", "4.2 Mbit/s", "at least 0.9", ""]);
  await page.locator('#results[data-state="done"]').waitFor();
  assert.match(await page.locator("#shown-run option").first().textContent(), /^\d+: small, all 6 runs, edited$/);
  assert.match(await page.locator("#progress").textContent(), /^6 runs in /);
  const verdicts = page.locator("#expectations tbody tr");
  assert.deepEqual(await verdicts.locator(".verdict").allTextContents(), ["met", "missed"]);
  assert.equal(await page.locator("#expectations-summary").textContent(), "1 of 2 expectations are met");
  const heads = await page.locator("#expectations thead th").allTextContents();
  assert.deepEqual(heads, ["Expected", "Found", "Bound", "Paper", "Verdict"]);
  assert.equal(await verdicts.first().locator("td").nth(2).textContent(), "4.2 Mbit/s");
  const cells = page.locator("#sweep-measures tbody tr");
  assert.deepEqual(await page.locator("#sweep-measures thead th").allTextContents(), ["speed", "tcp", "Seeds"]);
  assert.deepEqual(await cells.locator("th").allTextContents(), ["1 Mbit/s", "4 Mbit/s"]);
  for (const value of await cells.locator("td:nth-child(2)").allTextContents()) assert.match(value, /^[0-9.]+ [kM]bit\/s ± [0-9.]+ [kM]?bit\/s$/);
  assert.deepEqual(await cells.locator("td:nth-child(3)").allTextContents(), ["3", "3"]);
  await page.waitForFunction(() => {
    const images = [...document.querySelectorAll("#sweep-figures img")];
    return images.length > 0 && images.every((image) => image.complete && image.naturalWidth > 0);
  });
  const [saved] = await Promise.all([page.waitForEvent("download"), page.locator("#report").click()]);
  assert.equal(saved.suggestedFilename(), "small-report.html");
  const report = await readFile(await saved.path(), "utf8");
  for (const part of ["4.2 Mbit/s", '<span class="verdict missed">missed', "<svg ", "SHA-256"]) assert.ok(report.includes(part), part);
  assert.doesNotMatch(report, /src=|href=/, "the file needs no other");
  // A single run leaves open what concerns other cells, and says in which cell it was.
  await run(page);
  assert.match(await page.locator("#shown-run option").first().textContent(), /^\d+: small, speed 1 Mbit\/s, seed 1, edited$/);
  assert.equal(await page.locator("#expectations-summary").textContent(), "2 concern other cells");
  await close(page);
});

test("a sweep can be stopped", async () => {
  const page = await openLab();
  await edit(page, (text) => text.replace('run.duration = "20 s"', 'run.duration = "100000 s"\nrun.seeds = 4'));
  await page.locator("#run-all:has-text('Run all 4')").click();
  await page.locator("#progress", { hasText: "0 of 4 runs done" }).waitFor();
  await page.locator("#stop").click();
  await page.locator('#results[data-state="failed"]').waitFor();
  assert.equal(await page.locator("#progress").textContent(), "the sweep was stopped");
  await close(page);
});

test("figures are found by their titles, and opened", async () => {
  const page = await openLab();
  await page.locator("#tab-gallery").click();
  const cards = page.locator(".figure-card:visible");
  const all = await cards.count();
  assert.ok(all > 100, `${all} figures`);
  assert.equal(await page.locator("#found").textContent(), `${all} of ${all}`);
  await cards.first().locator("svg").waitFor();
  await page.locator("#search").fill("fig. 9 webrc");
  await page.locator("#found", { hasText: /^[1-3] of / }).waitFor();
  const card = page.locator('[data-figure="webrc-9"]');
  await card.locator("svg .link").first().waitFor({ state: "attached" });
  await card.click();
  await page.locator("#view-lab:visible").waitFor();
  await page.waitForFunction(() => document.querySelector("#title").textContent === "WEBRC and TCP share a link");
  await close(page);
});

test("two runs are compared, and a permalink opens the edited one in another lab", async () => {
  const page = await openLab();
  await run(page);
  await edit(page, (text) => text.replace("2 Mbit/s", "4 Mbit/s"));
  await run(page);
  await page.locator("#compared-run").selectOption({ index: 1 });
  const row = page.locator("#measures tbody tr").first();
  await page.locator("#measures thead th").nth(3).waitFor();
  assert.equal(await row.locator("th").textContent(), "tcp");
  assert.match(await row.locator("td").nth(2).textContent(), /^\+[0-9.]+ %$/);
  await page.waitForFunction(() => / \/ /.test(document.querySelector('[data-title="Rates"] .value')?.textContent ?? ""));
  await page.locator("#permalink").click();
  await page.waitForFunction(() => location.hash.includes("text="));
  const other = new Manyflow("lab", "--open", page.url());
  const opened = await openPage(browser, (await other.event("started")).url);
  assert.match(await text(opened), /rate = "4 Mbit\/s"/);
  await opened.locator("#run:enabled").waitFor();
  await close(opened);
  await other.stop();
  await close(page);
});

test("a slow run can be watched, paused, stopped and scrubbed by keyboard", async () => {
  const page = await openLab();
  await page.locator("#speed").selectOption("10");
  const before = await text(page);
  await page.locator("#editor .cm-content").press("Control+Enter");
  assert.equal(await text(page), before, "the key runs the scenario and changes nothing");
  await page.locator('#results[data-state="running"]').waitFor();
  await page.waitForFunction(() => Number(document.querySelector("#time").value) > 0.5);
  await page.locator("#pause").press("Enter");
  await page.locator("#progress:has-text('paused')").waitFor();
  await page.locator("#stop").press("Enter");
  await page.locator('#results[data-state="failed"]').waitFor();
  assert.equal(await page.locator("#progress").textContent(), "the run was stopped");
  await page.locator("#speed").selectOption("");
  await run(page);
  const states = () => page.locator("#picture .link").evaluateAll((links) => links.map((link) => link.textContent).join());
  await page.waitForFunction(() => document.querySelector("#time-shown").textContent === "20 s");
  await page.waitForFunction(() => /queue [1-9]/.test(document.querySelector("#picture").textContent));
  const atEnd = await states();
  await page.locator("#time").press("Home");
  await page.waitForFunction((before) => [...document.querySelectorAll("#picture .link")].map((link) => link.textContent).join() !== before, atEnd);
  assert.equal(await page.locator("#time-shown").textContent(), "0 s");
  await page.locator("#zoom-in").press("Enter");
  await page.locator("#zoom-out:enabled").press("Enter");
  await page.locator("#zoom-out:disabled").waitFor();
  await page.locator("#follow").press("Enter");
  await page.waitForFunction(() => document.querySelector("#time-shown").textContent === "20 s");
  await close(page);
});

test("an overlay shows its trees, queues and prices", async () => {
  const page = await openLab();
  await page.locator("#figure").selectOption("cb-4");
  await page.locator("#fast").check();
  await page.waitForFunction(() => document.querySelector("#title").textContent.startsWith("Cost-Benefit"));
  await page.locator("#run:enabled").waitFor();
  await run(page);
  await page.locator("#layer").selectOption({ label: "overlay tree" });
  await page.locator("#tree").selectOption("acfg");
  const chosen = () => page.locator("#picture .link.chosen title").allTextContents();
  const links = (await chosen()).map((title) => title.split(":")[0]).sort();
  assert.deepEqual(links, ["A-B", "B-C", "B-E", "E-F", "E-G"]);
  await page.locator("#picture .badge", { hasText: "$" }).first().waitFor();
  await page.locator("#links-box summary").click();
  await page.locator("#links td", { hasText: "$" }).first().waitFor();
  await close(page);
});

test("live roles show their metrics, and a daemon its links", async () => {
  const page = await openPage(browser, url);
  assert.equal(await page.locator("#view-live").isVisible(), true);
  const role = (name) => page.locator(".role").filter({ has: page.locator(`h3:text-is("${name}")`) });
  for (const name of ["Sender", "Relay", "Receiver", "Daemon", "Switch"]) await role(name).locator(".chart").first().waitFor();
  // Charts are drawn when they are in sight.
  await role("Receiver").locator('[data-title="Rate"]').scrollIntoViewIfNeeded();
  const received = role("Receiver").locator('[data-title="Rate"] .value');
  await received.filter({ hasText: "kB/s" }).waitFor();
  const daemon = role("Daemon");
  await daemon.locator(".picture .link").first().waitFor({ state: "attached" });
  await daemon.locator("summary").click();
  await daemon.locator("tr", { hasText: "manyflow_daemon_" }).first().waitFor();
  const before = await daemon.locator(".chart").count();
  await daemon.locator("tr button[aria-pressed=false]").first().click();
  await daemon.locator(".chart").nth(before).waitFor();
  await roles[0].stop();
  await role("Sender").locator(".wrong", { hasText: "cannot connect" }).waitFor();
  await close(page);
});

test("members of ordered groups show one order, and views when a daemon is cut off and healed", async () => {
  const page = await openPage(browser, url);
  await page.locator("#tab-order").click();
  const at = (name) => page.locator(`#order-members [data-daemon="${name}"]`);
  const names = ["north", "east", "south"];
  const orders = (name) => at(name).locator('[data-group="orders"]');
  const all = { hasText: /(?=.*north)(?=.*east)(?=.*south).* view / };
  for (const name of names) await orders(name).filter(all).waitFor();
  assert.equal(await at("south").locator('[data-group="stock"]').count(), 0);
  await page.locator("#order-to").selectOption("orders stock");
  await page.locator("#order-text").fill("both");
  await page.locator("#order-form button").click();
  for (const name of names) await at(name).locator("li", { hasText: "both (agreed, north)" }).waitFor();
  await page.locator("#order-to").selectOption("orders");
  await page.locator("#order-all").check();
  for (const name of names) await at(name).locator("li", { hasText: "south 3 " }).waitFor();
  await page.locator("#order-all").uncheck();
  // The last message of all marks the end of those before it.
  await page.locator("#order-from").selectOption({ label: "east" });
  await page.locator("#order-text").fill("the end");
  await page.locator("#order-form button").click();
  for (const name of names) await at(name).locator("li", { hasText: "the end" }).waitFor();
  const lines = (name) => at(name).locator("li", { hasText: "(agreed" }).allTextContents();
  const common = (line) => line.replace(/^[^:]*: /, "");
  const [first, ...others] = await Promise.all(names.map(lines));
  for (const other of others) assert.deepEqual(other.map(common), first.map(common));

  await at("south").locator("button").click();
  await orders("south").filter({ hasText: /^orders: south – view .*, network$/ }).waitFor();
  for (const name of ["north", "east"]) await orders(name).filter({ hasText: /^orders: (north east|east north) – view .*, network$/ }).waitFor();
  await at("south").locator("li", { hasText: "transitional signal" }).first().waitFor();
  assert.equal(await at("south").locator("button").textContent(), "Heal");
  await at("south").locator("button").click();
  for (const name of names) await orders(name).filter(all).waitFor();
  assert.equal(await at("south").locator("button").textContent(), "Cut off");
  await close(page);
});

test("the page fits 390 pixels, and axe finds no serious violation in light and dark", async () => {
  const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
  for (const width of [1280, 390]) {
    const page = await openLab({ viewport: { width, height: 900 } });
    await run(page);
    await page.locator("#links-box summary").click();
    // axe is added by evaluation, which the page's policy does not concern.
    await page.evaluate(axe);
    for (const tab of ["#tab-lab", "#tab-gallery", "#tab-live", "#tab-order"]) {
      await page.locator(tab).click();
      // A few cards stand for all.
      if (tab === "#tab-gallery") await page.locator("#search").fill("webrc");
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${tab} at ${width} pixels is ${overflow} pixels too wide`);
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
        const serious = violations.filter((found) => ["serious", "critical"].includes(found.impact));
        const described = serious.map((found) => `${found.id}: ${found.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("; ")}`);
        assert.deepEqual(described, [], `${colorScheme}, ${width}, ${tab}`);
      }
    }
    await close(page);
  }
});
