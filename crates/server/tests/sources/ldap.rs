//! Directories as a source of accounts.

use std::net::TcpListener;
use std::time::Duration;

use millrace_server::auth::{Ldap, Source, ldap};

use super::kit::{Scratch, eventually, free_ports, pair};
use super::slapd::Slapd;
use super::{PATIENT, known, login, serve, try_login};

/// Users, their groups, and the search user.
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

dn: uid=alice,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: alice
cn: Alice (a*)
sn: A
userPassword: password
homePhone: home/alice
employeeType: ro
departmentNumber: 10.0.0.0/8
departmentNumber: ::1
title: cn=chiefs,ou=groups,dc=example,dc=org

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
employeeType: gone

dn: cn=one twin,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: twin
sn: T

dn: cn=other twin,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: twin
sn: T

dn: cn=staff,dc=example,dc=org
objectClass: groupOfNames
cn: staff
member: uid=alice,ou=people,dc=example,dc=org

dn: cn=wheel,dc=example,dc=org
objectClass: posixGroup
cn: wheel
gidNumber: 7
memberUid: alice
";

fn directory(tls: bool) -> Option<Slapd> {
    let scratch = Scratch::new();
    let pair = pair(&scratch);
    let files = tls.then_some((&*pair.certificate, &*pair.key));
    Slapd::new(ENTRIES, files, || free_ports(2))
}

fn settings(url: &str) -> Ldap {
    let text = str::to_owned;
    Ldap {
        url: text(url),
        start_tls: false,
        roots: None,
        bind: Some((text("uid=reader,dc=example,dc=org"), text("look"))),
        base: text("ou=people,dc=example,dc=org"),
        name: text("uid"),
        filter: Some(text("(!(employeeType=gone))")),
        groups: Some(text("(|(member={dn})(memberUid={user}))")),
        group_base: Some(text("dc=example,dc=org")),
        attributes: vec![(text("access"), text("employeeType")), (text("directory"), text("homePhone"))],
        time: PATIENT,
        cache: Duration::ZERO,
    }
}

type Change<'a> = &'a dyn Fn(&mut Ldap);

fn change(what: &str) -> String {
    format!("dn: uid=alice,ou=people,dc=example,dc=org\nchangetype: modify\n{what}\n")
}

#[test]
fn users_of_a_directory_come_and_go_with_it() {
    let Some(mut server) = directory(false) else { return };
    let attributes = vec![("access".to_owned(), "employeeType".to_owned())];
    let source = ldap(&Ldap { attributes, ..settings(&server.url()) }).unwrap();
    source.begin().unwrap();
    let (served, _scratch) = serve(source);
    let mut alice = login(&served, "alice");
    alice.expect("MKD x", 550);
    for (user, password) in [
        ("alice", "wrong"),
        ("alice", ""),
        ("Alice", "password"),
        ("bob", "password"),
        ("bob", ""),
        ("*", "password"),
    ] {
        assert_eq!(try_login(&served, user, password), 530, "{user} {password}");
    }
    server.modify(&change("replace: employeeType\nemployeeType: rw"));
    eventually("alice may write now", || alice.command("MKD x").code == 257);
    server.modify(&change("replace: employeeType\nemployeeType: gone"));
    alice.expect_reply(421);
    assert_eq!(try_login(&served, "alice", "password"), 530);
    server.modify(&change("replace: employeeType\nemployeeType: rw"));
    let mut alice = login(&served, "alice");

    server.daemon.kill();
    assert_eq!(try_login(&served, "alice", "password"), 421);
    alice.expect("NOOP", 200);
    server.start(|| free_ports(2));
    eventually("logins work again", || try_login(&served, "alice", "password") == 230);
    alice.expect("NOOP", 200);
}

#[test]
fn an_entry_says_what_a_user_is_and_groups_are_found() {
    let Some(server) = directory(false) else { return };
    let with = |change: &dyn Fn(&mut Ldap)| {
        let mut settings = settings(&server.url());
        change(&mut settings);
        ldap(&settings).unwrap()
    };
    let alice = r#"alice ["staff", "wheel"] {"directory":"home/alice","access":"ro"}"#;
    let source = with(&|_| ());
    assert_eq!(known(&source, "alice", "password"), format!("{alice} Right"));
    assert_eq!(known(&source, "alice", "Password"), format!("{alice} Wrong"));
    assert_eq!(known(&source, "alice", ""), format!("{alice} Wrong"));
    for name in ["bob", "ALICE", "*", "a*", "alice)(uid=*", "\\61lice", "carol"] {
        assert_eq!(known(&source, name, "password"), "unknown", "{name}");
    }
    assert_eq!(known(&source, "twin", "password"), "error: there is more than one entry of twin");
    let of =
        |text: &str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    let other = with(&|settings| {
        settings.groups = None;
        settings.attributes = ["groups=title", "from=DEPARTMENTNUMBER", "expires=mail"].map(of).to_vec();
    });
    assert_eq!(known(&other, "alice", ""), r#"alice ["chiefs"] {"from":["10.0.0.0/8","::1"]} Wrong"#);
    let wrong: [(Change<'_>, &str); 5] = [
        (
            &|settings| settings.attributes = vec![of("access=sn")],
            "error: of alice: access: \"A\" is no permission",
        ),
        (&|settings| settings.attributes = vec![of("acess=sn")], "error: of alice: unknown field `acess`"),
        (&|settings| settings.base = "ou=nowhere,dc=example,dc=org".to_owned(), "error: the result is 32"),
        (&|settings| settings.bind = None, "error: the result is 50"),
        (
            &|settings| settings.bind.as_mut().unwrap().1 = "wrong".to_owned(),
            "error: it does not let in uid=reader,dc=example,dc=org: the result is 49",
        ),
    ];
    for (change, told) in wrong {
        let found = known(&with(change), "alice", "password");
        assert!(found.starts_with(told), "{found}");
    }
}

#[test]
fn a_password_that_was_right_is_not_tried_again_for_a_while() {
    let Some(server) = directory(false) else { return };
    let cached = ldap(&Ldap { cache: PATIENT * 100, ..settings(&server.url()) }).unwrap();
    let asked = ldap(&settings(&server.url())).unwrap();
    let proof =
        |source, password| known(source, "alice", password).split(' ').next_back().unwrap().to_owned();
    assert_eq!(
        (proof(&cached, "password"), proof(&asked, "password")),
        ("Right".to_owned(), "Right".to_owned())
    );
    server.modify(&change("replace: userPassword\nuserPassword: other"));
    assert_eq!(proof(&asked, "password"), "Wrong");
    assert_eq!(proof(&cached, "password"), "Right", "it is remembered");
    assert_eq!(proof(&cached, "other"), "Right", "and another is asked about");
    assert_eq!(proof(&cached, "neither"), "Wrong");
    // The user's entry is never cached, nor its existence.
    server.modify(&change("replace: employeeType\nemployeeType: gone"));
    assert_eq!(known(&cached, "alice", "password"), "unknown");
}

#[test]
fn a_directory_is_asked_over_tls_that_is_verified() {
    let Some(server) = directory(true) else { return };
    let (certificate, _, ports) = server.tls.clone().unwrap();
    let roots = std::fs::read(certificate).unwrap();
    for (url, start_tls) in [
        (format!("ldap://localhost:{}", ports.start()), true),
        (format!("ldaps://localhost:{}", ports.end()), false),
    ] {
        let trusting = Ldap { start_tls, roots: Some(roots.clone()), ..settings(&url) };
        let found = known(&ldap(&trusting).unwrap(), "alice", "password");
        assert!(found.ends_with("Right"), "{url}: {found}");
        let found = known(&ldap(&Ldap { roots: None, ..trusting }).unwrap(), "alice", "password");
        assert!(found.starts_with("error: ") && found.contains("certificate"), "{url}: {found}");
    }
}

#[test]
fn a_slow_directory_blocks_a_login_for_its_time_limit_at_most() {
    const SHORT: Duration = Duration::from_secs(1);
    const LATE: &str = "error: it has not answered within 1s";
    // One that accepts and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", silent.local_addr().unwrap());
    for start_tls in [false, true] {
        let source = ldap(&Ldap { time: SHORT, start_tls, ..settings(&url) }).unwrap();
        assert_eq!(known(&source, "alice", "password"), LATE);
    }
    let Some(server) = directory(false) else { return };
    let source = ldap(&Ldap { time: SHORT, ..settings(&server.url()) }).unwrap();
    eventually("it answers", || known(&source, "alice", "password").ends_with("Right"));
    server.daemon.freeze(true);
    assert_eq!(known(&source, "alice", "password"), LATE);
    assert_eq!(known(&source, "alice", "password"), LATE, "at once, but for the same reason");
    server.daemon.freeze(false);
    eventually("it is found again", || known(&source, "alice", "password").ends_with("Right"));
}

#[test]
fn a_server_that_is_not_a_directory_is_refused() {
    let away = ldap(&settings("ldapi://%2Fnowhere")).unwrap();
    assert_eq!(away.begin().unwrap_err().to_string(), "No such file or directory (os error 2)");
    assert!(ldap(&settings("ldapi:///")).is_ok(), "the usual socket");
    let wrong = |change: &dyn Fn(&mut Ldap)| {
        let mut settings = settings("ldap://localhost");
        change(&mut settings);
        ldap(&settings).err().unwrap().to_string()
    };
    for url in ["", "ldap://", "http://localhost", "localhost"] {
        assert!(wrong(&|settings| settings.url = url.to_owned()).contains("is no URL"), "{url}");
    }
    let start_tls = |settings: &mut Ldap| (settings.url, settings.start_tls) = ("ldaps://a".to_owned(), true);
    assert_eq!(wrong(&start_tls), "StartTLS is for ldap://, not for ldaps://");
    assert!(
        wrong(&|settings| settings.filter = Some("uid=x".to_owned()))
            .starts_with("filter: \"uid=x\" is no filter")
    );
    assert!(wrong(&|settings| settings.groups = Some("(member={dn}".to_owned())).starts_with("groups: "));
}
