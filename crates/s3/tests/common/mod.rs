//! Stores to test with: SeaweedFS, which keeps the promises of S3, and rclone, which does not.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod proxy;
pub(crate) mod scripted;

#[path = "../../../server/tests/kit/ports.rs"]
mod ports;

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use millrace_s3::Settings;
use millrace_s3::{Credentials, S3Storage};
use millrace_vfs::{ReadHandle, Storage, VirtualPath, Wait, WriteMode};
use ports::{free_port, free_ports};

/// The credentials.
const ACCESS: &str = "millrace-access-key";
const SECRET: &str = "millrace-secret-key";

/// A server of a store, stopped when this is dropped; its data lies in a folder that then goes.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    pub(crate) port: u16,
    /// All that it listens at.
    ports: Vec<u16>,
}

/// Whether a program is there; without it the test is skipped, unless all programs have to be there.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    assert!(is_there || std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none(), "{program} is missing");
    is_there
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("millrace-s3-{name}-{}", free_port()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

impl Server {
    /// SeaweedFS, `None` where it is not installed.
    pub(crate) fn seaweed() -> Option<Self> {
        if !has("weed") {
            return None;
        }
        let folder = folder("weed");
        let identities = format!(
            r#"{{"identities":[{{"name":"m","credentials":[{{"accessKey":"{ACCESS}","secretKey":"{SECRET}"}}],"actions":["Admin"]}}]}}"#
        );
        fs::write(folder.join("s3.json"), identities).unwrap();
        let ports = free_ports(8).collect::<Vec<_>>();
        let port = |name: &str, at: usize| format!("-{name}={}", ports[at]);
        let child = Command::new("weed")
            .current_dir(&folder)
            .args(["server", "-dir=.", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.config=s3.json"])
            .args([
                "-s3.iam=false",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-master.volumeSizeLimitMB=64",
                "-volume.max=40",
            ])
            .args([port("master.port", 0), port("master.port.grpc", 1), port("volume.port", 2)])
            .args([port("volume.port.grpc", 3), port("filer.port", 4), port("filer.port.grpc", 5)])
            .args([port("s3.port", 6), port("s3.port.grpc", 7), "-master.telemetry=false".to_owned()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self::started(child, folder, ports[6], ports))
    }

    /// `rclone serve s3` over a folder, `None` where it is not installed: Debian's is too old for that, so that `./test` has
    /// another under this name.
    pub(crate) fn rclone() -> Option<Self> {
        if !has("rclone-s3") {
            return None;
        }
        let (folder, port) = (folder("rclone"), free_port());
        let child = Command::new("rclone-s3")
            .args(["serve", "s3", "--config", "/dev/null", "--auth-key"])
            .args([&format!("{ACCESS},{SECRET}"), "--addr", &format!("127.0.0.1:{port}")])
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self::started(child, folder, port, vec![port]))
    }

    fn started(child: Child, folder: PathBuf, port: u16, ports: Vec<u16>) -> Self {
        let server = Self { child, folder, port, ports };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the store does not start");
            std::thread::yield_now();
        }
        server
    }

    /// Stops it from answering, or resumes it.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { "-STOP" } else { "-CONT" };
        assert!(
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success()
        );
    }

    pub(crate) fn settings(&self, prefix: &str) -> Settings {
        settings(self.port, prefix)
    }

    /// The tree beneath a prefix of its bucket, which is made.
    pub(crate) fn storage(&self, prefix: &str) -> S3Storage {
        let storage = S3Storage::new(&self.settings(prefix)).unwrap();
        storage.make_bucket().unwrap();
        storage
    }
}

/// A store on a port of this machine.
pub(crate) fn settings(port: u16, prefix: &str) -> Settings {
    let (access_key, secret_key) = (ACCESS.to_owned(), SECRET.to_owned());
    Settings {
        endpoint: format!("http://127.0.0.1:{port}"),
        region: "us-east-1".to_owned(),
        bucket: "files".to_owned(),
        prefix: prefix.to_owned(),
        credentials: Credentials { access_key, secret_key, token: None },
        path_style: true,
        redirect: None,
        roots: None,
        time: Duration::from_secs(10),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
        // SeaweedFS leaves local sockets in /tmp, which end with the numbers of its ports.
        for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let of_server = |port: &u16| name.ends_with(&format!("-{port}.sock"));
            if name.starts_with("seaweedfs-") && self.ports.iter().any(of_server) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The names in a folder, sorted.
pub(crate) fn names(storage: &dyn Storage, path: &str) -> Vec<String> {
    let mut directory = storage.open_directory(&self::path(path)).unwrap();
    let mut names = Vec::new();
    while directory
        .next_names(&mut |name| names.push(String::from_utf8_lossy(name).into_owned()), 100)
        .unwrap()
        > 0
    {}
    names.sort();
    names
}

pub(crate) fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text.as_bytes()).unwrap()
}

pub(crate) fn write(storage: &dyn Storage, name: &str, content: &[u8]) {
    let mut upload = storage.open_write(&path(name), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(content).unwrap();
    upload.commit().unwrap();
}

pub(crate) fn read(storage: &dyn Storage, name: &str) -> Vec<u8> {
    let ReadHandle::Stream(mut stream) = storage.open_read(&path(name), Wait::Allowed).unwrap() else {
        panic!("it is a stream")
    };
    let mut content = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match stream.read_at(content.len() as u64, &mut buffer).unwrap() {
            0 => return content,
            count => content.extend_from_slice(&buffer[..count]),
        }
    }
}
