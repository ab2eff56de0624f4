//! How each server is configured: alike in what it must do, and otherwise as its users run it.
//!
//! For all: loopback only, its own range of passive ports, limits on clients raised or off, no DNS or ident look-ups,
//! no transfer log, no TLS unless the race is in TLS, and the cheapest password check that it offers. Over HTTP the
//! access log is on, as on every production web server, buffered where the server can.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use millrace_net::tls::{KeyPair, self_signed};

use super::find::Place;
use super::{Launch, Peer, Setting};

/// crypt(3) of "bench" in its cheapest form: a login should cost the server's work, not the hash's.
const BENCH_HASH: &str = "mrsQXBVE22d8Y";
const UNPRIVILEGED_ID: u32 = 65_534;
const SESSIONS: u32 = 20_000;
const PACKAGE: &str = "peers/install fetches it, or your distribution's package manager";
const PYFTPDLIB_SERVER: &str = include_str!("pyftpdlib_server.py");

pub(super) const MILLRACE: Peer = Peer {
    name: "millrace",
    scheme: "ftp",
    model: "a thread a core, each with its own epoll",
    auth: "a password of its command line, compared as text",
    source: "it is this program, or name the path of another build",
    place: Place { program: "millrace", below: "millrace", package: None, version: &["--version"] },
    configure: |at| {
        let mut argv = at.command();
        argv.extend(["serve", &text(at.root), "--ftp", &at.address()].map(String::from));
        argv.extend(["--user", "bench:bench:rw", "--quiet", "--http", "off"].map(String::from));
        argv.extend(["--passive-ports".into(), at.passive("-")]);
        if let Some(KeyPair { certificate, key }) = at.certificate()? {
            argv.extend(["--tls-cert", &text(&certificate), "--tls-key", &text(&key)].map(String::from));
        }
        Ok(bench(argv))
    },
};

/// In a race over FTP in TLS: the same, and a certificate.
pub(super) const MILLRACE_FTPES: Peer = Peer { scheme: "ftpes", ..MILLRACE };

/// In a race over HTTP.
pub(super) const MILLRACE_HTTP: Peer = Peer {
    scheme: "http",
    auth: "none",
    configure: |at| {
        let mut argv = at.command();
        argv.extend(["serve", &text(at.root), "--ftp", "off", "--quiet"].map(String::from));
        match at.certificate()? {
            None => argv.extend(["--http".into(), at.address()]),
            Some(KeyPair { certificate, key }) => {
                argv.extend(["--http", "off", "--https", &at.address()].map(String::from));
                argv.extend(["--tls-cert", &text(&certificate), "--tls-key", &text(&key)].map(String::from));
            }
        }
        argv.extend(["--access-log".into(), text(&at.state.join("access.log"))]);
        Ok(Launch { argv, user: "", password: "" })
    },
    ..MILLRACE
};

/// In a race over HTTP in TLS.
pub(super) const MILLRACE_HTTPS: Peer = Peer { scheme: "https", ..MILLRACE_HTTP };

pub(super) const VSFTPD: Peer = Peer {
    name: "vsftpd",
    scheme: "ftp",
    model: "two processes a session, in a seccomp sandbox",
    auth: "anonymous with write permission (its local users would need PAM)",
    source: PACKAGE,
    place: Place {
        program: "vsftpd",
        below: "debian/usr/sbin/vsftpd",
        package: Some("vsftpd"),
        version: &[],
    },
    configure: vsftpd,
};

/// In a race over FTP in TLS.
pub(super) const VSFTPD_FTPES: Peer = Peer { scheme: "ftpes", ..VSFTPD };

pub(super) const PURE_FTPD: Peer = Peer {
    name: "pure-ftpd",
    scheme: "ftp",
    model: "two processes a session, with privilege separation",
    auth: "its own PureDB, DES crypt",
    source: PACKAGE,
    place: Place {
        program: "pure-ftpd",
        below: "debian/usr/sbin/pure-ftpd",
        package: Some("pure-ftpd"),
        version: &["--help"],
    },
    configure: pure_ftpd,
};

/// In a race over FTP in TLS.
pub(super) const PURE_FTPD_FTPES: Peer = Peer { scheme: "ftpes", ..PURE_FTPD };

pub(super) const PROFTPD: Peer = Peer {
    name: "proftpd",
    scheme: "ftp",
    model: "a process a session",
    auth: "AuthUserFile, DES crypt, no PAM",
    source: PACKAGE,
    place: Place {
        program: "proftpd",
        below: "debian/usr/sbin/proftpd",
        package: Some("proftpd-core"),
        version: &["-v"],
    },
    configure: proftpd,
};

/// In a race over FTP in TLS.
pub(super) const PROFTPD_FTPES: Peer = Peer { scheme: "ftpes", ..PROFTPD };

pub(super) const PYFTPDLIB: Peer = Peer {
    name: "pyftpdlib",
    scheme: "ftp",
    model: "one process, one thread, Python's asynchronous sockets",
    auth: "a dictionary in memory, compared as text",
    source: "peers/install fetches it, or: pip install pyftpdlib",
    place: Place {
        program: "python3",
        below: "python3",
        package: None,
        version: &["-c", "import pyftpdlib; print(pyftpdlib.__ver__)"],
    },
    configure: |at| {
        let script = write(at, "pyftpdlib_server.py", PYFTPDLIB_SERVER)?;
        let mut argv = at.command();
        let (first, last) = at.ports.passive;
        argv.extend([text(&script), text(at.root), at.ports.control.to_string()]);
        argv.extend(["bench".into(), "bench".into(), first.to_string(), last.to_string()]);
        argv.extend(at.both()?.map(|both| text(&both)));
        Ok(bench(argv))
    },
};

/// In a race over FTP in TLS.
pub(super) const PYFTPDLIB_FTPES: Peer = Peer { scheme: "ftpes", ..PYFTPDLIB };

pub(super) const UNFTP: Peer = Peer {
    name: "unftp",
    scheme: "ftp",
    model: "one process, tasks on a thread a core (Tokio)",
    auth: "anonymous",
    source: "peers/install --unftp builds it, or: cargo install unftp",
    place: Place { program: "unftp", below: "unftp/bin/unftp", package: None, version: &["--version"] },
    configure: |at| {
        let mut argv = at.command();
        argv.extend(["--root-dir", &text(at.root), "--bind-address", &at.address()].map(String::from));
        argv.extend(["--auth-type", "anonymous", "--idle-session-timeout", "3600"].map(String::from));
        argv.extend(["--passive-ports".into(), at.passive("-")]);
        // It has no flag that switches its metrics off.
        argv.extend(["--bind-address-http", "127.0.0.1:0"].map(String::from));
        Ok(Launch { argv, user: "anonymous", password: "bench@" })
    },
};

pub(super) const NGINX: Peer = Peer {
    name: "nginx",
    scheme: "http",
    model: "a worker process a core, each with its own epoll",
    auth: "none",
    source: PACKAGE,
    place: Place {
        program: "nginx",
        below: "debian/usr/sbin/nginx",
        package: Some("nginx"),
        version: &["-v"],
    },
    configure: nginx,
};

/// In a race over HTTP in TLS.
pub(super) const NGINX_HTTPS: Peer = Peer { scheme: "https", ..NGINX };

pub(super) const LIGHTTPD: Peer = Peer {
    name: "lighttpd",
    scheme: "http",
    model: "one process, one thread, epoll",
    auth: "none",
    source: PACKAGE,
    place: Place {
        program: "lighttpd",
        below: "debian/usr/sbin/lighttpd",
        package: Some("lighttpd"),
        version: &["-v"],
    },
    configure: lighttpd,
};

/// In a race over HTTP in TLS.
pub(super) const LIGHTTPD_HTTPS: Peer = Peer { scheme: "https", ..LIGHTTPD };

pub(super) const FLOOR: Peer = Peer {
    name: "floor",
    scheme: "ftp",
    model: "a thread a session and only the calls that none can avoid: a yardstick, not a server",
    auth: "any",
    source: "peers/install compiles it from peers/floor.c",
    place: Place { program: "millrace-floor", below: "floor/millrace-floor", package: None, version: &[] },
    configure: |at| {
        let mut argv = at.command();
        argv.extend([text(at.root), at.ports.control.to_string(), at.passive("-")]);
        Ok(bench(argv))
    },
};

pub(super) const HTTP_FLOOR: Peer = Peer {
    name: "http-floor",
    scheme: "http",
    model: "a thread a core and only the calls that none can avoid: a yardstick, not a server",
    auth: "none",
    source: "peers/install compiles it from peers/http_floor.c",
    place: Place {
        program: "millrace-http-floor",
        below: "floor/millrace-http-floor",
        package: None,
        version: &[],
    },
    configure: |at| {
        let mut argv = at.command();
        argv.extend([text(at.root), at.ports.control.to_string()]);
        Ok(bench(argv))
    },
};

fn vsftpd(at: &Setting<'_>) -> io::Result<Launch> {
    let empty = at.state.join("empty");
    fs::create_dir(&empty)?;
    let (first, last) = at.ports.passive;
    let tls = at.both()?.map_or_else(String::new, |both| {
        format!(
            "ssl_enable=YES\nallow_anon_ssl=YES\nrsa_cert_file={}\nrequire_ssl_reuse=NO\nssl_ciphers=HIGH\n",
            both.display()
        )
    });
    // daemon: an account without rights whose home exists on every Debian, which vsftpd insists on.
    let configuration = format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={}\nbackground=NO\nanonymous_enable=YES\n\
         local_enable=NO\nftp_username=daemon\nanon_root={}\nwrite_enable=YES\nanon_upload_enable=YES\n\
         anon_mkdir_write_enable=YES\nanon_other_write_enable=YES\nanon_world_readable_only=NO\n\
         allow_writeable_chroot=YES\nsecure_chroot_dir={}\npasv_min_port={first}\npasv_max_port={last}\n\
         max_clients=0\nmax_per_ip=0\nisolate=NO\nisolate_network=NO\nxferlog_enable=NO\n\
         idle_session_timeout=3600\n{tls}",
        at.ports.control,
        at.root.display(),
        empty.display(),
    );
    let mut argv = at.command();
    argv.push(text(&write(at, "vsftpd.conf", &configuration)?));
    Ok(Launch { argv, user: "anonymous", password: "bench@" })
}

fn pure_ftpd(at: &Setting<'_>) -> io::Result<Launch> {
    let account = format!(
        "bench:{BENCH_HASH}:{UNPRIVILEGED_ID}:{UNPRIVILEGED_ID}::{}::::::::::::\n",
        at.root.display()
    );
    let (account, database) = (write(at, "pure.passwd", &account)?, at.state.join("pure.pdb"));
    let program = &at.installed.program;
    // sbin/pure-ftpd and bin/pure-pw lie in the same prefix.
    let pure_pw = program.parent().and_then(|sbin| sbin.parent()).map(|usr| usr.join("bin/pure-pw"));
    let made = Command::new(pure_pw.unwrap_or_else(|| "pure-pw".into()))
        .args(["mkdb", &text(&database), "-f", &text(&account)])
        .envs(at.installed.environment.iter().cloned())
        .stdin(Stdio::null())
        .output()?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        return Err(io::Error::other(format!("pure-pw: {said}")));
    }
    let mut argv = at.command();
    argv.extend(["-S".into(), format!("127.0.0.1,{}", at.ports.control)]);
    argv.extend(["-l".into(), format!("puredb:{}", database.display())]);
    argv.extend(["-E", "-H", "-4", "-u", "1", "-f", "none", "-I", "60", "-L", "2000000:5"].map(String::from));
    argv.extend(["-g".into(), text(&at.state.join("pure.pid"))]);
    argv.extend(["-c".into(), SESSIONS.to_string(), "-C".into(), SESSIONS.to_string()]);
    if let Some(both) = at.both()? {
        argv.extend(["-Y".into(), "1".into(), "-2".into(), text(&both)]);
    }
    // No -p: with a range of ports it takes half as many users as that has, whatever -c says.
    Ok(bench(argv))
}

fn proftpd(at: &Setting<'_>) -> io::Result<Launch> {
    let account =
        format!("bench:{BENCH_HASH}:{UNPRIVILEGED_ID}:{UNPRIVILEGED_ID}::{}:/bin/sh\n", at.root.display());
    let (account, state) = (write(at, "proftpd.passwd", &account)?, at.state.display());
    let tls = at.certificate()?.map_or_else(String::new, |KeyPair { certificate, key }| {
        let modules = at.beside("lib/proftpd").map_or_else(String::new, |path| format!("ModulePath {}\n", text(&path)));
        format!(
            "{modules}LoadModule mod_tls.c\nTLSEngine on\nTLSECCertificateFile {}\nTLSECCertificateKeyFile {}\n\
             TLSOptions NoSessionReuseRequired\nTLSLog none\n",
            certificate.display(),
            key.display()
        )
    });
    let configuration = format!(
        "{tls}ServerType standalone\nDefaultAddress 127.0.0.1\nPort {}\nUseIPv6 off\nUser nobody\nGroup nogroup\n\
         AuthOrder mod_auth_file.c\nAuthUserFile {}\nRequireValidShell off\nAllowOverwrite on\n\
         PassivePorts {}\nMaxInstances none\nTimeoutIdle 3600\nTimeoutNoTransfer 0\nUseReverseDNS off\n\
         DelayEngine off\nScoreboardFile none\nPidFile {state}/proftpd.pid\nDelayTable none\n\
         ControlsEngine off\nWtmpLog off\nTransferLog none\nSystemLog none\n",
        at.ports.control,
        account.display(),
        at.passive(" "),
    );
    let mut argv = at.command();
    argv.extend(["--nodaemon", "--quiet", "--config"].map(String::from));
    argv.push(text(&write(at, "proftpd.conf", &configuration)?));
    Ok(bench(argv))
}

fn nginx(at: &Setting<'_>) -> io::Result<Launch> {
    let state = at.state.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {state}/{kind};\n"))
        .concat();
    let tls = at.certificate()?.map_or_else(
        || ";".to_owned(),
        |KeyPair { certificate, key }| {
            format!(
                " ssl http2; ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.2 TLSv1.3; \
                 ssl_session_cache shared:bench:10m;",
                certificate.display(),
                key.display()
            )
        },
    );
    let configuration = format!(
        "daemon off;\nworker_processes auto;\nworker_rlimit_nofile {SESSIONS};\npid {state}/nginx.pid;\n\
         error_log stderr error;\nevents {{ worker_connections {SESSIONS}; }}\nhttp {{\n\
         access_log {state}/access.log combined buffer=64k flush=1s;\nopen_file_cache max=10000;\n\
         sendfile on;\ntcp_nopush on;\nkeepalive_timeout 3600;\nkeepalive_requests 1000000000;\n{temporary}\
         server {{ listen {}{tls} root {}; }}\n}}\n",
        at.address(),
        at.root.display(),
    );
    let mut argv = at.command();
    argv.extend(["-p".into(), text(at.state), "-e".into(), "stderr".into(), "-c".into()]);
    argv.push(text(&write(at, "nginx.conf", &configuration)?));
    Ok(Launch { argv, user: "", password: "" })
}

fn lighttpd(at: &Setting<'_>) -> io::Result<Launch> {
    let tls = at.certificate()?.map_or_else(String::new, |KeyPair { certificate, key }| {
        format!(
            "server.modules += (\"mod_openssl\")\nssl.engine = \"enable\"\nssl.pemfile = \"{}\"\n\
             ssl.privkey = \"{}\"\n",
            certificate.display(),
            key.display()
        )
    });
    let configuration = format!(
        "server.document-root = \"{}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {}\n\
         server.max-fds = {SESSIONS}\nserver.max-keep-alive-requests = 100000\n\
         server.max-keep-alive-idle = 3600\nserver.network-backend = \"sendfile\"\n\
         server.modules = (\"mod_accesslog\")\naccesslog.filename = \"{}/access.log\"\n{tls}",
        at.root.display(),
        at.ports.control,
        at.state.display(),
    );
    let mut argv = at.command();
    argv.extend(["-D".into(), "-f".into(), text(&write(at, "lighttpd.conf", &configuration)?)]);
    argv.extend(at.beside("lib/lighttpd").into_iter().flat_map(|modules| ["-m".into(), text(&modules)]));
    Ok(Launch { argv, user: "", password: "" })
}

impl Setting<'_> {
    fn command(&self) -> Vec<String> {
        vec![text(&self.installed.program)]
    }

    /// A self-signed certificate, where the race is in TLS.
    fn certificate(&self) -> io::Result<Option<KeyPair>> {
        if !self.installed.peer.is_over_tls() {
            return Ok(None);
        }
        self_signed(self.state, &["127.0.0.1".to_owned(), "localhost".to_owned()]).map(Some)
    }

    /// The same, certificate and key in one file.
    fn both(&self) -> io::Result<Option<PathBuf>> {
        let Some(KeyPair { certificate, key }) = self.certificate()? else { return Ok(None) };
        write(self, "both.pem", &(fs::read_to_string(certificate)? + &fs::read_to_string(key)?)).map(Some)
    }

    /// A folder of its installation: sbin and lib lie in the same prefix.
    fn beside(&self, folder: &str) -> Option<PathBuf> {
        let usr = self.installed.program.parent()?.parent()?;
        Some(usr.join(folder)).filter(|folder| folder.is_dir())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.control)
    }

    fn passive(&self, between: &str) -> String {
        let (first, last) = self.ports.passive;
        format!("{first}{between}{last}")
    }
}

fn bench(argv: Vec<String>) -> Launch {
    Launch { argv, user: "bench", password: "bench" }
}

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

fn write(at: &Setting<'_>, name: &str, content: &str) -> io::Result<PathBuf> {
    let path = at.state.join(name);
    fs::write(&path, content)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(path)
}
