// Builds ../page.html (or the given file) with script and style inside, which its policy allows by hash.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "page.html");

const bundle = async (entry) => {
  const made = await build({
    entryPoints: [join(here, "src", entry)],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["chrome110", "firefox115", "safari16.4"],
    charset: "utf8",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
  });
  return made.outputFiles[0].text.trim();
};

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

// the licences of the bundled packages
const licences = Object.keys(JSON.parse(readFileSync(join(here, "package.json"), "utf8")).dependencies)
  .map((name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}`;
  })
  .join("\n\n")
  .replaceAll("--", "- -");

const script = await bundle("main.tsx");
const style = await bundle("style.css");
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

writeFileSync(
  out,
  `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>vLLM harness report</title>
<!--
${licences}
-->
<style>${style}</style>
</head>
<body>
<div id="app"><p class="loading">Opening the run…</p></div>
<noscript>This page needs JavaScript.</noscript>
<!-- the runs -->
<script>${script}</script>
</body>
</html>
`,
);
