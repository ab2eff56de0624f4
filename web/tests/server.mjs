// The dashboard of a real server, whose program `MILLRACE` names: what it shows is so, and what it is told happens.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { open, signIn, visit } from './browser.mjs';

const folder = mkdtempSync(join(tmpdir(), 'millrace-dashboard-'));
const file = join(folder, 'millrace.toml');
const CONFIG = `directory = "files"
ftp = "127.0.0.1:0"
http = "off"
admin = "127.0.0.1:0"
admin-administrators = ["root"]
admin-writes-config = true
state = "state"
users = "users.db"
download-limit = "8M"
tls-cert = "state/first.pem"
`;
const running = [];
let [page, base, ready] = [];

/** Makes a certificate, with its key in a file of its own or, without such a name, in the same. */
function certify(name, days, key = name) {
  const made = spawnSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', days, '-subj', '/CN=localhost', '-keyout', `state/${key}.key`], { cwd: folder });
  assert.equal(made.status, 0, String(made.stderr));
  writeFileSync(join(folder, `state/${name}.pem`), key === name ? made.stdout + readFileSync(join(folder, `state/${key}.key`), 'utf8') : made.stdout);
}

/** Starts a program that ends with the tests. */
function start(program, words) {
  const child = spawn(program, words, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
  child.stderr.resume();
  running.push(child);
  return child;
}

before(async () => {
  mkdirSync(join(folder, 'files'));
  mkdirSync(join(folder, 'state'), { mode: 0o700 });
  writeFileSync(file, CONFIG);
  certify('first', '100');
  spawnSync(process.env.MILLRACE, ['user', 'add', 'first', '--users', 'users.db'], { cwd: folder, input: 'not guessed soon\n' });
  writeFileSync(join(folder, 'files/large'), '');
  truncateSync(join(folder, 'files/large'), 4e9);
  const server = start(process.env.MILLRACE, ['serve', '--config', file, '--user', 'root:s3cret', '--user', 'alice:s3cret', '--ready-json']);
  for await (const line of createInterface(server.stdout)) { ready = JSON.parse(line); break; }
  server.stdout.resume();
  base = `http://127.0.0.1:${ready.admin[0].port}/`;
  page = await open(base);
  await signIn(page, 'root', 's3cret');
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
});

after(() => {
  running.forEach((child) => child.kill('SIGKILL'));
  rmSync(folder, { recursive: true });
});

/** Begins a download by FTP. */
const download = () => start('curl', ['-s', '-o', '/dev/null', `ftp://alice:s3cret@127.0.0.1:${ready.ftp[0].port}/large`]);

/** Waits until the sheet of the session shows a rate in this range of bytes a second. */
const showsRate = (least, most) => page.waitForFunction(([from, to]) => {
  const terms = [...document.querySelectorAll('dialog dt')];
  const shown = terms.find((term) => term.textContent === 'Rate')?.nextSibling.textContent ?? '';
  const [, number, unit] = shown.match(/^([\d.]+) (k?M?B)\/s$/) ?? [];
  const rate = Number(number) * { B: 1, kB: 1e3, MB: 1e6 }[unit];
  return rate >= from && rate <= to;
}, [least, most], { timeout: 15_000 });

test('files come compressed, with a policy that allows nothing from elsewhere', async () => {
  const answer = await fetch(base, { headers: { 'accept-encoding': 'gzip' } });
  assert.equal(answer.headers.get('content-encoding'), 'gzip');
  assert.match(answer.headers.get('content-security-policy'), /^default-src 'self';/);
  assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
  assert.match(await answer.text(), /<title>Millrace/);
});

test('the rate of a transfer is shown, follows a limit, and ends with its session', async () => {
  const curl = download();
  await visit(page, 'sessions');
  await page.locator('.row').filter({ hasText: '/large' }).click();
  await showsRate(5e6, 11e6);
  const sheet = page.getByRole('dialog');
  await sheet.getByRole('textbox', { name: 'Download' }).fill('500k');
  await sheet.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('Limits of alice updated').waitFor();
  await showsRate(2e5, 8e5);
  await sheet.getByRole('button', { name: 'End session' }).click();
  await page.getByText('1 session ended').waitFor();
  const status = curl.exitCode ?? await new Promise((resolve) => { curl.once('exit', resolve); });
  assert.notEqual(status, 0);
});

test('the log tells of it, and a ban refuses the next client until it is lifted', async () => {
  await visit(page, 'log');
  await page.waitForResponse((answer) => new URL(answer.url()).pathname.endsWith('/log'));
  const other = start('curl', ['-s', `ftp://alice:wrong@127.0.0.1:${ready.ftp[0].port}/`]);
  await page.locator('.log p.warning').filter({ hasText: 'login-failed' }).waitFor();
  other.kill();
  await visit(page, 'bans');
  await page.getByRole('textbox', { name: 'Network' }).fill('192.0.2.0/24');
  await page.getByRole('button', { name: 'Ban a network' }).click();
  await page.getByRole('row', { name: '192.0.2.0/24' }).waitFor();
  await page.getByRole('button', { name: 'Lift: 192.0.2.0/24' }).click();
  await page.getByText('192.0.2.0/24 is no longer banned').waitFor();
});

test('a change of the configuration is checked, put in force, and rolled back', async () => {
  await visit(page, 'configuration');
  const editor = page.getByLabel('Configuration file');
  await editor.fill(`${CONFIG}downlaod-limit = "1M"\n`);
  await page.getByRole('button', { name: 'line 11' }).waitFor();
  await editor.fill(CONFIG.replace('8M', '6M'));
  await page.getByText('No faults found.').waitFor();
  await page.getByRole('button', { name: 'Review changes' }).click();
  await page.getByText('+ download-limit = "6M"').waitFor();
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('The configuration is in force').waitFor();
  assert.equal(readFileSync(file, 'utf8'), CONFIG.replace('8M', '6M'));
  await visit(page, 'limits');
  await page.getByRole('row', { name: /^server/ }).filter({ hasText: '6 MB/s' }).waitFor();
  await visit(page, 'configuration');
  await page.getByRole('button', { name: 'Show: Version 1' }).click();
  await page.getByText('+ download-limit = "8M"').waitFor();
  await page.getByRole('button', { name: 'Roll back to this' }).click();
  await page.getByText('Rolled back').waitFor();
  assert.equal(readFileSync(file, 'utf8'), CONFIG);
  await visit(page, 'limits');
  await page.getByRole('row', { name: /^server/ }).filter({ hasText: '8 MB/s' }).waitFor();
});

/** Returns whether a user is let in by FTP. */
const logsIn = (name, password) => spawnSync('curl', ['-s', '--max-time', '20', '-u', `${name}:${password}`, `ftp://127.0.0.1:${ready.ftp[0].port}/`]).status === 0;

test('a user that is added logs in by FTP, with the new password alone once it is changed', async () => {
  await visit(page, 'users');
  await page.getByRole('button', { name: 'Show: root' }).waitFor();
  await page.getByRole('button', { name: 'Add user' }).click();
  const sheet = page.getByRole('dialog');
  await sheet.getByLabel('Name').fill('dora');
  await sheet.getByLabel('Password').fill('first password');
  await sheet.getByLabel('Folder').fill('../elsewhere');
  await sheet.getByRole('button', { name: 'Add user' }).click();
  await sheet.getByText('has to lie within the folder that is served').waitFor();
  await sheet.getByLabel('Folder').fill('');
  await sheet.getByRole('button', { name: 'Add user' }).click();
  await page.getByRole('button', { name: 'Edit: dora' }).waitFor();
  assert.equal(logsIn('dora', 'first password'), true);
  await page.getByRole('button', { name: 'Edit: dora' }).click();
  await sheet.getByRole('textbox', { name: 'Password' }).fill('second password');
  await sheet.getByRole('button', { name: 'Change password' }).click();
  await page.getByText('The password of dora is changed').waitFor();
  assert.equal(logsIn('dora', 'second password'), true);
  assert.equal(logsIn('dora', 'first password'), false);
  await sheet.getByLabel('Disabled').check();
  await sheet.getByRole('button', { name: 'Save' }).click();
  await sheet.waitFor({ state: 'hidden' });
  assert.equal(logsIn('dora', 'second password'), false);
});

test('a folder and a hook hold for FTP once they are saved, and faults of the file are said at their fields', async () => {
  const sheet = page.getByRole('dialog');
  mkdirSync(join(folder, 'files/elsewhere'));
  writeFileSync(join(folder, 'files/elsewhere/note'), 'x');
  await visit(page, 'folders');
  await page.getByRole('button', { name: 'Add folder' }).click();
  await sheet.getByLabel('Path').fill('/shown');
  await sheet.getByLabel('Folder', { exact: true }).fill('files/elsewhere');
  await sheet.getByLabel('Quota').fill('much');
  await sheet.getByRole('button', { name: 'Add folder' }).click();
  await sheet.locator('.field', { hasText: 'Quota' }).getByRole('alert').waitFor();
  await sheet.getByLabel('Quota').fill('');
  await sheet.getByRole('button', { name: 'Add folder' }).click();
  await page.getByRole('row', { name: '/shown' }).waitFor();
  const ftp = (...words) => spawnSync('curl', ['-s', '--max-time', '20', '-u', 'alice:s3cret', ...words, `ftp://127.0.0.1:${ready.ftp[0].port}/shown/`]);
  assert.match(String(ftp().stdout), /note/);
  await visit(page, 'hooks');
  await page.getByRole('button', { name: 'Add hook' }).click();
  await sheet.getByLabel('Events').fill('comand');
  await sheet.getByLabel('Action').selectOption('refuse');
  await sheet.getByLabel('Text of the reply').fill('553 Nothing is deleted.');
  await sheet.getByRole('button', { name: 'Add hook' }).click();
  await sheet.locator('.field', { hasText: 'Events' }).getByRole('alert').waitFor();
  await sheet.getByLabel('Events').fill('command');
  await sheet.getByLabel('Commands').fill('DELE, RMD');
  await sheet.getByRole('button', { name: 'Add hook' }).click();
  await page.getByRole('row', { name: 'command' }).waitFor();
  assert.notEqual(ftp('-Q', 'DELE /shown/note').status, 0);
  assert.equal(readFileSync(join(folder, 'files/elsewhere/note'), 'utf8'), 'x');
  assert.equal(readFileSync(file, 'utf8'), `${CONFIG}\n[[folder]]\npath = "/shown"\ndirectory = "files/elsewhere"\n\n[[hook]]\non = ["command"]\nrefuse = "553 Nothing is deleted."\nverbs = ["DELE", "RMD"]\n`);
});

test('a certificate is in force once it is saved, and says when it expires', async () => {
  const sheet = page.getByRole('dialog');
  certify('second', '30', 'other');
  await visit(page, 'certificates');
  await page.getByRole('button', { name: 'Add certificate' }).click();
  await sheet.getByLabel('Certificate', { exact: true }).fill('state/none.pem');
  await sheet.getByRole('button', { name: 'Add certificate' }).click();
  await sheet.locator('.field', { hasText: 'intermediate' }).getByRole('alert').waitFor();
  await sheet.getByLabel('Certificate', { exact: true }).fill('state/second.pem');
  await sheet.getByLabel('Private key').fill('state/other.key');
  await sheet.getByRole('button', { name: 'Add certificate' }).click();
  await page.getByRole('row', { name: 'state/second.pem' }).getByText('in 29 days').waitFor();
  await page.getByRole('row', { name: 'state/first.pem' }).getByText('in 99 days').waitFor();
  assert.match(readFileSync(file, 'utf8'), /^tls-cert = \["state\/first.pem", "state\/second.pem"\]\ntls-key = \["state\/first.pem", "state\/other.key"\]$/m);
});

// A provider in a process of its own: OIDC_PROVIDER is the program of the Python package oidc-provider-mock.
test('what a group says holds for its members once it is saved', async () => {
  const sheet = page.getByRole('dialog');
  await visit(page, 'users');
  await page.getByRole('button', { name: 'Add group' }).click();
  await sheet.getByLabel('Name').fill('readers');
  await sheet.getByLabel('Download').fill('much');
  await sheet.getByRole('button', { name: 'Add group' }).click();
  await sheet.locator('.field', { hasText: 'Download' }).getByRole('alert').waitFor();
  await sheet.getByLabel('Download').fill('');
  await sheet.getByLabel('Access').selectOption('ro');
  await sheet.getByRole('button', { name: 'Add group' }).click();
  await page.getByRole('button', { name: 'Edit: readers' }).waitFor();
  await page.getByRole('button', { name: 'Add user' }).click();
  await sheet.getByLabel('Name').fill('gina');
  await sheet.getByLabel('Password').fill('first password');
  await sheet.getByLabel('readers').check();
  await sheet.getByRole('button', { name: 'Add user' }).click();
  await page.getByRole('button', { name: 'Edit: gina' }).waitFor();
  const uploads = () => spawnSync('curl', ['-s', '--max-time', '20', '-u', 'gina:first password', '-T', file, `ftp://127.0.0.1:${ready.ftp[0].port}/copy`]).status === 0;
  assert.equal(uploads(), false);
  await page.getByRole('button', { name: 'Edit: readers' }).click();
  await sheet.getByLabel('Access').selectOption('rw');
  await sheet.getByRole('button', { name: 'Save' }).click();
  await sheet.waitFor({ state: 'hidden' });
  assert.equal(uploads(), true);
});

test('a user of a provider logs in by single sign-on, and has the role of the group', { skip: !process.env.OIDC_PROVIDER }, async () => {
  const claims = ['ops', 'other'].map((group) => JSON.stringify({ sub: `of-${group}`, email: `${group}@example.net`, email_verified: true, groups: [group] }));
  const provider = start(process.env.OIDC_PROVIDER, ['--port', '0', '--require-nonce', ...claims.flatMap((one) => ['--user-claims', one])]);
  let issuer;
  for await (const line of createInterface(provider.stderr)) {
    [issuer] = line.match(/http:\/\/127\.0\.0\.1:\d+/) ?? [];
    if (issuer) break;
  }
  provider.stderr.resume();
  // Where the sandbox lets it be read by a reload.
  writeFileSync(join(folder, 'state/secret'), 'of the client\n');
  const changed = `admin-operators = ["oidc group ops"]\n${CONFIG}[admin-oidc]\nissuer = "${issuer}"\nclient = "millrace"\nsecret-file = "state/secret"\n`;
  writeFileSync(file, changed);
  const reloaded = await page.evaluate(async () => (await fetch('/api/v1/reload', { method: 'POST', headers: { 'x-millrace-request': '1' } })).text());
  assert.match(reloaded, /"ok":true/);
  for (const [user, sees] of [['of-other', 'Your account has no role on this server'], ['of-ops', 'ops@example.net']]) {
    const guest = await open(base);
    // The pages of this provider ask for a style sheet of a foreign server.
    await guest.route('https://**', (route) => route.abort());
    await guest.getByRole('button', { name: 'Sign in with single sign-on' }).click();
    await guest.waitForURL(`${issuer}/**`);
    await guest.getByRole('button', { name: user }).click();
    await guest.getByText(sees).waitFor();
    assert.ok(guest.url().startsWith(base), guest.url());
    assert.deepEqual(guest.faults.filter((fault) => !fault.startsWith('foreign: ')), []);
    await guest.context().close();
  }
});

test('nothing came from elsewhere, and no script failed', () => assert.deepEqual(page.faults, []));
