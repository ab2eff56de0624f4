// The client of the admin API (docs/admin-api.md): requests, problems, polling and streams.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

const BASE = '/api/v1/';
const TOKEN = 'millrace-token';

/** A refusal by the server (RFC 9457), or `status` 0 where it could not be reached. */
export class Problem extends Error {
  constructor(status, body = {}) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.status = status;
    this.body = body;
  }
}

let whenSignedOut = () => {};

/** Sets what happens when the server no longer knows the browser. */
export function onSignedOut(callback) { whenSignedOut = callback; }

/** Keeps a token for this tab, or forgets it. */
export function keepToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token); else sessionStorage.removeItem(TOKEN);
}

function credentials() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : { 'x-millrace-request': '1' };
}

/** Sends a request, and returns the answer of the server, of whatever status. */
async function send(method, path, { body, headers, signal } = {}) {
  const type = body === undefined ? {} : { 'content-type': 'application/json' };
  try {
    return await fetch(path.startsWith('/') ? path : BASE + path, {
      method, signal, credentials: 'same-origin', headers: { ...credentials(), ...type, ...headers },
      body: body && JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { detail: error.message });
  }
}

/** Sends a request; returns the JSON of its answer, with `etag` where the answer has one, or throws a `Problem`. */
export async function call(method, path, options = {}) {
  const answer = await send(method, path, options);
  const text = await answer.text();
  let body = {};
  try { body = text ? JSON.parse(text) : {}; } catch { body = { detail: text }; }
  if (!answer.ok) {
    if (answer.status === 401 && !options.isLogin) whenSignedOut();
    throw new Problem(answer.status, body);
  }
  const etag = answer.headers.get('etag');
  return etag && !Array.isArray(body) ? { ...body, etag } : body;
}

/** Returns a path with a query of those values that are set. */
export function query(path, values) {
  const set = Object.entries(values).filter(([, value]) => value !== undefined && value !== '' && value !== null);
  return set.length ? `${path}?${new URLSearchParams(set)}` : path;
}

/** Returns the metrics of the server: name with labels to value. */
export async function metrics() {
  const text = await (await send('GET', '/metrics')).text();
  const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]));
}

/** Asks `load` now and each so many milliseconds while the page is visible. Returns the last answer and error. */
export function usePoll(load, period, dependencies) {
  const [state, setState] = useState({});
  const latest = useRef(load);
  latest.current = load;
  const round = useRef(0);
  const refresh = useCallback(async () => {
    const own = ++round.current;
    try {
      const data = await latest.current();
      if (own === round.current) setState({ data });
    } catch (error) {
      if (own === round.current && error.name !== 'AbortError') setState((before) => ({ ...before, error }));
    }
  }, []);
  useEffect(() => {
    let timer;
    let isOver = false;
    const turn = async () => {
      if (!document.hidden) await refresh();
      if (period && !isOver) timer = setTimeout(turn, period);
    };
    turn();
    return () => { isOver = true; round.current++; clearTimeout(timer); };
  }, dependencies);
  return { ...state, refresh };
}

/** Reads server-sent events until `signal` aborts, and connects again, without the query, when they end. */
export async function follow(path, onEvent, onState, signal) {
  let at = path;
  while (!signal.aborted) {
    try {
      const answer = await send('GET', at, { signal, headers: { accept: 'text/event-stream' } });
      if (answer.status === 401) return whenSignedOut();
      if (!answer.ok) throw new Problem(answer.status);
      at = path.replace(/\?.*/, '');
      onState(true);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (rest + value).split(/\r?\n\r?\n/);
        rest = events.pop();
        events.map(dataOf).filter((data) => data !== '').forEach(onEvent);
      }
    } catch {
      // The loop tells, and tries again.
    }
    if (signal.aborted) return;
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

function dataOf(event) {
  // A line that was left out is no line of the log.
  if (/^event: *dropped$/m.test(event)) return '';
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith('data:'));
  return lines.map((line) => line.slice(line[5] === ' ' ? 6 : 5)).join('\n');
}

const seen = new Map();

/** Returns a session as its page shows it, with its rate since the last look. */
export function sessionOf(raw) {
  const { transfer } = raw;
  const at = performance.now() / 1000;
  const before = seen.get(raw.session);
  const session = {
    id: raw.session, user: raw.user, peer: raw.peer, address: hostOf(raw.peer), protocol: raw.protocol, local: raw.local, node: raw.node,
    age: raw.age, idle: raw.idle, waits: raw['waits-for'], command: raw.command, path: transfer?.path ?? raw.place,
    kind: transfer?.kind, bytes: transfer?.bytes, size: transfer?.total, rate: transfer ? transfer.rate : undefined,
  };
  const isSame = transfer && before?.path === transfer.path && before.bytes <= transfer.bytes;
  // Two lists may show a session: a look that follows another at once shows the rate of that one.
  const isSoon = isSame && at - before.at < 0.4;
  if (isSoon) session.rate = before.rate;
  else if (isSame) session.rate = smoothed(before.rate, (transfer.bytes - before.bytes) / (at - before.at), at - before.at);
  if (seen.size > 2000) seen.clear();
  if (transfer && !isSoon) seen.set(raw.session, { path: transfer.path, bytes: transfer.bytes, at, rate: session.rate });
  return session;
}

/** Seconds in which a rate follows by two thirds: a slow client takes bytes in bursts, and nothing between them. */
const INERTIA = 3;

/** Returns a rate that follows `rate`, which was the mean of so many seconds. */
function smoothed(before, rate, seconds) {
  const weight = 1 - Math.exp(-seconds / INERTIA);
  return before === undefined ? rate : before + (rate - before) * weight;
}

/** Returns the host of `192.0.2.1:4711` or `[2001:db8::1]:4711`. */
export function hostOf(peer) {
  return (peer ?? '').replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
}
