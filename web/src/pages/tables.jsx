// Tables of the configuration file as forms: what a form does not know stays as it is written, comments and all.
import { useState } from 'preact/hooks';
import { call, usePoll } from '../api.js';
import { Confirm, Field, Form, Head, Sheet, Table, Trouble, useAct } from '../parts.jsx';
import { text } from '../text.js';
import { keyAt, read, sections, statements, withKeys, withTable, withoutTable, written } from '../toml.js';
import { appliedAs, faultsOf } from './configuration.jsx';

const words = text.tables;

/** Returns the words of a list: `a, b`. */
const listOf = (said) => said.split(',').map((one) => one.trim()).filter(Boolean);

/** Returns whether a value stays the same text in a field. */
const fits = (value) => typeof value === 'string' && value !== '' && value === value.trim() && !/[\r\n]/.test(value);

/** Returns the texts of a value, put together, or `undefined` where they cannot be told apart again. */
function joined(value, between) {
  const all = [value].flat();
  return all.length && all.every((one) => fits(one) && !one.includes(between.trim() || between)) ? all.join(between) : undefined;
}

/** How a kind of field shows a value, or `undefined` where it cannot; and what it writes of a text that is not empty. */
const KINDS = {
  text: [(value) => (fits(value) ? value : undefined), written],
  number: [(value) => (typeof value === 'number' || fits(value) ? String(value) : undefined), (said) => (/^(0|[1-9]\d*)$/.test(said) ? said : written(said))],
  list: [(value) => joined(value, ', '), (said) => written(listOf(said))],
  lines: [(value) => joined(value, '\n'), (said) => written(said.split('\n').filter(Boolean))],
  choice: [(value) => (['string', 'boolean'].includes(typeof value) ? String(value) : undefined), (said) => (/^(true|false)$/.test(said) ? said : written(said))],
  flag: [(value) => (typeof value === 'boolean' ? value : undefined), () => 'true'],
};

/** Returns what a field shows of a section; `undefined` where the section has nothing that it can show. */
export function shownOf(section, { key, kind = 'text', options }) {
  const raw = section?.keys.get(key)?.raw;
  const shown = raw === undefined ? undefined : KINDS[kind][0](read(raw));
  return kind === 'choice' && !options.some(([value]) => value === shown) ? undefined : shown;
}

/** Returns what a section says of a field, for people: as it is written where the field cannot show it. */
export const saidOf = (section, field) => shownOf(section, field) ?? section.keys.get(field.key)?.raw ?? '';

/** Returns the fields of a form and those of each alternative, in the order in which they are written. */
const allOf = ({ fields, one }) => [...fields.filter(({ isFirst }) => isFirst), ...(one?.of ?? []), ...fields.filter(({ isFirst }) => !isFirst)];

/** Returns the key of the alternative that a section has: the first, where it has several or none. */
const chosenOf = (section, { one }) => (one?.of.find(({ key }) => section?.keys.has(key)) ?? one?.of[0])?.key;

/** Returns the keys of a section that no field shows, as lines. */
function othersOf(section, form) {
  const chosen = chosenOf(section, form);
  const isShown = (field) => (form.one?.of.includes(field) ? field.key === chosen : !field.of || field.of.includes(chosen)) && shownOf(section, field) !== undefined;
  const shown = new Set(allOf(form).filter(isShown).map(({ key }) => key));
  return [...(section?.keys ?? [])].filter(([key]) => !shown.has(key)).map(([key, { raw }]) => `${key} = ${raw}`).join('\n');
}

/** Returns the first of the other settings that would be lost: it is no setting, or there already. */
function strayOf(other) {
  const keys = new Set();
  let at = 0;
  for (const { key, from, to } of [...statements(other), { from: other.length }]) {
    const stray = other.slice(at, from).split('\n').map((line) => line.trim()).find((line) => line && !line.startsWith('#'));
    if (stray) return stray;
    if (to && (!key || keys.has(key))) return other.slice(from, to).trim().split('\n')[0];
    keys.add(key);
    at = to;
  }
  return undefined;
}

/** Returns the raw values that a filled form stands for; `undefined` for keys that it leaves out. */
function rawsOf(section, form, { other = '', ...values }) {
  const raws = {};
  for (const field of allOf(form)) {
    const said = values[field.key]?.trim();
    if (said) raws[field.key] = KINDS[field.kind ?? 'text'][1](said);
    // What a field could not show, and no other place does, stays.
    else if (form.hasOthers === false && shownOf(section, field) !== undefined) raws[field.key] = undefined;
  }
  // What a field says, it says instead of a value that it could not show.
  statements(other).filter(({ key }) => !Object.hasOwn(raws, key)).forEach(({ key, raw }) => { raws[key] = raw; });
  const own = form.hasOthers === false ? [] : [...(section?.keys.keys() ?? [])];
  own.filter((key) => !Object.hasOwn(raws, key)).forEach((key) => { raws[key] = undefined; });
  return raws;
}

/** A field of a form, with the value of the section. */
function Control({ field, section, fault }) {
  const { key, kind = 'text', label, hint, options, placeholder, required, isHalf } = field;
  const shown = shownOf(section, field);
  if (kind === 'flag') {
    return <label class="check"><input type="checkbox" name={key} defaultChecked={shown === true} />{label}{fault && <small class="fault" role="alert">{fault}</small>}</label>;
  }
  const isElsewhere = shown === undefined && Boolean(section?.keys.has(key));
  const more = { choice: { as: 'select', options }, lines: { as: 'textarea', rows: 3 } }[kind];
  return <Field label={label} name={key} hint={isElsewhere ? words.elsewhere : hint} placeholder={placeholder} required={required && !isElsewhere} isHalf={isHalf} initial={shown ?? ''} fault={fault} {...more} />;
}

/** The fields of a form: those of which one is chosen, the others, and the rest as text. */
function Fields({ form, section, faults }) {
  const { fields, one, hasOthers = true } = form;
  const [chosen, choose] = useState(chosenOf(section, form));
  const control = (field) => <Control key={field.key} field={field} section={section} fault={faults[field.key]} />;
  return (
    <div class="fields">
      {fields.filter(({ isFirst }) => isFirst).map(control)}
      {one && <Field label={one.label} name="one" as="select" initial={chosen} options={one.of.map(({ key, name }) => [key, name])}
        onChange={(event) => choose(event.currentTarget.value)} />}
      {one && control(one.of.find(({ key }) => key === chosen))}
      {fields.filter(({ isFirst, of }) => !isFirst && (!of || of.includes(chosen))).map(control)}
      {hasOthers && <Field label={words.other} name="other" as="textarea" rows="3" hint={words.otherHint} initial={othersOf(section, form)} fault={faults.other} />}
    </div>
  );
}

/** Returns the faults of a refusal, by the fields of the form; `''` is the form as a whole. */
function faultsByField(problem, form, source, section) {
  const [{ line, message }] = faultsOf(problem);
  const key = line && section && keyAt(source, section, line);
  const field = allOf(form).some((own) => own.key === key) ? key : key && form.hasOthers !== false ? 'other' : '';
  return { [field]: message };
}

/** Performs a change of the file; keeps what is wrong by field. `change` makes a text and, of that, the section. */
export function useChange(file, form, end) {
  const act = useAct();
  const [faults, setFaults] = useState({});
  const put = async (source, section, done) => {
    setFaults({});
    const answer = await act(() => call('PUT', 'config', { body: { text: source }, headers: { 'if-match': file.etag } }).catch((problem) => {
      if (problem.status === 412) setFaults({ conflict: words.conflict });
      else if (problem.status === 422) setFaults(faultsByField(problem, form, source, section));
      else throw problem;
      return { isRefused: true };
    }), (answer) => (answer.isRefused ? undefined : appliedAs(done)(answer)));
    if (answer && !answer.isRefused) end();
  };
  return [faults, put, setFaults];
}

/** What is wrong with a form as a whole. */
function Faults({ faults, onTheirs }) {
  return (
    <>
      {faults[''] && <p class="trouble" role="alert">{faults['']}</p>}
      {faults.conflict && <p class="trouble" role="alert">{faults.conflict} <button type="button" onClick={onTheirs}>{words.theirs}</button></p>}
    </>
  );
}

/** The form of a table, or of a new one. */
export function Edit({ file, at, form, onDone }) {
  const section = sections(file.text, form.table)[at];
  const [isAsked, setAsked] = useState(false);
  const [faults, put, setFaults] = useChange(file, form, onDone);
  const title = section ? form.titleOf(section) : '';
  const save = (values) => {
    const stray = strayOf(values.other ?? '');
    if (stray) return setFaults({ other: words.line(stray) });
    const raws = rawsOf(section, form, values);
    const source = section ? withKeys(file.text, section, raws) : withTable(file.text, form.table, raws);
    return put(source, sections(source, form.table).at(section ? at : -1), form.words.saved);
  };
  if (isAsked) {
    return <Confirm title={form.words.edit(title)} question={words.confirm(title)} action={text.remove} onClose={() => setAsked(false)}
      onYes={() => put(withoutTable(file.text, section), undefined, form.words.removed)} />;
  }
  return (
    <Form onSubmit={save} aria-label={section ? form.words.edit(title) : form.words.add}>
      <Faults faults={faults} onTheirs={onDone} />
      <Fields form={form} section={section} faults={faults} />
      <div class="buttons">
        <button type="submit" class="primary">{section ? text.save : form.words.add}</button>
        {section && <button type="button" class="danger" onClick={() => setAsked(true)}>{text.remove}</button>}
      </div>
    </Form>
  );
}

/** A form of keys of the top level, which is always there. */
export function KeysForm({ file, form, onDone }) {
  const [first] = useState(file);
  const raw = (of, key) => sections(of.text, '')[0].keys.get(key)?.raw;
  // The page looks again, and the fields stay as they were filled. Where the file says otherwise of them by now, they belong to the
  // first one, which the server refuses to replace.
  const own = form.fields.every(({ key }) => raw(first, key) === raw(file, key)) ? file : first;
  const [section] = sections(own.text, '');
  const [faults, put] = useChange(own, form, onDone);
  const save = (values) => {
    const source = withKeys(own.text, section, rawsOf(section, form, values));
    return put(source, sections(source, '')[0], form.words.saved);
  };
  return (
    <section>
      <h2>{form.words.title}</h2>
      <Form class="keys" onSubmit={save} aria-label={form.words.title}>
        <p class="quiet">{form.words.about}</p>
        <Faults faults={faults} onTheirs={onDone} />
        <Fields form={form} section={section} faults={faults} />
        <div class="buttons"><button type="submit" disabled={!file.writable}>{text.save}</button></div>
      </Form>
    </section>
  );
}

/** The configuration file, looked at now and then, and what keeps it from being read or replaced. */
export function useFile() {
  const { data: file, error, refresh } = usePoll(() => call('GET', 'config'), 10_000, []);
  const isAbsent = error?.status === 404 || error?.status === 409;
  const told = (
    <>
      {isAbsent ? <p class="quiet">{error.message}</p> : <Trouble error={error} />}
      {file && !file.writable && <p class="quiet">{text.config.readOnly}</p>}
    </>
  );
  return [file, told, refresh];
}

/** A page of the tables of a kind. */
export function Tables({ title, form, columns, note }) {
  const [file, told, refresh] = useFile();
  const [open, setOpen] = useState();
  const rows = file && sections(file.text, form.table).map((section, at) => ({ section, at }));
  const close = () => { setOpen(undefined); refresh(); };
  const shown = [...columns.map(({ cell, ...column }) => ({ ...column, cell: ({ section }) => cell(section) })),
    ...(file?.writable ? [{ name: text.actions, hidden: true, is: 'act', cell: ({ section, at }) => (
      <button type="button" aria-label={`${text.edit}: ${form.titleOf(section)}`} onClick={() => setOpen({ at, file })}>{text.edit}</button>) }] : [])];
  return (
    <>
      <Head title={title} note={rows && form.words.count(rows.length)}>
        {file?.writable && <button type="button" class="primary" onClick={() => setOpen({ at: -1, file })}>{form.words.add}</button>}
      </Head>
      {told}
      <section><Table label={title} columns={shown} rows={rows} empty={form.words.empty} keyOf={({ at }) => at} /></section>
      {note && <p class="quiet">{note}</p>}
      {open && (
        <Sheet title={open.at < 0 ? form.words.add : form.words.edit(form.titleOf(sections(open.file.text, form.table)[open.at]))} onClose={close}>
          <Edit file={open.file} at={open.at} form={form} onDone={close} />
        </Sheet>)}
    </>
  );
}
