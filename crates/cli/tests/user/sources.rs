//! Accounts that are kept elsewhere, as `docs/accounts.md` says.

use std::fs;
use std::process::Stdio;

use super::mariadb::Mariadb;
use super::postgresql::Postgres;
use super::slapd::Slapd;
use super::{HASH, Site, TEXT};

/// The examples of a kind in a section.
pub(super) fn examples(section: &str, kind: &str) -> Vec<&'static str> {
    let section = TEXT.split(&format!("## {section}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let opening = format!("```{kind}\n");
    section.split(&opening).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

impl Site {
    /// Writes a configuration file, `m.toml`.
    pub(super) fn configure(&self, text: &str) {
        fs::write(self.0.join("m.toml"), text.replace("/srv/files", "files")).unwrap();
    }

    /// Everything that a command prints, and whether it was content.
    pub(super) fn ask(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.millrace().args(arguments).stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn users_of_postgresql_are_known_to_every_command() {
    let Some(server) = Postgres::new() else { return };
    let site = Site::new("postgresql");
    let [own, shop] = examples("Users in PostgreSQL", "toml")[..] else { panic!("two examples") };
    let here = |example: &str, database: &str| {
        let there = format!("host=/run/postgresql user=millrace dbname={database}");
        assert!(example.contains(&there), "{example}");
        example.replace(&there, &server.connection())
    };
    site.configure(&here(own, "accounts"));
    let (_, checked) = site.ask(&["check", "m.toml"]);
    assert!(checked.contains("the users whom the PostgreSQL database postgres at /"), "{checked}");
    assert_eq!(server.run("SELECT to_regclass('millrace_user') IS NULL"), "t", "a check makes nothing");

    let serving = site.serve(&["--config", "m.toml"]);
    let sql = examples("Users in PostgreSQL", "sql")[0];
    let (insert, update) = sql.split_once("UPDATE").unwrap();
    server.run(insert);
    let mut client = serving.log_in("alice");
    client.say("MKD x", "550");
    server.run(&format!("UPDATE{update}"));
    client.expect("421");
    let (_, explained) = site.ask(&["explain", "alice", "--config", "m.toml"]);
    for told in [
        "alice is in the PostgreSQL database postgres at /",
        "sessions          4 ",
        "refused, the account is disabled",
    ] {
        assert!(explained.contains(told), "{explained}");
    }
    assert!(!site.ask(&["explain", "carol", "--config", "m.toml"]).0);

    server.run("CREATE TABLE customer (id int, login text, secret text, active bool, may_write bool)");
    server.run(&format!("INSERT INTO customer VALUES (7, 'shop', '{HASH}', true, false)"));
    fs::create_dir_all(site.0.join("files/customers/7")).unwrap();
    site.configure(&here(shop, "shop"));
    let serving = site.serve(&["--config", "m.toml"]);
    let mut client = serving.log_in("shop");
    client.say("MKD x", "550");
    server.run("UPDATE customer SET active = false");
    client.expect("421");
}

#[test]
fn users_of_mysql_log_in_as_documented() {
    const SECTION: &str = "Users in MySQL or MariaDB";
    let Some(server) = Mariadb::new() else { return };
    let site = Site::new("mysql");
    fs::write(site.0.join("mysql.password"), "secret\n").unwrap();
    server.run("CREATE USER millrace@localhost IDENTIFIED BY 'secret'");
    server.run("GRANT ALL ON accounts.* TO millrace@localhost");
    let [own, shop] = examples(SECTION, "toml")[..] else { panic!("two examples") };
    let connection = server.connection().replace("root@", "millrace@");
    let here = |example: &str, database: &str| {
        let there = format!("mysql://millrace@db.example.org/{database}");
        assert!(example.contains(&there), "{example}");
        example.replace(&there, &connection)
    };
    site.configure(&here(own, "accounts"));
    let (_, checked) = site.ask(&["check", "m.toml"]);
    assert!(checked.contains("the users whom the MySQL database accounts at /"), "{checked}");
    let serving = site.serve(&["--config", "m.toml"]);
    let sql = examples(SECTION, "sql")[0];
    let (insert, update) = sql.split_once("UPDATE").unwrap();
    server.run(insert);
    let mut client = serving.log_in("alice");
    client.say("MKD x", "550");
    server.run(&format!("UPDATE{update}"));
    client.expect("421");

    server.run("CREATE TABLE customer (id INT, login TEXT, secret TEXT, active BOOL)");
    server.run(&format!("INSERT INTO customer VALUES (7, 'shop', '{HASH}', TRUE)"));
    fs::create_dir_all(site.0.join("files/customers/7")).unwrap();
    let with_password = here(shop, "shop").replace("query =", "password-file = \"mysql.password\"\nquery =");
    site.configure(&with_password);
    let serving = site.serve(&["--config", "m.toml"]);
    serving.log_in("shop").say("MKD x", "257");
    assert!(site.0.join("files/customers/7/x").is_dir());
}

/// The users and groups of the example, and its search user.
const ENTRIES: &str = "\
dn: dc=example,dc=org
objectClass: domain
dc: example

dn: uid=reader,dc=example,dc=org
objectClass: account
objectClass: simpleSecurityObject
uid: reader
userPassword: look

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: uid=alice,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: A
userPassword: password
employeeType: ro
homePhone: home/alice

dn: cn=staff,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: staff
member: uid=alice,ou=people,dc=example,dc=org
";

#[test]
fn users_of_a_directory_log_in_as_documented() {
    let Some(server) = Slapd::new(ENTRIES, None, || 0..=0) else { return };
    let site = Site::new("ldap");
    fs::write(site.0.join("ldap.password"), "look\n").unwrap();
    let example = examples("Users in a directory (LDAP)", "toml")[0];
    let there = "ldap = \"ldap://ldap.example.org\"\nstart-tls = true";
    assert!(example.contains(there), "{example}");
    let group = "\n[[group]]\nname = \"staff\"\nsessions = 3\n";
    site.configure(&(example.replace(there, &format!("ldap = \"{}\"", server.url())) + group));
    let (_, checked) = site.ask(&["check", "m.toml"]);
    let told = "the users whom the directory ou=people,dc=example,dc=org at ldapi://";
    assert!(checked.contains(told), "{checked}");
    let serving = site.serve(&["--config", "m.toml"]);
    serving.log_in("alice").say("MKD x", "550");
    let (_, explained) = site.ask(&["explain", "alice", "--config", "m.toml"]);
    for told in
        ["alice is in the directory ou=people,dc=example,dc=org", "and of staff", "said of the group staff"]
    {
        assert!(explained.contains(told), "{explained}");
    }
}

#[test]
fn invalid_settings_of_a_source_are_reported_at_their_place() {
    let site = Site::new("sources");
    for (text, place, told) in [
        (
            "timeout = \"3s\"",
            "",
            "A [[source]] table needs one of `program`, `call`, `postgres`, `mysql`, `ldap`, `pam`",
        ),
        ("query = \"SELECT\"", "m.toml:2:9", "table needs one of"),
        ("program = \"x\"\ncall = \"http://localhost\"", "m.toml:3:8", "either `program` or `call`"),
        ("program = \"x\"\nquery = \"\"", "m.toml:3:9", "`query` means nothing to a source with `program`"),
        ("program = \"./nothere\"", "m.toml:2:11", "there is no program ./nothere"),
        ("program = \"no-such-program\"", "m.toml:2:11", "there is no program no-such-program in PATH"),
        (
            "program = \"./logins --json\"",
            "m.toml:2:11",
            "a program with arguments is written program = [\"./logins\", \"--json\"]",
        ),
        ("program = [\"./m.toml\", \"x\"]", "m.toml:2:12", "m.toml cannot be executed; chmod +x"),
        ("postgres = \"nonsense\"", "m.toml:2:12", "host=... user=... dbname=..."),
        ("postgres = \"user=me\"", "m.toml:2:12", "it names no host"),
        ("postgres = \"host=a\"\nquery = \"SELECT 1\"", "m.toml:2:12", "the query has no $1"),
        (
            "postgres = \"host=a\"\ncache = \"1m\"",
            "m.toml:3:9",
            "`cache` means nothing to a source with `postgres`",
        ),
        ("postgres = \"host=a\"\npassword-file = \"x\"", "m.toml:3:17", "cannot be read"),
        ("postgres = \"host=a\"\nca = \"m.toml\"", "m.toml:2:12", "there is no certificate in PEM"),
        ("mysql = \"host=a\"", "m.toml:2:9", "mysql://USER@HOST/DATABASE"),
        ("mysql = \"mysql://a\"", "m.toml:2:9", "it names no database"),
        ("ldap = \"ldap://a\"", "m.toml:2:8", "`base` is missing"),
        ("ldap = \"a\"\nbase = \"b\"", "m.toml:2:8", "is no URL of ldap://, ldaps:// or ldapi://"),
        (
            "ldap = \"ldap://a\"\nbase = \"b\"\nbind = \"c\"",
            "m.toml:4:8",
            "`bind` and `password-file` go together",
        ),
        ("ldap = \"ldap://a\"\nbase = \"b\"\nfilter = \"c\"", "m.toml:2:8", "\"c\" is no filter"),
        ("ldap = \"ldap://a\"\nbase = \"b\"\nattributes = \"c\"", "m.toml:4:14", "SETTING=ATTRIBUTE"),
        ("ldap = \"ldap://a\"\nquery = \"b\"", "m.toml:3:9", "`query` means nothing to a source with `ldap`"),
        ("postgres = \"host=a\"\ntimeout = 0", "m.toml:3:11", "more than no time"),
    ] {
        site.configure(&format!("[[source]]\n{text}\n"));
        let (is_well, error) = site.ask(&["check", "m.toml"]);
        let says = |words: &str| error.to_lowercase().contains(&words.to_lowercase());
        assert!(!is_well && says(place) && says(told), "{text}: {error}");
    }
    site.configure("[[source]]\npostgres = \"host=/nowhere user=me\"\n");
    let (_, explained) = site.ask(&["explain", "alice", "--config", "m.toml"]);
    assert!(explained.contains("the PostgreSQL database me at /nowhere cannot be asked: "), "{explained}");
}

#[test]
fn a_program_beside_the_configuration_is_found_by_however_that_was_named() {
    let site = Site::new("beside");
    // What was written just now may be busy while another test forks.
    std::os::unix::fs::symlink("/bin/sh", site.0.join("logins")).unwrap();
    let script = r#"cat > /dev/null; echo '{"result": "right"}'"#;
    site.configure(&format!(
        "directory = \"files\"\n[[source]]\nprogram = [\"./logins\", \"-c\", {script:?}]\ntimeout = \"20s\"\n"
    ));
    let whole = site.0.join("m.toml");
    for name in ["m.toml", "./m.toml", whole.to_str().unwrap()] {
        site.serve_with(&["--config", name], |_| {}).log_in("alice");
    }
}
