// Virtual folders: the [[folder]] tables of the configuration.
import { text } from '../text.js';
import { saidOf, Tables } from './tables.jsx';

const words = text.folders;

// The names of a bucket may be in a database: then the bucket is the place.
const PLACES = ['directory', 'database', 'bucket', 'postgres'];

const FORM = {
  table: 'folder',
  words,
  titleOf: (section) => saidOf(section, { key: 'path' }),
  one: { label: words.place, of: PLACES.map((key) => ({ key, name: words.places[key], label: words.at[key], placeholder: words.examples[key], required: true })) },
  fields: [
    { key: 'path', label: words.path, hint: words.pathHint, required: true, isFirst: true },
    { key: 'endpoint', label: words.endpoint, placeholder: 'https://s3.example.com', of: ['bucket'] },
    { isHalf: true, key: 'prefix', label: words.prefix, of: ['bucket'] },
    { isHalf: true, key: 'credentials-file', label: words.credentials, of: ['bucket'] },
    { key: 'password-file', label: words.passwordFile, of: ['postgres'] },
    { key: 'access', kind: 'choice', label: words.access, options: Object.entries(words.accesses) },
    { isHalf: true, key: 'users', kind: 'list', label: words.users, hint: words.listHint },
    { isHalf: true, key: 'groups', kind: 'list', label: words.groups, hint: words.listHint },
    { isHalf: true, key: 'quota-bytes', kind: 'number', label: words.quotaBytes, placeholder: '10G' },
    { isHalf: true, key: 'quota-files', kind: 'number', label: words.quotaFiles, placeholder: '100000' },
    { key: 'key-file', label: words.keyFile, hint: words.keyFileHint },
  ],
};

const place = (section) => saidOf(section, { key: PLACES.find((key) => section.keys.has(key)) });
const may = (section) => ['users', 'groups'].map((key) => saidOf(section, { key, kind: 'list' })).filter(Boolean).join(', ');

const COLUMNS = [
  { name: words.path, cell: FORM.titleOf },
  { name: words.place, is: 'wide', cell: place },
  { name: words.access, cell: (section) => words.accesses[saidOf(section, { key: 'access' })] ?? saidOf(section, { key: 'access' }) },
  { name: words.whose, cell: (section) => may(section) || <span class="quiet">{words.everybody}</span> },
];

export function Folders() {
  return <Tables title={text.pages.folders} form={FORM} columns={COLUMNS} note={words.note} />;
}
