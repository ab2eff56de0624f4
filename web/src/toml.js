// The statements of a TOML text, with their places: a form changes a few of them, and leaves all other lines and comments alone.

const endOfLine = (source, at) => { const end = source.indexOf('\n', at); return end < 0 ? source.length : end; };

/** Returns the end of the string that begins at `at`. */
function endOfString(source, at) {
  const quote = source[at];
  const mark = source.startsWith(quote.repeat(3), at) ? quote.repeat(3) : quote;
  for (let i = at + mark.length; i < source.length; i++) {
    if (quote === '"' && source[i] === '\\') i++;
    else if (source.startsWith(mark, i)) {
      let end = i + mark.length;
      // Two more quotes may stand before those that end a text of several lines.
      while (mark.length === 3 && source[end] === quote) end++;
      return end;
    } else if (mark.length === 1 && source[i] === '\n') return i;
  }
  return source.length;
}

/** Returns the end of the value that begins at `at`. */
function endOfValue(source, at) {
  let depth = 0;
  let end = at;
  for (let i = at; i < source.length;) {
    const letter = source[i];
    if (letter === '\n' && depth <= 0) break;
    if (letter === '#') {
      if (depth <= 0) break;
      i = endOfLine(source, i);
      continue;
    }
    depth += { '[': 1, '{': 1, ']': -1, '}': -1 }[letter] ?? 0;
    i = letter === '"' || letter === "'" ? endOfString(source, i) : i + 1;
    if (!/\s/.test(letter)) end = i;
  }
  return end;
}

/** Returns the heads of tables and the keys, in their order. A key has `raw`, and all have `from` and `to`, whole lines. */
export function statements(source) {
  const found = [];
  for (let at = 0; at < source.length;) {
    const line = source.slice(at, endOfLine(source, at));
    const [, table] = line.match(/^\s*\[{1,2}([^\]]+)\]/) ?? [];
    const [head, key] = line.match(/^\s*([\w.-]+|"[^"]*"|'[^']*')\s*=\s*/) ?? [];
    const begin = at + (head?.length ?? 0);
    const end = head ? endOfValue(source, begin) : begin;
    const to = Math.min(endOfLine(source, end) + 1, source.length);
    if (table) found.push({ table: table.replace(/["'\s]/g, ''), from: at, to });
    else if (head) found.push({ key: key.replace(/["']/g, ''), raw: source.slice(begin, end), from: at, begin, end, to });
    at = to;
  }
  return found;
}

/** Returns the tables of a name, or the top level as one if it is `''`: `from`, `to`, and `keys` by name. */
export function sections(source, name) {
  const found = name ? [] : [{ from: 0, to: 0, insert: 0, keys: new Map() }];
  let [own, isDeeper] = [found[0], false];
  for (const statement of statements(source)) {
    const { table, key, from, to } = statement;
    if (table && table === name) {
      own = { from, to, insert: to, keys: new Map() };
      found.push(own);
      isDeeper = false;
    } else if (table) {
      // A table in the table: it goes with it.
      isDeeper = Boolean(name) && table.startsWith(`${name}.`);
      if (!isDeeper) own = undefined;
    }
    if (!own) continue;
    own.to = to;
    if (key && !isDeeper) {
      own.insert = to;
      own.keys.set(key, statement);
    }
  }
  return found;
}

/** Returns the value of a text, a whole number, a flag or an array of texts; `undefined` for any other. */
export function read(raw) {
  // Numbers of more digits are not exact here.
  if (/^(true|false|0|[1-9]\d{0,14})$/.test(raw)) return JSON.parse(raw);
  if (/^'[^'\n]*'$/.test(raw)) return raw.slice(1, -1);
  if (/^"(?!"")/.test(raw)) { try { return JSON.parse(raw); } catch { return undefined; } }
  if (!raw?.startsWith('[') || /"""|'''/.test(raw)) return undefined;
  const part = /"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*/g;
  const isPlain = /^\[[\s,]*\]$/.test(raw.replace(part, ','));
  const values = isPlain ? (raw.match(part) ?? []).filter((one) => !one.startsWith('#')).map(read) : [undefined];
  return values.every((value) => typeof value === 'string') ? values : undefined;
}

/** Returns a value as TOML. */
export const written = (value) => (Array.isArray(value) ? `[${value.map((one) => JSON.stringify(one)).join(', ')}]` : JSON.stringify(value));

/** Returns whether two raw values say the same: `"a"` is `["a"]`. */
function isSame(one, other) {
  const [a, b] = [read(one), read(other)];
  return a !== undefined && b !== undefined && JSON.stringify([a].flat()) === JSON.stringify([b].flat());
}

/** Returns the text with these raw values in a section; a key whose value is `undefined` is left out. */
export function withKeys(source, section, raws) {
  const edits = [];
  let added = '';
  for (const [key, raw] of Object.entries(raws)) {
    const own = section.keys.get(key);
    if (own && raw === undefined) edits.push([own.from, own.to, '']);
    else if (own && !isSame(own.raw, raw)) edits.push([own.begin, own.end, raw]);
    else if (own) continue;
    else if (raw !== undefined) added += `${key} = ${raw}\n`;
  }
  const isCut = section.insert > 0 && source[section.insert - 1] !== '\n';
  if (added) edits.push([section.insert, section.insert, isCut ? `\n${added}` : added]);
  // From the end, so that places before stay what they are. What is added goes behind a change that ends there.
  edits.sort(([one, oneEnd], [other, otherEnd]) => other - one || otherEnd - oneEnd);
  return edits.reduce((text, [from, to, put]) => text.slice(0, from) + put + text.slice(to), source);
}

/** Returns the text with a further table at its end. */
export function withTable(source, name, raws) {
  const lines = Object.entries(raws).filter(([, raw]) => raw !== undefined).map(([key, raw]) => `${key} = ${raw}\n`);
  return `${source.trimEnd()}\n\n[[${name}]]\n${lines.join('')}`;
}

/** Returns the text without a table, and the comment right above it. */
export function withoutTable(source, { from, to }) {
  const before = source.slice(0, from).replace(/(^|\n)(?:[ \t]*#[^\n]*\n)+$/, '$1');
  return `${before.trimEnd()}\n${source.slice(to).replace(/^\n*/, before.trim() ? '\n' : '')}`.trimEnd().replace(/^\n+/, '') + '\n';
}

/** Returns the key of a section at a line of the text, if it has one there. */
export function keyAt(source, section, line) {
  const start = source.split('\n').slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
  return [...section.keys.values()].find(({ from, to }) => from <= start && start < to)?.key;
}
