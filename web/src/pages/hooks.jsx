// What is asked and told of what sessions do: the [[hook]] tables of the configuration.
import { text } from '../text.js';
import { saidOf, Tables } from './tables.jsx';

const words = text.hooks;

const ACTIONS = ['webhook', 'run', 'refuse', 'rewrite', 'move', 'verify'];
const OUTSIDE = ['webhook', 'run'];

const FORM = {
  table: 'hook',
  words,
  titleOf: (section) => `${saidOf(section, { key: 'on', kind: 'list' })} ${saidOf(section, { key: 'paths', kind: 'list' })}`.trim(),
  one: {
    label: words.action,
    of: ACTIONS.map((key) => ({ key, kind: key === 'run' ? 'lines' : 'text', name: words.actions[key], label: words.does[key], placeholder: words.examples[key], hint: words.hints[key], required: true })),
  },
  fields: [
    { key: 'on', kind: 'list', label: words.on, hint: words.onHint, required: true, isFirst: true },
    { key: 'verbs', kind: 'list', label: words.verbs, hint: words.verbsHint },
    { isHalf: true, key: 'paths', kind: 'list', label: words.paths, hint: words.pathsHint },
    { isHalf: true, key: 'users', kind: 'list', label: words.users, hint: words.usersHint },
    { key: 'wait', kind: 'choice', label: words.wait, options: Object.entries(words.waits), of: OUTSIDE },
    { isHalf: true, key: 'time-limit', label: words.time, placeholder: '10s', of: OUTSIDE },
    { isHalf: true, key: 'on-failure', kind: 'choice', label: words.failure, options: Object.entries(words.failures), of: OUTSIDE },
    { key: 'secret-file', label: words.secret, hint: words.secretHint, of: ['webhook'] },
  ],
};

const shown = (key) => (section) => saidOf(section, { key, kind: 'list' });
const action = (section) => {
  const key = ACTIONS.find((own) => section.keys.has(own));
  const said = key && saidOf(section, { key, kind: key === 'run' ? 'lines' : 'text' });
  return key ? <><span class="quiet">{words.verb[key]}</span> {said.replaceAll('\n', ' ')}</> : '';
};

const COLUMNS = [
  { name: words.on, cell: shown('on') },
  { name: words.paths, is: 'wide', cell: (section) => shown('paths')(section) || <span class="quiet">{words.all}</span> },
  { name: words.action, is: 'wide', cell: action },
  { name: words.users, cell: shown('users') },
];

export function HooksPage() {
  return <Tables title={text.pages.hooks} form={FORM} columns={COLUMNS} note={words.note} />;
}
