//! MariaDB as a source of accounts.

use std::time::Duration;

use millrace_server::auth::{Source, Sql, mysql};

use super::kit::{Scratch, eventually, free_ports, pair};
use super::mariadb::Mariadb;
use super::{HASH, PATIENT, known, login, serve, try_login};

fn open(server: &Mariadb, query: Option<&str>, time: Duration) -> impl Source + use<> {
    mysql(&settings(&server.connection(), query, time)).unwrap()
}

fn settings(connection: &str, query: Option<&str>, time: Duration) -> Sql {
    let query = query.map(str::to_owned);
    Sql { connection: connection.to_owned(), password: None, roots: None, query, time }
}

#[test]
fn users_of_mysql_come_and_go_with_it() {
    let Some(mut server) = Mariadb::new() else { return };
    let source = open(&server, None, PATIENT);
    source.begin().unwrap();
    open(&server, None, PATIENT).begin().unwrap();
    assert_eq!(server.run("SELECT taken FROM millrace_schema"), "1");
    let (served, _scratch) = serve(source);
    server.run(&format!(
        "INSERT INTO millrace_user VALUES ('alice', '{HASH}', NULL, '{{\"sessions\": 3}}'), ('bob', NULL, 'a,b', NULL)"
    ));
    let mut alice = login(&served, "alice");
    for (user, password) in [
        ("alice", "wrong"),
        ("alice", ""),
        ("bob", "password"),
        ("Alice", "password"),
        ("alice ", "password"),
        ("carol", "password"),
    ] {
        assert_eq!(try_login(&served, user, password), 530, "{user} {password}");
    }
    server.run("UPDATE millrace_user SET profile = '{\"access\": \"ro\"}' WHERE name = 'alice'");
    eventually("alice may write no more", || {
        alice.command("RMD x");
        alice.command("MKD x").code == 550
    });
    server
        .run("UPDATE millrace_user SET profile = JSON_SET(profile, '$.disabled', true) WHERE name = 'alice'");
    alice.expect_reply(421);
    server.run("UPDATE millrace_user SET profile = NULL WHERE name = 'alice'");
    let mut alice = login(&served, "alice");

    server.daemon.kill();
    assert_eq!(try_login(&served, "alice", "password"), 421);
    alice.expect("NOOP", 200);
    server.start();
    eventually("logins work again", || try_login(&served, "alice", "password") == 230);
    server.run("DELETE FROM millrace_user WHERE name = 'alice'");
    alice.expect_reply(421);
}

#[test]
fn a_mysql_that_hangs_is_given_up_and_found_again() {
    const SHORT: Duration = Duration::from_secs(1);
    let Some(server) = Mariadb::new() else { return };
    let source = open(&server, None, SHORT);
    eventually("the schema is made", || known(&source, "alice", "") == "unknown");
    server.daemon.freeze(true);
    let late = "error: it has not answered within 1s";
    eventually("it is given up", || known(&source, "alice", "") == late);
    server.daemon.freeze(false);
    eventually("it is found again", || known(&source, "alice", "") == "unknown");
}

#[test]
fn a_query_makes_users_of_any_table_of_mysql() {
    let Some(server) = Mariadb::new() else { return };
    server.run(
        "CREATE TABLE staff (login VARCHAR(40), secret VARBINARY(200), home TEXT, is_ro BOOL, is_on BIT, most INT, \
         teams VARCHAR(90), nets TEXT, until DATE)",
    );
    server.run(&format!(
        "INSERT INTO staff VALUES ('ann', '{HASH}', 'home/ann', 1, b'1', 4, 'a,b', '10.0.0.0/8,::1', '2999-01-01'); \
         INSERT INTO staff (login, secret) VALUES ('ben', 'plain'), ('bad', x'ff'), ('twins', NULL), ('twins', NULL)"
    ));
    let query = "SELECT login AS name, secret AS password, home AS directory, IF(is_ro, 'ro', NULL) AS access, \
                 nets AS `from`, most AS sessions, teams AS `groups`, CAST(until AS CHAR) AS expires, \
                 is_ro AS require_tls, is_on = b'0' AS disabled FROM staff WHERE login = ?";
    let find = |query: &str, name: &str| known(&open(&server, Some(query), PATIENT), name, "");
    assert_eq!(
        find(query, "ann"),
        r#"ann ["a", "b"] {"directory":"home/ann","access":"ro","from":["10.0.0.0/8","::1"],"require-tls":true,"expires":"2999-01-01T00:00:00Z","disabled":false,"sessions":"4"} Password"#
    );
    for name in ["ANN", "ann ", "x' OR 1=1 -- "] {
        assert_eq!(find(query, name), "unknown", "{name}");
    }
    for (query, name, told) in [
        (query, "ben", "the password of ben: this is not a password hash"),
        (query, "bad", "the column password is not in UTF-8"),
        (query, "twins", "there is more than one row of twins"),
        ("SELECT secret AS password FROM staff WHERE login = ?", "ann", "the query has no column `name`"),
        (
            "SELECT until FROM staff WHERE login = ?",
            "ann",
            "the column until is neither text nor a whole number",
        ),
        ("SELECT nothing FROM staff WHERE login = ?", "ann", "Unknown column 'nothing'"),
        ("SELECT 1 FROM nowhere WHERE login = ?", "ann", "nowhere' doesn't exist"),
        (
            "SELECT login AS name, 1 AS nonsense FROM staff WHERE login = ?",
            "ann",
            "of ann: unknown field `nonsense`",
        ),
        ("SELECT secret FROM ?", "ann", "error in your SQL syntax"),
    ] {
        let found = find(query, name);
        assert!(found.starts_with("error: ") && found.contains(told), "{query}: {found}");
    }
    let wrong =
        |connection: &str, query| mysql(&settings(connection, query, PATIENT)).err().unwrap().to_string();
    assert_eq!(wrong("mysql://me@a/b", Some("SELECT 1")), "the query has no ?, where the name goes");
    assert_eq!(wrong("mysql://me@a", None), "it names no database");
    for url in ["", "host=a", "postgres://me@a/b"] {
        assert!(wrong(url, None).starts_with("write \"mysql://USER@HOST/DATABASE\""), "{url}");
    }
    server.run("CREATE TABLE millrace_schema AS SELECT 7 AS taken");
    assert_eq!(
        known(&open(&server, None, PATIENT), "ann", ""),
        "error: its schema is of a later version of Millrace"
    );
}

#[test]
fn a_mysql_that_is_not_there_is_told_in_few_words() {
    let source =
        mysql(&settings("mysql://me@localhost/x?socket=%2Fnowhere%2Fat%2Fall", None, PATIENT)).unwrap();
    assert_eq!(source.name(), "the MySQL database x at /nowhere/at/all");
    assert_eq!(source.begin().unwrap_err().to_string(), "No such file or directory (os error 2)");
    assert_eq!(known(&source, "alice", ""), "error: No such file or directory (os error 2)");
}

#[test]
fn mysql_is_asked_over_tls_that_is_verified() {
    let scratch = Scratch::new();
    let pair = pair(&scratch);
    let one = || *free_ports(1).start();
    let Some(server) = Mariadb::with_tls(&pair.certificate, &pair.key, one) else { return };
    server.run("CREATE TABLE staff (login TEXT, secret TEXT)");
    server.run(&format!("INSERT INTO staff VALUES ('ann', '{HASH}')"));
    server.run("CREATE USER reader@'%' IDENTIFIED BY 'secret' REQUIRE SSL");
    server.run("GRANT SELECT ON accounts.* TO reader@'%'");
    let connection = format!("mysql://reader@localhost:{}/accounts", server.port.get());
    let query = "SELECT login AS name, secret AS password FROM staff WHERE login = ?";
    let known = |connection: &str, roots: Option<&[u8]>, password: &str| {
        let (password, roots) = (Some(password.to_owned()), roots.map(<[u8]>::to_vec));
        let source = mysql(&Sql { password, roots, ..settings(connection, Some(query), PATIENT) }).unwrap();
        known(&source, "ann", "")
    };
    let roots = std::fs::read(&pair.certificate).unwrap();
    assert_eq!(known(&connection, Some(&roots), "secret"), "ann [] {} Password");
    let required = format!("{connection}?require_ssl=true");
    for (connection, roots, password, told) in [
        (&connection, Some(&*roots), "wrong", "Access denied"),
        (&required, None, "secret", "certificate"),
        (&connection, None, "secret", "Access denied"),
    ] {
        let found = known(connection, roots, password);
        assert!(found.starts_with("error: ") && found.contains(told), "{told}: {found}");
    }
}
