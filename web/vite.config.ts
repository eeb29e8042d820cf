import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// What each chunk is made of: files that change for different reasons, under names that stay.
const CHUNKS: [string, string[]][] = [
  ["maplibre", ["maplibre-gl"]],
  ["draw", ["terra-draw"]],
  ["codemirror", ["@codemirror", "@lezer", "@marijn", "style-mod", "w3c-keyname", "crelt"]],
  ["widgets", ["lit", "@lit", "lit-html", "lit-element", "uplot"]],
];

function packageOf(id: string): string | null {
  const parts = id.split("/node_modules/");
  if (parts.length < 2) return null;
  const [scope, name] = parts[parts.length - 1].split("/");
  return scope.startsWith("@") ? `${scope}/${name}` : scope;
}

// The licences of everything that is in the build, in one file beside it.
function licences(): Plugin {
  const used = new Set<string>();
  return {
    name: "licences",
    moduleParsed({ id }) {
      const name = packageOf(id.split("?")[0]);
      if (name) used.add(name);
    },
    generateBundle() {
      const parts = ["What this page is made of besides nearcast (Apache-2.0), and under which terms.\n"];
      for (const name of [...used].sort()) {
        const folder = `node_modules/${name}`;
        const about = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
        let text = "";
        for (const file of ["LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "license"]) {
          try {
            text = readFileSync(`${folder}/${file}`, "utf8");
            break;
          } catch {
            continue;
          }
        }
        parts.push(`${"=".repeat(78)}\n${name} ${about.version}: ${about.license}\n\n${text.trim()}\n`);
      }
      this.emitFile({ type: "asset", fileName: "licences.txt", source: parts.join("\n") });
    },
  };
}

export default defineConfig({
  base: "/static/",
  plugins: [licences()],
  build: {
    outDir: "../src/nearcast/server/static",
    emptyOutDir: true,
    assetsDir: "",
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000,
    rollupOptions: {
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "[name].js",
        assetFileNames: "[name][extname]",
        manualChunks(id: string) {
          const name = packageOf(id);
          if (!name) return undefined;
          return CHUNKS.find(([, owners]) => owners.some((owner) => name === owner || name.startsWith(`${owner}/`) || name.startsWith(`${owner}-`)))?.[0];
        },
      },
    },
  },
  worker: { format: "es", rollupOptions: { output: { entryFileNames: "[name].js" } } },
});
