//! A server with the API, and a client that says what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millrace_admin::{Administration, Orders, Reloaded, Tokens};
use millrace_admin_http::{AdminAccess, AdminHttp, ConfigurationFile, Setup};
use millrace_server::auth::Authenticator;
use millrace_server::cluster::Cluster;
use millrace_server::config::LogFormat;
use millrace_server::storage::MemoryStorage;
use millrace_server::{Accounts, Config, Permissions, Running, Server};
use serde_json::{Value, json};

pub(crate) struct Site {
    pub(crate) running: Arc<Running>,
    pub(crate) admin: AdminHttp,
    pub(crate) administration: Arc<Administration>,
    pub(crate) folder: PathBuf,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// The cookie that it sets, to be sent back.
    pub(crate) fn cookie(&self) -> String {
        let cookie = self.field("set-cookie").unwrap_or_else(|| panic!("no cookie: {self:?}"));
        format!("Cookie: {}\r\n", cookie.split(';').next().unwrap())
    }
}

impl Site {
    pub(crate) fn start(access: AdminAccess) -> Self {
        let tree = Arc::new(MemoryStorage::new());
        let accounts = Accounts::new().user("ann", "secret", Permissions::READ_WRITE, tree.clone()).user(
            "bob",
            "secret",
            Permissions::READ_WRITE,
            tree,
        );
        Self::with_accounts(access, |_| Arc::new(accounts))
    }

    /// With the accounts that are made with its folder.
    pub(crate) fn with_accounts(
        access: AdminAccess,
        accounts: impl FnOnce(&Path) -> Arc<dyn Authenticator>,
    ) -> Self {
        Self::as_node(access, accounts, None)
    }

    /// As a node of a cluster, too.
    pub(crate) fn as_node(
        access: AdminAccess,
        accounts: impl FnOnce(&Path) -> Arc<dyn Authenticator>,
        cluster: Option<Arc<Cluster>>,
    ) -> Self {
        Self::with_config(access, accounts, |config| config.cluster = cluster)
    }

    /// With a configuration that is changed before the server starts.
    pub(crate) fn with_config(
        access: AdminAccess,
        accounts: impl FnOnce(&Path) -> Arc<dyn Authenticator>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("millrace-api-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let mut config = Config {
            ftp: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            workers: 2,
            log: LogFormat::Off,
            login_delay: Duration::from_millis(1),
            ..Config::new(accounts(&folder))
        };
        change(&mut config);
        let running = Arc::new(Server::start(config).unwrap());
        let of_checks = folder.join("millrace.toml");
        let orders = Orders {
            test_notices: Box::new(Vec::new),
            reload: Box::new(|| Ok(Reloaded::default())),
            validate: Box::new(move |text| match text.contains("wrong") {
                true if text.contains("relative") => Err("./millrace.toml:2:1: it is wrong".into()),
                true => Err(format!("{}:2:1: it is wrong", of_checks.display()).into()),
                false => Ok(()),
            }),
            successor: Box::new(|| std::process::Command::new("false")),
            relieved: Box::new(|_| {}),
        };
        let tokens = Tokens::open(Some(folder.join("tokens.json"))).unwrap();
        let administration = Administration::new(&running, orders, tokens);
        let admin = AdminHttp::bind(&[SocketAddr::from(([127, 0, 0, 1], 0))], None).unwrap();
        let path = folder.join("millrace.toml");
        std::fs::write(&path, "a = 1\n").unwrap();
        let history = Some(folder.join("history"));
        let configuration = Some(ConfigurationFile { path, is_writable: true, history });
        let setup = Setup { administration: Arc::clone(&administration), access, configuration };
        admin.serve(&running, Some(setup), false).unwrap();
        Self { running, admin, administration, folder }
    }

    /// Makes a token, as `millrace ctl` does; returns the field that shows it. Another node of a cluster may have taken the
    /// name.
    pub(crate) fn token(&self, role: &str, seconds: Option<u64>) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(2);
        let make = |name: &str| {
            let order = json!({ "do": "add-token", "name": name, "role": role, "seconds": seconds });
            let Value::Object(order) = order else { unreachable!() };
            self.administration.perform(order, &self.running, None)
        };
        let name = format!("of-{role}-{seconds:?}").replace(['(', ')'], "-");
        let another = || format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let made = make(&name).or_else(|_| make(&another())).unwrap();
        format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap())
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.admin.addresses()[0])
    }

    /// Sends a request with these fields, each of which ends its line.
    pub(crate) fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> Answer {
        let host =
            if fields.contains("Host:") { String::new() } else { format!("Host: {}\r\n", self.host()) };
        ask(self.connect(), method, path, &format!("{host}{fields}"), body)
    }

    pub(crate) fn host(&self) -> String {
        self.admin.addresses()[0].to_string()
    }

    /// The fields that a page of this server sends with a change.
    pub(crate) fn own_page(&self) -> String {
        format!("Origin: http://{}\r\nX-Millrace-Request: 1\r\n", self.host())
    }
}

/// Gets what is at this path of a server.
pub(crate) fn get(server: SocketAddr, path: &str) -> Answer {
    ask(connect(server), "GET", path, &format!("Host: {server}\r\n"), "")
}

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn ask(mut stream: TcpStream, method: &str, path: &str, fields: &str, body: &str) -> Answer {
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\n{fields}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.admin.close();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
