//! The servers: one database, one store, and nodes that are killed and started again over their own folders.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use crate::common;
use crate::postgresql::Postgres;

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// Where a node can be asked at the moment, by FTP and by HTTP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) ftp: SocketAddr,
    pub(crate) http: SocketAddr,
}

/// A node, whose state lies in a folder of its own.
pub(crate) struct Node {
    folder: PathBuf,
    running: Option<Child>,
    addresses: Mutex<Option<Addresses>>,
}

impl Node {
    pub(crate) fn start(test: &str, number: usize, database: &Postgres, store: u16, webhook: u16) -> Self {
        let folder =
            std::env::temp_dir().join(format!("millrace-shared-{}-{test}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("tree")).unwrap();
        let common::Settings { bucket, credentials, .. } = common::settings(store, "");
        let (key, secret) = (credentials.access_key, credentials.secret_key);
        let keys = format!("aws_access_key_id = {key}\naws_secret_access_key = {secret}\n");
        fs::write(folder.join("keys"), keys).unwrap();
        let database = database.connection();
        let text = format!(
            "directory = \"tree\"\nstate = \"state\"\ncontrol = \"control\"\nhooks-queue = \"state/events.db\"\n\
             [[user]]\nname = \"ann\"\npassword = \"{HASH}\"\nsessions = 1000\n\
             [[folder]]\npath = \"/b\"\nbucket = \"{bucket}\"\nendpoint = \"http://127.0.0.1:{store}\"\n\
             credentials-file = \"keys\"\nlayout = \"indexed\"\npostgres = \"{database}\"\n\
             keep-replaced = \"1m\"\n\
             [cluster]\ndatabase = \"{database}\"\nnode = \"node-{number}\"\nlease = \"6s\"\nshare-events = true\n\
             [[hook]]\non = \"upload\"\nwait = false\nbatch = 50\nwebhook = \"http://127.0.0.1:{webhook}/\"\n"
        );
        fs::write(folder.join("m.toml"), text).unwrap();
        let mut node = Self { folder, running: None, addresses: Mutex::new(None) };
        node.run();
        node
    }

    /// Starts the server again.
    pub(crate) fn run(&mut self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .current_dir(&self.folder)
            .args(["serve", "--ftp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", "m.toml"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines: Vec<String> = out.by_ref().take_while(|line| !line.starts_with("Ready")).collect();
        // It may go on to print.
        std::thread::spawn(move || out.for_each(drop));
        let at = |scheme: &str| {
            let line = lines.iter().find_map(|line| line.split_once(scheme)).map(|(_, rest)| rest);
            let line = line.unwrap_or_else(|| panic!("it says where it is: {lines:?}\n{}", self.log()));
            line.split('/').next().unwrap().rsplit('@').next().unwrap().parse().unwrap()
        };
        let addresses = Addresses { ftp: at("ftp://"), http: at("http://") };
        *self.addresses.lock().unwrap() = Some(addresses);
        self.running = Some(child);
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            child.kill().unwrap();
            child.wait().unwrap();
            let _ = fs::remove_file(self.folder.join("control"));
        }
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses.lock().unwrap().expect("it has started")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
