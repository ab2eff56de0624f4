// Who is connected: doing what, how fast, waiting for what. And what to do about it.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { call, query, sessionOf, usePoll } from '../api.js';
import { duration, rate, size } from '../format.js';
import { Confirm, Field, Form, Head, Sheet, Trouble, useAct, useMay } from '../parts.jsx';
import { text } from '../text.js';
import { useNarrow, VirtualTable } from '../virtual.jsx';

const words = text.sessions;
const [ROW, NARROW_ROW] = [30, 54];

/** The file, with the direction in front. */
export function Doing({ session }) {
  if (!session.kind) return <span class="quiet">{[session.command, session.path].filter(Boolean).join(' ')}</span>;
  const arrow = { download: '↓', upload: '↑', listing: '≡' }[session.kind];
  return <span title={session.path}><span class="arrow" role="img" aria-label={words.kinds[session.kind]}>{arrow}</span> {session.path}</span>;
}

function Progress({ session }) {
  if (!session.kind) return null;
  if (!session.size) return <span>{size(session.bytes)}</span>;
  const share = Math.min(1, session.bytes / session.size);
  return <span class="progress"><progress value={share} aria-label={words.progress} /><span>{Math.floor(share * 100)} %</span></span>;
}

const Waits = ({ session }) => <span class={session.waits === 'command' ? 'quiet' : ''}>{session.waits}</span>;
const who = (session) => session.user ?? <span class="quiet">{words.notYet}</span>;

const COLUMNS = [
  { name: words.user, is: 'user', sort: 'user', cell: who },
  { name: words.address, is: 'address', sort: 'peer', cell: (session) => session.address },
  { name: words.protocol, is: 'protocol', cell: (session) => session.protocol },
  { name: words.doing, is: 'doing', cell: (session) => <Doing session={session} /> },
  { name: words.progress, is: 'done', cell: (session) => <Progress session={session} /> },
  { name: words.rate, is: 'figure rate', sort: '-rate', cell: (session) => rate(session.rate) },
  { name: words.waits, is: 'waits', cell: (session) => <Waits session={session} /> },
  { name: words.idle, is: 'figure idle', sort: '-idle', cell: (session) => duration(session.idle) },
];

/** In a cluster, which node it is at stands behind who it is. */
const CLUSTER_COLUMNS = [COLUMNS[0], { name: words.node, is: 'node', sort: 'node', cell: (session) => session.node }, ...COLUMNS.slice(1)];

/** What can be done about a session. */
function Actions({ session, onDone, onKickNode }) {
  const act = useAct();
  const user = session.user && encodeURIComponent(session.user);
  const kick = (path) => act(() => call('DELETE', path), (answer) => words.kicked(answer.kicked ?? 1)).then(onDone);
  const slow = ({ download, upload }) => act(
    () => call('PUT', `limits/${encodeURIComponent(`user ${session.user}`)}`, { body: { ...(download && { download }), ...(upload && { upload }) } }),
    words.limited(session.user));
  const restore = () => act(() => call('DELETE', `limits/${encodeURIComponent(`user ${session.user}`)}`), words.restored(session.user));
  const ban = ({ seconds }) => act(
    () => call('POST', 'bans', { body: { network: session.address, ...(seconds && { seconds: Number(seconds) }) } }), words.banned(session.address));
  return (
    <>
      <div class="buttons">
        <button type="button" class="danger" onClick={() => kick(`sessions/${session.id}`)}>{words.kick}</button>
        {user && <button type="button" onClick={() => kick(`sessions?user=${user}`)}>{words.kickUser(session.user)}</button>}
        {session.node && <button type="button" onClick={onKickNode}>{words.kickNode(session.node)}</button>}
      </div>
      {user && (
        <Form class="inline" onSubmit={slow} aria-label={words.slow(session.user)}>
          <h3>{words.slow(session.user)}</h3>
          <Field label={text.limits.download} name="download" placeholder="2M" />
          <Field label={text.limits.upload} name="upload" placeholder="500k" />
          <button type="submit">{words.apply}</button>
          <small>{session.node ? words.slowHintNode : words.slowHint} <button type="button" class="link" onClick={restore}>{text.limits.restore}</button></small>
        </Form>)}
      <Form class="inline" onSubmit={ban} aria-label={words.ban(session.address)}>
        <h3>{words.ban(session.address)}</h3>
        <Field label={text.bans.time} name="seconds" as="select" options={Object.entries(text.bans.times)} initial="3600" />
        <button type="submit" class="danger">{words.ban(session.address)}</button>
      </Form>
    </>
  );
}

/** A session by itself: `opened` is what was known of it, which is followed until it ends. */
function Details({ opened, onClose, onDone }) {
  const mayAct = useMay('operator');
  const last = useRef(opened);
  const find = (answer) => answer.sessions.find((one) => one.session === opened.id);
  const load = () => call('GET', query('sessions', { address: opened.address, limit: 1000 })).then((answer) => ({ found: find(answer) }));
  const { data } = usePoll(load, 1000, [opened.id]);
  const found = useMemo(() => data?.found && sessionOf(data.found), [data]);
  if (found) last.current = found;
  const session = last.current;
  const isGone = Boolean(data) && !found;
  const act = useAct();
  const [isAsked, setAsked] = useState(false);
  const kickNode = () => act(() => call('DELETE', query('sessions', { node: session.node })), (answer) => words.kicked(answer.kicked)).then(onDone);
  if (isAsked) return <Confirm title={words.kickNode(session.node)} question={words.kickNodeAsk(session.node)} action={words.kickNode(session.node)} onYes={kickNode} onClose={() => setAsked(false)} />;
  const facts = [
    [words.user, who(session)], [words.node, session.node], [words.address, session.peer], [words.local, session.local], [words.protocol, session.protocol],
    [words.doing, <Doing session={session} />],
    [words.bytes, session.kind && (session.size ? `${size(session.bytes)} ${text.of} ${size(session.size)}` : size(session.bytes))],
    [words.rate, rate(session.rate)], [words.waits, session.waits], [words.idle, duration(session.idle)], [words.age, duration(session.age)],
  ];
  return (
    <Sheet title={words.details(session.id)} onClose={onClose}>
      {isGone && <p class="trouble" role="status">{words.gone}</p>}
      <dl>{facts.filter(([, value]) => value).map(([name, value]) => <><dt>{name}</dt><dd>{value}</dd></>)}</dl>
      {mayAct && !isGone && <Actions session={session} onDone={onDone} onKickNode={() => setAsked(true)} />}
    </Sheet>
  );
}

/** Returns the names of the cluster's nodes, once it is known that there is one. */
function useNodes(isCluster) {
  const load = () => (isCluster ? call('GET', 'cluster') : Promise.resolve({ nodes: [] }));
  const { data } = usePoll(load, isCluster ? 10_000 : 0, [isCluster]);
  return [...new Set((data?.nodes ?? []).map(({ node }) => node))].sort();
}

export function Sessions({ values }) {
  const [filter, setFilter] = useState(values.user ?? values.address ?? '');
  const [node, setNode] = useState('');
  const [sort, setSort] = useState('-rate');
  const [open, setOpen] = useState();
  const [sight, setSight] = useState({ from: 0, limit: 60 });
  const isNarrow = useNarrow();
  const drawn = useRef();
  const load = () => call('GET', query('sessions', { sort, limit: sight.limit, offset: sight.from, text: filter.trim(), node }))
    .then((answer) => ({ ...answer, from: sight.from, rows: answer.sessions.map(sessionOf) }));
  const { data, error, refresh } = usePoll(load, 1000, [sort, filter, node, sight]);
  drawn.current = data ?? drawn.current;
  const { rows = [], from = 0, total = 0 } = drawn.current ?? {};
  const isCluster = useRef(false);
  isCluster.current ||= rows.some((row) => row.node);
  const nodes = useNodes(isCluster.current);
  const columns = isCluster.current ? CLUSTER_COLUMNS : COLUMNS;
  const onSight = (first, number) => setSight((before) => {
    const isInside = first >= before.from && first + number <= before.from + before.limit;
    return isInside ? before : { from: Math.max(0, first - 20), limit: number + 40 };
  });
  useEffect(() => { setSight((before) => ({ ...before, from: 0 })); }, [filter, node, sort]);
  return (
    <>
      <Head title={text.pages.sessions} note={words.count(total)}>
        {isNarrow && <Field label={words.sort} as="select" value={sort} onChange={(event) => setSort(event.currentTarget.value)}
          options={columns.filter((column) => column.sort).map((column) => [column.sort, column.name])} />}
        {isCluster.current && <Field label={words.node} as="select" value={node} onChange={(event) => setNode(event.currentTarget.value)}
          options={[['', words.allNodes], ...nodes.map((name) => [name, name])]} />}
        <Field label={text.filter} type="search" placeholder={words.filterHint} value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      </Head>
      <Trouble error={error} />
      {!drawn.current ? <p class="quiet" aria-busy="true">{text.loading}</p> : total === 0 && <p class="quiet">{filter || node ? words.noMatch : words.empty}</p>}
      <VirtualTable label={text.pages.sessions} kind={isCluster.current ? 'sessions cluster' : 'sessions'} hint={words.keys} columns={columns} rows={rows} from={from} total={total}
        height={isNarrow ? NARROW_ROW : ROW} idOf={(row) => row.id} sort={sort} onSort={setSort} onSight={onSight} onOpen={setOpen} />
      {open && <Details opened={open} onClose={() => setOpen(undefined)} onDone={() => { setOpen(undefined); refresh(); }} />}
    </>
  );
}
