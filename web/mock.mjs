// A stand-in for the admin API, for tests of the pages and for work on them: node web/mock.mjs [--port 9200] [--sessions 10000]
//   Options: --role viewer|operator|administrator, --first-run, --quiet (no trouble to tell of), --nodes a,b (of a cluster).
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { files } from './build.mjs';
import { read, sections } from './src/toml.js';

const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };
const POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const USERS = ['alice', 'bob', 'camera-7', 'scanner', 'press', 'backup', 'mirror', 'zoë', 'ftp'];
const PATHS = ['/pub/debian/pool/main/l/linux/linux-image-6.12.deb', '/in/2026-11-28/IMG_4711.jpg', '/backup/db/2026-11-28T21.sql.zst',
  '/video/raw/take-03.mov', '/index.html', '/reports/quarterly figures.pdf'];
const SOURCE = 'the database of users /var/lib/millrace/users.db';
const WAITS = ['client', 'client', 'storage', 'limit', 'hook'];

/** Numbers that are the same in each run. */
function numbers(seed) {
  let state = seed;
  return () => { state = (state * 1664525 + 1013904223) % 4294967296; return state / 4294967296; };
}

function sessionAt(index, nodes) {
  const random = numbers(index + 1);
  for (let i = 0; i < 5; i++) random();
  const user = index % 13 === 12 ? null : USERS[Math.floor(random() * USERS.length)];
  const isBusy = user && random() < 0.45;
  const http = random() < 0.4;
  const total = Math.floor(random() ** 3 * 8e9) + 20000;
  const rate = Math.floor(random() ** 3 * 4e7) + 900;
  return {
    ...(nodes.length && { node: nodes[index % nodes.length] }),
    session: 1000 + index, protocol: http ? 'http' : 'ftp', peer: `192.0.${Math.floor(random() * 20)}.${1 + Math.floor(random() * 250)}:${40000 + index % 20000}`,
    local: http ? '198.51.100.4:443' : '198.51.100.4:21', user, age: 20 + random() * 9000, idle: isBusy ? 0 : random() * 280,
    command: isBusy ? (http ? 'GET' : 'RETR') : user ? 'NOOP' : 'USER', place: http ? '/pub/' : '/', 'waits-for': isBusy ? WAITS[Math.floor(random() * 5)] : user ? 'command' : 'login',
    transfer: isBusy ? { kind: random() < 0.75 ? 'download' : 'upload', path: PATHS[Math.floor(random() * PATHS.length)], bytes: Math.floor(total * random()), total, rate, seconds: 12 } : null,
  };
}

const ORDERS = {
  rate: (one) => one.transfer?.rate ?? -1, idle: (one) => one.idle, user: (one) => one.user ?? '', peer: (one) => one.peer, node: (one) => one.node ?? '',
};

function sorted(list, sort) {
  const sign = sort.startsWith('-') ? -1 : 1;
  const key = ORDERS[sort.replace('-', '')] ?? ((one) => one.session);
  return list.map((one) => [key(one), one]).sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0)).map(([, one]) => one);
}

const CONFIG = `# Millrace on files.example.org
directory = "/srv/files"
ftp = "0.0.0.0:21"
https = "0.0.0.0:443"
passive-ports = "50000-50099"
tls-cert = "/etc/millrace/cert.pem"
tls-key = "/etc/millrace/key.pem"

anonymous = "ro"
admin = "127.0.0.1:9121"
admin-administrators = ["ops"]

sessions-per-address = 40
download-limit = "80M; mon-fri 08:00-18:00 20M"

[[group]]
name = "customers"
access = "rw"
quota-bytes = "10G" # for each of them

[[group]]
name = "staff"
directory = "staff"

[[folder]]
path = "/pub"
directory = "/srv/pub"
access = "ro" # for all
upload-hash = "sha256"

# The mail room.
[[folder]]
path = "/mail"
bucket = "mail"
endpoint = "https://s3.example.com"
layout = "indexed"
postgres = "host=/run/postgresql dbname=files"
groups = ["customers"]

[[hook]]
on = "upload"
paths = "/in/**"
run = ["/usr/local/bin/check", "{file}"]

[[hook]]
on = ["upload", "upload-failed"]
webhook = "https://hooks.example.org/in"
wait = false
`;

/** What the mock keeps. */
function makeState({ sessions = 128, isQuiet = false, hasProvider = false, config = CONFIG, nodes = [] }) {
  const now = Math.floor(Date.now() / 1000);
  const random = numbers(7);
  const rates = Array.from({ length: 720 }, (_, at) => {
    const wave = 1 + 0.5 * Math.sin(at / 60) + 0.25 * Math.sin(at / 17) + 0.04 * random();
    return { time: now - (719 - at) * 5, sessions: Math.round(sessions * (0.7 + 0.15 * wave)), download: wave * 42e6, upload: wave * wave * 3.2e6 + random() * 3e5,
      requests: wave * 120 + random() * 6, failures: isQuiet || random() < 0.95 ? 0 : Math.ceil(random() * 4) };
  });
  return {
    isQuiet, hasProvider, rates, nodes, begun: Date.now(), sessions: Array.from({ length: sessions }, (_, index) => sessionAt(index, nodes)), cookie: false,
    bans: isQuiet ? [] : [{ network: '203.0.113.7', user: null, 'seconds-left': 512 }, { network: '198.51.100.0/24', user: 'press', 'seconds-left': null }],
    limits: [{ scope: 'server', sessions, 'sessions-at-most': 12000, download: 80000000, upload: 0 }, { scope: 'listener 0.0.0.0:21', sessions: 80, 'sessions-at-most': 0, download: 0, upload: 0 },
      { scope: 'user alice', sessions: 3, 'sessions-at-most': 8, download: 2000000, upload: 500000 }],
    quotas: [{ tree: '/srv/files/customers', bytes: 7340032000, files: 18211, exact: true }],
    events: isQuiet ? [] : [{ id: '18c2', to: 'https://hooks.example.org/in', state: 'parked', error: 'HTTP 502 after 8 attempts', event: 'upload', time: now - 4000, user: 'camera-7', path: '/in/2026-11-28/IMG_4711.jpg' },
      { id: '18c3', to: 'https://hooks.example.org/in', state: 'waiting', error: null, event: 'upload', time: now - 30, user: 'scanner', path: '/in/page-0001.pdf' }],
    users: [{ name: 'ops', writable: false, settings: {} }, { name: 'alice', groups: ['customers'], settings: { directory: 'home/alice', access: 'rw', sessions: '8', download: '2M' } },
      { name: 'camera-7', settings: { directory: 'in', access: ['write', 'mkdir'], from: ['10.0.0.0/8'] } },
      { name: 'press', groups: ['customers'], password: false, settings: { access: 'ro' } }, { name: 'bob', settings: { disabled: true } }]
      .map((one) => ({ groups: [], password: true, 'second-factor': false, writable: true, source: one.writable === false ? 'the configuration' : SOURCE, ...one })),
    config,
    history: [{ version: 2, time: now - 86400, by: 'alice', text: CONFIG.replace('20M', '10M') }, { version: 1, time: now - 900000, by: 'before', text: CONFIG.replace('sessions-per-address = 40\n', '') }],
  };
}

/** Returns the groups that the file has, with their settings and members. */
function groupsOf({ config, users }) {
  return sections(config, 'group').map(({ keys }) => {
    const { name, ...settings } = Object.fromEntries([...keys].map(([key, { raw }]) => [key, read(raw)]));
    return { name, members: users.filter(({ groups }) => groups.includes(name)).length, settings };
  });
}

const etag = (text) => `"${createHash('sha256').update(text).digest('hex').slice(0, 16)}"`;

/** Refuses a text with a line that is no setting, as the server would. */
function check(text) {
  const known = /^(\s*#.*|\s*|\s*\[\[?[a-z]+\]?\]|[a-z-]+ = ("[^"]*"|\d+|true|false|\[.*\])(\s*#.*)?)$/;
  const at = text.split('\n').findIndex((line) => !known.test(line));
  if (at >= 0) throw new Refusal(422, `/etc/millrace/millrace.toml:${at + 1}:1: not a setting: ${text.split('\n')[at]}`, { line: at + 1 });
  const names = sections(text, 'group').map(({ keys }) => keys.get('name'));
  const twice = names.find(({ raw }, at) => names.findIndex((other) => other.raw === raw) < at);
  if (twice) throw new Refusal(422, `/etc/millrace/millrace.toml: the group ${read(twice.raw)} is there twice`, { line: text.slice(0, twice.from).split('\n').length });
  const path = text.split('\n').findIndex((line) => /^path = "[^/]/.test(line));
  if (path >= 0) throw new Refusal(422, `/etc/millrace/millrace.toml:${path + 1}:8: a path begins with a slash`, { line: path + 1 });
  return {};
}

/** An answer other than 200 with JSON. */
class Refusal extends Error {
  constructor(status, detail, more = {}) { super(detail); Object.assign(this, { status, more }); }
}

/** The operations: method and path, whose `*` is given decoded; `of` has `state`, `query`, `body` and `headers`. */
const OPERATIONS = {
  'GET status': ({ state }) => ({ version: '0.1.0', pid: 4711, seconds: 356000, ending: false, ftp: ['0.0.0.0:21'], ftps: [], http: [], https: ['0.0.0.0:443'],
    sessions: state.sessions.length, transfers: state.sessions.filter((one) => one.transfer).length }),
  'GET rates': ({ state }) => ({ step: 5, points: state.rates }),
  'GET sessions': ({ state, query: { sort = '', limit = 1000, offset = 0, user = '', address = '', node = '', text = '' } }) => {
    const grown = (Date.now() - state.begun) / 1000;
    const found = sorted(state.sessions.filter((one) => (!user || one.user === user) && (!node || one.node === node) && (!address || one.peer.split(':')[0] === address)
      && [one.user, one.peer, one.path, one.transfer?.path].some((word) => word?.toLowerCase().includes(text.toLowerCase()))), sort);
    const page = found.slice(Number(offset), Number(offset) + Number(limit));
    const moved = ({ transfer }) => transfer && { ...transfer, bytes: Math.floor((transfer.bytes + transfer.rate * grown) % transfer.total) };
    return { sessions: page.map((one) => ({ ...one, transfer: moved(one) })), total: found.length };
  },
  'DELETE sessions/*': ({ state }, id) => kick(state, (one) => String(one.session) === id),
  'DELETE sessions': ({ state, query: { user, node } }) => kick(state, (one) => (!user || one.user === user) && (!node || one.node === node)),
  'GET cluster': ({ state }) => (state.nodes.length ? { nodes: state.nodes.map((node) => ({ node })) } : missing('cluster')),
  'GET limits': ({ state }) => ({ limits: state.limits }),
  'PUT limits/*': ({ state, body }, scope) => {
    if (!/^(server|(user|group|listener|session) .+)$/.test(scope)) throw new Refusal(422, `not a scope: ${scope}`);
    const number = (text) => Number.parseInt(text, 10) * ({ k: 1e3, M: 1e6, G: 1e9 }[text.at(-1)] ?? 1);
    const row = state.limits.find((one) => one.scope === scope) ?? state.limits[state.limits.push({ scope, sessions: 1, 'sessions-at-most': 0, download: 0, upload: 0 }) - 1];
    for (const [key, value] of Object.entries(body)) row[key === 'sessions' ? 'sessions-at-most' : key] = number(value);
    return {};
  },
  'DELETE limits/*': () => ({}),
  'GET bans': ({ state }) => ({ bans: state.bans }),
  'POST bans': ({ state, body }) => {
    if (!/^[0-9a-f.:]+(\/\d+)?$/i.test(body.network)) throw new Refusal(422, `"${body.network}" is not an address or a network`);
    state.bans.push({ network: body.network, user: null, 'seconds-left': body.seconds ?? null });
    return {};
  },
  'DELETE bans/*': ({ state }, network) => { state.bans = state.bans.filter((one) => one.network !== network); return {}; },
  'GET quotas': ({ state }) => ({ quotas: state.quotas }),
  'POST quotas/recount': ({ state }) => ({ quotas: state.quotas }),
  'GET events': ({ state }) => ({ events: state.events, waiting: 1, parked: 1 }),
  'POST events/retry': ({ state }) => ({ retried: state.events.length }),
  'DELETE events': ({ state }) => { const before = state.events.length; state.events = state.events.filter((one) => one.state !== 'parked'); return { dropped: before - state.events.length }; },
  'GET users': ({ state, query: { text = '', limit = 1000 } }) => {
    const found = state.users.filter((one) => [one.name, ...one.groups].some((name) => name.includes(text)));
    const sources = [{ name: 'the configuration', listed: true, writable: false }, { name: SOURCE, listed: true, writable: true }, { name: 'the directory ldap://ldap.example.org', listed: false, writable: false }];
    return { users: found.slice(0, Number(limit)), total: found.length, sources };
  },
  'GET groups': ({ state }) => ({ groups: groupsOf(state) }),
  'GET users/*': ({ state }, name) => detailed(state, name),
  'POST users': ({ state, body: { password, ...body } }) => {
    if (state.users.some(({ name }) => name === body.name)) throw new Refusal(409, `there is a user named ${body.name} already`, { field: 'name' });
    checkSettings(body.settings);
    state.users.push({ ...body, password: Boolean(password), 'second-factor': false, writable: true, source: SOURCE });
    return detailed(state, body.name);
  },
  'PUT users/*': (of, name) => { checkSettings(of.body.settings); return change(of, name, of.body); },
  'PUT users/*/password': (of, name) => change(of, name, { password: true, version: Math.random() }),
  'POST users/*/totp': (of, name) => ({ ...change(of, name, { 'second-factor': true }), secret: 'JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP' }),
  'DELETE users/*/totp': (of, name) => change(of, name, { 'second-factor': false }),
  'DELETE users/*': (of, name) => { change(of, name, {}); of.state.users = of.state.users.filter((one) => one.name !== name); return {}; },
  'GET config': ({ state }) => ({ path: '/etc/millrace/millrace.toml', text: state.config, etag: etag(state.config), writable: true }),
  'POST config/validate': ({ body }) => check(body.text),
  'PUT config': ({ state, body, headers }) => {
    if (headers['if-match'] !== etag(state.config)) throw new Refusal(412, 'The configuration was changed meanwhile.');
    check(body.text);
    return write(state, body.text);
  },
  'GET config/history': ({ state }) => ({ versions: state.history.map(({ text, ...rest }) => ({ ...rest, bytes: text.length })) }),
  'GET config/history/*': ({ state }, number) => state.history.find((one) => String(one.version) === number) ?? missing(number),
  'POST config/history/*/restore': ({ state }, number) => write(state, state.history.find((one) => String(one.version) === number).text),
};

const missing = (name) => { throw new Refusal(404, `There is no ${name}.`); };
const account = (state, name) => state.users.find((one) => one.name === name) ?? missing(name);

/** Returns a user with its entity tag, and what holds for it. */
function detailed(state, name) {
  const user = account(state, name);
  const effective = Object.entries(user.settings).map(([key, value]) => ({ key, value: String(value), origin: 'user' }));
  const ofGroup = user.groups.includes('customers') ? [{ key: 'quota-bytes', value: '10000000000', origin: 'group customers' }] : [];
  return { ...user, effective: [...effective, ...ofGroup, { key: 'hours', value: 'always', origin: 'default' }], etag: etag(JSON.stringify(user)) };
}

function checkSettings(settings) {
  if (settings.download && !/^\d+[kMG]?$/.test(settings.download)) throw new Refusal(422, `download: "${settings.download}" is no limit`, { field: 'settings.download' });
}

/** Changes a user, if it still is what the administrator has seen. */
function change({ state, headers }, name, values) {
  if (headers['if-match'] !== detailed(state, name).etag) throw new Refusal(412, 'the user has been changed since you read it');
  Object.assign(account(state, name), values);
  return detailed(state, name);
}

function kick(state, isMeant) {
  const before = state.sessions.length;
  state.sessions = state.sessions.filter((one) => !isMeant(one));
  return before > state.sessions.length ? { kicked: before - state.sessions.length } : missing('such session');
}

function write(state, text) {
  state.config = text;
  state.history.unshift({ version: state.history[0].version + 1, time: Math.floor(Date.now() / 1000), by: 'root', text });
  return { changed: ['download'], 'next-start': [] };
}

function perform(of, method, path) {
  for (const [key, operation] of Object.entries(OPERATIONS)) {
    const [own, pattern] = key.split(' ');
    const match = own === method && path.match(new RegExp(`^${pattern.replaceAll('*', '([^/]+)')}$`));
    if (match) return operation(of, ...match.slice(1).map(decodeURIComponent));
  }
  return missing(path);
}

const METRICS = (quiet) => `millrace_certificate_expiry_timestamp_seconds{file="/etc/millrace/cert.pem"} ${Date.now() / 1000 + (quiet ? 90 : 6) * 86400}
millrace_bans_active ${quiet ? 0 : 2}
millrace_delivery_queue_events{state="parked"} ${quiet ? 0 : 1}
millrace_delivery_queue_events{state="waiting"} ${quiet ? 0 : 1}
millrace_worker_lag_seconds{worker="0"} 0.001
`;

/** Serves the log: some of its last lines, and then a line now and then. */
function log(response, lines) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const kinds = ['#17 192.0.2.7:51123 alice download path="/pub/a.iso" bytes=734003200 seconds=9.2', '#18 203.0.113.7:40112 - login-failed tried="root"',
    '#19 198.51.100.9:41000 - connected', '- - - warning what="the certificate expires in 6 days"', '#19 198.51.100.9:41000 press upload path="/in/<b>x</b>.txt" bytes=12', '- - - reload failed what="line 3"'];
  let at = 0;
  const line = () => response.write(`data: ${new Date().toISOString()} ${kinds[at++ % kinds.length]}\n\n`);
  for (let i = 0; i < Math.min(lines, 24); i++) line();
  const timer = setInterval(line, 700);
  response.on('close', () => clearInterval(timer));
}

/** Starts the mock; returns its server, which listens. */
export async function mock({ port = 0, role = 'administrator', isFirstRun = false, ...options } = {}) {
  const state = makeState(options);
  const built = files();
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, 'http://mock');
    const json = (status, body, headers = {}) => response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const name = url.pathname === '/' ? 'index.html' : url.pathname.slice(1);
    if (name in built) {
      return response.writeHead(200, { 'content-type': TYPES[name.split('.').pop()], 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' }).end(built[name]);
    }
    if (url.pathname === '/healthz') return response.writeHead(200).end('ok\n');
    if (url.pathname === '/metrics') return response.writeHead(200).end(METRICS(state.isQuiet));
    if (isFirstRun) return json(401, { type: 'urn:millrace:set-up', status: 401, detail: 'Make a token.' });
    const path = url.pathname.replace('/api/v1/', '');
    const raw = Buffer.concat(chunks).toString();
    const body = request.headers['content-type'] === 'application/json' && raw ? JSON.parse(raw) : raw;
    if (path === 'login' && request.method === 'GET') return json(200, { password: true, oidc: state.hasProvider });
    if (path === 'login/oidc') return json(200, { url: '/provider' });
    // A provider that sends everyone back who has no role.
    if (path === '/provider') return response.writeHead(303, { location: '/#/overview?login=role' }).end();
    if (path === 'login') {
      if (body.password !== 's3cret') return json(401, { detail: 'wrong' });
      return json(200, {}, { 'set-cookie': 'session=mock; HttpOnly; SameSite=Strict; Path=/' });
    }
    if (path === 'logout') return json(200, {}, { 'set-cookie': 'session=; Max-Age=0; Path=/' });
    if (!request.headers.cookie?.includes('session=mock') && request.headers.authorization !== 'Bearer token') return json(401, { detail: 'Sign in.' });
    if (path === 'me') return json(200, { name: 'root', role });
    if (path === 'log') return log(response, Number(url.searchParams.get('lines') ?? 0));
    try {
      const of = { state, query: Object.fromEntries(url.searchParams), body, headers: request.headers };
      const answer = perform(of, request.method, path);
      return json(200, answer, path === 'config' && request.method === 'GET' ? { etag: etag(state.config) } : {});
    } catch (error) {
      return json(error.status ?? 500, { title: 'refused', status: error.status, detail: error.message, ...error.more });
    }
  });
  await new Promise((resolve) => { server.listen(port, '127.0.0.1', resolve); });
  return server;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = (name, otherwise) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : otherwise);
  const server = await mock({ port: Number(option('--port', 9200)), sessions: Number(option('--sessions', 128)), role: option('--role', 'administrator'),
    isFirstRun: process.argv.includes('--first-run'), isQuiet: process.argv.includes('--quiet'), nodes: option('--nodes', '').split(',').filter(Boolean) });
  console.log(`http://127.0.0.1:${server.address().port}/  root, s3cret`);
}
