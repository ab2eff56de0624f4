// Statements of TOML: found, changed and left alone.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyAt, read, sections, statements, withKeys, withTable, withoutTable, written } from '../src/toml.js';

const TEXT = `# The server.

directory = "/srv"  # all of it
names = [
  "a", # the [first]
  'b"',
]
note = """
[[folder]]
path = "no"
"""

# An archive.
[[folder]]
path = "/archive"
directory = '/mnt/a'   # slow

[[hook]]
on = "upload"
[hook.headers]
A = "b"

[[ folder ]]
path = "/x"
`;

test('tables and keys are found where they are, and not in texts', () => {
  assert.deepEqual(statements(TEXT).map(({ table, key }) => table ?? key),
    ['directory', 'names', 'note', 'folder', 'path', 'directory', 'hook', 'on', 'hook.headers', 'A', 'folder', 'path']);
  const [archive, other] = sections(TEXT, 'folder');
  assert.deepEqual([...archive.keys.keys(), ...other.keys.keys()], ['path', 'directory', 'path']);
  const [top] = sections(TEXT, '');
  assert.deepEqual([...top.keys.keys()], ['directory', 'names', 'note']);
  assert.deepEqual([...sections(TEXT, 'hook')[0].keys.keys()], ['on']);
  assert.equal(keyAt(TEXT, archive, 15), 'path');
  assert.equal(keyAt(TEXT, archive, 2), undefined);
  assert.equal(keyAt(TEXT, top, 5), 'names');
});

test('a change leaves comments and other lines alone', () => {
  const [archive] = sections(TEXT, 'folder');
  const changed = withKeys(TEXT, archive, { path: '"/old"', directory: undefined, access: '"ro"' });
  assert.equal(changed, TEXT.replace('path = "/archive"\ndirectory = \'/mnt/a\'   # slow\n', 'path = "/old"\naccess = "ro"\n'));
  assert.equal(withKeys(TEXT, archive, { path: '["/archive"]', directory: '"/mnt/a"' }), TEXT, 'the same, said otherwise');
  assert.equal(withKeys(TEXT, archive, { directory: '"/b"' }), TEXT.replace("'/mnt/a'", '"/b"'));
  assert.equal(withKeys(TEXT, sections(TEXT, 'hook')[0], { wait: 'true' }), TEXT.replace('on = "upload"\n', 'on = "upload"\nwait = true\n'));
  assert.equal(withKeys(TEXT, sections(TEXT, '')[0], { names: '["c"]' }), TEXT.replace(/\[\n {2}"a"[^]*?\n\]/, '["c"]'));
  assert.equal(withKeys('a = 1', sections('a = 1', '')[0], { b: '2' }), 'a = 1\nb = 2\n');
  assert.equal(withKeys('[[x]]\n', sections('[[x]]\n', '')[0], { b: '2' }), 'b = 2\n[[x]]\n');
});

test('a table is added at the end, and removed with its comment and the tables in it', () => {
  assert.equal(withTable('a = 1\n\n', 'hook', { on: '"upload"', wait: undefined }), 'a = 1\n\n[[hook]]\non = "upload"\n');
  assert.equal(withoutTable(TEXT, sections(TEXT, 'folder')[0]), TEXT.replace(/# An archive[^]*?slow\n\n/, ''));
  assert.equal(withoutTable(TEXT, sections(TEXT, 'hook')[0]), TEXT.replace(/\[\[hook[^]*?A = "b"\n\n/, ''));
  assert.equal(withoutTable(TEXT, sections(TEXT, 'folder')[1]), TEXT.replace(/\n\[\[ folder[^]*/, ''));
  assert.equal(withoutTable('# A\n[[x]]\na = 1\n', sections('# A\n[[x]]\na = 1\n', 'x')[0]), '\n');
});

test('values are read as far as a form shows them, and written as TOML', () => {
  for (const [raw, value] of [['"a\\"b"', 'a"b'], ["'a\\b'", 'a\\b'], ['12', 12], ['false', false], ['["a", \'b\',\n]', ['a', 'b']], ['[]', []], ['["a", # b\n "c#"]', ['a', 'c#']]]) {
    assert.deepEqual(read(raw), value, raw);
  }
  for (const raw of ['"""a"""', '{ a = 1 }', '[1]', '["a", 1]', '["a", """b"""]', "['''a''']", '010', '12345678901234567890', '1.5', '2026-11-29', undefined]) assert.equal(read(raw), undefined, raw);
  assert.equal(written('a"b\n'), '"a\\"b\\n"');
  assert.equal(written(['a', 'b']), '["a", "b"]');
  assert.equal(written(true), 'true');
});
