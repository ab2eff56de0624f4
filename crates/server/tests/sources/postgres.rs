//! PostgreSQL as a source of accounts.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use millrace_server::auth::{Source, Sql, postgres};

use super::kit::{Scratch, eventually, free_ports, pair};
use super::postgresql::Postgres;
use super::{HASH, PATIENT, known, login, serve, try_login};

fn open(server: &Postgres, query: Option<&str>, time: Duration) -> impl Source + use<> {
    postgres(&settings(&server.connection(), query, time)).unwrap()
}

fn settings(connection: &str, query: Option<&str>, time: Duration) -> Sql {
    let query = query.map(str::to_owned);
    Sql { connection: connection.to_owned(), password: None, roots: None, query, time }
}

#[test]
fn users_of_postgresql_come_and_go_with_it() {
    let Some(mut server) = Postgres::new() else { return };
    let source = open(&server, None, PATIENT);
    source.begin().unwrap();
    open(&server, None, PATIENT).begin().unwrap();
    assert_eq!(server.run("SELECT taken FROM millrace_schema"), "1");
    let (served, _scratch) = serve(source);
    server.run(&format!(
        "INSERT INTO millrace_user (name, password, profile) VALUES ('alice', '{HASH}', '{{\"sessions\": 3}}'), \
         ('bob', NULL, '{{}}')"
    ));

    let mut alice = login(&served, "alice");
    for (user, password) in [
        ("alice", "wrong"),
        ("alice", ""),
        ("bob", "password"),
        ("bob", ""),
        ("carol", "password"),
        ("Alice", "password"),
    ] {
        assert_eq!(try_login(&served, user, password), 530, "{user} {password}");
    }
    server.run("UPDATE millrace_user SET profile = '{\"access\": \"ro\"}' WHERE name = 'alice'");
    eventually("alice may write no more", || {
        alice.command("RMD x");
        alice.command("MKD x").code == 550
    });
    server.run("UPDATE millrace_user SET profile = '{\"disabled\": true}' WHERE name = 'alice'");
    alice.expect_reply(421);
    assert_eq!(try_login(&served, "alice", "password"), 530);
    server.run("UPDATE millrace_user SET profile = '{}' WHERE name = 'alice'");
    let mut alice = login(&served, "alice");

    server.daemon.kill();
    assert_eq!(try_login(&served, "alice", "password"), 421);
    assert_eq!(try_login(&served, "mallory", "password"), 421);
    alice.expect("NOOP", 200);
    server.start();
    eventually("logins work again", || try_login(&served, "alice", "password") == 230);
    alice.expect("NOOP", 200);
    server.run("DELETE FROM millrace_user WHERE name = 'alice'");
    alice.expect_reply(421);
}

#[test]
fn a_postgresql_that_hangs_is_given_up_and_found_again() {
    const SHORT: Duration = Duration::from_secs(1);
    let Some(server) = Postgres::new() else { return };
    let source = open(&server, None, SHORT);
    eventually("the schema is made", || known(&source, "alice", "") == "unknown");
    // Statements from standard input, and nothing else.
    let mut psql = server.daemon.command(&server.psql);
    let mut psql = psql.args(server.to_reach()).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = psql.stdin.take().unwrap();
    input.write_all(b"BEGIN; LOCK TABLE millrace_user IN ACCESS EXCLUSIVE MODE;\n").unwrap();
    input.flush().unwrap();
    let late = "error: it has not answered within 1s";
    eventually("a question waits for the table", || known(&source, "alice", "") == late);
    drop(input);
    psql.wait().unwrap();
    eventually("it answers again", || known(&source, "alice", "") == "unknown");

    server.daemon.freeze(true);
    // Questions on connections that are there are answered by processes that go on.
    let fresh = open(&server, None, SHORT);
    assert_eq!(fresh.begin().unwrap_err().to_string(), "it has not answered within 1s");
    assert_eq!(known(&fresh, "alice", ""), late);
    server.daemon.freeze(false);
    eventually("it is found again", || known(&fresh, "alice", "") == "unknown");
}

#[test]
fn a_query_makes_users_of_any_table_of_postgresql() {
    let Some(server) = Postgres::new() else { return };
    server.run(
        "CREATE TABLE staff (login text, secret text, home text, is_ro bool, most int, teams text[], nets text, \
         until date)",
    );
    server.run(&format!(
        "INSERT INTO staff VALUES ('ann', '{HASH}', 'home/ann', true, 4, '{{a,b}}', '10.0.0.0/8,::1', '2999-01-01'); \
         INSERT INTO staff (login, secret) VALUES ('ben', 'plain'), ('twins', NULL), ('twins', NULL)"
    ));
    let query = "SELECT secret AS password, home AS directory, CASE WHEN is_ro THEN 'ro' END AS access, nets AS \"from\", \
                 most AS sessions, teams AS groups, until::text AS expires, is_ro AS require_tls \
                 FROM staff WHERE login = $1";
    let find = |query: &str, name: &str| known(&open(&server, Some(query), PATIENT), name, "");
    assert_eq!(
        find(query, "ann"),
        r#"ann ["a", "b"] {"directory":"home/ann","access":"ro","from":["10.0.0.0/8","::1"],"require-tls":true,"expires":"2999-01-01T00:00:00Z","sessions":"4"} Password"#
    );
    assert_eq!(find(query, "x' OR true --"), "unknown");
    for (query, name, told) in [
        (query, "ben", "the password of ben: this is not a password hash"),
        (query, "twins", "there is more than one row of twins"),
        (
            "SELECT until FROM staff WHERE login = $1",
            "ann",
            "the column until is of type date; cast it to text",
        ),
        ("SELECT nothing FROM staff WHERE login = $1", "ann", "column \"nothing\" does not exist"),
        ("SELECT 1 FROM nowhere WHERE login = $1", "ann", "relation \"nowhere\" does not exist"),
        ("SELECT secret AS nonsense FROM staff WHERE login = $1", "ann", "of ann: unknown field `nonsense`"),
        ("SELECT secret FROM $1", "ann", "syntax error"),
    ] {
        let found = find(query, name);
        assert!(found.starts_with("error: ") && found.contains(told), "{query}: {found}");
    }
    assert_eq!(server.run("SELECT to_regclass('millrace_user') IS NULL"), "t", "nothing is made beside it");
    server.run("CREATE TABLE millrace_schema AS SELECT 7 AS taken");
    let later = known(&open(&server, None, PATIENT), "ann", "");
    assert_eq!(later, "error: its schema is of a later version of Millrace");
    server.run("DROP TABLE millrace_schema; CREATE TABLE millrace_user (id int)");
    let foreign = known(&open(&server, None, PATIENT), "ann", "");
    assert_eq!(
        foreign,
        "error: its schema cannot be brought up to date: relation \"millrace_user\" already exists"
    );
}

#[test]
fn postgresql_is_asked_over_tls_that_is_verified() {
    let scratch = Scratch::new();
    let pair = pair(&scratch);
    let one = || *free_ports(1).start();
    let Some(server) = Postgres::with_tls(&pair.certificate, &pair.key, one) else { return };
    server.run("CREATE ROLE reader LOGIN PASSWORD 'secret'; CREATE TABLE staff (login text, secret text)");
    server.run(&format!("INSERT INTO staff VALUES ('ann', '{HASH}'); GRANT SELECT ON staff TO reader"));
    server
        .daemon
        .write("data/pg_hba.conf", "local all all trust\nhostssl all reader 127.0.0.1/32 scram-sha-256\n");
    server.run("SELECT pg_reload_conf()");
    let connection = format!("host=localhost port={} user=reader dbname=postgres", server.port.get());
    let query = "SELECT secret AS password FROM staff WHERE login = $1";
    let known = |connection: &str, roots: Option<&[u8]>, password: &str| {
        let (password, roots) = (Some(password.to_owned()), roots.map(<[u8]>::to_vec));
        let source =
            postgres(&Sql { password, roots, ..settings(connection, Some(query), PATIENT) }).unwrap();
        known(&source, "ann", "")
    };
    let roots = std::fs::read(&pair.certificate).unwrap();
    eventually("the server has read its file", || {
        known(&connection, Some(&roots), "secret") == "ann [] {} Password"
    });
    let required = format!("{connection} sslmode=require");
    for (connection, roots, password, told) in [
        (&connection, Some(&*roots), "wrong", "password authentication failed"),
        (&required, None, "secret", "certificate"),
        (&connection, None, "secret", "no encryption"),
    ] {
        let found = known(connection, roots, password);
        assert!(found.starts_with("error: ") && found.contains(told), "{told}: {found}");
    }
}

#[test]
fn an_unreachable_database_refuses_logins_at_once() {
    let source = postgres(&settings("host=/nowhere/at/all user=millrace", None, PATIENT)).unwrap();
    assert!(source.begin().unwrap_err().to_string().contains("No such file"));
    let (served, _scratch) = serve(source);
    assert_eq!(try_login(&served, "alice", "password"), 421);
    let everybody = settings("host=a", Some("SELECT 'x' AS password"), PATIENT);
    assert_eq!(postgres(&everybody).err().unwrap().to_string(), "the query has no $1, where the name goes");
    for wrong in ["", "nonsense", "user=millrace", "port=x host=a", "mysql://root@localhost/x"] {
        assert!(postgres(&settings(wrong, None, PATIENT)).is_err(), "{wrong}");
    }
}
