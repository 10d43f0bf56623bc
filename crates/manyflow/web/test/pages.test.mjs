// The status page of every role in a real browser: phone and desk, light and dark, keyboard,
// accessibility, and names that look like markup.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Manyflow, launch, openPage, require } from "./harness.mjs";

const HOSTILE = "<img src=x onerror=alert(1)>";
const ANY = "127.0.0.1:0";
const WIDTHS = [390, 1200];
/** The narrowest window in which rows are not blocks. */
const BETWEEN = 961;
/** Where pictures of the pages go, if anywhere. */
const PICTURES = process.env.PAGE_PICTURES;

let folder;
let browser;
/** A web server behind the gateway. */
let web;
/** The roles by their names, each with a text that its page has to show. */
const roles = new Map();
/** Commands that give roles something to do. */
const helpers = [];

/** Starts a role; its page shows `shown` once it does its work. */
function start(name, shown, ...options) {
  const role = new Manyflow(...options, "--metrics", ANY);
  roles.set(name, { role, shown });
  return role;
}

async function startFiles() {
  const sent = join(folder, HOSTILE);
  await mkdir(sent);
  // At this rate it takes 13 minutes, so that the receiver is at work in all tests.
  await writeFile(join(sent, "file"), Buffer.alloc(200_000_000, "x"));
  await writeFile(join(folder, "hosts.txt"), "lab-1\nlab-2\n");
  const expect = ["--expect", join(folder, "hosts.txt"), "--reports", ANY, "--forever"];
  const sender = start("send", /lab-1 *receiving/, "send", sent, "--rate", "2Mbit/s", "--listen", ANY, "--publish", ANY, ...expect);
  const { url } = await sender.event("published");
  const relay = start("relay", /gateways *1/, "relay", "--session", url, "--listen", ANY);
  const { listen } = await relay.event("started");
  start("recv", /reception rate *[0-9.]+ [kM]?bit/, "recv", url, "--relay", listen, "--name", "lab-1", "--output", join(folder, "received"));
  for (const name of ["first", "second"]) await writeFile(join(folder, name), name.repeat(400));
  const sessions = ["first", "second"].map((name) => `[session.${name}]\npaths = ["${name}"]\nlisten = "${ANY}"\n`);
  await writeFile(join(folder, "sessions.toml"), `publish = "${ANY}"\nmetrics = "${ANY}"\n${sessions.join("")}`);
  const service = new Manyflow("serve", join(folder, "sessions.toml"));
  roles.set("serve", { role: service, shown: /Sessions.*first.*second/ });
  const server = new URL((await service.event("published")).url).origin;
  start("recv of many sessions", /Sessions.*1 of 1/, "recv", "--follow", server, "--allow-unverified", "--output", join(folder, "followed"));
}

async function startStream() {
  const sender = start("stream send", /receivers that report *1/, "stream", "send", "--pattern", "--listen", ANY, "--publish", ANY);
  const { url } = await sender.event("published");
  start("stream recv", /units *[1-9]/, "stream", "recv", url, "--pattern");
}

async function startMessages() {
  const daemon = start("daemon", /Links *neighbour.*b *up/, "daemon", "--insecure", "--name", "a", "--listen", ANY, "--clients", ANY);
  const { daemons, clients } = await daemon.event("started");
  const links = ["--link", `a=${daemons}`, "--link", "c=127.0.0.1:1"];
  const other = start("daemon with a link that is down", /links up *1 of 2.*orders/, "daemon", "--insecure", "--name", "b", ...links, "--listen", ANY, "--clients", ANY);
  const { clients: server } = await other.event("started");
  const member = new Manyflow("sub", "--server", server, "orders.*");
  helpers.push(member);
  await member.event("joined");
  // The group has to be known at the other daemon before its first message.
  helpers.push(new Manyflow("pub", "--server", clients, "--rate", "20", "--count", "100000", "orders.new", "one"));
  await member.event("message");
}

async function startEnsembles() {
  await mkdir(join(folder, "chunks"));
  const store = start("store", /chunks and manifests that were put/i, "store", "--dir", join(folder, "chunks"), "--listen", ANY);
  const { listen: shelf } = await store.event("started");
  const service = start("switch", /Members.*one *up/, "switch", "--listen", ANY, "--policy", "replicas", "--member", `one=${shelf}`);
  const { listen: at } = await service.event("started");
  const put = new Manyflow("put", "--to", at, "--replicas", "1", join(folder, "first"));
  helpers.push(put);
  await put.event("done");
  start("switch without members", /members up *0 of 1/, "switch", "--listen", ANY, "--member", "one=127.0.0.1:9");
  web = createServer((_, answer) => answer.end("here")).listen(0, "127.0.0.1");
  await once(web, "listening");
  const member = start("member", /server *answers/, "member", "--listen", ANY, "--http", `http://127.0.0.1:${web.address().port}`);
  const { listen: to } = await member.event("started");
  const gateway = start("gateway", /requests.*[1-9]/i, "gateway", "--listen", ANY, "--to", to);
  await gateway.event("connected");
  const { listen: clients } = await gateway.event("started");
  assert.equal(await (await fetch(`http://${clients}/`)).text(), "here");
  start("router", /to the server/, "router", "--listen", ANY, "--to", "127.0.0.1:1", "--rate", "1Mbit/s");
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyflow-pages-"));
  await startFiles();
  await startStream();
  await startMessages();
  await startEnsembles();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  web?.close();
  await Promise.all([...helpers, ...[...roles.values()].map(({ role }) => role)].map((role) => role.stop()));
  await rm(folder, { recursive: true, force: true });
});

/** Waits until the page shows a text and the history of a number. */
async function waitForText(page, { source, flags }, name) {
  const isShown = ([source, flags]) => {
    const text = document.body.innerText.replaceAll(/\s+/g, " ");
    return document.querySelectorAll("#charts figure").length > 0 && new RegExp(source, flags).test(text);
  };
  try {
    await page.waitForFunction(isShown, [source, flags]);
  } catch {
    assert.fail(`${name} does not show /${source}/: ${await page.locator("body").innerText()}`);
  }
}

async function check(page, name) {
  const problems = await page.evaluate(async () => (await axe.run({ resultTypes: ["violations"] })).violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`));
  assert.deepEqual(problems, [], name);
  assert.doesNotMatch(await page.locator("body").innerText(), /undefined|NaN|null|\[object|Infinity/, name);
  await checkWidth(page, name);
}

async function checkWidth(page, name) {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= window, `${name}: ${content} of ${window} pixels`);
}

test("every role's page fits, is accessible and writes nothing to the console, on phones and desks, light and dark", async () => {
  const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
  for (const [name, { role, shown }] of roles) {
    const url = `${await role.metrics()}/`;
    for (const width of WIDTHS) {
      const page = await openPage(browser, url, { viewport: { width, height: 900 } });
      await waitForText(page, shown, name);
      await page.evaluate(axe);
      // A visit takes both schemes, as at nightfall.
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        await check(page, `${name}, ${width}, ${colorScheme}`);
        if (PICTURES) await page.screenshot({ path: join(PICTURES, `${name.replaceAll(" ", "-")}-${width}-${colorScheme}.png`), fullPage: true });
      }
      await page.setViewportSize({ width: BETWEEN, height: 900 });
      await checkWidth(page, name);
      assert.deepEqual(page.problems, [], name);
      await page.context().close();
    }
  }
});

test("the keyboard reads single values of a curve", async () => {
  const page = await openPage(browser, `${await roles.get("send").role.metrics()}/`);
  await page.waitForFunction(() => document.querySelector("#charts svg path")?.getAttribute("d").includes("L"));
  await page.locator("#charts svg").first().focus();
  await page.keyboard.press("ArrowLeft");
  assert.match(await page.locator("#charts figcaption").first().textContent(), /2\.0 s ago: /);
  await page.keyboard.press("Escape");
  assert.doesNotMatch(await page.locator("#charts figcaption").first().textContent(), /ago/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test("a name that looks like markup is shown as a name", async () => {
  const page = await openPage(browser, `${await roles.get("send").role.metrics()}/`);
  assert.equal(await page.locator('img[src="x"]').count(), 0);
  assert.match(await page.locator("body").textContent(), /onerror=alert/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test("a page whose process has ended says so", async () => {
  const { role } = roles.get("router");
  const page = await openPage(browser, `${await role.metrics()}/`);
  await role.stop();
  await page.getByText("The process does not answer").waitFor();
  await page.context().close();
});
