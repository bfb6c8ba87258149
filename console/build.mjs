// Bundles the console into the folder that the masters serve. Names of scripts and styles change with their content,
// so that browsers keep them; the page itself is small and asked for each time.
import {copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {basename, join} from 'node:path';
import {build} from 'esbuild';

const OUT = '../node/txlog/server/console/static';

rmSync(OUT, {recursive: true, force: true});
mkdirSync(OUT, {recursive: true});
const made = await build({
  entryPoints: ['src/main.ts', 'src/style.css'],
  outdir: OUT,
  entryNames: '[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  chunkNames: '[name]-[hash]',
  minify: true,
  target: ['es2022'],
  legalComments: 'none',
  metafile: true,
});
let page = readFileSync('src/index.html', 'utf8');
for (const [path, output] of Object.entries(made.metafile.outputs)) {
  const source = output.entryPoint && basename(output.entryPoint).replace(/\.ts$/, '.js');
  if (source) page = page.replaceAll(`"${source}"`, `"${basename(path)}"`);
}
writeFileSync(join(OUT, 'index.html'), page);
copyFileSync('src/icon.svg', join(OUT, 'icon.svg'));
const bytes = Object.values(made.metafile.outputs).reduce((sum, one) => sum + one.bytes, 0);
console.log(JSON.stringify({files: Object.keys(made.metafile.outputs).length + 2, bytes}));
