// The log as it is written.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { follow } from '../api.js';
import { clock } from '../format.js';
import { Field, Head } from '../parts.jsx';
import { text } from '../text.js';

const words = text.log;

/** Lines that are kept, of which as many are shown. */
const MOST = 400;

/** What is a fault or a warning in the text of a line. */
const FAULT = /\b(error|failed|cannot|panicked)\b/i;
const WARNING = /\b(login-failed|refused|banned|warning|timed? ?out)\b/i;

/** Reads a line: JSON where the server writes that, else the text format, which begins with a time. */
export function lineOf(data) {
  let raw = data;
  try {
    const fields = JSON.parse(data);
    raw = typeof fields === 'string' ? fields : fields.line ?? fields.text ?? Object.entries(fields).map(([key, value]) => (
      key === 'time' ? value : `${key}=${JSON.stringify(value)}`)).join(' ');
  } catch {
    // It is text.
  }
  const [, time, rest] = raw.match(/^(\d{4}-\d\d-\d\dT\S+) (.*)$/s) ?? [undefined, undefined, raw];
  return { time, rest, kind: WARNING.test(rest) ? 'warning' : FAULT.test(rest) ? 'fault' : '' };
}

export function Log() {
  const [lines, setLines] = useState([]);
  const [filter, setFilter] = useState('');
  const [isPaused, setPaused] = useState(false);
  const [isLost, setLost] = useState(false);
  const held = useRef([]);
  const paused = useRef(false);
  const list = useRef();
  const atEnd = useRef(true);
  paused.current = isPaused;
  useEffect(() => {
    const over = new AbortController();
    let number = 0;
    follow(`log?lines=${MOST}`, (data) => held.current.push({ number: number++, ...lineOf(data) }), (isThere) => setLost(!isThere), over.signal);
    const take = setInterval(() => {
      if (held.current.length > MOST) held.current = held.current.slice(-MOST);
      if (paused.current || held.current.length === 0) return;
      const fresh = held.current;
      held.current = [];
      setLines((before) => [...before, ...fresh].slice(-MOST));
    }, 250);
    return () => { over.abort(); clearInterval(take); };
  }, []);
  useLayoutEffect(() => { if (atEnd.current && list.current) list.current.scrollTop = list.current.scrollHeight; }, [lines, filter]);
  const onScroll = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => { atEnd.current = scrollHeight - scrollTop - clientHeight < 24; };
  const wanted = filter.trim().toLowerCase();
  const shown = wanted ? lines.filter(({ rest }) => rest.toLowerCase().includes(wanted)) : lines;
  return (
    <>
      <Head title={text.pages.log} note={words.shown(shown.length)}>
        <Field label={text.filter} type="search" placeholder={words.filterHint} value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>{isPaused ? words.resume : words.pause}</button>
        <button type="button" onClick={() => setLines([])}>{words.clear}</button>
      </Head>
      {isLost && <p class="trouble" role="alert">{words.lost}</p>}
      {lines.length === 0 && <p class="quiet">{words.waiting}</p>}
      <div class="log" ref={list} tabindex="0" role="log" aria-live="off" aria-label={text.pages.log} onScroll={onScroll}>
        {shown.map(({ number, time, rest, kind }) => <p key={number} class={kind}>{time && <time>{clock(time)}</time>}{rest}</p>)}
      </div>
    </>
  );
}
