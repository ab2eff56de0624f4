// The frame of the pages: who is signed in, navigation, notices.
import { render } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { call, keepToken, onSignedOut, usePoll } from './api.js';
import { Shared } from './parts.jsx';
import { language, text } from './text.js';
import { Bans } from './pages/bans.jsx';
import { Certificates } from './pages/certificates.jsx';
import { Configuration } from './pages/configuration.jsx';
import { Deliveries } from './pages/deliveries.jsx';
import { Folders } from './pages/folders.jsx';
import { HooksPage } from './pages/hooks.jsx';
import { LimitsPage } from './pages/limits.jsx';
import { Log } from './pages/log.jsx';
import { Login } from './pages/login.jsx';
import { Overview } from './pages/overview.jsx';
import { Sessions } from './pages/sessions.jsx';
import { Users } from './pages/users.jsx';

const VIEWER = ['viewer', 'operator', 'administrator'];
const ADMINISTRATOR = ['administrator'];

/** The pages in the order of the navigation, and the roles that have them there. */
const PAGES = [
  ['overview', Overview, VIEWER], ['sessions', Sessions, VIEWER], ['log', Log, VIEWER], ['deliveries', Deliveries, VIEWER], ['bans', Bans, VIEWER],
  ['limits', LimitsPage, VIEWER], ['users', Users, VIEWER], ['folders', Folders, ADMINISTRATOR], ['hooks', HooksPage, ADMINISTRATOR],
  ['certificates', Certificates, ADMINISTRATOR], ['configuration', Configuration, ADMINISTRATOR],
];

const THEMES = ['auto', 'light', 'dark'];

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem('millrace-theme') ?? 'auto');
  useEffect(() => {
    localStorage.setItem('millrace-theme', theme);
    document.documentElement.dataset.theme = theme;
    dispatchEvent(new Event('millrace-theme'));
  }, [theme]);
  return [theme, setTheme];
}

/** The page that the address names: `#/sessions?user=alice`. */
function usePage() {
  const read = () => {
    const [name, values] = location.hash.replace(/^#\//, '').split('?');
    return { name: PAGES.some(([own]) => own === name) ? name : 'overview', values: Object.fromEntries(new URLSearchParams(values)) };
  };
  const [page, setPage] = useState(read);
  useEffect(() => {
    const change = () => setPage(read());
    addEventListener('hashchange', change);
    return () => removeEventListener('hashchange', change);
  }, []);
  return page;
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 20 20" aria-hidden="true">
      {[6, 11, 16].map((y) => <path d={`M2 ${y}c2.7-2.6 5.3 2.6 8 0s5.3 2.6 8 0`} />)}
    </svg>
  );
}

function Navigation({ page, me, signOut }) {
  const [isOpen, setOpen] = useState(false);
  const [theme, setTheme] = useTheme();
  const { data: status } = usePoll(() => call('GET', 'status'), 5000, []);
  useEffect(() => setOpen(false), [page]);
  const counts = { sessions: status?.sessions };
  return (
    <div class={isOpen ? 'side open' : 'side'}>
      <div class="brand"><Mark /><span>{text.appName}</span></div>
      <button type="button" class="plain menu" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{text.menu}</button>
      <nav aria-label={text.navigation}>
        {PAGES.filter(([, , roles]) => roles.includes(me.role)).map(([name]) => (
          <a href={`#/${name}`} aria-current={name === page.name ? 'page' : undefined} onClick={() => setOpen(false)}>
            {text.pages[name]}{counts[name] > 0 && <span class="number">{counts[name].toLocaleString('en')}</span>}
          </a>))}
      </nav>
      <footer>
        <div class="me"><b>{me.name}</b><span>{text.roles[me.role]}</span></div>
        <label class="unseen" for="theme">{text.theme}</label>
        <select id="theme" value={theme} onChange={(event) => setTheme(event.currentTarget.value)}>
          {THEMES.map((name) => <option value={name}>{text.themes[name]}</option>)}
        </select>
        <button type="button" class="plain" onClick={signOut}>{text.signOut}</button>
        {status && <small>Millrace {status.version}</small>}
      </footer>
    </div>
  );
}

function useNotices() {
  const [notices, setNotices] = useState([]);
  const tell = useCallback((message, isFault = false) => {
    if (!message) return;
    const notice = { message, isFault };
    setNotices((before) => [...before.slice(-2), notice]);
    setTimeout(() => setNotices((before) => before.filter((one) => one !== notice)), isFault ? 12000 : 5000);
  }, []);
  const shown = (
    <div class="notices" role="status">{notices.map(({ message, isFault }) => <p class={isFault ? 'fault' : ''}>{message}</p>)}</div>
  );
  return [shown, tell];
}

function App() {
  const page = usePage();
  const main = useRef();
  const [me, setMe] = useState();
  const [hint, setHint] = useState('');
  const [notices, tell] = useNotices();
  const enter = useCallback(async () => {
    try {
      setMe(await call('GET', 'me', { isLogin: true }));
    } catch (problem) {
      setHint(problem.body?.type === 'urn:millrace:set-up' ? problem.message : '');
      setMe(null);
    }
  }, []);
  const signOut = async () => {
    await call('POST', 'logout').catch(() => {});
    keepToken(null);
    setMe(null);
  };
  useEffect(() => { onSignedOut(() => setMe(null)); enter(); }, []);
  useEffect(() => { document.querySelector('dialog[open]') || main.current?.querySelector('h1')?.focus({ preventScroll: true }); }, [page.name]);
  if (me === undefined) return null;
  if (me === null) return <><Login hint={hint} enter={enter} />{notices}</>;
  const [, Page] = PAGES.find(([name, , roles]) => name === page.name && roles.includes(me.role)) ?? PAGES[0];
  return (
    <Shared.Provider value={{ me, tell }}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current.focus(); }}>{text.skip}</a>
      <Navigation page={page} me={me} signOut={signOut} />
      <main id="main" ref={main} tabindex="-1"><Page key={page.name} values={page.values} /></main>
      {notices}
    </Shared.Provider>
  );
}

document.documentElement.lang = language;
render(<App />, document.getElementById('app'));
