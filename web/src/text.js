// What the dashboard says, by language. A translation is another table with the same keys.
import { de } from './text.de.js';

const en = {
  appName: 'Millrace',
  pages: {
    overview: 'Overview', sessions: 'Sessions', log: 'Log', deliveries: 'Deliveries', bans: 'Bans', limits: 'Limits', users: 'Users and groups',
    folders: 'Folders', hooks: 'Hooks', certificates: 'Certificates', configuration: 'Configuration',
  },
  menu: 'Menu', skip: 'Skip to content', navigation: 'Pages', signOut: 'Sign out', theme: 'Theme',
  themes: { auto: 'System', light: 'Light', dark: 'Dark' },
  roles: { viewer: 'viewer', operator: 'operator', administrator: 'administrator' },
  loading: 'Loading', close: 'Close', cancel: 'Cancel', save: 'Save', remove: 'Delete', edit: 'Edit', add: 'Add', none: 'none',
  unlimited: 'unlimited', server: 'server', filter: 'Filter', of: 'of', yes: 'yes', no: 'no', actions: 'Actions',
  unreachable: 'The server does not answer. Trying again.', failed: (what) => `Failed: ${what}`,
  forbidden: (role) => `Your role, ${role}, may look but not change this.`,
  login: {
    title: 'Sign in', name: 'User name', password: 'Password', code: 'One-time code',
    submit: 'Sign in', token: 'Token', useToken: 'Sign in with a token', usePassword: 'Sign in with a password',
    wrong: 'The name, the password or the code is wrong.', codeNeeded: 'This account has a second factor: enter its code, too.', wrongToken: 'The server does not know this token.',
    slow: 'Too many attempts. Wait a moment and try again.', useProvider: 'Sign in with single sign-on',
    noProvider: 'The provider of single sign-on does not answer. Sign in otherwise, or try again later; the log of the server has the reason.',
    returned: {
      refused: 'The provider of single sign-on refused the sign-in.', late: 'The sign-in took too long, or began in another browser. Try again.',
      role: 'Your account has no role on this server. An administrator gives it one in the configuration.',
      failed: 'The sign-in failed. The log of the server has the reason.',
    },
    firstTitle: 'Set up access',
    first: 'No account has a role here yet, and there is no token. On the server, make a token and sign in with it:',
    firstThen: 'Or give accounts a role in the configuration file, and reload:',
  },
  overview: {
    up: (time) => `up ${time}`, process: (pid) => `process ${pid}`, attention: 'Needs attention', well: 'Everything works.',
    lastHour: 'The last hour', download: 'Download', upload: 'Upload', sessions: 'Sessions', requests: 'Requests', failures: 'Failures',
    perSecond: '/s', busiest: 'Fastest transfers', idle: 'No transfer is under way.', all: 'All sessions', peak: (value) => `peak ${value}`,
    unhealthy: (why) => `Not healthy: ${why}`, ending: 'The server is ending; it takes no new clients.',
    bans: (n) => (n === 1 ? '1 network is banned' : `${n} networks are banned`),
    failed: (n) => (n === 1 ? '1 failure in the last hour' : `${n} failures in the last hour`),
    parked: (n) => (n === 1 ? '1 delivery was put aside' : `${n} deliveries were put aside`),
    waiting: (n) => (n === 1 ? '1 delivery waits' : `${n} deliveries wait`),
    certificate: (name, days) => (days < 0 ? `Certificate ${name} has expired` : days < 1 ? `Certificate ${name} expires today` : days < 2
      ? `Certificate ${name} expires in 1 day` : `Certificate ${name} expires in ${Math.floor(days)} days`),
    lag: (worker, ms) => `Worker ${worker} answers after ${ms} ms`,
    show: 'Show', chart: (what, now, peak) => `${what} over the last hour: now ${now}, peak ${peak}`,
  },
  sessions: {
    user: 'User', address: 'Address', protocol: 'Protocol', doing: 'Doing', progress: 'Progress', rate: 'Rate', waits: 'Waits for',
    idle: 'Idle', age: 'Connected', local: 'To', session: 'Session', bytes: 'Bytes', notYet: 'not logged in', count: (n) => (n === 1
      ? '1 session' : `${n} sessions`), filterHint: 'Name, address or path', empty: 'No client is connected.', noMatch: 'No session matches.',
    kinds: { download: 'download', upload: 'upload', listing: 'listing' }, details: (id) => `Session ${id}`, sort: 'Sort by',
    gone: 'This session has ended.', kick: 'End session', kickUser: (user) => `End all sessions of ${user}`, kicked: (n) => (n === 1
      ? '1 session ended' : `${n} sessions ended`), ban: (address) => `Ban ${address}`, banned: (network) => `${network} is banned`,
    slow: (user) => `Slow down ${user}`, slowHint: 'Bytes a second, such as 500k or 2M. Holds until the server restarts.',
    slowHintNode: 'Bytes a second, such as 500k or 2M. Holds at the node whose dashboard this is, until it restarts.',
    apply: 'Apply', limited: (user) => `Limits of ${user} updated`, restored: (user) => `${user} has the configured limits again`,
    keys: 'Arrow keys move between rows, Enter opens one.', node: 'Node', allNodes: 'All nodes', kickNode: (node) => `End all sessions at ${node}`,
    kickNodeAsk: (node) => `End every session at node ${node}? Transfers are cut. The node goes on taking clients.`,
  },
  log: {
    pause: 'Pause', resume: 'Resume', clear: 'Clear', filterHint: 'Text in the line', waiting: 'Lines appear here as they are written.',
    lost: 'The log was interrupted. Trying again.', held: (n) => (n === 1 ? '1 new line' : `${n} new lines`),
    shown: (n) => (n === 1 ? '1 line' : `${n} lines`),
  },
  bans: {
    network: 'Network', user: 'Except for', left: 'Expires in', forever: 'when lifted', lift: 'Lift', add: 'Ban a network',
    hint: 'An address or a network, such as 192.0.2.7 or 192.0.2.0/24', time: 'For', empty: 'No network is banned.',
    lifted: (network) => `${network} is no longer banned`,
    times: { 600: '10 minutes', 3600: '1 hour', 86400: '1 day', 604800: '7 days', '': 'Until it is lifted' },
  },
  limits: {
    scope: 'For', sessions: 'Sessions', most: 'At most', download: 'Download', upload: 'Upload', change: 'Change', changed: 'Limits updated',
    restore: 'Restore the configured limits', add: 'Set a limit', scopeHint: 'server, user NAME, group NAME, listener ADDRESS:PORT or session NUMBER',
    rateHint: 'Bytes a second: 500k, 2M; none for no limit', quotas: 'Quotas', tree: 'Folder', bytes: 'Bytes', files: 'Files',
    exact: 'Exact', recount: 'Count anew', recounted: 'Counted', noQuotas: 'No folder with a quota is in use.', empty: 'No limits are in force.',
    holds: 'What is set here holds until the server restarts. The configuration holds longer.',
  },
  deliveries: {
    to: 'To', event: 'Event', time: 'Time', user: 'User', path: 'Path', state: 'State', error: 'Last error', retry: 'Deliver again',
    retryAll: 'Deliver all again', drop: 'Forget', dropAll: 'Forget those put aside', empty: 'Every event was delivered.', retried: (n) => `${n} tried again`,
    dropped: (n) => `${n} forgotten`, states: { parked: 'put aside', waiting: 'waiting' },
    forget: 'Their receivers will never be told of these events.',
  },
  users: {
    name: 'Name', user: 'User', access: 'Access', directory: 'Folder', groups: 'Groups', state: 'State', disabled: 'disabled', noPassword: 'no password',
    active: 'active', configured: 'in the configuration', members: 'Members', add: 'Add user', editUser: (name) => `User ${name}`,
    editGroup: (name) => `Group ${name}`, password: 'Password', newPassword: 'New password', change: 'Change password', make: 'Generate', showPassword: 'Show',
    passwordChanged: (name) => `The password of ${name} is changed`, directoryHint: 'Within the served folder; empty for all of it', allOfIt: 'all of it',
    accesses: { '': 'as groups or the server say', rw: 'read and write', ro: 'read only', none: 'nothing' }, other: 'Other settings',
    otherHint: 'One a line, as in a [[user]] table: hours = ["mon-fri 08:00-18:00"]', disable: 'Disabled', saved: (name) => `${name} saved`,
    removed: (name) => `${name} deleted`, confirm: (name) => `Delete ${name}? Files stay; sessions end.`, empty: 'There are no users yet.',
    noMatch: 'No user matches.', emptyGroups: 'The configuration has no groups.', usersTitle: 'Users', groupsTitle: 'Groups',
    groupsHint: 'What the user does not say, the first group that does says.', goneGroup: '(not in the configuration)', download: 'Download', upload: 'Upload',
    sessions: 'Sessions', line: (line) => `Not a setting: ${line}`, filterHint: 'Name or group', show: 'Show', showMembers: 'Show members',
    count: (n) => (n === 1 ? '1 user' : `${n} users`), more: 'Show more', unlisted: (names) => `Users of these are found by name alone, and not listed: ${names}.`,
    conflict: 'Another administrator changed this user meanwhile. Nothing was saved.', theirs: 'Show the change', own: 'set for the user',
    ofGroup: (name) => `from group ${name}`, holds: 'What holds for this user', nothingSet: 'Nothing is set: the defaults hold.',
    readOnly: 'This user is in the configuration file, and is changed there.', readOnlyGroup: 'Groups are [[group]] tables of the configuration file, and are changed there.',
    noDatabase: 'The server has no database of users: "millrace user add NAME" makes one, for the next start.', ask: 'Ask for one-time codes', askNot: 'Ask for no codes',
    codes: 'One-time codes', codesHint: 'Enter this secret in an authenticator app. It is not shown again.', noCodes: (name) => `${name} needs no code any more`,
  },
  groups: {
    add: 'Add group', edit: (name) => `Group ${name}`, saved: 'The group is saved', removed: 'The group is gone', asServer: 'as the server says',
  },
  tables: {
    other: 'Other settings', otherHint: 'One a line, as in the file: upload-hash = "sha256"', theirs: 'Show the change', line: (line) => `Not a setting: ${line}`,
    elsewhere: 'The file has a value that does not fit here. It holds unless you enter another.',
    conflict: 'Another administrator changed the configuration meanwhile. Nothing was saved.', confirm: (what) => `Delete ${what}? An earlier version of the configuration has it.`,
  },
  folders: {
    add: 'Add folder', edit: (path) => `Folder ${path}`, saved: 'The folder is saved', removed: 'The folder is no longer shown', count: (n) => (n === 1 ? '1 folder' : `${n} folders`),
    empty: 'No folders are shown beside the one that is served.', note: 'A folder shows another place at a path of the tree. Changes hold from the next login on.',
    path: 'Path', pathHint: 'Where users see it: /archive or /mail/{user}', place: 'Where its files are', access: 'Access', whose: 'For', everybody: 'everybody',
    places: { directory: 'A folder of this machine', database: 'An SQLite database', postgres: 'A PostgreSQL database', bucket: 'A bucket of an S3-compatible store' },
    at: { directory: 'Folder', database: 'File of the database', postgres: 'Connection', bucket: 'Bucket' },
    examples: { directory: '/srv/archive', database: '/var/lib/millrace/files.db', postgres: 'host=db.example.net user=millrace dbname=files', bucket: 'files' },
    endpoint: 'Address of the store', prefix: 'Keys begin with', credentials: 'File of the credentials', passwordFile: 'File of the password',
    accesses: { '': 'as users may', rw: 'read and write', ro: 'read only' }, users: 'Users', groups: 'Groups', listHint: 'Empty: everybody',
    quotaBytes: 'Quota', quotaFiles: 'Files at most', keyFile: 'File of the key', keyFileHint: 'With a key the files are encrypted: openssl rand -hex 32 makes one.',
  },
  hooks: {
    add: 'Add hook', edit: (on) => `Hook on ${on}`, saved: 'The hook is saved', removed: 'The hook is gone', count: (n) => (n === 1 ? '1 hook' : `${n} hooks`),
    empty: 'Nothing is asked and no one is told.', note: 'Hooks are looked at in this order. The file says what stands behind what.',
    on: 'Events', onHint: 'With commas between them: upload, login, command', verbs: 'Commands', verbsHint: 'Where the event is command: STOR, SITE CHMOD; empty: all',
    paths: 'Paths', pathsHint: 'Patterns: /in/**; empty: all', users: 'Users', usersHint: 'Patterns: partner-*; empty: all',
    all: 'all', action: 'Action', actions: {
      webhook: 'Post to a web address', run: 'Run a program', refuse: 'Refuse', rewrite: 'Use another path', move: 'Move the upload', verify: 'Verify the hash of the upload',
    },
    does: { webhook: 'Address', run: 'Program', refuse: 'Text of the reply', rewrite: 'Path', move: 'New path', verify: 'Hash' },
    verb: { webhook: 'post to', run: 'run', refuse: 'refuse:', rewrite: 'use', move: 'move to', verify: 'verify' },
    hints: { run: 'The program and its arguments, one a line', refuse: 'A code of 400 to 599 may stand before it' },
    examples: { webhook: 'https://example.com/events', run: '/usr/local/bin/check\n{file}', refuse: '553 Upload to /in.', rewrite: '/in/{user}/{name}', move: '/checked/{user}/{name}', verify: 'sha256' },
    wait: 'The session waits', waits: { '': 'where it is asked', true: 'yes', false: 'no: it is told later' }, time: 'Time limit',
    failure: 'Where it fails', failures: { '': 'refuse', pass: 'go on' }, secret: 'File of the secret', secretHint: 'Posts are signed with its first line.',
  },
  certificates: {
    certificate: 'Certificate', key: 'Private key', expires: 'Expires', add: 'Add certificate', edit: 'Certificate', saved: 'The certificate is saved', removed: 'The certificate is gone',
    count: (n) => (n === 1 ? '1 certificate' : `${n} certificates`), empty: 'No certificate of a file is in use.', sameFile: 'in the same file', notYet: 'not in force', withoutTls: 'The server began without TLS: certificates are in force from its next start on.',
    left: (days) => (days < 0 ? 'has expired' : days < 1 ? 'today' : days < 2 ? 'in 1 day' : `in ${days} days`), confirm: (path) => `Use ${path} no longer? The file stays.`,
    unread: 'The file names its certificates in a way that this page does not read. They are changed on the page Configuration.',
    certificateHint: 'A file in PEM, with the intermediate certificates behind it. Clients get the one for the name that they ask for, else the first.',
    keyHint: 'Empty: in the same file', acme: {
      title: 'From a certificate authority', about: "A certificate for these names is fetched from Let's Encrypt, or the authority of the file, and renewed.", saved: 'The names are in force',
      names: 'Names', namesHint: 'Names with commas between them', contact: 'Mail addresses', agree: 'Agree to the terms of service of the authority',
    },
    clients: {
      title: 'Certificates of clients', about: 'A client may show a certificate that one of these authorities has signed.', saved: 'The authorities are in force',
      authority: 'File of the authorities', required: 'Clients need a certificate',
    },
  },
  config: {
    text: 'Configuration file', history: 'History', review: 'Review changes', apply: 'Apply', revert: 'Discard changes', valid: 'No faults found.',
    checking: 'Checking', faults: (n) => (n === 1 ? '1 fault' : `${n} faults`), line: (n) => `line ${n}`, unchanged: 'Nothing changed.',
    applied: 'The configuration is in force', nextStart: (keys) => `In force at the next start: ${keys}`, conflict:
      'Another administrator changed the configuration meanwhile. Your text is still here; compare it with theirs before you apply it.',
    takeTheirs: 'Compare with the new text', reviewTitle: 'Review changes', who: 'By', when: 'When', what: 'Change', restore: 'Roll back to this',
    restored: 'Rolled back', noHistory: 'No earlier versions are kept yet.', diffTitle: (n) => `Version ${n}`, added: 'added', gone: 'removed',
    readOnly: 'The file can be read here, not replaced: admin-writes-config = true permits it, from the next start on.', before: 'not by the API', show: 'Show',
  },
};

const languages = { en, de };

/** The language of the browser, where there is a table of it. */
export const language = navigator.languages.map((tag) => tag.slice(0, 2)).find((tag) => tag in languages) ?? 'en';

/** Fills what a translation lacks from English. */
const filled = (own, base) => Object.fromEntries(Object.entries(base).map(([key, value]) => [key, typeof value === 'object'
  ? filled(own?.[key], value) : own?.[key] ?? value]));

export const text = filled(languages[language], en);
