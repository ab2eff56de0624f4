// Networks that may not connect.
import { call, usePoll } from '../api.js';
import { duration } from '../format.js';
import { Field, Form, Head, Table, Trouble, useAct, useMay } from '../parts.jsx';
import { text } from '../text.js';

const words = text.bans;

export function Bans() {
  const { data, error, refresh } = usePoll(() => call('GET', 'bans'), 3000, []);
  const mayAct = useMay('operator');
  const act = useAct();
  const lift = ({ network }) => act(() => call('DELETE', `bans/${encodeURIComponent(network)}`), words.lifted(network)).then(refresh);
  const add = async ({ network, seconds }, form) => {
    const body = { network: network.trim(), ...(seconds && { seconds: Number(seconds) }) };
    if (await act(() => call('POST', 'bans', { body }), text.sessions.banned(network.trim()))) form.reset();
    refresh();
  };
  const columns = [
    { name: words.network, cell: (ban) => ban.network },
    { name: words.user, cell: (ban) => ban.user ?? '' },
    { name: words.left, is: 'figure', cell: (ban) => (ban['seconds-left'] === null ? words.forever : duration(ban['seconds-left'])) },
    ...(mayAct ? [{ name: text.actions, hidden: true, is: 'act', cell: (ban) => (
      <button type="button" aria-label={`${words.lift}: ${ban.network}`} onClick={() => lift(ban)}>{words.lift}</button>) }] : []),
  ];
  return (
    <>
      <Head title={text.pages.bans} />
      <Trouble error={error} />
      {mayAct && (
        <Form class="inline" onSubmit={add} aria-label={words.add}>
          <Field label={words.network} name="network" hint={words.hint} required />
          <Field label={words.time} name="seconds" as="select" options={Object.entries(words.times)} initial="3600" />
          <button type="submit" class="primary">{words.add}</button>
        </Form>)}
      <Table label={text.pages.bans} columns={columns} rows={data?.bans} empty={words.empty} keyOf={(ban) => `${ban.network} ${ban.user}`} />
    </>
  );
}
