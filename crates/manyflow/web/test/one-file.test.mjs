// The lab as one HTML file, opened from the disk: runs, sweeps and downloads are those of the program.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { launch, openPage } from "./harness.mjs";

const PAGE = pathToFileURL(process.env.LAB_PAGE).href;

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = await mkdtemp(join(tmpdir(), "manyflow-lab-page-"));
});
after(async () => {
  await browser?.close();
  await rm(folder, { recursive: true, force: true });
});

/** Opens the page at a figure, in its shortened form. */
async function open(figure) {
  const page = await openPage(browser, `${PAGE}#figure=${figure}&cell=0&seed=1&fast=1`);
  await page.locator("#run:enabled").waitFor();
  return page;
}

/** Saves what a link leads to, and returns its name and text. */
async function saved(page, link) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator(link).click()]);
  return { name: download.suggestedFilename(), text: await readFile(await download.path(), "utf8") };
}

/** Figures of each protocol, which take a moment. */
const FIGURES = process.env.LAB_FIGURES?.split(" ") ?? ["webrc-9", "cb-4", "any-clusters", "sim-2", "tfmcc-1", "order-1", "bbr-1"];
for (const figure of FIGURES) {
  test(`all runs of ${figure} have the measures of the program, bit for bit`, async () => {
    const page = await open(figure);
    const isSweep = await page.locator("#run-all").isVisible();
    await page.locator(isSweep ? "#run-all" : "#run").click();
    await page.locator('#results[data-state="done"]').waitFor({ timeout: 600_000 });
    await promisify(execFile)(process.env.LAB_PROGRAM, ["figure", figure, "--fast", "--out", folder]).catch(() => {});
    const link = isSweep ? "#sweep-measures-csv" : "#measures-csv";
    // A figure of formulas alone has no measures.
    if (await page.locator(link).isVisible()) {
      const { name, text } = await saved(page, link);
      assert.equal(name, isSweep ? `${figure}-measures.csv` : `${figure}-cell0-seed1-measures.csv`);
      assert.equal(text, await readFile(join(folder, figure, "measures.csv"), "utf8"));
    }
    const verdicts = await page.locator("#expectations .verdict").allTextContents();
    const summary = JSON.parse(await readFile(join(folder, figure, "summary.json"), "utf8"));
    assert.deepEqual(verdicts, summary.expectations.map((one) => one.verdict));
    const plots = (await readdir(join(folder, figure))).filter((file) => file.endsWith(".svg")).length;
    if (isSweep) await page.waitForFunction((count) => {
      const images = [...document.querySelectorAll("#sweep-figures img")];
      return images.length === count && images.every((image) => image.complete && image.naturalWidth > 0);
    }, plots);
    assert.deepEqual(page.problems, []);
    await page.context().close();
  });
}

test("a run is watched and stopped, the editor completes, and figures are found without a server", async () => {
  const page = await open("webrc-9");
  const content = page.locator("#editor .cm-content");
  const text = await readFile(new URL("../../../../scenarios/webrc-9.toml", import.meta.url), "utf8");
  await content.fill(text.replace(/^run.duration = .*$/m, 'run.duration = "100000 s"'));
  await page.locator("#run:enabled").click();
  await page.waitForFunction(() => Number(document.querySelector("#time").value) > 1);
  await page.locator("#stop").click();
  await page.locator("#progress", { hasText: "the run was stopped" }).waitFor();
  await content.fill(text);
  await page.locator("#run:enabled").click();
  await page.locator('#results[data-state="done"]').waitFor();
  const series = await saved(page, '#charts a[data-kind="csv"] >> nth=0');
  assert.match(series.text, /,seed,what,of,channel,unit,time \(s\),value\n/);
  assert.equal(await page.locator("#tab-order").isVisible() || await page.locator("#pause").isVisible(), false);
  await content.press("Control+End");
  await page.keyboard.type("\n[[sess");
  await page.locator("#editor .cm-completionLabel", { hasText: /^sessions$/ }).waitFor();
  await page.locator("#problem", { hasText: "there is no key" }).waitFor();
  await page.locator("#tab-gallery").click();
  await page.locator("#search").fill("cost-benefit");
  await page.locator(".figure-card:visible svg").first().waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});
