// Prints the time from opening the page to the first picture, and the frames per second while a run of 100 flows is
// shown.

import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Manyflow, launch, openPage } from "./harness.mjs";

const FLOWS = 100;
const SCENARIO = `title = "${FLOWS} flows share a link"
run.duration = "600 s"
nodes.dumbbells.D = { left = ${FLOWS}, right = ${FLOWS} }
[[links]]
all-of = "D"
delay = "10 ms"
[[links]]
name = "bottleneck"
between = ["D-router-0", "D-router-1"]
rate = "20 Mbit/s"
queue = "200 packets"
[[sessions]]
name = "flow-{i}"
count = ${FLOWS}
protocol = "tcp"
sender = "D-left-{i}"
receivers = ["D-right-{i}"]
start = "uniform 0 s to 5 s"
`;

const folder = await mkdtemp(join(tmpdir(), "manyflow-lab-"));
const file = join(folder, "flows.toml");
await writeFile(file, SCENARIO);
const lab = new Manyflow("lab", file);
const { url } = await lab.event("started");
const browser = await launch();
try {
  for (let round = 0; round < 3; round += 1) {
    const page = await openPage(browser, url);
    const paint = await page.evaluate(() => ({
      paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
      now: performance.now(),
    }));
    console.log(`first picture after ${Math.round(paint.paint)} ms, ready to run after ${Math.round(paint.now)} ms`);
    await page.context().close();
  }
  for (const speed of ["10", "100", ""]) {
    const page = await openPage(browser, url);
    await page.locator("#speed").selectOption(speed);
    await page.locator("#run").click();
    await page.locator("#results[data-state]").waitFor();
    const measured = await page.evaluate(() => new Promise((resolve) => {
      const began = performance.now();
      let frames = 0;
      let longest = 0;
      let before = began;
      const count = () => {
        const now = performance.now();
        frames += 1;
        longest = Math.max(longest, now - before);
        before = now;
        const state = document.querySelector("#results").dataset.state;
        if (now - began < 8000 && state === "running") requestAnimationFrame(count);
        else resolve({ frames, longest, seconds: (now - began) / 1000, series: document.querySelectorAll(".chart").length });
      };
      requestAnimationFrame(count);
    }));
    const rate = measured.frames / measured.seconds;
    const named = speed ? `at ${speed} x real time` : "as fast as the simulator is";
    console.log(`${FLOWS} flows ${named}: ${rate.toFixed(1)} frames/s over ${measured.seconds.toFixed(1)} s, longest frame ${Math.round(measured.longest)} ms`);
    await page.context().close();
  }
} finally {
  await browser.close();
  await lab.stop();
  await rm(folder, { recursive: true, force: true });
}
