//! The operations of the API.

mod accounts;

use hyper::Method;
use millrace_admin::Role;

use self::accounts::{
    CHANGED_USER, CODES, GROUP, GROUPS, GROUPS_QUERY, NEW_PASSWORD, NEW_USER, SOURCE, USER, USERS,
    USERS_QUERY,
};
use super::handlers::{configuring, links, live, orders, provided, users, visits};
use super::operation::Action::{self, Describe, Order, Own};
use super::operation::Kind::{File, Flag, Number, Object, Record, Records, Text, Texts, Whole, Word};
use super::operation::{Field, Operation, field, maybe, needed};

const VIEWER: Option<Role> = Some(Role::Viewer);
const OPERATOR: Option<Role> = Some(Role::Operator);
const ADMINISTRATOR: Option<Role> = Some(Role::Administrator);

const ROLES: &[&str] = &["viewer", "operator", "administrator"];

const OK: Field = needed("ok", Flag, "Always true");

/// All of them.
pub(crate) const OPERATIONS: &[Operation] = &[
    post(
        "/api/v1/login",
        None,
        "Logs in with an account of the server, and sends a cookie",
        LOGIN,
        ME,
        Own(visits::log_in),
    ),
    get("/api/v1/login", None, "Tells the ways to log in", &[], LOGIN_WAYS, Own(visits::ways)),
    post(
        "/api/v1/login/oidc",
        None,
        "Begins a login by the provider of OpenID Connect, which a browser goes on with",
        &[],
        &[OK, needed("url", Text, "The page of the provider")],
        Own(provided::begin),
    ),
    post("/api/v1/logout", None, "Ends the login of the cookie", &[], &[OK], Own(visits::log_out)),
    get("/api/v1/openapi.json", None, "Describes this API", &[], &[], Describe),
    get("/api/v1/me", VIEWER, "Tells who calls", &[], ME, Own(visits::me)),
    get("/api/v1/status", VIEWER, "Tells which server it is", &[], STATUS, Order("status", &[])),
    get("/api/v1/sessions", VIEWER, "Lists sessions", SESSIONS_QUERY, SESSIONS, Own(orders::sessions)),
    get(
        "/api/v1/limits",
        VIEWER,
        "Lists limits: all, or those of a scope",
        SCOPE,
        LIMITS,
        Order("limits", &[]),
    ),
    get("/api/v1/bans", VIEWER, "Lists bans", &[], BANS, Order("bans", &[])),
    get("/api/v1/cluster", VIEWER, "Lists the nodes of the cluster", &[], NODES, Order("cluster", &[])),
    get("/api/v1/quotas", VIEWER, "Tells what is used of quotas", &[], QUOTAS, Order("quotas", &[])),
    get(
        "/api/v1/events",
        VIEWER,
        "Lists undelivered events of hooks",
        EVENTS_QUERY,
        EVENTS,
        Order("events", &[]),
    ),
    get("/api/v1/audit", VIEWER, "Tells the last record of the audit log", &[], AUDIT, Order("audit", &[])),
    get("/api/v1/rates", VIEWER, "Tells the figures of the last hour", &[], RATES, Own(orders::rates)),
    get(
        "/api/v1/log",
        VIEWER,
        "Sends the log from now on, as server-sent events",
        LOG_QUERY,
        &[],
        Action::Live("log", live::log),
    ),
    get(
        "/api/v1/trace",
        OPERATOR,
        "Sends commands and replies of some sessions from now on, as server-sent events",
        TRACE_QUERY,
        &[],
        Action::Live("trace", live::trace),
    ),
    delete(
        "/api/v1/sessions",
        OPERATOR,
        "Ends the sessions of a user, at a virtual host, from an address, at a node, or of all these at once",
        WHOSE,
        KICKED,
        Order("kick", &[]),
    ),
    delete("/api/v1/sessions/{session}", OPERATOR, "Ends a session", &[], KICKED, Order("kick", &[])),
    put(
        "/api/v1/limits/{scope}",
        OPERATOR,
        "Sets limits until the server ends, or for all nodes of a cluster until they are restored",
        NEW_LIMITS,
        LIMITED,
        Order("limits", &[]),
    ),
    delete(
        "/api/v1/limits/{scope}",
        OPERATOR,
        "Restores the configured limits",
        &[],
        LIMITED,
        Order("limits", &["restore"]),
    ),
    post("/api/v1/bans", OPERATOR, "Refuses connections from a network", NEW_BAN, &[OK], Order("ban", &[])),
    delete("/api/v1/bans/{network}", OPERATOR, "Lifts a ban", &[], &[OK], Order("unban", &[])),
    post(
        "/api/v1/links",
        ADMINISTRATOR,
        "Makes a link to a file or a folder, which needs no account and expires",
        NEW_LINK,
        LINK,
        Own(links::make),
    ),
    post("/api/v1/quotas/recount", OPERATOR, "Counts files again", TREE, QUOTAS, Order("recount", &[])),
    post(
        "/api/v1/events/retry",
        OPERATOR,
        "Delivers parked events again",
        RETRY,
        &[OK, needed("retried", Whole, "How many")],
        Order("retry-events", &[]),
    ),
    delete(
        "/api/v1/events",
        OPERATOR,
        "Forgets events",
        DROP,
        &[OK, needed("dropped", Whole, "How many")],
        Order("drop-events", &[]),
    ),
    post(
        "/api/v1/notices/test",
        OPERATOR,
        "Sends a trial to each receiver of notices, and waits",
        &[],
        NOTICES_TRIED,
        Order("test-notices", &[]),
    ),
    post("/api/v1/reload", OPERATOR, "Reads the configuration anew", &[], RELOADED, Order("reload", &[])),
    post(
        "/api/v1/drain",
        OPERATOR,
        "Ends the server when its transfers have ended",
        DRAIN,
        ENDING,
        Order("drain", &[]),
    ),
    post(
        "/api/v1/stop",
        ADMINISTRATOR,
        "Ends the server after the grace time at most",
        &[],
        ENDING,
        Order("stop", &[]),
    ),
    post(
        "/api/v1/upgrade",
        ADMINISTRATOR,
        "Replaces the server by the program as it is now installed",
        &[],
        UPGRADED,
        Order("upgrade", &[]),
    ),
    get("/api/v1/tokens", ADMINISTRATOR, "Lists tokens", &[], TOKENS, Order("tokens", &[])),
    post(
        "/api/v1/tokens",
        ADMINISTRATOR,
        "Makes a token, which is shown this once",
        NEW_TOKEN,
        TOKEN,
        Order("add-token", &[]),
    ),
    delete("/api/v1/tokens/{name}", ADMINISTRATOR, "Forgets a token", &[], &[OK], Order("remove-token", &[])),
    get("/api/v1/config", ADMINISTRATOR, "Tells the configuration file", &[], CONFIG, Own(configuring::read)),
    post(
        "/api/v1/config/validate",
        ADMINISTRATOR,
        "Looks at a text as a reload would",
        TEXT,
        &[OK],
        Own(configuring::validate),
    ),
    put(
        "/api/v1/config",
        ADMINISTRATOR,
        "Replaces the configuration file, and puts it in force",
        TEXT,
        WRITTEN,
        Own(configuring::write),
    )
    .conditional(),
    get(
        "/api/v1/config/history",
        ADMINISTRATOR,
        "Lists former texts",
        &[],
        HISTORY,
        Own(configuring::history),
    ),
    get(
        "/api/v1/config/history/{version}",
        ADMINISTRATOR,
        "Tells a former text",
        &[],
        VERSION,
        Own(configuring::version),
    ),
    post(
        "/api/v1/config/history/{version}/restore",
        ADMINISTRATOR,
        "Puts a former text in force",
        &[],
        WRITTEN,
        Own(configuring::restore),
    )
    .conditional(),
    get("/api/v1/users", VIEWER, "Lists users", USERS_QUERY, USERS, Own(users::list)),
    get("/api/v1/users/{name}", VIEWER, "Shows a user", SOURCE, USER, Own(users::show)),
    post("/api/v1/users", ADMINISTRATOR, "Adds a user to a database", NEW_USER, USER, Own(users::create)),
    put(
        "/api/v1/users/{name}",
        ADMINISTRATOR,
        "Replaces the groups and the settings of a user",
        CHANGED_USER,
        USER,
        Own(users::change),
    )
    .asking(SOURCE)
    .conditional(),
    delete("/api/v1/users/{name}", ADMINISTRATOR, "Removes a user", SOURCE, &[OK], Own(users::remove))
        .conditional(),
    put(
        "/api/v1/users/{name}/password",
        ADMINISTRATOR,
        "Replaces the password of a user, and ends the user's logins to this API",
        NEW_PASSWORD,
        USER,
        Own(users::set_password),
    )
    .asking(SOURCE)
    .conditional(),
    post(
        "/api/v1/users/{name}/totp",
        ADMINISTRATOR,
        "Asks a user for one-time codes from now on, and shows their secret this once",
        &[],
        CODES,
        Own(users::ask_for_codes),
    )
    .asking(SOURCE)
    .conditional(),
    delete(
        "/api/v1/users/{name}/totp",
        ADMINISTRATOR,
        "Asks a user for no one-time codes",
        SOURCE,
        USER,
        Own(users::ask_for_no_codes),
    )
    .conditional(),
    get("/api/v1/groups", VIEWER, "Lists groups", GROUPS_QUERY, GROUPS, Own(users::groups)),
    get("/api/v1/groups/{name}", VIEWER, "Shows a group", &[], GROUP, Own(users::group)),
];

const fn get(
    path: &'static str,
    role: Option<Role>,
    summary: &'static str,
    query: &'static [Field],
    answer: &'static [Field],
    action: Action,
) -> Operation {
    Operation {
        query,
        method: Method::GET,
        path,
        role,
        summary,
        body: &[],
        answer,
        is_conditional: false,
        action,
    }
}

const fn delete(
    path: &'static str,
    role: Option<Role>,
    summary: &'static str,
    query: &'static [Field],
    answer: &'static [Field],
    action: Action,
) -> Operation {
    Operation {
        query,
        method: Method::DELETE,
        path,
        role,
        summary,
        body: &[],
        answer,
        is_conditional: false,
        action,
    }
}

const fn post(
    path: &'static str,
    role: Option<Role>,
    summary: &'static str,
    body: &'static [Field],
    answer: &'static [Field],
    action: Action,
) -> Operation {
    Operation {
        body,
        method: Method::POST,
        path,
        role,
        summary,
        query: &[],
        answer,
        is_conditional: false,
        action,
    }
}

const fn put(
    path: &'static str,
    role: Option<Role>,
    summary: &'static str,
    body: &'static [Field],
    answer: &'static [Field],
    action: Action,
) -> Operation {
    Operation {
        body,
        method: Method::PUT,
        path,
        role,
        summary,
        query: &[],
        answer,
        is_conditional: false,
        action,
    }
}

const LOGIN: &[Field] = &[
    needed("name", Text, "The user"),
    needed("password", Text, "The password"),
    field("code", Text, "The one-time code, where the account has one"),
];

const LOGIN_WAYS: &[Field] = &[
    OK,
    needed("password", Flag, "Whether accounts of the server log in: by POST"),
    needed("oidc", Flag, "Whether a provider of OpenID Connect does: by POST of /api/v1/login/oidc"),
];

const ME: &[Field] = &[
    OK,
    needed("name", Text, "The user, or the token"),
    needed("role", Word(ROLES), "The highest role"),
    needed("by", Word(&["token", "login", "oidc", "certificate"]), "What shows who calls"),
];

const STATUS: &[Field] = &[
    OK,
    needed("version", Text, "Of the program"),
    needed("pid", Whole, "The process"),
    needed("seconds", Whole, "For how long it has run"),
    needed("ending", Flag, "Whether it takes no more clients"),
    needed("ftp", Texts, "Where FTP is served"),
    needed("ftps", Texts, "Where FTPS is served"),
    needed("http", Texts, "Where HTTP is served"),
    needed("https", Texts, "Where HTTPS is served"),
    needed("sessions", Whole, "How many there are"),
    needed("transfers", Whole, "How many run"),
];

const LOG_QUERY: &[Field] =
    &[field("lines", Whole, "So many of its last lines first, as far as they are kept")];

const TRACE_QUERY: &[Field] = &[
    field("user", Text, "Sessions of this user, from the USER command on"),
    field("address", Text, "Sessions from this address"),
    field("session", Whole, "The session with this number"),
];

const SESSIONS_QUERY: &[Field] = &[
    field("user", Text, "Only of this user"),
    field("address", Text, "Only from this address"),
    field("node", Text, "Only at this node of the cluster"),
    field("text", Text, "Part of the user's name, the address or a path, whatever its case"),
    field(
        "sort",
        Word(&[
            "session", "-session", "user", "-user", "peer", "-peer", "rate", "-rate", "bytes", "-bytes",
            "idle", "-idle", "age", "-age", "node", "-node",
        ]),
        "By what; with - from the largest",
    ),
    field("limit", Whole, "So many at most"),
    field("offset", Whole, "So many are left out"),
];

const SESSIONS: &[Field] = &[
    OK,
    needed("total", Whole, "How many are meant"),
    needed("sessions", Records(SESSION), "The sessions, in a cluster of all nodes"),
    field("unheard", Texts, "Nodes of the cluster that have not answered in time"),
];

const SESSION: &[Field] = &[
    needed(
        "session",
        Whole,
        "The number, as in the log; in a cluster with the epoch of its node before ten digits",
    ),
    field("node", Text, "The node of the cluster"),
    needed("protocol", Text, "What it speaks"),
    needed("peer", Text, "The client"),
    needed("local", Text, "Where it connected to"),
    maybe("user", Text, "The user"),
    maybe("host", Text, "The first name or address of the virtual host that the user is at"),
    needed("age", Number, "Seconds since it began"),
    needed("idle", Number, "Seconds since something came, or a byte moved"),
    maybe("command", Text, "The last command, or the method of the request"),
    maybe("place", Text, "The working directory, or the target of the request"),
    needed("waits-for", Text, "What it waits for"),
    maybe("transfer", Record(TRANSFER), "The transfer that runs"),
];

const TRANSFER: &[Field] = &[
    needed("kind", Word(&["download", "upload", "listing"]), "Which way"),
    needed("path", Text, "The file"),
    needed("bytes", Whole, "Bytes so far"),
    maybe("total", Whole, "Bytes in all"),
    needed("seconds", Number, "For how long"),
    needed("rate", Whole, "Bytes a second since it began"),
    maybe("done", Number, "Which part, from 0 to 1"),
    needed("held-back", Flag, "Whether a limit holds it back"),
];

const SCOPE: &[Field] =
    &[field("scope", Text, "server, listener ADDR:PORT, group NAME, user NAME or session NUMBER")];

const LIMITS: &[Field] =
    &[OK, needed("limits", Records(LIMIT), "The limits"), field("note", Text, "A sentence about the scope")];

const LIMIT: &[Field] = &[
    needed("scope", Text, "Whose"),
    needed("sessions", Whole, "How many there are"),
    needed("sessions-at-most", Whole, "How many there may be; 0: any number"),
    needed("download", Whole, "Bytes a second; 0: no limit"),
    needed("upload", Whole, "Bytes a second; 0: no limit"),
    needed("set", Flag, "Whether one of them was set, beside the configuration"),
];

const LIMITED: &[Field] = &[
    OK,
    field("limits", Records(LIMIT), "The limits, where nothing was set"),
    field("note", Text, "A sentence about the scope"),
];

const NEW_LIMITS: &[Field] = &[
    field("download", Text, "Bytes a second, as in the configuration: 10M, none"),
    field("upload", Text, "The same from clients"),
    field("sessions", Text, "Sessions at a time"),
];

const BANS: &[Field] = &[OK, needed("bans", Records(BAN), "The bans")];

const BAN: &[Field] = &[
    needed("network", Text, "Which"),
    maybe("user", Text, "The user, where others are let in from there"),
    maybe("seconds-left", Whole, "For how long; null: until it is lifted"),
];

const NEW_BAN: &[Field] = &[
    needed("network", Text, "An address or a network: 192.0.2.7, 10.0.0.0/8"),
    field("seconds", Whole, "For how long; without it until it is lifted"),
];

const NEW_LINK: &[Field] = &[
    needed("path", Text, "The file, or the folder with all beneath it, as the user sees it"),
    field("user", Text, "The user in whose name it acts; else anonymous"),
    needed("seconds", Whole, "How long it is good"),
    field("permits", Word(PERMITS), "To get it, which is the default, or to send the file"),
    field(
        "url",
        Text,
        "The beginning of its URL, such as https://files.example.org; else it begins with the path",
    ),
];

const PERMITS: &[&str] = &["get", "put"];

const LINK: &[Field] = &[
    OK,
    needed("url", Text, "The link"),
    needed("permits", Word(PERMITS), "What it permits"),
    needed("expires", Whole, "When it expires, in seconds since 1970"),
    maybe("note", Text, "Why it may not work"),
];

const WHOSE: &[Field] = &[
    field("user", Text, "Sessions of this user"),
    field("host", Text, "Sessions at this virtual host"),
    field("address", Text, "Sessions from this address"),
    field("node", Text, "Sessions at this node of the cluster"),
];

const KICKED: &[Field] = &[
    OK,
    needed("kicked", Whole, "How many sessions end, in a cluster on all nodes"),
    field("unheard", Texts, "Nodes of the cluster that have not answered in time"),
];

const NODES: &[Field] = &[OK, needed("nodes", Records(NODE), "The nodes, as the database has them")];

const NODE: &[Field] = &[
    needed("node", Text, "Its name"),
    needed("epoch", Whole, "The number of its registration"),
    needed("this", Flag, "Whether it is the server that answers"),
    needed("state", Word(&["serving", "draining", "silent"]), "Silent: its lease is over"),
    needed("namesake", Flag, "Whether another node that serves has the same name"),
    needed("sessions", Whole, "Its connections"),
    needed("silent-seconds", Number, "How long ago it renewed its lease"),
    needed("lease-seconds", Whole, "How long its lease is"),
    needed("age", Whole, "Seconds since it registered"),
    needed("version", Text, "The program's version"),
];

const QUOTAS: &[Field] = &[OK, needed("quotas", Records(QUOTA), "The trees with a quota that are in use")];

const QUOTA: &[Field] = &[
    needed("tree", Text, "Which"),
    maybe("bytes", Whole, "Bytes in it"),
    maybe("files", Whole, "Files in it"),
    needed("exact", Flag, "Whether it was counted whole"),
];

const TREE: &[Field] = &[field("tree", Text, "One tree; without it all")];

const EVENTS_QUERY: &[Field] =
    &[field("to", Text, "Only for this receiver"), field("most", Whole, "So many at most")];

const EVENTS: &[Field] = &[
    OK,
    needed("events", Records(&[]), "The events"),
    needed("waiting", Whole, "How many wait"),
    needed("parked", Whole, "How many are given up until they are retried"),
    field("not-shown", Whole, "How many more there are"),
];

const RETRY: &[Field] = &[
    field("events", Texts, "Their ids"),
    field("all", Flag, "All parked ones"),
    field("to", Text, "With all: only for this receiver"),
];

const DROP: &[Field] = &[
    field("events", Texts, "Their ids"),
    field("all", Flag, "All parked ones"),
    field("to", Text, "With all: only for this receiver"),
    field("waiting", Flag, "With all: those that wait, too"),
];

const AUDIT: &[Field] = &[
    OK,
    needed("file", Text, "The file"),
    needed("seq", Whole, "The number of the record"),
    needed("sha256", Text, "Its SHA-256"),
];

const RATES: &[Field] = &[
    OK,
    needed("step", Whole, "Seconds between two points"),
    needed("points", Records(POINT), "The points, the oldest first"),
];

const POINT: &[Field] = &[
    needed("time", Whole, "Seconds since 1970"),
    needed("sessions", Whole, "How many there were"),
    needed("download", Number, "Bytes a second to clients"),
    needed("upload", Number, "Bytes a second from clients"),
    needed("requests", Number, "Requests of HTTP a second"),
    needed("failures", Whole, "Logins and transfers that failed in this time"),
];

const RELOADED: &[Field] = &[
    OK,
    needed("changed", Texts, "Keys that are in force now"),
    needed("next-start", Texts, "Keys that need a restart"),
];

const DRAIN: &[Field] = &[field(
    "after",
    Whole,
    "Seconds in which clients are accepted yet, while it is called not ready; 0: none",
)];

const ENDING: &[Field] = &[OK, needed("transfers", Whole, "How many it waits for")];

const UPGRADED: &[Field] = &[
    OK,
    needed("pid", Whole, "The process that accepts clients now"),
    needed("sessions", Whole, "How many the old one still has"),
];

const TOKENS: &[Field] = &[OK, needed("tokens", Records(TOKEN_ROW), "The tokens")];

const TOKEN_ROW: &[Field] = &[
    needed("name", Text, "What the log calls it"),
    needed("role", Word(ROLES), "What it permits"),
    needed("created", Whole, "Seconds since 1970"),
    maybe("expires", Whole, "The same; null: never"),
    needed("expired", Flag, "Whether it is refused"),
    maybe("seconds-left", Whole, "How long it is good; null: for ever"),
];

const NEW_TOKEN: &[Field] = &[
    needed("name", Text, "What the log calls it"),
    needed("role", Word(ROLES), "What it permits"),
    field("seconds", Whole, "How long it is good; without it until it is removed"),
];

const TOKEN: &[Field] = &[
    OK,
    needed("name", Text, "What the log calls it"),
    needed("role", Word(ROLES), "What it permits"),
    needed("token", Text, "The token, to be kept"),
    maybe("expires", Whole, "Seconds since 1970; null: never"),
];

const NOTICES_TRIED: &[Field] =
    &[OK, needed("receivers", Records(NOTICE_TRIED), "In the order of the configuration")];

const NOTICE_TRIED: &[Field] = &[
    needed("receiver", Text, "The webhook, or the mail address"),
    maybe("error", Text, "Why it did not take the trial; null: it did"),
];

const CONFIG: &[Field] = &[
    OK,
    needed("path", Text, "The file"),
    needed("text", File, "What it says"),
    maybe("parsed", Object, "The same as JSON; null where it is no TOML"),
    needed("etag", Text, "For If-Match"),
    needed("writable", Flag, "Whether the API may replace it"),
];

const TEXT: &[Field] = &[needed("text", File, "The text of the file")];

const WRITTEN: &[Field] = &[
    OK,
    needed("changed", Texts, "Keys that are in force now"),
    needed("next-start", Texts, "Keys that need a restart"),
    needed("etag", Text, "For If-Match"),
];

const HISTORY: &[Field] = &[OK, needed("versions", Records(FORMER), "The newest first")];

const FORMER: &[Field] = &[
    needed("version", Whole, "Its number"),
    needed("time", Whole, "Seconds since 1970"),
    needed("by", Text, "Who wrote it; before: it was there before the API replaced it"),
];

const VERSION: &[Field] = &[
    OK,
    needed("version", Whole, "Its number"),
    needed("time", Whole, "Seconds since 1970"),
    needed("by", Text, "Who wrote it"),
    needed("text", File, "What it says"),
    needed("change", File, "What it had changed, by lines"),
    needed("diff", File, "What would change if it were restored"),
];
