// A file server for each test, with Node's test runner: `node --test millrace.test.mjs`.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, test } from 'node:test';

let server;
let folder;
let ready;

// Starts Millrace on a free port over an empty folder.
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-'));
  server = spawn(process.env.MILLRACE ?? 'millrace',
    ['serve', folder, '--ftp', 'off', '--http', '127.0.0.1:0', '--ready-json', '--quiet']);
  const [line] = await once(createInterface(server.stdout), 'line');
  ready = JSON.parse(line);
});

afterEach(async () => {
  server.kill();
  await once(server, 'exit');
  await rm(folder, { recursive: true });
});

test('a file is there by HTTP', async () => {
  await writeFile(join(folder, 'report.txt'), 'hello');
  const response = await fetch(`${ready.http[0].url}report.txt`);
  assert.equal(await response.text(), 'hello');
});
