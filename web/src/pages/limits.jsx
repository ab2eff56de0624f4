// Limits that are in force, and quotas.
import { useState } from 'preact/hooks';
import { call, usePoll } from '../api.js';
import { count, rate, size } from '../format.js';
import { Field, Form, Head, Sheet, Table, Trouble, useAct, useMay } from '../parts.jsx';
import { text } from '../text.js';

const words = text.limits;

/** Returns a limit as it is typed: `2M`, `1500`. */
export function typed(value) {
  if (!value) return '';
  const unit = [['G', 1e9], ['M', 1e6], ['k', 1e3]].find(([, factor]) => value % factor === 0);
  return unit ? `${value / unit[1]}${unit[0]}` : String(value);
}

const limit = (value, show) => (value ? show(value) : <span class="quiet">{text.unlimited}</span>);

function Change({ row, onClose, refresh }) {
  const act = useAct();
  const path = (scope) => `limits/${encodeURIComponent(scope.trim())}`;
  const end = (answer) => { if (answer) { onClose(); refresh(); } };
  const save = ({ scope = row.scope, download, upload, sessions }) => {
    const isNew = (value, before) => value !== (before ?? '');
    const body = {};
    if (isNew(download, typed(row.download))) body.download = download || 'none';
    if (isNew(upload, typed(row.upload))) body.upload = upload || 'none';
    if (isNew(sessions, String(row['sessions-at-most'] || ''))) body.sessions = sessions || 'none';
    return act(() => call('PUT', path(scope), { body }), (answer) => answer.note ?? words.changed).then(end);
  };
  const restore = () => act(() => call('DELETE', path(row.scope)), words.changed).then(end);
  return (
    <Sheet title={row.scope ?? words.add} onClose={onClose}>
      <Form onSubmit={save} aria-label={words.change}>
        {!row.scope && <Field label={words.scope} name="scope" hint={words.scopeHint} placeholder="user alice" required />}
        <Field label={words.download} name="download" hint={words.rateHint} initial={typed(row.download)} />
        <Field label={words.upload} name="upload" initial={typed(row.upload)} />
        <Field label={words.sessions} name="sessions" inputmode="numeric" initial={row['sessions-at-most'] || ''} />
        <div class="buttons">
          <button type="submit" class="primary">{text.save}</button>
          {row.scope && <button type="button" onClick={restore}>{words.restore}</button>}
        </div>
        <small>{words.holds}</small>
      </Form>
    </Sheet>
  );
}

function Quotas() {
  const { data, error, refresh } = usePoll(() => call('GET', 'quotas'), 10000, []);
  const mayAct = useMay('operator');
  const act = useAct();
  const recount = (tree) => act(() => call('POST', 'quotas/recount', { body: { tree } }), words.recounted).then(refresh);
  const columns = [
    { name: words.tree, is: 'wide', cell: (quota) => quota.tree },
    { name: words.bytes, is: 'figure', cell: (quota) => size(quota.bytes) },
    { name: words.files, is: 'figure', cell: (quota) => count(quota.files) },
    { name: words.exact, cell: (quota) => (quota.exact ? text.yes : text.no) },
    ...(mayAct ? [{ name: text.actions, hidden: true, is: 'act', cell: ({ tree }) => (
      <button type="button" aria-label={`${words.recount}: ${tree}`} onClick={() => recount(tree)}>{words.recount}</button>) }] : []),
  ];
  return (
    <section>
      <h2>{words.quotas}</h2>
      <Trouble error={error} />
      <Table label={words.quotas} columns={columns} rows={data?.quotas} empty={words.noQuotas} keyOf={(quota) => quota.tree} />
    </section>
  );
}

export function LimitsPage() {
  const { data, error, refresh } = usePoll(() => call('GET', 'limits'), 3000, []);
  const [open, setOpen] = useState();
  const mayAct = useMay('operator');
  const columns = [
    { name: words.scope, is: 'wide', cell: (row) => row.scope },
    { name: words.sessions, is: 'figure', cell: (row) => count(row.sessions) },
    { name: words.most, is: 'figure', cell: (row) => limit(row['sessions-at-most'], count) },
    { name: words.download, is: 'figure', cell: (row) => limit(row.download, rate) },
    { name: words.upload, is: 'figure', cell: (row) => limit(row.upload, rate) },
    ...(mayAct ? [{ name: text.actions, hidden: true, is: 'act', cell: (row) => (
      <button type="button" aria-label={`${words.change}: ${row.scope}`} onClick={() => setOpen(row)}>{words.change}</button>) }] : []),
  ];
  return (
    <>
      <Head title={text.pages.limits}>{mayAct && <button type="button" class="primary" onClick={() => setOpen({})}>{words.add}</button>}</Head>
      <Trouble error={error} />
      <Table label={text.pages.limits} columns={columns} rows={data?.limits} empty={words.empty} keyOf={(row) => row.scope} />
      <Quotas />
      {open && <Change row={open} onClose={() => setOpen(undefined)} refresh={refresh} />}
    </>
  );
}
