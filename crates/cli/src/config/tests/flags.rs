//! Flags: their meaning, and their errors.

use super::*;

#[test]
fn accounts_follow_from_flags() {
    let folder = Folder::new();
    let table: [(&[&str], &str); 9] = [
        (&[], "anonymous may read"),
        (&["--anonymous", "rw"], "anonymous may read and write"),
        (&["--user", "alice:pw"], "alice may read and write"),
        (&["--user", "alice:pw:ro"], "alice may read"),
        (&["--user", "alice:pw:rw:photos"], "alice may read and write, in photos"),
        (&["--user", "alice:pw:photos"], "alice may read and write, in photos"),
        (&["--user", "alice:pw", "--anonymous", "ro"], "anonymous may read; alice may read and write"),
        (&["--user", "ftp:pw"], "ftp may read and write"),
        (&["--user", "a:pw", "--user", "b:pw:ro"], "a may read and write; b may read"),
    ];
    for (flags, expected) in table {
        let site = folder.flags(flags).unwrap_or_else(|failure| panic!("{flags:?}: {failure}"));
        assert_eq!(logins(&site), expected, "{flags:?}");
        assert_eq!(site.config.anonymous, expected.contains("anonymous"), "{flags:?}");
    }
}

#[test]
fn only_those_who_may_write_get_a_writable_tree() {
    let folder = Folder::new();
    assert!(folder.flags(&[]).unwrap().writable().is_empty());
    let shared = folder.flags(&["--user", "a:pw", "--user", "b:pw", "--anonymous", "ro"]).unwrap();
    assert_eq!(shared.writable().len(), 1, "one tree is opened once");
}

#[test]
fn flags_become_settings() {
    let folder = Folder::new();
    let flags = "--ftp 0.0.0.0:0 --ftp [::1]:2121 --passive-ports 50000 --public-ip 203.0.113.7 --workers 3 --grace 5m \
                 --coalesce off --uploads in-place --durability full --upload-hash sha256 --upload-hash crc32 \
                 --list-sort 10k --log-format json --xferlog x.log";
    let site = folder.flags(&flags.split_whitespace().collect::<Vec<_>>()).unwrap();
    let config = &site.config;
    assert_eq!(config.ftp, ["0.0.0.0:0".parse().unwrap(), "[::1]:2121".parse().unwrap()]);
    assert_eq!(config.passive_ports, 50000..=50000);
    assert_eq!(config.public_ip, Some([203, 0, 113, 7].into()));
    assert_eq!(config.workers, 3);
    assert_eq!(config.grace.as_secs(), 300);
    assert!(!config.coalesce);
    assert_eq!(config.sort_entries, 10_000);
    assert_eq!(config.log, millrace_server::config::LogFormat::Json);
    assert_eq!(config.xferlog.as_deref(), Some(Path::new("x.log")));
    assert_eq!(site.files.uploads, millrace_storage::Uploads::InPlace);
    assert_eq!(site.files.durability, millrace_storage::Durability::Full);
    let hashes: Vec<_> = site.files.hashes.iter().map(|algorithm| algorithm.name()).collect();
    assert_eq!(hashes, ["CRC32", "SHA-256"]);
}

#[test]
fn a_flag_goes_before_its_key() {
    let folder = Folder::new();
    let text = format!(
        "grace = \"1m\"\nidle-timeout = 7\nftp = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n[[user]]\nname = \"a\"\npassword = \"{HASH}\"\n"
    );
    let site = folder.file(&text).unwrap();
    assert_eq!((site.config.grace.as_secs(), site.config.ftp.len()), (60, 2));
    assert_eq!(logins(&site), "a may read and write");

    let site =
        folder.file_and_flags(&text, &["--grace", "2", "--ftp", "127.0.0.1:3", "--user", "b:pw"]).unwrap();
    assert_eq!((site.config.grace.as_secs(), site.config.ftp.len()), (2, 1));
    assert_eq!(site.config.idle_timeout.as_secs(), 7);
    assert_eq!(logins(&site), "b may read and write");
}

/// Each flag once.
const EVERY_FLAG: &str = "photos --ftp 127.0.0.1:1 --http 127.0.0.1:2 --cgi programs --passive-ports 50000-50001 \
    --public-ip 203.0.113.7 --workers 3 --grace 5m --control socket --run-as nobody --sandbox off --coalesce off --tls-cert a.pem --tls-key a.key \
    --tls-self-signed --acme a.example --acme-agree --tls-required data --ftps 127.0.0.1:3 --https 127.0.0.1:4 --admin 127.0.0.1:5 --state kept \
    --user a:pw --users accounts --anonymous ro --uploads in-place --durability full --upload-hash sha256 --list-sort 10k --quiet --log-format json \
    --xferlog x.log --access-log a.log --audit-log u.log";

#[test]
fn every_flag_is_kept_over_a_file() {
    let flags: Vec<&str> = EVERY_FLAG.split_whitespace().collect();
    let all = <Written as clap::Args>::augment_args(clap::Command::new("serve"));
    for flag in all.get_arguments().filter_map(clap::Arg::get_long) {
        assert!(flags.contains(&&*format!("--{flag}")), "--{flag} is not among them");
    }
    let written = written(&flags);
    let said = format!("{written:#?}");
    assert_eq!(format!("{:#?}", written.over(Written::default())), said);
}

#[test]
fn impossible_flags_are_told_apart() {
    let table = [
        (
            "--passive-ports 60000-50000",
            "the range ends before it begins; write the smaller port first: 50000-60000",
        ),
        ("--passive-ports 0-5", "port 0 cannot be part of the range; clients could not be told it"),
        ("--passive-ports 0", "port 0 cannot be part of the range; clients could not be told it"),
        (
            "--passive-ports 1-65536",
            "\"1-65536\" is not a range of ports; write two numbers up to 65535, such as 50000-50999",
        ),
        (
            "--public-ip ::1",
            "::1 is an IPv6 address, but PASV can name only an IPv4 one; clients on IPv6 use EPSV, which names none",
        ),
        ("--public-ip 0.0.0.0", "0.0.0.0 is not an address that a client could connect to"),
        ("--public-ip example.org", "\"example.org\" is not an IPv4 address, such as 203.0.113.7"),
        (
            "--ftp 2121",
            "\"2121\" is not an address with a port; write 127.0.0.1:2121 for this computer only, 0.0.0.0:2121 or \
             [::]:2121 for the network, or off",
        ),
        (
            "--http 1:80",
            "\"1:80\" is not an address with a port; write 127.0.0.1:2121 for this computer only, 0.0.0.0:2121 or \
             [::]:2121 for the network, or off",
        ),
        ("--workers 5000", "expected at most 1024: threads, and one for each core is best"),
        ("--workers many", "\"many\" is not a number; write one such as 100, 10k or 64Ki"),
        (
            "--grace soon",
            "\"soon\" is not a length of time; write a number with ms, s, m, h or d, such as 30s or 5m",
        ),
        ("--grace 1000d", "\"1000d\" is longer than a year"),
        ("--anonymous yes", "\"yes\" is none of the choices; write ro or rw or off"),
        ("--uploads fast", "\"fast\" is none of the choices; write staged or in-place"),
        ("--coalesce maybe", "\"maybe\" is none of the choices; write on or off"),
        ("--log-format xml", "\"xml\" is none of the choices; write text or json or journal"),
    ];
    for (flags, expected) in table {
        let flags: Vec<&str> = flags.split(' ').collect();
        let text = parse(&flags).expect_err(expected).to_string();
        let (first, _) = text.split_once('\n').unwrap();
        let (_, told) = first.split_once(">': ").unwrap_or_else(|| panic!("{first}"));
        assert_eq!(told, expected);
    }
}

#[test]
fn a_name_is_resolved_to_one_address() {
    let folder = Folder::new();
    let site = folder.flags(&["--ftp", "localhost:5200", "--http", "off"]).unwrap();
    assert!(site.config.ftp[0].ip().is_loopback() && site.config.ftp[0].port() == 5200);
    assert_eq!(site.config.ftp.len(), 1);
}

#[test]
fn contradicting_flags_are_refused() {
    const FORM: &str = "--user: write NAME:PASSWORD, NAME:PASSWORD:ro or NAME:PASSWORD:rw:SUBDIR; a password here \
                        cannot contain a colon.";
    let table = [
        ("--user alice", FORM),
        ("--user alice:pw:", FORM),
        ("--user alice:pw:ro:", FORM),
        ("--user :pw", "--user: the name of a user is empty."),
        ("--user alice:", "--user alice: the password is empty; use --anonymous to let everyone in."),
        (
            "--user alice:pw:ro:..",
            "--user alice: the folder .. has to lie within HERE, without .. or a leading /.",
        ),
        (
            "--user alice:pw:rw:/tmp",
            "--user alice: the folder /tmp has to lie within HERE, without .. or a leading /.",
        ),
        ("--user alice:pw:rw:out/tmp", "--user alice: the folder out/tmp is a link that leads out of HERE."),
        ("--user alice:pw:rw:file", "--user alice: the folder file is not a folder."),
        ("--user alice:pw:file", "--user alice: SUBDIR is not a folder."),
        ("--upload-hash none --upload-hash md5", "--upload-hash: \"none\" goes with no other hash."),
        (
            "--user alice:s3cret:rw:missing",
            "--user alice: the folder missing is not there in HERE (No such file or directory (os error 2)); make it first.",
        ),
        (
            "--user alice:pa:ss:word",
            "--user alice: what follows the password is neither ro nor rw nor a folder in HERE (No such file or \
             directory (os error 2)); make the folder first, and choose a password without a colon.",
        ),
        (
            "--user a:$argon2id$v=19$m=1",
            "--user a: this hash is damaged or incomplete; `millrace hash-password` makes one.",
        ),
        (
            "--user a:$argon2d$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "--user a: this is a hash by argon2d; argon2id, bcrypt, scrypt, yescrypt, SHA-512-crypt and SHA-256-crypt are accepted; `millrace hash-password` makes one.",
        ),
        ("--user a:x --user a:y", "--user: there are two users named a."),
        (
            "--user FTP:x --anonymous ro",
            "--user: FTP is a name of the anonymous user, whom any password lets in; choose another name, or turn \
             anonymous off.",
        ),
        (
            "--anonymous off",
            "--anonymous: no login is possible: anonymous is off and there is no user; add a user, or let anonymous \
             read (ro).",
        ),
        ("--ftp off --http off", "--ftp: nothing would be served: FTP is off, and HTTP is too."),
        ("--ftp off --ftp 127.0.0.1:0", "--ftp: \"off\" cannot stand beside an address."),
        ("--ftp 127.0.0.1:21 --ftp 127.0.0.1:21", "--ftp: 127.0.0.1:21 is named twice."),
        (
            "--ftp 127.0.0.1:50500",
            "--passive-ports: port 50500 is where FTP is served, so it cannot be one of the data ports 50000 to 50999 \
             too.",
        ),
        (
            "--ftps 127.0.0.1:990",
            "--ftps: FTPS needs a certificate: name one with --tls-cert and --tls-key, or have one made for a first try \
             with --tls-self-signed.",
        ),
        (
            "--tls-required login",
            "--tls-required: no login is possible: TLS is required, and there is no certificate; name one with \
             --tls-cert.",
        ),
        ("--tls-key k.pem", "--tls-key: a key alone is of no use; name its certificate with --tls-cert."),
        (
            "--tls-cert c.pem --tls-cert d.pem --tls-key k.pem",
            "--tls-key: expected a key for each certificate, in the same order: there are 1 key and 2 certificates.",
        ),
        ("--tls-cert missing.pem", "--tls-cert: missing.pem: there is no such file."),
        (
            "--tls-cert c.pem --tls-self-signed",
            "--tls-self-signed: there is a certificate already, by --tls-cert; leave one of the two out.",
        ),
        (
            "--tls-self-signed --state HERE --ftps 127.0.0.1:50500",
            "--passive-ports: port 50500 is where FTPS is served, so it cannot be one of the data ports 50000 to 50999 \
             too.",
        ),
        (
            "--acme a.example",
            "--acme: the CA acme-v02.api.letsencrypt.org gives certificates to those who agree to its terms of service; say so \
             with --acme-agree.",
        ),
        (
            "--acme a.example --acme-agree --tls-self-signed --state HERE",
            "--tls-self-signed: there is a certificate already, by --acme; leave one of the two out.",
        ),
        (
            "--acme a.example --acme-agree --tls-cert c.pem --state HERE",
            "--tls-cert: there is a certificate already, by --acme; leave one of the two out.",
        ),
        (
            "--acme a.example --acme-agree --http off --state HERE",
            "--acme: the CA cannot validate the name by tls-alpn-01: serve HTTPS, and have port 443 lead \
             there.",
        ),
        (
            "--acme *.example.org --acme-agree --state HERE",
            "--acme: \"*.example.org\" is a wildcard, for which a CA asks by DNS alone: name each host, or fetch it with \
             another program.",
        ),
        (
            "--acme 203.0.113.7 --acme-agree --state HERE",
            "--acme: \"203.0.113.7\" is no name that a CA could ask for; expected one such as files.example.org.",
        ),
        (
            "--acme a..b --acme-agree --state HERE",
            "--acme: \"a..b\" is no name that a CA could ask for; expected one such as files.example.org.",
        ),
    ];
    let folder = Folder::new();
    for (flags, expected) in table {
        let flags: Vec<&str> = flags.split(' ').collect();
        assert_eq!(folder.error(folder.flags(&flags)), expected, "{flags:?}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let folder = Folder::new();
    let missing = folder.path().join("missing");
    assert_eq!(
        folder.error(load(written(&[missing.to_str().unwrap()]), None)),
        "DIR: the folder HERE/missing cannot be served: No such file or directory (os error 2); make it first, or \
         name another."
    );
    let file = folder.path().join("file");
    assert_eq!(
        folder.error(load(written(&[file.to_str().unwrap()]), None)),
        "DIR: HERE/file is not a folder; name the folder that it is in."
    );
}
