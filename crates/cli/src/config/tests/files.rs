//! Files: what they mean, and where something wrong is.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn paths_in_a_file_count_from_its_folder() {
    let folder = Folder::new();
    let site = folder.file("directory = \"photos\"\nxferlog = \"x.log\"\n").unwrap();
    assert_eq!(site.directory, folder.path().join("photos"));
    assert_eq!(site.config.xferlog, Some(folder.path().join("x.log")));
}

#[test]
fn a_missing_or_binary_file_is_refused() {
    let folder = Folder::new();
    let path = folder.path().join("none.toml");
    assert_eq!(
        folder.error(load(Written::default(), Some(&path))),
        "cannot read the configuration file HERE/none.toml: No such file or directory (os error 2)."
    );
    fs::write(&path, b"grace = 1\ngreeting = \"\xff\"\n").unwrap();
    assert_eq!(
        folder.error(load(Written::default(), Some(&path))),
        "cannot read the configuration file HERE/none.toml: line 2 is not UTF-8, which TOML has to be."
    );
}

#[test]
fn errors_in_a_file_show_where() {
    let table = [
        (
            "grace = \"half an hour\"",
            r#"HERE/m.toml:1:9: "half an hour" is not a length of time; write a number with ms, s, m, h or d, such as 30s or 5m.
    1 | grace = "half an hour"
      |         ^^^^^^^^^^^^^^"#,
        ),
        (
            "# first\npasive-ports = 50000",
            r#"HERE/m.toml:2:1: A configuration file has no key `pasive-ports`; did you mean `passive-ports`?
    2 | pasive-ports = 50000
      | ^^^^^^^^^^^^"#,
        ),
        (
            "fpt = \"off\"",
            r#"HERE/m.toml:1:1: A configuration file has no key `fpt`; did you mean `ftp`?
    1 | fpt = "off"
      | ^^^"#,
        ),
        (
            "http-link-keys = \"keys\"",
            r#"HERE/m.toml:1:18: The file of keys HERE/keys cannot be read: No such file or directory (os error 2); `(umask 077; openssl rand -hex 32 > HERE/keys)` makes one.
    1 | http-link-keys = "keys"
      |                  ^^^^^^"#,
        ),
        (
            "log_format = \"text\"",
            r#"HERE/m.toml:1:1: A configuration file has no key `log_format`; did you mean `log-format`?
    1 | log_format = "text"
      | ^^^^^^^^^^"#,
        ),
        (
            "coalesce = \"perhaps\"",
            r#"HERE/m.toml:1:12: "perhaps" is none of the choices; write on or off.
    1 | coalesce = "perhaps"
      |            ^^^^^^^^^"#,
        ),
        (
            "coalesce = 1",
            r#"HERE/m.toml:1:12: Expected `true` or `false`, but this is the number 1.
    1 | coalesce = 1
      |            ^"#,
        ),
        (
            "greeting = true",
            r#"HERE/m.toml:1:12: Expected a text in quotes, but this is `true`.
    1 | greeting = true
      |            ^^^^"#,
        ),
        (
            "greeting = \"a\\r\\nb\"",
            r#"HERE/m.toml:1:12: Expected one line of text, without control characters.
    1 | greeting = "a\r\nb"
      |            ^^^^^^^^"#,
        ),
        (
            "\tworkers = [1]",
            "HERE/m.toml:1:12: Expected a number, such as 100 or \"10k\", but this is an array.\n    1 | \tworkers = \
             [1]\n      | \t          ^^^",
        ),
        (
            "sessions = -1",
            r#"HERE/m.toml:1:12: -1 is below zero; write a number such as 1000.
    1 | sessions = -1
      |            ^^"#,
        ),
        (
            "idle-timeout = 0",
            r#"HERE/m.toml:1:16: Expected more than no time at all, such as 30s.
    1 | idle-timeout = 0
      |                ^"#,
        ),
        (
            "login-attempts = 0",
            r#"HERE/m.toml:1:18: Expected at least 1.
    1 | login-attempts = 0
      |                  ^"#,
        ),
        (
            "tls-cert = \"file\"",
            r#"HERE/m.toml:1:12: HERE/file: it is empty, and a certificate in PEM belongs there.
    1 | tls-cert = "file"
      |            ^^^^^^"#,
        ),
        (
            "tls-cert = \"none/password.pem\"",
            r#"HERE/m.toml:1:12: HERE/none/password.pem: there is no such file.
    1 | tls-cert = "none/password.pem"
      |            ^^^^^^^^^^^^^^^^^^^"#,
        ),
        (
            "deny = \"10.0.0.1/8\"",
            r#"HERE/m.toml:1:8: "10.0.0.1/8" names one address and a whole network; write 10.0.0.0/8 for the network, or 10.0.0.1 alone.
    1 | deny = "10.0.0.1/8"
      |        ^^^^^^^^^^^^"#,
        ),
        (
            "ftp = 2121",
            r#"HERE/m.toml:1:7: 2121 is a port without an address; write "127.0.0.1:2121" for this computer only, "0.0.0.0:2121" or "[::]:2121" for the network.
    1 | ftp = 2121
      |       ^^^^"#,
        ),
        (
            "tls-ccc = true",
            r#"HERE/m.toml:1:11: There is no certificate, and so no TLS that this could be about; name one with tls-cert, or leave it out.
    1 | tls-ccc = true
      |           ^^^^"#,
        ),
        (
            "tls-self-signed = true\nstate = \"s\"\ntls-client-ca = \"nofile\"",
            r#"HERE/m.toml:3:17: HERE/nofile: there is no such file.
    3 | tls-client-ca = "nofile"
      |                 ^^^^^^^^"#,
        ),
        (
            "tls-client-cert = true",
            r#"HERE/m.toml:1:19: Who vouches for clients is not said; name their certificates with tls-client-ca.
    1 | tls-client-cert = true
      |                   ^^^^"#,
        ),
        (
            "tls-resumption = \"yes\"",
            r#"HERE/m.toml:1:18: "yes" is none of the choices; write require or prefer or off.
    1 | tls-resumption = "yes"
      |                  ^^^^^"#,
        ),
        (
            "acme-directory = \"http://ca.example\"",
            r#"HERE/m.toml:1:18: "http://ca.example" is no URL of a CA's directory, such as "https://acme-v02.api.letsencrypt.org/directory".
    1 | acme-directory = "http://ca.example"
      |                  ^^^^^^^^^^^^^^^^^^^"#,
        ),
        (
            "acme-challenge = \"dns-01\"",
            r#"HERE/m.toml:1:18: "dns-01" is none of the choices; write http-01 or tls-alpn-01.
    1 | acme-challenge = "dns-01"
      |                  ^^^^^^^^"#,
        ),
        (
            "passive-ports = \"60000-50000\"",
            r#"HERE/m.toml:1:17: The range ends before it begins; write the smaller port first: 50000-60000.
    1 | passive-ports = "60000-50000"
      |                 ^^^^^^^^^^^^^"#,
        ),
        (
            "ftp = [\"127.0.0.1:1\", \"off\"]",
            r#"HERE/m.toml:1:23: "off" cannot stand beside an address.
    1 | ftp = ["127.0.0.1:1", "off"]
      |                       ^^^^^"#,
        ),
        (
            "ftp = []",
            r#"HERE/m.toml:1:7: This list is empty; write "off" for none, or leave the key out.
    1 | ftp = []
      |       ^^"#,
        ),
        (
            "xferlog = \"missing/x.log\"",
            r#"HERE/m.toml:1:11: HERE/missing/x.log cannot be made in HERE/missing: No such file or directory (os error 2); make the folder first, or name another.
    1 | xferlog = "missing/x.log"
      |           ^^^^^^^^^^^^^^^"#,
        ),
        (
            "xferlog = \"photos\"",
            r#"HERE/m.toml:1:11: HERE/photos is a folder; name a file in it.
    1 | xferlog = "photos"
      |           ^^^^^^^^"#,
        ),
        (
            "directory = \"missing\"",
            r#"HERE/m.toml:1:13: The folder HERE/missing cannot be served: No such file or directory (os error 2); make it first, or name another.
    1 | directory = "missing"
      |             ^^^^^^^^^"#,
        ),
        ("grace = 1\ngrace = 2", "HERE/m.toml:2:1: Duplicate key.\n    2 | grace = 2\n      | ^^^^^"),
        (
            "[[users]]\nname = \"a\"",
            r#"HERE/m.toml:1:3: There are no [[users]]; each user is a table of its own, which begins with [[user]].
    1 | [[users]]
      |   ^^^^^"#,
        ),
        (
            "port = 2121",
            r#"HERE/m.toml:1:1: A configuration file has no key `port`; did you mean `ftp`, such as ftp = "127.0.0.1:2121"?
    1 | port = 2121
      | ^^^^"#,
        ),
        (
            "[[folder]]\npath = \"/a\"\ndirectory = \"photos\"\ngrace = 5",
            r#"HERE/m.toml:4:1: A [[folder]] table has no key `grace`; `grace` is a key of the top level: move it above the first table of the file.
    4 | grace = 5
      | ^^^^^"#,
        ),
        (
            "[server]\nport = 2121",
            r#"HERE/m.toml:1:2: A configuration file has no key `server`; keys stand at the top level, without a table around them.
    1 | [server]
      |  ^^^^^^"#,
        ),
        (
            "[[listener]]\nsessions = 5",
            r#"HERE/m.toml:1:1: A [[listener]] table needs `address`.
    1 | [[listener]]
      | ^^^^^^^^^^^^"#,
        ),
        (
            "users = \"a:hunter2\"",
            "HERE/m.toml:1:9: This is the file of a database of users, and there is none of that name; a user with a password is a \
             [[user]] table, or `serve --user NAME:PASSWORD`.\n    1 | (a line that may hold a password is not shown)",
        ),
        (
            "users = [\"a:hunter2\"]",
            "HERE/m.toml:1:9: Expected a path in quotes, but this is an array.\n    1 | (a line that may hold a password is not \
             shown)",
        ),
        (
            "[user]\nname = \"a\"",
            r#"HERE/m.toml:1:1: Each user is a table of its own, which begins with [[user]], in two brackets.
    1 | [user]
      | ^^^^^^"#,
        ),
        (
            "[[user]]\nname = \"a\"",
            r#"HERE/m.toml:2:8: This user has no password: run `millrace hash-password` and write what it prints; or let a client certificate be enough, with tls-client-login = "alone".
    2 | name = "a"
      |        ^^^"#,
        ),
        (
            "[[user]]\nname = \"a\"\npassword = \"secret\"",
            "HERE/m.toml:3:12: This is not a password hash, which looks like $argon2id$v=19$m=19456,t=2,p=1$...$.... \
             Run `millrace hash-password` and write here what it prints.\n    3 | (a line that may hold a password is not shown)",
        ),
        (
            "[[user]]\nname = \"a\"\npasswort = \"secret\"",
            "HERE/m.toml:3:1: A [[user]] table has no key `passwort`; did you mean `password`?\n    3 | (a line that may hold a \
             password is not shown)",
        ),
        (
            "user = [{ name = \"a\", password = \"secret\" }]",
            "HERE/m.toml:1:34: This is not a password hash, which looks like $argon2id$v=19$m=19456,t=2,p=1$...$.... \
             Run `millrace hash-password` and write here what it prints.\n    1 | (a line that may hold a password is not shown)",
        ),
        (
            "user = [\n  { name = \"a\", pasword = \"secret\" },\n]",
            "HERE/m.toml:2:17: A [[user]] table has no key `pasword`; did you mean `password`?\n    2 | (a line that may hold a \
             password is not shown)",
        ),
        (
            "user = [\n  { name = \"a\", pw = \"secret\" },\n]",
            "HERE/m.toml:2:17: A [[user]] table has no key `pw`; there are `name`, `password`, `groups`, `directory`, `host`, `access`, `tree`, `deny-names`, `allow-names`, `from`, `not-from`, `hours`, `protocols`, `require-tls`, `require-tls-data`, `tls-resumption`, `tls-client-login`, `expires`, `disabled`, `totp`, `download`, `upload`, `session-download`, `session-upload`, `sessions`, `quota-bytes`, `quota-files`, `quota-upload`, `quota-download`, `quota-transfer`, `ratio`.\n    2 | (a line that may hold a \
             password is not shown)",
        ),
        (
            "directory = \".\"\n[[user]]\nname = \"a\"\ntls-client-login = \"alone\"",
            r#"HERE/m.toml:3:8: The user a has to show a certificate, as tls-client-login is alone, and there is no CA for it: name them with tls-client-ca.
    3 | name = "a"
      |        ^^^"#,
        ),
        (
            "[[user]]\nname = \"a\"\npassword = \"$2b$12$abcdefgh\"",
            "HERE/m.toml:3:12: This hash is damaged or incomplete. Run `millrace hash-password` and write \
             here what it prints.\n    3 | (a line that may hold a password is not shown)",
        ),
        (
            "directory = \".\"\n[[user]]\nname = \"a\"\npassword = \"HASH\"\ndirectory = \"../up\"",
            r#"HERE/m.toml:5:13: The folder ../up has to lie within HERE, without .. or a leading /.
    5 | directory = "../up"
      |             ^^^^^^^"#,
        ),
        (
            "[[user]]\nname = \"a\\u0000\"\npassword = \"HASH\"",
            r#"HERE/m.toml:2:8: The name "a\0" contains a control character, which no client can send.
    2 | name = "a\u0000"
      |        ^^^^^^^^^"#,
        ),
    ];
    let folder = Folder::new();
    for (text, expected) in table {
        let text = text.replace("HASH", HASH);
        assert_eq!(folder.error(folder.file(&text)), expected, "{text}");
    }
}

/// Lines of other tables behind those of users are shown, unless their keys may have credentials within them.
#[test]
fn lines_of_tables_behind_users_are_shown_as_they_are() {
    let folder = Folder::new();
    let user = format!("[[user]]\nname = \"a\"\npassword = \"{HASH}\"\n");
    for line in [
        "[[folder]]\ndirectory = \".\"\npath = \"passwords\"\nacess = \"ro\"",
        "[[folder]]\npath = \"/x\"\ndirectory = \"none/password\"",
        "[[notice]]\ncertificate = \"400d\"",
        "[[notice]]\nmail-to = \"a@b.net\"\nsmtp = \"x:99999\"",
        "[[notice]]\nsmtp = \"x\"\nmail-to = \"ops\"",
        "[[notice]]\nsmtp-user = \"u\"\nsmtp = \"x\"\nmail-to = \"a@b.net\"\nsmtp-password-file = \"none\"",
        "[[class]]\nname = \"x\"\nfrom = \"10.0.0.1/8\"",
    ] {
        let error = folder.error(folder.file(&format!("{user}{line}\n")));
        let wrong = line.lines().last().unwrap();
        assert!(error.contains(&format!(" | {wrong}\n")), "{error}");
    }
    for line in [
        "[[hook]]\nrun = \"x -p hunter2\"\non = 1",
        "[[hook]]\nrun = [\n\"x\", \"-p\", \"hunter2\", 1\n]",
        "[[notice]]\nwebhook = \"ftp://x/hunter2\"",
        "[[notice]]\nsecret = \"hunter2\"\nwebhook = \"http://h/\"",
        "[cluster]\ndatabase = \"password=hunter2\"",
        "[[notice]]\npas = \"hunter2\"",
        "[otlp]\nendpoint = \"hunter2\"",
    ] {
        let error = folder.error(folder.file(&format!("{user}{line}\n")));
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn all_unknown_keys_are_told_at_once() {
    let folder = Folder::new();
    let text = format!(
        "grase = 1\n[[group]]\nname = \"g\"\nuser-sessions = 3\n[[user]]\nname = \"a\"\npassword = \"{HASH}\"\nacess = \"ro\"\n"
    );
    assert_eq!(
        folder.error(folder.file(&text)),
        "HERE/m.toml:1:1: A configuration file has no key `grase`; did you mean `grace`?\n    1 | grase = 1\n      | ^^^^^\n\
         HERE/m.toml:4:1: A [[group]] table has no key `user-sessions`; `user-sessions` is a key of the top level: move it above the first table of the file; or did you mean `sessions`?\n    4 | user-sessions = \
         3\n      | ^^^^^^^^^^^^^\n\
         HERE/m.toml:8:1: A [[user]] table has no key `acess`; did you mean `access`?\n    8 | acess = \"ro\"\n      | ^^^^^"
    );
}

#[test]
fn all_values_that_cannot_be_read_are_told_at_once() {
    let folder = Folder::new();
    let places = |text: &str| {
        let told = folder.error(folder.file(&text.replace("HASH", HASH)));
        let places = told.lines().filter_map(|line| line.strip_prefix("HERE/m.toml:")?.split(": ").next());
        places.map(str::to_owned).collect::<Vec<_>>()
    };
    let user = "[[user]]\nname = \"a\"\npassword = \"HASH\"\naccess = \"some\"\nhours = [\n \"x\",\n]\nsessions = 3\n";
    assert_eq!(places(&format!("grace = \"soon\"\ncoalesce = 1\n{user}")), ["1:9", "2:12", "6:10", "7:9"]);
    // A key that is only missing because its value is wrong is not reported as missing.
    assert_eq!(places("[[user]]\nname = 1\n[[group]]\nname = \"g\"\n"), ["2:8"]);
    assert_eq!(places("grace = \"soon\"\n[[user]]\naccess = \"ro\"\n"), ["1:9", "2:1"]);
    assert_eq!(places("grace = 1\ngrace = 2\ncoalesce = 1"), ["2:1"]);
}

#[test]
fn dates_are_those_of_toml_or_texts_and_rules_that_never_match_are_refused() {
    let folder = Folder::new();
    let user = |said: &str| {
        folder.file(&format!("directory = \".\"\n[[user]]\nname = \"a\"\npassword = \"{HASH}\"\n{said}\n"))
    };
    for date in ["2027-01-31", "\"2027-01-31\"", "2027-01-31T18:00:00Z"] {
        assert!(user(&format!("expires = {date}")).is_ok(), "{date}");
    }
    for (said, expected) in [
        ("expires = 18:00:00", "is no date; write \"2027-01-31\""),
        ("tree = [{ path = \"/a/../b\", access = \"none\" }]", "m.toml:5:"),
        ("deny-names = [\"a/b\"]", "a name has no slash"),
    ] {
        let error = folder.error(user(said));
        assert!(error.contains(expected), "{said}: {error}");
    }
}

/// The rules of HTTP's answers, and their errors.
#[test]
fn rules_of_answers_are_checked_where_they_are_written() {
    let folder = Folder::new();
    fs::write(folder.path().join("404.html"), "gone").unwrap();
    let good = "index = [\"start.html\", \"index.html\"]\nmime = { md = \"text/plain\", \"\" = \"text/x-plain\" }\n\
                http-precompressed = true\nhttp-hsts = \"365d\"\n[[header]]\npaths = \"/a/**\"\ncache-control = \"no-store\"\n\
                [[header]]\ntypes = [\"image/*\"]\nset = { X-A = \"b\", X-B = \"\" }\n\
                [[cors]]\norigins = [\"https://a.example\", \"https://*.b.example\"]\ncredentials = true\n\
                [[error-page]]\nfile = \"404.html\"\nstatus = 404\n";
    let site = folder.file(good).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(site.config.web.precompressed);
    assert_eq!((site.config.web.cors.len(), site.config.web.error_pages.len()), (1, 1));
    assert_eq!(site.config.web.index, [b"start.html".to_vec(), b"index.html".to_vec()]);
    assert_eq!(site.config.web.types.of(b"a.md"), "text/plain");
    let none = folder.file("index = \"off\"").unwrap_or_else(|failure| panic!("{failure}"));
    assert!(none.config.web.index.is_empty());
    let exposed = site.config.web.cors[0].grant.exposed.join(", ");
    for name in
        ["Location", "Upload-Offset", "Upload-Length", "Upload-Expires", "Tus-Resumable", "Tus-Extension"]
    {
        assert!(exposed.contains(name), "{name} in {exposed}");
    }
    for (text, expected) in [
        ("https-redirect = true", "1:18: There is no HTTPS to be sent to"),
        ("https-redirect = 0", "1:18: \"0\" is not a port"),
        ("[[header]]\npaths = \"/a\"", "2:9: A [[header]] table says with `cache-control` or `set`"),
        ("[[header]]\nset = { Date = \"x\" }", "2:16: The field Date is written by the server"),
        ("[[header]]\nset = { \"A B\" = \"x\" }", "is no name of a field"),
        ("[[header]]\ncache-control = \"a\\nb\"", "2:17: The value of Cache-Control has a control character"),
        ("[[header]]\ncache = \"x\"", "did you mean `cache-control`?"),
        ("[[cors]]\npaths = \"/a\"", "1:1: A [[cors]] table needs `origins`."),
        ("[[cors]]\norigins = \"https://a/\"", "2:11: \"https://a/\" is no origin"),
        ("[[cors]]\norigins = \"*\"\ncredentials = true", "any page of the web could use a visitor's login"),
        ("[[cors]]\norigins = \"*\"\nmethods = \"GET PUT\"", "is no name of HTTP"),
        ("[[error-page]]\nstatus = 404", "1:1: An [[error-page]] table needs `file`."),
        ("[[error-page]]\nfile = \"none.html\"", "HERE/none.html cannot be read"),
        (
            "[[error-page]]\nfile = \"404.html\"\nstatus = 200",
            "3:10: Expected the status of an error, 400 to 599",
        ),
        ("header = 1", "Each header is a table of its own"),
        ("index = \"a/b\"", "1:9: \"a/b\" is no name of a file"),
        ("index = [\"a\", \"off\"]", "\"off\" cannot stand beside a name"),
        ("[mime]\nmd = \"plain\"", "2:6: \"plain\" is no media type"),
        ("[mime]\n\"a.md\" = \"a/b\"", "is no end of a name"),
    ] {
        let error = folder.error(folder.file(text));
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_ca_needs_a_listener_that_it_can_reach() {
    let folder = Folder::new();
    for (doors, challenge, expected) in [
        ("", "", "http-01"),
        ("--https 127.0.0.1:443", "", "tls-alpn-01"),
        ("--https 127.0.0.1:443 --http 127.0.0.1:80", "", "http-01"),
        ("--https 127.0.0.1:8443", "", "http-01"),
        ("--https 127.0.0.1:8443 --http off", "", "tls-alpn-01"),
        ("--https 127.0.0.1:443", "acme-challenge = \"http-01\"", "http-01"),
    ] {
        let file = format!(
            "acme = [\"A.example\", \"b.example\"]\nacme-agree = true\nstate = \"state\"\n{challenge}"
        );
        let flags: Vec<&str> = doors.split(' ').filter(|flag| !flag.is_empty()).collect();
        let site = folder.file_and_flags(&file, &flags).unwrap_or_else(|failure| panic!("{failure}"));
        let acme = site.config.acme.unwrap();
        assert_eq!(acme.challenge.to_string(), expected, "{doors} {challenge}");
        assert_eq!(acme.domains, ["a.example", "b.example"]);
        let plan = site.config.tls.unwrap().plan;
        assert_eq!(plan.identities, [acme.identity()]);
        let kept = folder.path().join("state/acme/acme-v02.api.letsencrypt.org-directory/certificate.pem");
        assert_eq!(plan.identities[0].certificate, kept);
        assert!(!folder.path().join("state").exists(), "to check is not to make");
    }
}

#[test]
fn files_of_the_servers_own_that_clients_could_reach_are_told() {
    let folder = Folder::new();
    for name in ["links", "photos/check"] {
        fs::write(folder.path().join(name), "0123456789abcdef0123456789abcdef").unwrap();
    }
    fs::set_permissions(folder.path().join("photos/check"), fs::Permissions::from_mode(0o755)).unwrap();
    let exposed = |keys: &str, tables: &str| {
        let hook = "[[hook]]\non = \"upload\"\nrun = [\"photos/check\", \"{file}\"]\n";
        let text = format!("{keys}\nhttp-link-keys = \"links\"\nxferlog = \"x.log\"\n{hook}{tables}");
        let site = folder.file(&text).unwrap_or_else(|failure| panic!("{text}\n{failure}"));
        site.warnings.exposed.join("\n").replace(folder.path().to_str().unwrap(), "HERE")
    };
    let told = |place: &str, names: &str| {
        format!(
            "files of the server's own lie in {place}, where clients may read or replace them: {names}; keep them \
             elsewhere"
        )
    };
    let all = "check (run), links (http-link-keys), m.toml (the configuration), x.log (xferlog)";
    assert_eq!(exposed("directory = \".\"", ""), told("HERE", all));
    let program = told("HERE/photos", "check (run)");
    assert_eq!(exposed("directory = \"photos\"", ""), program);
    // A user gets no more access than this.
    let alice = format!("[[user]]\nname = \"alice\"\npassword = \"{HASH}\"\ndirectory = \"photos\"\n");
    assert_eq!(exposed("directory = \".\"", &alice), program);
    fs::create_dir(folder.path().join("other")).unwrap();
    assert_eq!(exposed("directory = \"other\"", ""), "");
    let more = "[[folder]]\npath = \"/pictures\"\ndirectory = \"photos\"\n";
    assert_eq!(exposed("directory = \"other\"", more), program);
    // A client's page would run its scripts at the server's own origin.
    for name in ["photos/page.html", "photos/secret"] {
        fs::write(folder.path().join(name), "text").unwrap();
    }
    let pages = "[[error-page]]\nfile = \"photos/page.html\"\n[admin-oidc]\nissuer = \"https://id.example.net\"\n\
                 client = \"millrace\"\nsecret-file = \"photos/secret\"\n";
    let both = told("HERE/photos", "check (run), page.html (error-page), secret (secret-file)");
    assert_eq!(exposed("directory = \"photos\"\nadmin-viewers = [\"oidc group a\"]", pages), both);
}

#[test]
fn a_folder_that_clients_reach_without_its_table_is_warned_of() {
    let folder = Folder::new();
    let warned = |table: &str| {
        let text = format!("directory = \".\"\n[[folder]]\ndirectory = \"photos\"\n{table}");
        let site = folder.file(&text).unwrap_or_else(|failure| panic!("{text}\n{failure}"));
        site.warnings.reached_twice.join("\n").replace(folder.path().to_str().unwrap(), "HERE")
    };
    let told = |path: &str, who: &str| {
        format!(
            "the folder {path} lies in HERE, which is served as well: {who} as /photos, without what its table says; \
             keep it elsewhere"
        )
    };
    assert_eq!(
        warned("path = \"/photos\"\naccess = \"ro\"\nquota-files = 3"),
        "",
        "links aside, it has one path"
    );
    assert_eq!(warned("path = \"/more\""), "", "it says nothing that could be passed by");
    assert_eq!(warned("path = \"/more\"\naccess = \"ro\""), told("/more", "clients reach it"));
    assert_eq!(warned("path = \"/more\"\nquota-bytes = 3"), told("/more", "clients reach it"));
    let others = told("/photos", "who is not among its users reaches it");
    assert_eq!(warned("path = \"/photos\"\nusers = [\"bob\"]"), others);
}

#[test]
fn an_argument_that_a_client_could_make_an_option_is_warned_of() {
    let folder = Folder::new();
    let warned = |words: &str| {
        let hook = format!("[[hook]]\non = \"upload\"\nrun = [\"/bin/true\", {words}]\nwait = true\n");
        folder.file(&format!("directory = \".\"\n{hook}")).unwrap().warnings.options_of_clients
    };
    assert_eq!(warned("\"{file}\", \"--by={user}\", \"./{name}\""), [""; 0]);
    let [warning] = &warned("\"{name}\"")[..] else { panic!("one warning") };
    assert!(
        warning.contains("where {name} begins with a hyphen") && warning.contains("--name={name}"),
        "{warning}"
    );
}

#[test]
fn a_provider_of_logins_is_one_table_with_a_safe_address_and_its_users_need_it() {
    let folder = Folder::new();
    let client = "client = \"millrace\"";
    let provider = format!("[admin-oidc]\nissuer = \"https://id.example.net\"\n{client}\n");
    let roles = "admin-viewers = [\"oidc group staff\"]\n";
    let site = folder.file(&format!("{roles}{provider}")).unwrap();
    assert_eq!(site.admin.access.provider.unwrap().issuer(), "https://id.example.net");
    for (text, told) in [
        (roles.to_owned(), "\"oidc group staff\" needs an [admin-oidc] table"),
        (format!("[[admin-oidc]]\n{client}"), "is one table, which begins with [admin-oidc]"),
        (format!("[admin-oidc]\n{client}"), "[admin-oidc] table needs `issuer`"),
        (format!("[admin-oidc]\nissuer = \"http://id.example.net\"\n{client}"), "is no https:// URL"),
        (format!("{provider}secret-file = \"not-there\""), "not-there cannot be read"),
        (format!("{provider}ca = \"not-there\""), "m.toml:4:6: HERE/not-there cannot be read"),
        (format!("{provider}ca = \"m.toml\""), "m.toml:4:6: HERE/m.toml has no certificate in PEM"),
    ] {
        let error = folder.error(folder.file(&text));
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn the_names_of_a_bucket_are_in_a_database_where_that_is_said() {
    let folder = Folder::new();
    fs::write(folder.path().join("keys"), "aws_access_key_id = a\naws_secret_access_key = b\n").unwrap();
    let bucket = "[[folder]]\npath = \"/b\"\nbucket = \"files\"\ncredentials-file = \"keys\"\n";
    let database = "postgres = \"host=/run/postgresql dbname=files\"\n";
    let rest = "database-ca = \"keys\"\nkeep-replaced = \"0s\"\npassword-file = \"keys\"\n";
    folder.file(&format!("{bucket}layout = \"mapped\"\n")).unwrap();
    let site =
        folder.file(&format!("{bucket}layout = \"indexed\"\n{database}keep-replaced = \"0s\"\n")).unwrap();
    let shown = site.mounts.mounts()[0].files.shown();
    assert!(shown.contains(", with names in the PostgreSQL database files at "), "{shown}");
    let path = "[[folder]]\npath = \"/b\"\n";
    for (text, told) in [
        (
            format!("{bucket}layout = \"indexed\"\n"),
            "are in a database: write `postgres`, its connection string",
        ),
        (format!("{bucket}layout = \"index\"\n"), "write mapped or indexed"),
        (format!("{bucket}layout = \"indexed\"\npostgres = \"dbname=files\"\n"), "names no host"),
        (format!("{bucket}layout = \"indexed\"\n{database}{rest}"), "PEM"),
        (format!("{bucket}{database}"), "or with `layout = \"indexed\"` the latter two"),
        (
            format!("{bucket}keep-replaced = \"5m\"\n"),
            "means nothing to a bucket without `layout = \"indexed\"`",
        ),
        (
            format!("{path}{database}layout = \"indexed\"\n"),
            "`layout` means nothing to a folder without `bucket`",
        ),
    ] {
        let error = folder.error(folder.file(&text));
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn a_collector_is_one_table_with_an_endpoint() {
    let folder = Folder::new();
    let endpoint = "endpoint = \"https://otel.example.net\"";
    let site = folder.file(&format!("[otlp]\n{endpoint}\nheaders = {{ api-key = \"se\" }}\n")).unwrap();
    assert!(site.otlp.is_some());
    assert_eq!(site.shown.otlp, ["to https://otel.example.net"]);
    assert!(folder.file("").unwrap().otlp.is_none());
    for (text, told) in [
        (format!("[[otlp]]\n{endpoint}"), "is one table, which begins with [otlp], in single brackets"),
        ("[otlp]\ninterval = \"1m\"".to_owned(), "[otlp] table needs `endpoint`"),
        ("[otlp]\nendpoint = \"localhost:4318\"".to_owned(), "is no address of a receiver"),
        (format!("[otlp]\n{endpoint}\nheaders = {{ host = \"a\" }}"), "the server sends itself"),
        (format!("[otlp]\n{endpoint}\ninterval = \"0\""), "interval"),
        (format!("[otlp]\n{endpoint}\ntraces = true"), "`traces`"),
        (format!("[otlp]\n{endpoint}\ncompression = \"zstd\""), "is none of the choices; write none or gzip"),
        (format!("[otlp]\n{endpoint}\ncompression = true"), "Expected \"none\" or \"gzip\""),
        (
            format!("[otlp]\n{endpoint}\nheaders = {{ Content-Encoding = \"gzip\" }}"),
            "the server sends itself",
        ),
    ] {
        let error = folder.error(folder.file(&text));
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn a_cluster_is_one_table_in_single_brackets_with_a_database() {
    let folder = Folder::new();
    let database = "database = \"host=/run/postgresql dbname=millrace\"";
    let site = folder.file(&format!("[cluster]\n{database}\nnode = \"web-1\"\nlease = \"10s\"\n")).unwrap();
    assert_eq!(site.config.cluster.as_ref().map(|cluster| cluster.name()), Some("web-1"));
    assert_eq!(site.shown.cluster, ["node web-1, with a lease of 10 seconds"]);
    assert!(folder.file("").unwrap().config.cluster.is_none());
    for (text, told) in [
        (format!("[[cluster]]\n{database}"), "is one table, which begins with [cluster], in single brackets"),
        ("[cluster]\nnode = \"a\"".to_owned(), "[cluster] table needs `database`"),
        ("[cluster]\ndatabase = \"dbname=x\"".to_owned(), "host"),
        (format!("[cluster]\n{database}\nlease = \"1s\""), "lease is 3 to 60 seconds long"),
        (format!("[cluster]\n{database}\nleases = \"1s\""), "did you mean `lease`?"),
        (
            format!("[cluster]\n{database}\ndata-address = \"a\""),
            "\"a\" is not a network, such as 10.0.0.0/8",
        ),
        (
            format!("[cluster]\n{database}\ndata-address = \"2001:db8:7::/48\""),
            "This machine has no address in the network 2001:db8:7::/48",
        ),
    ] {
        let error = folder.error(folder.file(&text));
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn the_address_for_data_connections_is_written_or_the_one_that_the_machine_has_in_a_network() {
    let folder = Folder::new();
    for (written, address) in [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("127.0.0.0/8", "127.0.0.1"),
    ] {
        let text = format!("[cluster]\ndatabase = \"host=/run/postgresql\"\ndata-address = \"{written}\"\n");
        let cluster = folder.file(&text).unwrap().config.cluster.unwrap();
        assert_eq!(cluster.data_address(), Some(address.parse().unwrap()), "{written}");
    }
}
