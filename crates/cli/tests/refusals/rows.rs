//! The table: how each limit is set, and how it is come up against.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millrace_server::limits::LimitKey;

use crate::site::{Client, Refused, Setup, Site};

pub(crate) struct Row {
    pub(crate) setup: Setup,
    /// Has a client refused.
    pub(crate) refuse: fn(&Site) -> Refused,
    /// What the reply, or by HTTP somewhere the answer, has.
    pub(crate) code: &'static str,
    pub(crate) told: &'static str,
    /// The value in the log; empty where unknown.
    pub(crate) value: &'static str,
    /// The owner of the limit.
    pub(crate) of: &'static str,
}

impl Row {
    /// A limit that is a key of the file.
    fn new(keys: &str, refuse: fn(&Site) -> Refused, told: &'static str, value: &'static str) -> Self {
        let setup = Setup { keys: keys.to_owned(), ..Setup::default() };
        Self { setup, refuse, code: "421", told, value, of: "" }
    }

    /// One that is a key of the user.
    fn of_alice(keys: &str, refuse: fn(&Site) -> Refused, told: &'static str, value: &'static str) -> Self {
        let setup = Setup { alice: keys.to_owned(), ..Setup::default() };
        Self { setup, code: "552", ..Self::new("", refuse, told, value) }
    }

    fn of(self, of: &'static str) -> Self {
        Self { of, ..self }
    }

    fn code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    fn setup(self, change: impl FnOnce(&mut Setup)) -> Self {
        let Self { mut setup, .. } = self;
        change(&mut setup);
        Self { setup, ..self }
    }
}

/// The row of a limit.
pub(crate) fn row(key: LimitKey) -> Row {
    match key {
        LimitKey::Sessions => Row::new("sessions = 1", second_client, "sessions on this server", "1"),
        LimitKey::OpenFiles => Row::new("", many_clients, "sessions on this server", "64")
            .setup(|setup| setup.shell = "ulimit -n 64"),
        LimitKey::SessionsPerAddress => {
            Row::new("sessions-per-address = 1", second_client, "sessions from your address", "1")
        }
        LimitKey::SessionsPerNetwork => {
            Row::new("sessions-per-network = 1", second_client, "sessions from your network", "1")
                .of("127.0.0.0/24")
        }
        LimitKey::ListenerSessions => {
            let keys = "[[listener]]\naddress = \"HOST:0\"\nsessions = 1";
            Row::new(keys, second_client, "sessions on this address", "1").of("listener HOST")
        }
        LimitKey::GroupSessions => Row::new("", second_login, "sessions of your group", "1")
            .of("group staff")
            .setup(|setup| setup.tables = "shared-sessions = 1".to_owned()),
        LimitKey::OwnSessions => Row::of_alice("sessions = 1", second_login, "sessions of this user", "1")
            .code("421")
            .of("user alice"),
        LimitKey::UserSessions => {
            Row::new("user-sessions = 1", second_login, "sessions of this user", "1").of("user alice")
        }
        LimitKey::Allow => {
            Row::new("allow = \"10.0.0.0/8\"", at_the_door, "your address are not accepted", "\"10.0.0.0/8\"")
        }
        LimitKey::Deny => Row::new(
            "deny = \"127.0.0.0/8\"",
            at_the_door,
            "your address are not accepted",
            "\"127.0.0.0/8\"",
        ),
        LimitKey::Ban => {
            let refuse = |site: &Site| {
                site.ctl(&["ban", "127.0.0.0/24"]);
                at_the_door(site)
            };
            Row::new("", refuse, "address is banned", "\"127.0.0.0/24\"")
        }
        LimitKey::BanAfter => {
            Row::new("ban-after = 1\nlogin-delay = \"1ms\"", guesser, "address is banned", "1")
                .of("127.0.0.1")
        }
        LimitKey::Logins => {
            Row::new("logins = \"1/day\"", second_login, "logins on this server", "\"1/day\"")
        }
        LimitKey::LoginsPerAddress => {
            let keys = "logins-per-address = \"1/hour\"";
            Row::new(keys, second_login, "logins from your address", "\"1/hour\"").of("127.0.0.1")
        }
        LimitKey::LoginsPerNetwork => {
            let keys = "logins-per-network = \"1/hour\"";
            Row::new(keys, second_login, "logins from your network", "\"1/hour\"").of("127.0.0.0/24")
        }
        LimitKey::UserLogins => {
            let keys = "user-logins = \"1/hour\"";
            Row::new(keys, second_login_by_http, "logins of this user", "\"1/hour\"")
                .code("HTTP/1.1 429")
                .of("user alice")
        }
        LimitKey::CpuLimit => Row::new("cpu-limit = 1", while_busy, "too busy", "1"),
        LimitKey::LoginTimeout => Row::new("login-timeout = \"1s\"", silent, "No login in time", "\"1s\""),
        LimitKey::LoginAttempts => {
            let keys = "login-attempts = 1\nlogin-delay = \"1ms\"";
            Row::new(keys, wrong_password, "Too many failed logins", "1")
        }
        LimitKey::IdleTimeout => Row::new("idle-timeout = \"1s\"", idle, "Idle for too long", "\"1s\""),
        LimitKey::UnknownCommands => Row::new("", nonsense, "Too many unknown commands", "20"),
        LimitKey::PassivePorts => Row::new("passive-ports = \"PORT\"", without_port, "No passive port", "")
            .code("425")
            .setup(|setup| setup.listens = true),
        LimitKey::ConnectTimeout => {
            Row::new("connect-timeout = \"1s\"", without_data, "did not connect in time", "\"1s\"")
                .code("425")
        }
        LimitKey::QuotaBytes => {
            Row::of_alice("quota-bytes = 10", store, "quota of bytes of this account", "10")
        }
        LimitKey::QuotaFiles => {
            Row::of_alice("quota-files = 0", store, "quota of files of this account", "0")
        }
        LimitKey::QuotaUpload => {
            Row::of_alice("quota-upload = \"10/day\"", store, "may upload no more", "10")
        }
        LimitKey::QuotaDownload => {
            Row::of_alice("quota-download = \"10/week\"", fetch, "may download no more", "10")
        }
        LimitKey::QuotaTransfer => {
            Row::of_alice("quota-transfer = \"10/month\"", fetch, "may transfer no more", "10")
        }
        LimitKey::Ratio => Row::of_alice("ratio = \"1:3\"", fetch, "has to upload before", "3"),
        LimitKey::Space => Row::new("", announce_too_much, "bytes are free", "").code("452"),
        LimitKey::DeviceQuota => {
            let value = "\"as the device has it\"";
            Row::new("", store, "quota exceeded", value).code("552").setup(|setup| setup.faulty = true)
        }
        // The shell counts in 512 bytes.
        LimitKey::FileSize => Row::new("", store, "file too large", "512")
            .code("552")
            .setup(|setup| setup.shell = "trap '' XFSZ\nulimit -f 1"),
        LimitKey::CgiProcesses => {
            let keys = "cgi = \"cgi\"\ncgi-processes = 1\ncgi-timeout = \"1s\"";
            Row::new(keys, |site| crowd(site, "GET /cgi/sleep"), "Too many programs are running", "1")
                .code("HTTP/1.1 503")
        }
        LimitKey::ProxyMaxRequests => {
            let tables =
                "[[proxy]]\npath = \"/app\"\nto = \"http://HOST:PORT\"\nmax-requests = 1\ntimeout = \"1s\"\n";
            Row::new("", |site| crowd(site, "GET /app"), "Too many requests are under way there", "1")
                .code("HTTP/1.1 503")
                .of("proxy /app")
                .setup(|setup| (setup.tables, setup.listens) = (tables.to_owned(), true))
        }
        LimitKey::WaitingUploads => {
            Row::new("", waiting_uploads, "Too many uploads wait", "250").code("HTTP/1.1 507")
        }
        LimitKey::Locks => Row::new("", locks, "too many locks", "10000").code("HTTP/1.1 507"),
        LimitKey::Properties => {
            Row::new("", properties, "507 Insufficient Storage", "8388608").code("HTTP/1.1 207")
        }
    }
}

fn at_the_door(site: &Site) -> Refused {
    let mut client = site.client();
    let reply = client.reply();
    client.told(reply)
}

fn second_client(site: &Site) -> Refused {
    let _first = site.connect();
    at_the_door(site)
}

fn many_clients(site: &Site) -> Refused {
    let mut there = Vec::new();
    loop {
        let mut client = site.client();
        let reply = client.reply();
        if !reply.starts_with("220") {
            return client.told(reply);
        }
        there.push(client);
        assert!(there.len() < 64);
    }
}

fn second_login(site: &Site) -> Refused {
    let _first = site.log_in();
    let mut client = site.connect();
    client.say("USER alice", "331");
    client.send("PASS password\r\n");
    let reply = client.reply();
    client.told(reply)
}

fn second_login_by_http(site: &Site) -> Refused {
    let _first = site.log_in();
    let mut client = site.browse();
    client.request("GET /f", "", "");
    let answer = client.response();
    client.told(answer)
}

fn wrong_password(site: &Site) -> Refused {
    let mut client = site.connect();
    client.say("USER alice", "331");
    client.send("PASS wrong\r\n");
    let reply = client.reply();
    client.told(reply)
}

/// An address is banned for five times as many failures as a user.
fn guesser(site: &Site) -> Refused {
    for number in 0..5 {
        let mut client = site.connect();
        client.say(&format!("USER guess{number}"), "331");
        client.say("PASS wrong", "530");
    }
    at_the_door(site)
}

/// Keeps all processors busy until the server has seen it, which looks once a second.
fn while_busy(site: &Site) -> Refused {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let refused = (0..1_000).find_map(|_| {
            let mut client = site.connect();
            client.say("USER alice", "331");
            client.send("PASS password\r\n");
            let reply = client.reply();
            thread::sleep(std::time::Duration::from_millis(20));
            (!reply.starts_with("230")).then(|| client.told(reply))
        });
        done.store(true, Ordering::Relaxed);
        refused.expect("it is noticed")
    })
}

fn silent(site: &Site) -> Refused {
    let mut client = site.connect();
    let reply = client.reply();
    client.told(reply)
}

fn idle(site: &Site) -> Refused {
    let mut client = site.log_in();
    let reply = client.reply();
    client.told(reply)
}

fn nonsense(site: &Site) -> Refused {
    let mut client = site.connect();
    for _ in 1..20 {
        client.say("XYZZY", "500");
    }
    client.send("XYZZY\r\n");
    let reply = client.reply();
    client.told(reply)
}

fn without_port(site: &Site) -> Refused {
    let mut client = site.log_in();
    client.send("PASV\r\n");
    let reply = client.reply();
    client.told(reply)
}

fn without_data(site: &Site) -> Refused {
    let mut client = site.log_in();
    client.say("EPSV", "229");
    client.send("RETR f\r\n");
    let mut reply = client.reply();
    if reply.starts_with("150") {
        reply = client.reply();
    }
    client.told(reply)
}

fn store(site: &Site) -> Refused {
    let mut client = site.log_in();
    let reply = client.store(&[b'x'; 300_000]);
    client.told(reply)
}

fn fetch(site: &Site) -> Refused {
    let mut client = site.log_in();
    let reply = client.fetch();
    client.told(reply)
}

fn announce_too_much(site: &Site) -> Refused {
    let mut client = site.log_in();
    client.send("ALLO 9000000000000000000\r\n");
    let reply = client.reply();
    client.told(reply)
}

/// The first has the only place until its time is over, and so has the second for as long as it may; but all wait for
/// as long as one may take.
fn crowd(site: &Site, line: &str) -> Refused {
    let mut clients: Vec<Client> = (0..4).map(|_| site.browse()).collect();
    clients.iter_mut().for_each(|client| client.request(line, "", ""));
    let answers = clients.iter_mut().map(|client| (client.response(), client));
    let told = answers.map(|(answer, client)| client.told(answer));
    told.into_iter().find(|told| told.reply.contains(" 503 ")).expect("a request has waited for too long")
}

fn waiting_uploads(site: &Site) -> Refused {
    let mut client = site.browse();
    loop {
        client.request(
            "POST /",
            "Tus-Resumable: 1.0.0\r\nUpload-Length: 10\r\nUpload-Metadata: filename Zm9v\r\n",
            "",
        );
        let answer = client.response();
        if !answer.contains(" 201 ") {
            return client.told(answer);
        }
    }
}

fn locks(site: &Site) -> Refused {
    let body = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>";
    let mut client = site.browse();
    loop {
        // So many that they are not awaited one by one: there are thousands.
        (0..100).for_each(|_| client.request("LOCK /f", "", body));
        let answers: Vec<String> = (0..100).map(|_| client.response()).collect();
        if let Some(answer) = answers.into_iter().find(|answer| !answer.contains(" 200 ")) {
            return client.told(answer);
        }
    }
}

fn properties(site: &Site) -> Refused {
    let mut client = site.browse();
    for number in 0.. {
        let mut body = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>".to_owned();
        let _ = write!(body, "<p{number} xmlns=\"u:\">{}</p{number}>", "x".repeat(250_000));
        body += "</D:prop></D:set></D:propertyupdate>";
        client.request("PROPPATCH /f", "", &body);
        let answer = client.response();
        if !answer.contains("200 OK") {
            return client.told(answer);
        }
    }
    unreachable!("there is room for all of them");
}
