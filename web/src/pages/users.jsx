// Users and groups: users of a database are changed here, those of the configuration file are shown.
import { useEffect, useState } from 'preact/hooks';
import { call, query, usePoll } from '../api.js';
import { count } from '../format.js';
import { Confirm, Field, Form, Head, Sheet, Table, Trouble, useAct, useMay } from '../parts.jsx';
import { text } from '../text.js';
import { access, directory, GroupForms, GroupList, Holds } from './groups.jsx';

const words = text.users;

/** Users that are shown at first, and with each wish for more. */
const STEP = 200;

/** Settings with a field of their own in the form. */
const FIELDS = ['directory', 'access', 'download', 'upload', 'sessions', 'disabled'];

/** Characters of passwords that are made: none that looks like another. */
const LETTERS = 'abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789';

/** Returns a password of 20 characters, of 115 bits. */
export function randomPassword() {
  const numbers = crypto.getRandomValues(new Uint32Array(20));
  return Array.from(numbers, (number) => LETTERS[number % LETTERS.length]).join('');
}

/** Returns the settings without a field as lines: `hours = ["mon-fri"]`. */
export function linesOf(settings = {}) {
  const others = Object.entries(settings).filter(([key, value]) => !FIELDS.includes(key) || Array.isArray(value));
  return others.map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join('\n');
}

/** Reads such lines; throws with the first that is none. */
export function settingsOf(lines) {
  const settings = {};
  for (const line of lines.split('\n').map((one) => one.trim()).filter((one) => one && !one.startsWith('#'))) {
    const [, key, value] = line.match(/^([a-z-]+)\s*=\s*(.+)$/) ?? [];
    try { settings[key] = JSON.parse(value); } catch { throw Object.assign(new Error(words.line(line)), { body: { field: 'other' } }); }
  }
  return settings;
}

/** Returns the settings of a filled form. */
function settingsOfForm({ other, disabled, ...values }) {
  const settings = settingsOf(other);
  FIELDS.filter((key) => values[key]).forEach((key) => { settings[key] = values[key].trim(); });
  if (disabled) settings.disabled = true;
  return settings;
}

const pathOf = ({ name, source }, end = '') => query(`users/${encodeURIComponent(name)}${end}`, { source });

/** Returns the faults of a refusal by the fields of the form, of which `''` is the form as a whole. */
function faultsOf({ body, message }) {
  const field = body?.field?.replace(/^settings\./, '') ?? '';
  const known = ['name', 'password', 'groups', 'other', ...FIELDS];
  return { [known.includes(field) ? field : field ? 'other' : '']: message };
}

/** The groups that there are, to choose from; one that is chosen and no longer there can be taken back. */
function Groups({ groups, chosen, fault }) {
  const gone = chosen.filter((name) => !groups.some((group) => group.name === name));
  const names = [...chosen, ...groups.map(({ name }) => name).filter((name) => !chosen.includes(name))];
  if (names.length === 0) return null;
  return (
    <fieldset>
      <legend>{words.groups}</legend>
      {names.map((name) => (
        <label class="check"><input type="checkbox" name={`group ${name}`} defaultChecked={chosen.includes(name)} />
          <span>{name}{gone.includes(name) && <span class="warning"> {words.goneGroup}</span>}</span></label>))}
      <small>{words.groupsHint}</small>
      {fault && <small class="fault" role="alert">{fault}</small>}
    </fieldset>
  );
}

/** A password, which can be made up and looked at. */
function NewPassword({ fault }) {
  const [value, setValue] = useState('');
  const [isShown, setShown] = useState(false);
  const make = () => { setValue(randomPassword()); setShown(true); };
  return (
    <div class="with-button">
      <Field label={words.password} name="password" type={isShown ? 'text' : 'password'} autocomplete="new-password" required value={value}
        onInput={(event) => setValue(event.currentTarget.value)} fault={fault} />
      <button type="button" onClick={make}>{words.make}</button>
      <button type="button" aria-pressed={isShown} onClick={() => setShown(!isShown)}>{words.showPassword}</button>
    </div>
  );
}

const holdsOf = ({ effective = [] }) => effective.filter(({ origin }) => origin !== 'default')
  .map(({ key, value, origin }) => [key, value, origin === 'user' ? words.own : words.ofGroup(origin.slice(6))]);

/** Performs a change; keeps what is wrong by field, and tells when another administrator was faster. */
function useChange(end) {
  const act = useAct();
  const [faults, setFaults] = useState({});
  const change = async (perform, done) => {
    setFaults({});
    let refused;
    const answer = await act(async () => {
      try { return await perform(); } catch (problem) {
        if (![409, 412, 422].includes(problem.status) && !problem.body?.field) throw problem;
        refused = problem;
        return {};
      }
    }, () => (refused ? undefined : done));
    if (refused) setFaults(refused.status === 412 ? { conflict: words.conflict } : faultsOf(refused));
    else if (answer) end(answer);
  };
  return [faults, change];
}

/** The form of a user of a database, or of a new one. */
function Edit({ user, groups, onSaved, onTheirs }) {
  const [faults, change] = useChange(onSaved);
  const { name, settings = {}, etag } = user;
  const save = (values) => change(() => {
    const body = { groups: Object.keys(values).filter((key) => key.startsWith('group ')).map((key) => key.slice(6)), settings: settingsOfForm(values) };
    return name ? call('PUT', pathOf(user), { body, headers: { 'if-match': etag } })
      : call('POST', 'users', { body: { ...body, name: values.name, password: values.password } });
  }, words.saved(name ?? words.user));
  const plain = (key) => (Array.isArray(settings[key]) ? '' : settings[key] ?? '');
  return (
    <Form onSubmit={save} aria-label={name ? words.editUser(name) : words.add}>
      {faults[''] && <p class="trouble" role="alert">{faults['']}</p>}
      {faults.conflict && <p class="trouble" role="alert">{faults.conflict} <button type="button" onClick={onTheirs}>{words.theirs}</button></p>}
      {!name && <Field label={words.name} name="name" required fault={faults.name} />}
      {!name && <NewPassword fault={faults.password} />}
      <Field label={words.directory} name="directory" initial={plain('directory')} hint={words.directoryHint} fault={faults.directory} />
      <Field label={words.access} name="access" as="select" initial={plain('access')} options={Object.entries(words.accesses)} fault={faults.access} />
      <Groups groups={groups} chosen={user.groups ?? []} fault={faults.groups} />
      <div class="three">
        <Field label={words.download} name="download" initial={plain('download')} placeholder="2M" fault={faults.download} />
        <Field label={words.upload} name="upload" initial={plain('upload')} placeholder="500k" fault={faults.upload} />
        <Field label={words.sessions} name="sessions" initial={plain('sessions')} inputmode="numeric" fault={faults.sessions} />
      </div>
      <Field label={words.other} name="other" as="textarea" rows="3" hint={words.otherHint} initial={linesOf(settings)} fault={faults.other} />
      <label class="check"><input type="checkbox" name="disabled" defaultChecked={settings.disabled === true} />{words.disable}</label>
      <div class="buttons"><button type="submit" class="primary">{name ? text.save : words.add}</button></div>
    </Form>
  );
}

/** A new password, one-time codes, and the end of a user. */
function More({ user, onSaved, onGone, onTheirs }) {
  const [faults, change] = useChange((answer) => onSaved(answer));
  const [isAsked, setAsked] = useState(false);
  const [codes, setCodes] = useState();
  const headers = { 'if-match': user.etag };
  const setPassword = ({ password }) => change(() => call('PUT', pathOf(user, '/password'), { body: { password }, headers }), words.passwordChanged(user.name));
  const ask = () => change(async () => { setCodes(await call('POST', pathOf(user, '/totp'), { headers })); return call('GET', pathOf(user)); });
  const askNot = () => change(() => call('DELETE', pathOf(user, '/totp'), { headers }), words.noCodes(user.name)).then(() => setCodes(undefined));
  const remove = () => change(async () => { await call('DELETE', pathOf(user), { headers }); onGone(); return undefined; }, words.removed(user.name));
  if (isAsked) return <Confirm title={words.editUser(user.name)} question={words.confirm(user.name)} action={text.remove} onYes={remove} onClose={() => setAsked(false)} />;
  return (
    <>
      {(faults.conflict || faults['']) && <p class="trouble" role="alert">{faults.conflict ?? faults['']}
        {faults.conflict && <> <button type="button" onClick={onTheirs}>{words.theirs}</button></>}</p>}
      <Form class="part" onSubmit={setPassword} aria-label={words.newPassword}>
        <h3>{words.newPassword}</h3>
        <NewPassword fault={faults.password} />
        <div class="buttons"><button type="submit">{words.change}</button></div>
      </Form>
      {codes && <div class="part" role="status"><h3>{words.codes}</h3><p>{words.codesHint}</p><code>{codes.secret}</code></div>}
      <div class="part buttons">
        <button type="button" onClick={user['second-factor'] ? askNot : ask}>{user['second-factor'] ? words.askNot : words.ask}</button>
        <button type="button" class="danger" onClick={() => setAsked(true)}>{text.remove}</button>
      </div>
    </>
  );
}

/** A user by itself. */
function User({ opened, groups, onClose, refresh }) {
  const mayWrite = useMay('administrator');
  const [user, setUser] = useState(opened);
  const [round, setRound] = useState(0);
  const act = useAct();
  const show = (answer) => { if (answer) { setUser(answer); setRound((before) => before + 1); refresh(); } };
  const load = () => act(() => call('GET', pathOf(user))).then(show);
  useEffect(() => { if (opened.name && !opened.etag) load(); }, []);
  const title = opened.name ? words.editUser(opened.name) : words.add;
  const isOpen = mayWrite && (!user.name || (user.writable && user.etag));
  return (
    <Sheet title={title} onClose={onClose}>
      {isOpen && <Edit key={round} user={user} groups={groups} onSaved={() => { onClose(); refresh(); }} onTheirs={load} />}
      {user.effective && !isOpen && <Holds lines={holdsOf(user)} />}
      {user.writable === false && <small>{words.readOnly}</small>}
      {user.effective && isOpen && <details class="part"><summary>{words.holds}</summary><Holds lines={holdsOf(user)} /></details>}
      {isOpen && user.name && <More key={`more ${user.name}`} user={user} onSaved={show} onGone={() => { onClose(); refresh(); }} onTheirs={load} />}
    </Sheet>
  );
}

function State({ user }) {
  if (user.settings.disabled) return <span class="warning">{words.disabled}</span>;
  if (!user.password) return <span class="warning">{words.noPassword}</span>;
  return user.writable ? <span class="quiet">{words.active}</span> : <span class="quiet">{words.configured}</span>;
}

export function Users() {
  const [filter, setFilter] = useState('');
  const [limit, setLimit] = useState(STEP);
  const [open, setOpen] = useState();
  const mayWrite = useMay('administrator');
  const { data, error, refresh } = usePoll(() => call('GET', query('users', { text: filter.trim(), limit })), 5000, [filter, limit]);
  const { data: all, error: groupError, refresh: refreshGroups } = usePoll(() => call('GET', 'groups'), 10000, []);
  const isWritable = mayWrite && data?.sources.some(({ writable }) => writable);
  const unlisted = data?.sources.filter(({ listed }) => !listed).map(({ name }) => name) ?? [];
  const columns = [
    { name: words.name, cell: ({ name }) => name },
    { name: words.access, cell: (user) => access(user, words.accesses['']) },
    { name: words.directory, is: 'wide', cell: directory },
    { name: words.groups, cell: ({ groups }) => groups.join(', ') },
    { name: words.state, cell: (user) => <State user={user} /> },
    { name: text.actions, hidden: true, is: 'act', cell: (user) => {
      const verb = mayWrite && user.writable ? text.edit : words.show;
      return <button type="button" aria-label={`${verb}: ${user.name}`} onClick={() => setOpen(user)}>{verb}</button>;
    } },
  ];
  return (
    <>
      <Head title={text.pages.users} note={data && words.count(data.total)}>
        <Field label={text.filter} type="search" placeholder={words.filterHint} value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        {isWritable && <button type="button" class="primary" onClick={() => setOpen({})}>{words.add}</button>}
      </Head>
      <Trouble error={error ?? groupError} />
      {mayWrite && data && !isWritable && <p class="quiet">{words.noDatabase}</p>}
      <section>
        <Table label={words.usersTitle} columns={columns} rows={data?.users} empty={filter ? words.noMatch : words.empty} keyOf={({ name, source }) => `${name} ${source}`} />
        {data && data.total > data.users.length && <button type="button" class="more" onClick={() => setLimit(limit + STEP)}>{words.more}</button>}
        {unlisted.length > 0 && <p class="quiet">{words.unlisted(unlisted.join(', '))}</p>}
      </section>
      {mayWrite ? <GroupForms groups={all?.groups} onMembers={setFilter} refresh={refreshGroups} /> : <GroupList groups={all?.groups} onMembers={setFilter} />}
      {open && <User key={open.name} opened={open} groups={all?.groups ?? []} onClose={() => setOpen(undefined)} refresh={refresh} />}
    </>
  );
}
