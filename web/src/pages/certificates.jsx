// Certificates: those of the server, where they come from, and those that clients show.
import { useState } from 'preact/hooks';
import { metrics, usePoll } from '../api.js';
import { Confirm, Field, Form, Head, Sheet, Table } from '../parts.jsx';
import { text } from '../text.js';
import { read, sections, withKeys, written } from '../toml.js';
import { KeysForm, useChange, useFile } from './tables.jsx';

const words = text.certificates;

const KEYS = { fields: [{ key: 'tls-cert' }, { key: 'tls-key' }], hasOthers: false };

const ACME = {
  hasOthers: false,
  words: words.acme,
  fields: [
    { key: 'acme', kind: 'list', label: words.acme.names, hint: words.acme.namesHint, placeholder: 'files.example.net' },
    { key: 'acme-contact', kind: 'list', label: words.acme.contact, placeholder: 'ops@example.net' },
    { key: 'acme-agree', kind: 'flag', label: words.acme.agree },
  ],
};

const CLIENTS = {
  hasOthers: false,
  words: words.clients,
  fields: [
    { key: 'tls-client-ca', label: words.clients.authority, placeholder: '/etc/millrace/clients.pem' },
    { key: 'tls-client-cert', kind: 'flag', label: words.clients.required },
  ],
};

/** Returns the values of a key that is a text or an array of texts; `undefined` where it is written otherwise. */
function valuesOf(section, key) {
  const raw = section.keys.get(key)?.raw;
  const values = raw === undefined ? [] : [read(raw)].flat();
  return values.every((value) => typeof value === 'string') ? values : undefined;
}

/** Returns the certificates of the top level with their keys; `undefined` where not all of them can be told. */
function pairsOf(source) {
  const [top] = sections(source, '');
  const [certificates, keys] = [valuesOf(top, 'tls-cert'), valuesOf(top, 'tls-key')];
  if (!certificates || !keys || keys.length > certificates.length) return undefined;
  return certificates.map((certificate, at) => ({ certificate, key: keys[at] ?? '' }));
}

/** Returns the text with other certificates. A key in the file of its certificate is named where others are not. */
function withPairs(source, pairs) {
  const one = (values) => (values.length === 1 ? written(values[0]) : written(values));
  const hasKeys = pairs.some(({ key }) => key);
  const raws = {
    'tls-cert': pairs.length ? one(pairs.map(({ certificate }) => certificate)) : undefined,
    'tls-key': hasKeys ? one(pairs.map(({ certificate, key }) => key || certificate)) : undefined,
  };
  return withKeys(source, sections(source, '')[0], raws);
}

/** Returns the days that are left of each file, by the metrics. */
async function daysLeft() {
  const name = /^millrace_certificate_expiry_timestamp_seconds\{file="(.*)"\}$/;
  const found = [...await metrics()].map(([series, value]) => [series.match(name)?.[1], (value * 1000 - Date.now()) / 86_400_000]);
  return found.filter(([file]) => file);
}

/** Returns whether a file of the metrics is this one of the configuration. Theirs begins with its `folder` as the server was given it. */
function isFile(told, path, folder) {
  if (path.startsWith('/')) return told === path;
  if (!told.endsWith(`/${path}`)) return false;
  const head = told.slice(0, -path.length - 1);
  return head === folder || head === '.' || (!head.startsWith('/') && folder.endsWith(`/${head.replace(/^\.\//, '')}`));
}

function Left({ days }) {
  if (days === undefined) return <span class="quiet">{words.notYet}</span>;
  const kind = days < 0 ? 'fault' : days < 14 ? 'warning' : undefined;
  return <span class={kind}>{words.left(Math.floor(days))}</span>;
}

/** The form of a certificate, or of a new one. */
function Edit({ file, at, onDone }) {
  const pairs = pairsOf(file.text);
  const own = pairs[at] ?? { certificate: '', key: '' };
  const isNew = at === pairs.length;
  const [isAsked, setAsked] = useState(false);
  const [faults, put] = useChange(file, KEYS, onDone);
  const change = (changed, done) => {
    const source = withPairs(file.text, changed);
    return put(source, sections(source, '')[0], done);
  };
  const save = ({ certificate, key }) => change(pairs.toSpliced(at, 1, { certificate: certificate.trim(), key: key.trim() }), words.saved);
  if (isAsked) {
    return <Confirm title={words.edit} question={words.confirm(own.certificate)} action={text.remove} onClose={() => setAsked(false)}
      onYes={() => change(pairs.toSpliced(at, 1), words.removed)} />;
  }
  return (
    <Form onSubmit={save} aria-label={isNew ? words.add : words.edit}>
      {(faults[''] || faults.conflict) && <p class="trouble" role="alert">{faults[''] ?? faults.conflict}
        {faults.conflict && <> <button type="button" onClick={onDone}>{text.tables.theirs}</button></>}</p>}
      <Field label={words.certificate} name="certificate" required hint={words.certificateHint} placeholder="/etc/millrace/cert.pem" initial={own.certificate} fault={faults['tls-cert']} />
      <Field label={words.key} name="key" hint={words.keyHint} placeholder="/etc/millrace/key.pem" initial={own.key} fault={faults['tls-key']} />
      <div class="buttons">
        <button type="submit" class="primary">{isNew ? words.add : text.save}</button>
        {!isNew && <button type="button" class="danger" onClick={() => setAsked(true)}>{text.remove}</button>}
      </div>
    </Form>
  );
}

export function Certificates() {
  const [file, told, refresh] = useFile();
  const { data: days, refresh: look } = usePoll(daysLeft, 10_000, []);
  const [open, setOpen] = useState();
  const [round, setRound] = useState(0);
  const pairs = file && pairsOf(file.text);
  const close = () => { setOpen(undefined); refresh(); look(); };
  const folder = file?.path.replace(/\/[^/]*$/, '');
  const left = (path) => days?.find(([told]) => isFile(told, path, folder))?.[1];
  const columns = [
    { name: words.certificate, cell: ({ certificate }) => certificate },
    { name: words.key, is: 'wide', cell: ({ key }) => key || <span class="quiet">{words.sameFile}</span> },
    { name: words.expires, cell: ({ certificate }) => <Left days={left(certificate)} /> },
    ...(file?.writable ? [{ name: text.actions, hidden: true, is: 'act', cell: (pair) => (
      <button type="button" aria-label={`${text.edit}: ${pair.certificate}`} onClick={() => setOpen({ file, at: pairs.indexOf(pair) })}>{text.edit}</button>) }] : []),
  ];
  const again = () => { refresh().then(() => setRound(round + 1)); };
  return (
    <>
      <Head title={text.pages.certificates} note={pairs && words.count(pairs.length)}>
        {pairs && file.writable && <button type="button" class="primary" onClick={() => setOpen({ file, at: pairs.length })}>{words.add}</button>}
      </Head>
      {told}
      <section>{file && !pairs ? <p class="quiet">{words.unread}</p>
        : <Table label={text.pages.certificates} columns={columns} rows={pairs} empty={words.empty} keyOf={({ certificate }) => certificate} />}
        {pairs?.length > 0 && days?.length === 0 && <p class="quiet">{words.withoutTls}</p>}</section>
      {file && [ACME, CLIENTS].map((form) => <KeysForm key={`${form.words.title} ${round}`} file={file} form={form} onDone={again} />)}
      {open && (
        <Sheet title={open.at === pairsOf(open.file.text).length ? words.add : words.edit} onClose={close}>
          <Edit file={open.file} at={open.at} onDone={close} />
        </Sheet>)}
    </>
  );
}
