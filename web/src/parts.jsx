// What pages are made of: tables, forms, dialogs and notices.
import { createContext } from 'preact';
import { useContext, useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { text } from './text.js';

const RANKS = ['viewer', 'operator', 'administrator'];

/** What all pages know: who is signed in, and how to tell something. */
export const Shared = createContext({ me: {}, tell: () => {} });

/** Returns whether the user has this role, or one above it. */
export function useMay(role) {
  return RANKS.indexOf(useContext(Shared).me.role) >= RANKS.indexOf(role);
}

/** Returns a function that performs something, then tells its result or why it failed. */
export function useAct() {
  const { tell } = useContext(Shared);
  return async (perform, done) => {
    try {
      const answer = await perform();
      tell(typeof done === 'function' ? done(answer) : done);
      return answer;
    } catch (error) {
      tell(text.failed(error.message), true);
      return undefined;
    }
  };
}

/** The head of a page, its tools on the right. */
export function Head({ title, note, children }) {
  useEffect(() => { document.title = `${title} · Millrace`; }, [title]);
  return (
    <header class="head">
      <h1 tabindex="-1">{title}</h1>
      {note && <p class="note">{note}</p>}
      <div class="tools">{children}</div>
    </header>
  );
}

/** Shows an error of a poll above what was there before. */
export function Trouble({ error }) {
  if (!error) return null;
  return <p class="trouble" role="alert">{error.status === 0 ? text.unreachable : error.message}</p>;
}

/** A table of few rows. A column has `name`, `cell(row)`, and `is` for its class. */
export function Table({ label, columns, rows, empty, keyOf }) {
  if (!rows) return <p class="quiet" aria-busy="true">{text.loading}</p>;
  if (rows.length === 0) return <p class="quiet">{empty}</p>;
  // The roles are said because narrow pages lay the cells out otherwise than as a table.
  return (
    <table role="table" aria-label={label}>
      <thead role="rowgroup"><tr role="row">{columns.map(({ name, is, hidden }) => (
        <th role="columnheader" class={is}>{hidden ? <span class="unseen">{name}</span> : name}</th>))}</tr></thead>
      <tbody role="rowgroup">{rows.map((row) => (
        <tr role="row" key={keyOf(row)}>{columns.map(({ name, cell, is, hidden }, at) => (at === 0
          ? <th role="rowheader" class={is}>{cell(row)}</th> : <td role="cell" class={is} data-name={hidden ? undefined : name}>{cell(row)}</td>))}
        </tr>))}</tbody>
    </table>
  );
}

/** A labelled control. `initial` is its first value; with `value` it always has that one. `fault` says what is wrong with it. */
export function Field({ label, hint, fault, as = 'input', options, initial, isHalf, ...rest }) {
  const id = useId();
  const control = useRef();
  useLayoutEffect(() => { if (initial !== undefined) control.current.value = initial; }, []);
  const described = [hint && `${id}-hint`, fault && `${id}-fault`].filter(Boolean).join(' ') || undefined;
  const marks = { 'aria-invalid': fault ? true : undefined, 'aria-describedby': described };
  const Control = as;
  return (
    <div class={isHalf ? 'field half' : 'field'}>
      <label for={id}>{label}</label>
      {as === 'select'
        ? <select id={id} ref={control} {...marks} {...rest}>{options.map(([value, name]) => <option value={value}>{name}</option>)}</select>
        : <Control id={id} ref={control} {...marks} autocomplete="off" spellcheck={false} {...rest} />}
      {hint && <small id={`${id}-hint`}>{hint}</small>}
      {fault && <small id={`${id}-fault`} class="fault" role="alert">{fault}</small>}
    </div>
  );
}

/** A dialog at the side of the page. The browser keeps the focus in it; Escape closes it. */
export function Sheet({ title, onClose, wide, children }) {
  const dialog = useRef();
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.isConnected && before.focus({ preventScroll: true });
  }, []);
  const onClick = (event) => event.target === dialog.current && onClose();
  return (
    <dialog ref={dialog} class={wide ? 'sheet wide' : 'sheet'} aria-labelledby={id} onClose={onClose} onClick={onClick}>
      <div class="sheet-body">
        <header><h2 id={id}>{title}</h2><button type="button" class="plain" aria-label={text.close} onClick={onClose}>✕</button></header>
        {children}
      </div>
    </dialog>
  );
}

/** A form that submits the values of its fields by their names. */
export function Form({ onSubmit, children, class: kind, ...rest }) {
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    const form = event.currentTarget;
    setBusy(true);
    try { await onSubmit(Object.fromEntries(new FormData(form)), form); } finally { setBusy(false); }
  };
  return <form class={kind} aria-busy={busy} onSubmit={submit} {...rest}>{children}</form>;
}

/** Asks before something that cannot be taken back. */
export function Confirm({ title, question, action, onYes, onClose }) {
  return (
    <Sheet title={title} onClose={onClose}>
      <p>{question}</p>
      <div class="buttons">
        <button type="button" class="danger" onClick={() => { onClose(); onYes(); }}>{action}</button>
        <button type="button" onClick={onClose}>{text.cancel}</button>
      </div>
    </Sheet>
  );
}

/** Lines that differ between two texts, with two lines around them. */
export function Diff({ before, after }) {
  const lines = differences(before.split('\n'), after.split('\n'));
  if (!lines.some(([sign]) => sign !== ' ')) return <p class="quiet">{text.config.unchanged}</p>;
  const near = (at) => lines.slice(Math.max(0, at - 2), at + 3).some(([sign]) => sign !== ' ');
  const shown = lines.map((line, at) => (near(at) ? line : null));
  return (
    <pre class="diff" tabindex="0">{shown.map((line, at) => (line
      ? <span class={{ '+': 'plus', '-': 'minus' }[line[0]]}>
          {line[0] !== ' ' && <span class="unseen">{line[0] === '+' ? text.config.added : text.config.gone} </span>}{`${line[0]} ${line[1]}\n`}</span>
      : (at === 0 || shown[at - 1]) && <span class="gap">{'⋯\n'}</span>))}</pre>
  );
}

/** Returns the lines of both, each with ` `, `-` or `+`, by the longest common subsequence. */
export function differences(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < Math.min(before.length, after.length) - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const [old, own] = [before.slice(start, before.length - end), after.slice(start, after.length - end)];
  // Too long to be compared: all of it changed.
  const isLong = old.length * own.length > 4_000_000;
  const common = isLong ? [] : Array.from({ length: old.length + 1 }, () => new Uint16Array(own.length + 1));
  for (let i = old.length - 1; i >= 0 && !isLong; i--) {
    for (let j = own.length - 1; j >= 0; j--) {
      common[i][j] = old[i] === own[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = before.slice(0, start).map((line) => [' ', line]);
  let [i, j] = [0, 0];
  while (i < old.length || j < own.length) {
    if (!isLong && i < old.length && j < own.length && old[i] === own[j]) {
      lines.push([' ', old[i++]]);
      j++;
    } else if (i < old.length && (j === own.length || isLong || common[i + 1][j] >= common[i][j + 1])) {
      lines.push(['-', old[i++]]);
    } else {
      lines.push(['+', own[j++]]);
    }
  }
  return lines.concat(before.slice(before.length - end).map((line) => [' ', line]));
}
