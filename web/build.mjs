// Bundles the sources, and writes each file plain and compressed: what is written depends on the sources and on
// `package-lock.json` alone.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';
import { gzipSync } from 'fflate';

const there = fileURLToPath(new URL('../crates/admin-http/src/dashboard/', import.meta.url));
const source = (name) => fileURLToPath(new URL(`src/${name}`, import.meta.url));

// The licences of what is bundled ask for their texts.
const licence = (name) => readFileSync(fileURLToPath(new URL(`node_modules/${name}/LICENSE`, import.meta.url)), 'utf8');
const notices = ['preact', 'uplot'].map((name) => `/*! ${name}\n${licence(name).trim()}\n*/\n`).join('');

function bundle(entry) {
  const { outputFiles } = buildSync({
    entryPoints: [source(entry)], bundle: true, minify: true, write: false, format: 'esm', target: 'es2022',
    jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none', charset: 'utf8',
  });
  return outputFiles[0].text;
}

/** Returns the built files: name to text. */
export function files() {
  const built = {
    'dashboard.js': notices + bundle('main.jsx'),
    'dashboard.css': bundle('style.css'),
    'dashboard.svg': readFileSync(source('dashboard.svg'), 'utf8'),
  };
  // Browsers keep the files for as long as their addresses stay the same.
  const version = createHash('sha256').update(Object.values(built).join('\0')).digest('hex').slice(0, 12);
  const page = readFileSync(source('index.html'), 'utf8').replaceAll('VERSION', version);
  return { 'index.html': page, ...built };
}

function main(check) {
  mkdirSync(there, { recursive: true });
  const stale = [];
  let firstLoad = 0;
  for (const [name, text] of Object.entries(files())) {
    const compressed = Buffer.from(gzipSync(Buffer.from(text), { level: 9, mtime: 0 }));
    firstLoad += compressed.length;
    for (const [path, bytes] of [[name, Buffer.from(text)], [`${name}.gz`, compressed]]) {
      if (!check) {
        writeFileSync(there + path, bytes);
      } else if (!bytes.equals(read(there + path))) {
        stale.push(path);
      }
    }
  }
  if (stale.length > 0) {
    console.error(`not what web/ makes: ${stale.join(', ')}; run web/build`);
    return 1;
  }
  console.log(`first load: ${(firstLoad / 1000).toFixed(1)} kB compressed`);
  return firstLoad > 80_000 ? 1 : 0;
}

function read(path) {
  try { return readFileSync(path); } catch { return Buffer.alloc(0); }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.exitCode = main(process.argv.includes('--check'));
}
