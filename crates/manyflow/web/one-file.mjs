// Puts the page of the lab into one HTML file, with the simulator as WebAssembly instead of a server.
//
//     node one-file.mjs MODULES SIMULATOR OUT
//
// MODULES is a folder with esbuild in node_modules, SIMULATOR the module of manyflow-lab-page.

import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { deflateRawSync } from "node:zlib";

const [modules, simulator, out] = process.argv.slice(2);
const esbuild = createRequire(`${modules}/`)("esbuild");
const web = dirname(fileURLToPath(import.meta.url));
const read = (file) => readFile(join(web, file), "utf8");

/** Text that may stand in a script of a page. */
const inScript = (text) => text.replaceAll("</script", "<\\/script");

/** A function, so that `$` in the text has no meaning. */
const put = (page, place, text) => {
  if (!page.includes(place)) throw new Error(`index.html has no ${place}`);
  return page.replace(place, () => text);
};

const local = { name: "local", setup: (build) => build.onResolve({ filter: /\/server\.js$/ }, () => ({ path: join(web, "local.js") })) };
const options = { bundle: true, minify: true, format: "esm", target: "es2022", write: false, legalComments: "none" };
const built = await esbuild.build({ ...options, entryPoints: [join(web, "app.js")], plugins: [local] });
const worker = await esbuild.build({ ...options, entryPoints: [join(web, "worker.js")], format: "iife" });
const packed = deflateRawSync(await readFile(simulator), { level: 9 }).toString("base64");
const icon = `data:image/svg+xml;base64,${Buffer.from(await read("icon.svg")).toString("base64")}`;
const licences = await Promise.all(["uplot", "codemirror"].map(async (name) => `${name}: ${await read(`vendor/${name}/LICENSE`)}`));
const policy = "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; worker-src blob:; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'";

let page = await read("index.html");
page = put(page, '<meta charset="utf-8">', `<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="${policy}">\n<!--\n${licences.join("\n").replaceAll("--", "- -")}-->`);
page = put(page, '<link rel="stylesheet" href="vendor/uplot/uPlot.min.css">', `<style>${await read("vendor/uplot/uPlot.min.css")}</style>`);
page = put(page, '<link rel="stylesheet" href="style.css">', `<style>${await read("style.css")}</style>`);
page = put(page, '<script src="vendor/uplot/uPlot.iife.min.js" defer></script>', `<script>${inScript(await read("vendor/uplot/uPlot.iife.min.js"))}</script>`);
page = put(page, '<script type="module" src="app.js"></script>', "");
page = page.replaceAll('"icon.svg"', `"${icon}"`);
page = put(page, "</body>", `<script id="worker" type="text/plain">${inScript(worker.outputFiles[0].text)}</script>
<script id="simulator" type="text/plain">${packed}</script>
<script type="module">${inScript(built.outputFiles[0].text)}</script>
</body>`);
await writeFile(out, page);
