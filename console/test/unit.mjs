// Runs the tests of test/unit in Node: what the page computes, without a browser. `npm test`.
import {spawnSync} from 'node:child_process';
import {mkdtempSync, readdirSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {build} from 'esbuild';

const out = mkdtempSync(join(tmpdir(), 'txlog-console-'));
try {
  const tests = readdirSync('test/unit').filter((name) => name.endsWith('.test.ts'));
  await build({entryPoints: tests.map((name) => `test/unit/${name}`), outdir: out, outExtension: {'.js': '.mjs'},
    bundle: true, format: 'esm', platform: 'node', target: 'node20', logLevel: 'warning'});
  const files = tests.map((name) => join(out, name.replace(/\.ts$/, '.mjs')));
  process.exitCode = spawnSync(process.execPath, ['--test', ...files], {stdio: 'inherit'}).status ?? 1;
} finally {
  rmSync(out, {recursive: true, force: true});
}
