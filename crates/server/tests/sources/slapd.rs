//! A directory for one test: OpenLDAP's slapd. Tests of other crates include this file, too.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::daemon::{Daemon, program};

/// `dc=example,dc=org`, to which nothing but its socket leads, unless it has ports.
pub(crate) struct Slapd {
    pub(crate) daemon: Daemon,
    slapd: PathBuf,
    ldapmodify: PathBuf,
    /// A certificate and its key, and one port in clear, one with TLS.
    pub(crate) tls: Option<(PathBuf, PathBuf, RangeInclusive<u16>)>,
}

const ADMIN: &str = "cn=admin,dc=example,dc=org";

impl Slapd {
    /// With these entries in LDIF; `ports` finds two that are free.
    pub(crate) fn new(
        entries: &str,
        tls: Option<(&Path, &Path)>,
        ports: impl FnMut() -> RangeInclusive<u16>,
    ) -> Option<Self> {
        let slapd = program("slapd", "slapd")?;
        let (slapadd, ldapmodify) = (program("slapadd", "slapd")?, program("ldapmodify", "ldap-utils")?);
        let daemon = Daemon::new();
        // A copy: some systems confine the installed one to folders of its own.
        let (copy, add) = (daemon.path().join("slapd"), daemon.path().join("slapadd"));
        fs::copy(slapd, &copy).unwrap();
        fs::copy(slapadd, &add).unwrap();
        let mut text = String::new();
        for schema in ["core", "cosine", "inetorgperson", "nis"] {
            text += &format!("include /etc/ldap/schema/{schema}.schema\n");
        }
        text += "modulepath /usr/lib/ldap\nmoduleload back_mdb\n";
        let keep = |from: &Path, name: &str| daemon.write(name, &fs::read_to_string(from).unwrap());
        let tls =
            tls.map(|(certificate, key)| (keep(certificate, "certificate.pem"), keep(key, "key.pem"), 0..=0));
        if let Some((certificate, key, _)) = &tls {
            text += &format!(
                "TLSCertificateFile {}\nTLSCertificateKeyFile {}\n",
                certificate.display(),
                key.display()
            );
        }
        let folder = daemon.path().display();
        text += &format!(
            "database mdb\nsuffix dc=example,dc=org\nrootdn {ADMIN}\nrootpw secret\ndirectory {folder}\n\
             maxsize 10485760\nindex uid eq\naccess to attrs=userPassword by anonymous auth by * none\n\
             access to * by dn.exact=uid=reader,dc=example,dc=org read by anonymous auth\n"
        );
        daemon.write("slapd.conf", &text);
        daemon.write("entries.ldif", entries);
        daemon.run(&add, &["-q", "-f", "slapd.conf", "-l", "entries.ldif"]);
        let mut server = Self { daemon, slapd: copy, ldapmodify, tls };
        server.start(ports);
        Some(server)
    }

    pub(crate) fn start(&mut self, mut ports: impl FnMut() -> RangeInclusive<u16>) {
        let (url, folder) = (self.url(), self.daemon.path().to_owned());
        let mut chosen = 0..=0;
        let has_tls = self.tls.is_some();
        let arguments = || {
            let mut urls = url.clone();
            if has_tls {
                chosen = ports();
                urls += &format!(" ldap://127.0.0.1:{} ldaps://127.0.0.1:{}", chosen.start(), chosen.end());
            }
            ["-d", "0", "-f", "slapd.conf", "-h", &urls].map(str::to_owned).to_vec()
        };
        let mut ping = self.daemon.command(&self.ldapmodify);
        ping.args(["-x", "-D", ADMIN, "-w", "secret", "-H", &url, "-f", "/dev/null"]);
        ping.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(folder.is_dir());
        self.daemon.start(&self.slapd, arguments, || ping.status().unwrap().success());
        if let Some((_, _, ports)) = &mut self.tls {
            *ports = chosen;
        }
    }

    /// Of its socket.
    pub(crate) fn url(&self) -> String {
        format!("ldapi://{}", self.daemon.path().join("socket").display().to_string().replace('/', "%2F"))
    }

    /// Makes changes, in LDIF.
    #[track_caller]
    pub(crate) fn modify(&self, changes: &str) {
        self.daemon.write("changes.ldif", changes);
        self.daemon.run(
            &self.ldapmodify,
            &["-x", "-D", ADMIN, "-w", "secret", "-H", &self.url(), "-f", "changes.ldif"],
        );
    }
}
