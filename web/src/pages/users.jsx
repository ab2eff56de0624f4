// Users and groups of the database.
import { useState } from 'preact/hooks';
import { call, usePoll } from '../api.js';
import { Confirm, Field, Form, Head, Sheet, Table, Trouble, useAct } from '../parts.jsx';
import { text } from '../text.js';

const words = text.users;

/** Settings with a field of their own in the form. */
const FIELDS = ['directory', 'access', 'download', 'upload', 'disabled'];

/** Returns the other settings as lines: `sessions = 4`. */
export function linesOf(settings = {}) {
  const others = Object.entries(settings).filter(([key, value]) => value !== null && (!FIELDS.includes(key) || Array.isArray(value)));
  return others.map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join('\n');
}

/** Reads such lines; throws with the first that is none. */
export function settingsOf(lines) {
  const settings = {};
  for (const line of lines.split('\n').map((one) => one.trim()).filter((one) => one && !one.startsWith('#'))) {
    const [, key, value] = line.match(/^([a-z-]+)\s*=\s*(.+)$/) ?? [];
    try { settings[key] = JSON.parse(value); } catch { throw new Error(words.line(line)); }
  }
  return settings;
}

/** Returns what the API takes of a filled form. */
function bodyOf({ name, password, groups, directory, access, download, upload, disabled, other }) {
  const settings = settingsOf(other);
  const set = { directory, access, download, upload };
  Object.entries(set).filter(([, value]) => value).forEach(([key, value]) => { settings[key] = value; });
  if (disabled) settings.disabled = true;
  const list = groups === undefined ? undefined : groups.split(',').map((one) => one.trim()).filter(Boolean);
  return { name, ...(list && { groups: list }), ...(password && { password }), settings };
}

/** The form of a user or a group, of which `path` is `users` or `groups`. */
function Edit({ path, account, onClose, refresh }) {
  const act = useAct();
  const [asked, setAsked] = useState(false);
  const isUser = path === 'users';
  const { name, settings = {} } = account;
  const own = `${path}/${encodeURIComponent(name)}`;
  const end = (answer) => { if (answer) { onClose(); refresh(); } };
  const save = (values) => act(() => {
    const body = bodyOf({ ...values, name: name ?? values.name });
    return name ? call('PUT', own, { body, headers: account.etag && { 'if-match': account.etag } }) : call('POST', path, { body });
  }, words.saved(name ?? values.name)).then(end);
  const remove = () => act(() => call('DELETE', own), words.removed(name)).then(end);
  const title = name ? (isUser ? words.editUser(name) : words.editGroup(name)) : (isUser ? words.add : words.addGroup);
  if (asked) return <Confirm title={title} question={words.confirm(name)} action={text.remove} onYes={remove} onClose={() => setAsked(false)} />;
  const access = Array.isArray(settings.access) ? '' : settings.access ?? '';
  return (
    <Sheet title={title} onClose={onClose}>
      <Form onSubmit={save} aria-label={title}>
        {!name && <Field label={words.name} name="name" required />}
        {isUser && <Field label={words.password} name="password" type="password" autocomplete="new-password" required={!name}
          hint={name && words.passwordKeep} />}
        <Field label={words.directory} name="directory" initial={settings.directory ?? ''} hint={words.directoryHint} />
        <Field label={words.access} name="access" as="select" initial={access} options={Object.entries(words.accesses)} />
        {isUser && <Field label={words.groups} name="groups" initial={(account.groups ?? []).join(', ')} hint={words.groupsHint} />}
        <div class="pair">
          <Field label={words.download} name="download" initial={settings.download ?? ''} hint={words.rateHint} />
          <Field label={words.upload} name="upload" initial={settings.upload ?? ''} />
        </div>
        <Field label={words.other} name="other" as="textarea" rows="4" hint={words.otherHint} initial={linesOf(settings)} />
        {isUser && <label class="check"><input type="checkbox" name="disabled" defaultChecked={settings.disabled === true} />{words.disable}</label>}
        <div class="buttons">
          <button type="submit" class="primary">{text.save}</button>
          {name && <button type="button" class="danger" onClick={() => setAsked(true)}>{text.remove}</button>}
        </div>
      </Form>
    </Sheet>
  );
}

/** A list of users or groups, and the form of the one that is open. */
function Accounts({ path, title, add, empty, columns }) {
  const { data, error, refresh } = usePoll(() => call('GET', path), 10000, []);
  const [open, setOpen] = useState();
  const act = useAct();
  const edit = (name) => act(() => call('GET', `${path}/${encodeURIComponent(name)}`)).then((account) => account && setOpen(account));
  const all = [
    ...columns,
    { name: text.actions, hidden: true, is: 'act', cell: ({ name }) => (
      <button type="button" aria-label={`${text.edit}: ${name}`} onClick={() => edit(name)}>{text.edit}</button>) },
  ];
  return (
    <section>
      <h2>{title}<button type="button" class={path === 'users' ? 'primary' : ''} onClick={() => setOpen({})}>{add}</button></h2>
      <Trouble error={error} />
      <Table label={title} columns={all} rows={data?.[path]} empty={empty} keyOf={({ name }) => name} />
      {open && <Edit path={path} account={open} onClose={() => setOpen(undefined)} refresh={refresh} />}
    </section>
  );
}

function state({ settings = {}, password }) {
  if (settings.disabled) return <span class="warning">{words.disabled}</span>;
  return password === false ? <span class="warning">{words.noPassword}</span> : words.active;
}

const access = ({ settings = {} }) => (Array.isArray(settings.access) ? settings.access.join(', ') : words.accesses[settings.access ?? '']);
const directory = ({ settings = {} }) => settings.directory ?? <span class="quiet">/</span>;
const name = (account) => account.name;

const USERS = [
  { name: words.name, cell: name }, { name: words.access, cell: access }, { name: words.directory, is: 'wide', cell: directory },
  { name: words.groups, cell: ({ groups = [] }) => groups.join(', ') }, { name: words.state, cell: state },
];
const GROUPS = [{ name: words.name, cell: name }, { name: words.access, cell: access }, { name: words.directory, is: 'wide', cell: directory }];

export function Users() {
  return (
    <>
      <Head title={text.pages.users} />
      <Accounts path="users" title={words.usersTitle} add={words.add} empty={words.empty} columns={USERS} />
      <Accounts path="groups" title={words.groupsTitle} add={words.addGroup} empty={words.emptyGroups} columns={GROUPS} />
    </>
  );
}
