import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const VIEWER = dirname(HERE);
const BUILT = join(VIEWER, "static");
const SHARED = ["page/charts.js", "page/stage.js", "page/report.css"];

/* The report's scripts are plain ones that share their names; here they become modules. */
const reportScripts = {
  name: "report-scripts",
  transform(code, id) {
    if (id.endsWith("/page/charts.js")) return `${code}\nexport { Charts };\n`;
    if (id.endsWith("/page/stage.js")) return `import { Charts } from "./charts.js";\n${code}\nexport { Theatre };\n`;
    return null;
  },
};

function files(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((each) => {
    if (each.name === "node_modules") return [];
    const path = join(folder, each.name);
    return each.isDirectory() ? files(path) : [path];
  });
}

const hash = (path) => createHash("sha256").update(readFileSync(path)).digest("hex");
const hashes = (paths) => Object.fromEntries(paths.map((path) => [relative(VIEWER, path).replaceAll("\\", "/"), hash(path)]).sort());

/* Says which sources the built files were made of, so that a test can tell without node. */
const seal = {
  name: "seal",
  closeBundle() {
    const sources = [...files(HERE), ...SHARED.map((name) => join(VIEWER, name))];
    const built = files(BUILT).filter((path) => !path.endsWith("built.json"));
    writeFileSync(join(BUILT, "built.json"), `${JSON.stringify({ sources: hashes(sources), built: hashes(built) }, null, 1)}\n`);
  },
};

export default {
  root: HERE,
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [reportScripts, seal],
  server: { fs: { allow: [VIEWER] } },
  build: {
    outDir: BUILT,
    emptyOutDir: true,
    assetsDir: "assets",
    modulePreload: false,
    target: "es2022",
    rolldownOptions: {
      output: { entryFileNames: "assets/app.js", assetFileNames: "assets/app[extname]" },
    },
  },
};
