/**
 * Write the dashboard into a folder: `node build.mjs FOLDER`.
 *
 * The names of script and style hold a hash of their content, so a browser keeps them for good. Two
 * builds of the same sources give equal bytes.
 */

import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const HERE = import.meta.dirname;
const [target] = process.argv.slice(2);
if (!target) throw new Error("name the folder to write: node build.mjs FOLDER");
mkdirSync(target, { recursive: true });

const { outputFiles, metafile } = await build({
  absWorkingDir: HERE,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none", // LICENSES.txt has them
  entryNames: "[name]-[hash]",
  outdir: target,
  metafile: true,
  write: false,
});

const names = outputFiles.map((file) => basename(file.path)).sort();
const page = readFileSync(join(HERE, "index.html"), "utf8");
put("index.html", page.replace("{{style}}", named(".css")).replace("{{script}}", named(".js")));
for (const file of outputFiles) {
  put(basename(file.path), file.contents);
  put(`${basename(file.path)}.gz`, gzipped(file.contents));
}
put("favicon.svg", readFileSync(join(HERE, "favicon.svg")));
put("LICENSES.txt", licences());

function put(name, content) {
  writeFileSync(join(target, name), content);
}

function named(ending) {
  return `static/${names.find((name) => name.endsWith(ending))}`;
}

/** Node writes no time into the head, but the number of the system, which must not matter. */
function gzipped(content) {
  const made = gzipSync(content, { level: 9 });
  made.fill(0, 4, 8);
  made[9] = 255;
  return made;
}

/** The licences of the packages that the bundle holds. */
function licences() {
  const packages = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const [, name] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input) ?? [];
    if (name) packages.add(name);
  }
  const texts = [...packages].sort().map((name) => {
    const folder = join(HERE, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    if (!file || !existsSync(join(folder, file))) throw new Error(`${name} has no licence`);
    return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return ["The script of the dashboard holds these packages.\n", ...texts].join("\n\n");
}
