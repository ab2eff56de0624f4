// What does not work, then the last hour, then what is busy now.
import { call, metrics, query, sessionOf, usePoll } from '../api.js';
import { Chart } from '../chart.jsx';
import { count, duration, rate } from '../format.js';
import { Head, Table, Trouble } from '../parts.jsx';
import { text } from '../text.js';
import { Doing } from './sessions.jsx';

const words = text.overview;

/** A certificate that expires within so many days is told of. */
const SOON = 21;
/** A worker that takes so many seconds to answer is told of. */
const SLOW = 0.5;

/** Returns what needs attention, the worst first: `{fault, says, page}`. */
export function troubles({ status, health, values, failures, now }) {
  const found = [];
  const add = (fault, says, page) => found.push({ fault, says, page });
  if (health) add(true, words.unhealthy(health));
  if (status?.ending) add(true, words.ending);
  for (const [name, value] of values ?? []) {
    const label = name.match(/"(.*)"/)?.[1].replace(/.*\//, '');
    const days = (value - now) / 86400;
    if (name.startsWith('millrace_certificate_expiry') && days < SOON) add(days < 7, words.certificate(label, days));
    if (name.startsWith('millrace_worker_lag') && value > SLOW) add(true, words.lag(label, Math.round(value * 1000)));
    if (name === 'millrace_delivery_queue_events{state="parked"}' && value > 0) add(true, words.parked(value), 'deliveries');
    if (name === 'millrace_delivery_queue_events{state="waiting"}' && value > 0) add(false, words.waiting(value), 'deliveries');
    if (name === 'millrace_bans_active' && value > 0) add(false, words.bans(value), 'bans');
  }
  if (failures > 0) add(false, words.failed(failures), 'log');
  return found.sort((a, b) => b.fault - a.fault);
}

function Attention({ list }) {
  return (
    <section class="attention" aria-label={words.attention}>
      {list.length === 0 ? <p class="well">{words.well}</p> : (
        <ul>{list.map(({ fault, says, page }) => (
          <li class={fault ? 'fault' : 'warning'}>{says}{page && <a href={`#/${page}`} aria-label={`${words.show}: ${text.pages[page]}`}>
            {text.pages[page]}</a>}</li>))}</ul>)}
    </section>
  );
}

/** Returns the health check's complaint. */
const complaint = () => fetch('/healthz').then(async (answer) => (answer.ok ? '' : (await answer.text()).trim()));

/** Returns the points of the last hour by column: the API has a list of points. */
function columns(answer) {
  const points = answer?.points ?? [];
  const column = (name) => points.map((point) => point[name] ?? 0);
  return {
    times: column('time'), download: column('download'), upload: column('upload'), sessions: column('sessions'), requests: column('requests'),
    failures: column('failures'),
  };
}

export function Overview() {
  const { data: status, error } = usePoll(() => call('GET', 'status'), 2000, []);
  const { data: rates } = usePoll(() => call('GET', 'rates'), 5000, []);
  const { data: values } = usePoll(metrics, 15000, []);
  const { data: health } = usePoll(complaint, 10000, []);
  const busiest = usePoll(() => call('GET', query('sessions', { sort: '-rate', limit: 6 })), 1000, []);
  const hour = columns(rates);
  const failures = hour.failures.reduce((sum, value) => sum + value, 0);
  const perSecond = (value) => `${value < 10 && value % 1 ? value.toFixed(1) : count(Math.round(value))} ${words.perSecond}`;
  const whole = (value) => count(Math.round(value));
  const busy = busiest.data?.sessions.map(sessionOf).filter((session) => session.kind);
  const list = [
    { name: text.sessions.user, cell: (one) => one.user ?? text.sessions.notYet },
    { name: text.sessions.doing, is: 'wide', cell: (one) => <Doing session={one} /> },
    { name: text.sessions.rate, is: 'figure', cell: (one) => rate(one.rate) },
    { name: text.sessions.waits, cell: (one) => one.waits },
  ];
  return (
    <>
      <Head title={text.pages.overview} note={status && `${words.up(duration(status.seconds))} · ${words.process(status.pid)}`} />
      <Trouble error={error} />
      {status && <Attention list={troubles({ status, health, values, failures, now: Date.now() / 1000 })} />}
      {hour.times.length > 0 && (
        <div class="charts" aria-label={words.lastHour} role="group">
          <Chart times={hour.times} show={rate}
            series={[{ name: words.download, values: hour.download }, { name: words.upload, values: hour.upload }]} />
          <Chart times={hour.times} show={whole} series={[{ name: words.sessions, values: hour.sessions }]} />
          <Chart times={hour.times} show={perSecond} series={[{ name: words.requests, values: hour.requests }]} />
          <Chart times={hour.times} show={whole} series={[{ name: words.failures, values: hour.failures }]} />
        </div>)}
      <section>
        <h2>{words.busiest}<a href="#/sessions">{words.all}</a></h2>
        <Table label={words.busiest} columns={list} rows={busy} empty={words.idle} keyOf={(one) => one.id} />
      </section>
    </>
  );
}
