// Groups: the [[group]] tables of the configuration, which administrators change where the file can be written.
import { useState } from 'preact/hooks';
import { count } from '../format.js';
import { Sheet, Table } from '../parts.jsx';
import { text } from '../text.js';
import { sections } from '../toml.js';
import { Edit, saidOf, useFile } from './tables.jsx';

const words = text.users;

const FORM = {
  table: 'group',
  words: text.groups,
  titleOf: (section) => saidOf(section, { key: 'name' }),
  fields: [
    { key: 'name', label: words.name, required: true, isFirst: true },
    { key: 'directory', label: words.directory, hint: words.directoryHint },
    { key: 'access', kind: 'choice', label: words.access, options: Object.entries({ ...words.accesses, '': text.groups.asServer }) },
    { isHalf: true, key: 'download', kind: 'number', label: words.download, placeholder: '2M' },
    { isHalf: true, key: 'upload', kind: 'number', label: words.upload, placeholder: '500k' },
    { key: 'sessions', kind: 'number', label: words.sessions },
  ],
};

/** What holds for a user or a group, and why. */
export function Holds({ lines }) {
  if (lines.length === 0) return <p class="quiet">{words.nothingSet}</p>;
  return <dl class="holds">{lines.map(([key, value, origin]) => <><dt>{key}</dt><dd>{value}{origin && <small> {origin}</small>}</dd></>)}</dl>;
}

export const access = ({ settings: { access: said } }, unsaid) => (said?.length
  ? [said].flat().map((one) => words.accesses[one] ?? one).join(', ')
  : <span class="quiet">{unsaid}</span>);
export const directory = ({ settings }) => settings.directory ?? <span class="quiet">{words.allOfIt}</span>;

/** The groups that there are. Those that the file has a table for open as forms. */
export function GroupList({ groups, onMembers, file, onChange }) {
  const [open, setOpen] = useState();
  const tables = file ? sections(file.text, FORM.table) : [];
  const placeOf = (group) => tables.findIndex((section) => FORM.titleOf(section) === group.name);
  const done = () => { setOpen(undefined); onChange(); };
  const columns = [
    { name: words.name, cell: (group) => group.name },
    { name: words.access, cell: (group) => access(group, text.groups.asServer) },
    { name: words.directory, is: 'wide', cell: directory },
    { name: words.members, is: 'figure', cell: (group) => count(group.members) },
    { name: text.actions, hidden: true, is: 'act', cell: (group) => {
      const at = placeOf(group);
      const verb = at < 0 ? words.show : text.edit;
      return <button type="button" aria-label={`${verb}: ${group.name}`} onClick={() => setOpen({ group, at, file })}>{verb}</button>;
    } },
  ];
  return (
    <section>
      <h2>{words.groupsTitle}{file && <button type="button" onClick={() => setOpen({ at: -1, file })}>{text.groups.add}</button>}</h2>
      <Table label={words.groupsTitle} columns={columns} rows={groups} empty={words.emptyGroups} keyOf={({ name }) => name} />
      {open && (
        <Sheet title={open.group ? words.editGroup(open.group.name) : text.groups.add} onClose={() => setOpen(undefined)}>
          {open.group && <div class="buttons"><button type="button" onClick={() => { onMembers(open.group.name); setOpen(undefined); }}>{words.showMembers}</button></div>}
          {open.group && open.at < 0 ? <Shown group={open.group} /> : <Edit file={open.file} at={open.at} form={FORM} onDone={done} />}
        </Sheet>)}
    </section>
  );
}

/** A group that cannot be changed here. */
function Shown({ group }) {
  return (
    <>
      <Holds lines={Object.entries(group.settings).map(([key, value]) => [key, typeof value === 'string' ? value : JSON.stringify(value)])} />
      <small>{words.readOnlyGroup}</small>
    </>
  );
}

/** The same for administrators, who may read the file. */
export function GroupForms({ refresh, ...list }) {
  const [file, , refreshFile] = useFile();
  return <GroupList {...list} file={file?.writable ? file : undefined} onChange={() => { refreshFile(); refresh(); }} />;
}
