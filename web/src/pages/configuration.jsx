// The configuration file: edit, check, compare, apply, and go back to an earlier version.
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, usePoll } from '../api.js';
import { moment } from '../format.js';
import { Diff, Head, Sheet, Table, Trouble, useAct } from '../parts.jsx';
import { text } from '../text.js';

const words = text.config;

/** Returns what the server says of a text as faults, `{line, message}`; the place in front of the message is the line's. */
export const faultsOf = ({ body, message }) => [{ line: body.line, message: message.replace(/^\S+:\d+:\d+: /, '') }];

/** The text with its lines numbered; those with faults are marked. */
function Editor({ value, faults, isReadOnly, onInput, area }) {
  const gutter = useRef();
  const faulty = new Set(faults.map(({ line }) => line));
  const lines = value.split('\n').length;
  return (
    <div class="editor">
      <div class="gutter" ref={gutter} aria-hidden="true">
        {Array.from({ length: lines }, (_, at) => <span class={faulty.has(at + 1) ? 'fault' : ''}>{`${at + 1}\n`}</span>)}
      </div>
      <textarea ref={area} value={value} spellcheck={false} autocapitalize="off" wrap="off" readOnly={isReadOnly} aria-label={words.text} aria-invalid={faults.length > 0}
        aria-describedby="faults" onInput={(event) => onInput(event.currentTarget.value)}
        onScroll={(event) => { gutter.current.scrollTop = event.currentTarget.scrollTop; }} />
    </div>
  );
}

/** Selects a line of the text, and scrolls to it. */
function goTo(area, line) {
  const starts = [0, ...[...area.value.matchAll(/\n/g)].map(({ index }) => index + 1)];
  const start = starts[line - 1] ?? 0;
  area.focus();
  area.setSelectionRange(start, (starts[line] ?? area.value.length + 1) - 1);
  area.scrollTop = Math.max(0, (line - 5) * parseFloat(getComputedStyle(area).lineHeight));
}

/** Has the server check the text when it has not changed for a moment. */
function useFaults(value, isChanged) {
  const [faults, setFaults] = useState([]);
  const [isChecking, setChecking] = useState(false);
  useEffect(() => {
    if (!isChanged) { setFaults([]); setChecking(false); return undefined; }
    setChecking(true);
    let isOver = false;
    const found = (list) => { if (!isOver) { setFaults(list); setChecking(false); } };
    const timer = setTimeout(() => call('POST', 'config/validate', { body: { text: value } })
      .then(() => found([]), (problem) => found(faultsOf(problem))), 400);
    return () => { isOver = true; clearTimeout(timer); };
  }, [value, isChanged]);
  return { faults, isChecking };
}

/** Says what a reload has changed. */
export const appliedAs = (done) => (answer) => (answer['next-start']?.length ? `${done}. ${words.nextStart(answer['next-start'].join(', '))}` : done);

function Edit({ file, reload }) {
  const [value, setValue] = useState(file.text);
  const [isReviewing, setReviewing] = useState(false);
  const [isConflict, setConflict] = useState(false);
  const area = useRef();
  const act = useAct();
  const isChanged = value !== file.text;
  const { faults, isChecking } = useFaults(value, isChanged);
  useEffect(() => {
    const warn = (event) => { if (isChanged) event.preventDefault(); };
    addEventListener('beforeunload', warn);
    return () => removeEventListener('beforeunload', warn);
  }, [isChanged]);
  const apply = async () => {
    setReviewing(false);
    const put = () => call('PUT', 'config', { body: { text: value }, headers: { 'if-match': file.etag } })
      .catch((problem) => { setConflict(problem.status === 412); throw problem; });
    if (await act(put, appliedAs(words.applied))) await reload();
  };
  const compare = async () => { await reload(); setConflict(false); setReviewing(true); };
  return (
    <>
      {isConflict && <p class="trouble" role="alert">{words.conflict} <button type="button" onClick={compare}>{words.takeTheirs}</button></p>}
      {!file.writable && <p class="quiet">{words.readOnly}</p>}
      <Editor value={value} isReadOnly={!file.writable} faults={faults} onInput={setValue} area={area} />
      <div class="bar">
        <div id="faults" role="status" class="faults">
          {isChanged && (isChecking ? words.checking : faults.length === 0 ? <span class="well">{words.valid}</span> : (
            <ul>{faults.map(({ line, message }) => (
              <li class="fault">{line && <button type="button" class="link" onClick={() => goTo(area.current, line)}>{words.line(line)}</button>}
                {message}</li>))}</ul>))}
        </div>
        <button type="button" disabled={!isChanged} onClick={() => setValue(file.text)}>{words.revert}</button>
        <button type="button" class="primary" disabled={!isChanged || isChecking || faults.length > 0} onClick={() => setReviewing(true)}>{words.review}</button>
      </div>
      {isReviewing && (
        <Sheet wide title={words.reviewTitle} onClose={() => setReviewing(false)}>
          <Diff before={file.text} after={value} />
          <div class="buttons"><button type="button" class="primary" disabled={!isChanged} onClick={apply}>{words.apply}</button>
            <button type="button" onClick={() => setReviewing(false)}>{text.cancel}</button></div>
        </Sheet>)}
    </>
  );
}

function History({ file, reload }) {
  const { data, error, refresh } = usePoll(() => call('GET', 'config/history'), 5000, [file.etag]);
  const [open, setOpen] = useState();
  const act = useAct();
  const show = (number) => act(() => call('GET', `config/history/${number}`)).then((version) => version && setOpen(version));
  const restore = async () => {
    const headers = { 'if-match': file.etag };
    if (!await act(() => call('POST', `config/history/${open.version}/restore`, { headers }), appliedAs(words.restored))) return;
    setOpen(undefined);
    await Promise.all([reload(), refresh()]);
  };
  const columns = [
    { name: words.when, cell: ({ time }) => moment(time) }, { name: words.who, is: 'wide', cell: ({ by }) => (by === 'before' ? words.before : by) },
    { name: words.what, cell: ({ version }) => words.diffTitle(version) },
    { name: text.actions, hidden: true, is: 'act', cell: ({ version }) => (
      <button type="button" aria-label={`${words.show}: ${words.diffTitle(version)}`} onClick={() => show(version)}>{words.show}</button>) },
  ];
  return (
    <section>
      <h2>{words.history}</h2>
      <Trouble error={error} />
      <Table label={words.history} columns={columns} rows={data?.versions} empty={words.noHistory} keyOf={({ version }) => version} />
      {open && (
        <Sheet wide title={words.diffTitle(open.version)} onClose={() => setOpen(undefined)}>
          <Diff before={file.text} after={open.text} />
          <div class="buttons"><button type="button" class="primary" disabled={!file.writable || open.text === file.text} onClick={restore}>{words.restore}</button></div>
        </Sheet>)}
    </section>
  );
}

export function Configuration() {
  const { data: file, error, refresh } = usePoll(() => call('GET', 'config'), 0, []);
  const [round, setRound] = useState(0);
  const reload = async () => { await refresh(); };
  return (
    <>
      <Head title={text.pages.configuration} note={file?.path} />
      {error?.status === 404 || error?.status === 409 ? <p class="quiet">{error.message}</p> : <Trouble error={error} />}
      {file && <Edit key={round} file={file} reload={reload} />}
      {file && <History file={file} reload={async () => { await reload(); setRound(round + 1); }} />}
    </>
  );
}
