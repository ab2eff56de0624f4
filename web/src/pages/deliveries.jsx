// Events of hooks that their receivers were not told of yet.
import { useState } from 'preact/hooks';
import { call, query, usePoll } from '../api.js';
import { moment } from '../format.js';
import { Confirm, Head, Table, Trouble, useAct, useMay } from '../parts.jsx';
import { text } from '../text.js';

const words = text.deliveries;

export function Deliveries() {
  // A server without hooks has no queue, which it says with 404 or 409.
  const none = (problem) => { if ([404, 409].includes(problem.status)) return { events: [] }; throw problem; };
  const { data, error, refresh } = usePoll(() => call('GET', 'events').catch(none), 3000, []);
  const [asked, setAsked] = useState(false);
  const mayAct = useMay('operator');
  const act = useAct();
  const retry = (body) => act(() => call('POST', 'events/retry', { body }), ({ retried }) => words.retried(retried)).then(refresh);
  const drop = () => act(() => call('DELETE', query('events', { all: true })), ({ dropped }) => words.dropped(dropped)).then(refresh);
  const columns = [
    { name: words.time, cell: ({ time }) => (time ? moment(time) : '') },
    { name: words.event, cell: ({ event }) => event },
    { name: words.user, cell: ({ user }) => user ?? '' },
    { name: words.path, is: 'wide wrap', cell: ({ path }) => path ?? '' },
    { name: words.to, is: 'wide wrap', cell: ({ to }) => to },
    { name: words.state, is: 'wide wrap', cell: (event) => [words.states[event.state] ?? event.state, event.error].filter(Boolean).join(': ') },
    ...(mayAct ? [{ name: text.actions, hidden: true, is: 'act', cell: ({ id, event }) => (
      <button type="button" aria-label={`${words.retry}: ${event} ${id}`} onClick={() => retry({ events: [id] })}>{words.retry}</button>) }] : []),
  ];
  const isEmpty = !data?.events.length;
  return (
    <>
      <Head title={text.pages.deliveries}>
        {mayAct && !isEmpty && <button type="button" onClick={() => retry({ all: true })}>{words.retryAll}</button>}
        {mayAct && !isEmpty && <button type="button" class="danger" onClick={() => setAsked(true)}>{words.dropAll}</button>}
      </Head>
      <Trouble error={error} />
      <Table label={text.pages.deliveries} columns={columns} rows={data?.events} empty={words.empty} keyOf={({ id, to }) => `${id} ${to}`} />
      {asked && <Confirm title={words.dropAll} question={words.forget} action={words.drop} onYes={drop} onClose={() => setAsked(false)} />}
    </>
  );
}
