//! What a reload changes, and what it says of the rest.

use super::*;

#[test]
fn a_reload_tells_which_keys_count_from_the_next_start_only() {
    let folder = Folder::new();
    let first = "http = \"127.0.0.1:1\"\nstate = \"a\"\n";
    let begun = folder.file(first).unwrap().snapshot;
    let later = |begun: &Snapshot, text: &str| {
        begun.compare(begun, &folder.file(text).unwrap().snapshot).at_next_start.join(" ")
    };
    let changed = |text: &str| later(&begun, text);
    assert_eq!(changed(first), "");
    assert_eq!(changed(&format!("# moves all places\n{first}")), "");
    assert_eq!(changed(&format!("{first}idle-timeout = \"5m\"\n")), "", "it is the default");
    assert_eq!(changed(&format!("{first}download-limit = 5\narchives = true\n")), "");
    let more =
        "http = \"127.0.0.1:2\"\nstate = \"b\"\npassive-ports = 50000\nidle-timeout = 7\nquiet = true\n";
    assert_eq!(changed(more), "http passive-ports state idle-timeout quiet");
    let now =
        folder.file(&format!("{first}download-limit = 5\narchives = true\nquiet = true\n")).unwrap().snapshot;
    assert_eq!(begun.compare(&begun, &now).now, ["archives", "download-limit"]);
    let password = format!("{first}shutdown-password = \"{HASH}\"\n");
    assert_eq!(changed(&password), "shutdown-password");
    let begun = folder.file(&password).unwrap().snapshot;
    assert_eq!(later(&begun, &password.replace("c29tZXNhbHQ", "c29tZXNhbHU")), "shutdown-password");
}

#[test]
fn the_first_certificate_and_the_end_of_all_count_from_the_next_start() {
    let folder = Folder::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for name in ["one.pem", "two.pem"] {
        let both = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
        fs::write(folder.path().join(name), both).unwrap();
    }
    let [none, one, two] = ["", "tls-cert = \"one.pem\"\n", "tls-cert = \"two.pem\"\narchives = true\n"]
        .map(|text| folder.file(text).unwrap().snapshot);
    let first = none.compare(&none, &one);
    assert_eq!((first.now, first.at_next_start), (vec![], vec!["tls-cert"]));
    let again = none.compare(&one, &two);
    assert_eq!((again.now, again.at_next_start), (vec!["archives"], vec!["tls-cert"]));
    let back = none.compare(&one, &none);
    assert_eq!((back.now, back.at_next_start), (vec![], vec![]));
    let another = one.compare(&one, &two);
    assert_eq!((another.now, another.at_next_start), (vec!["archives", "tls-cert"], vec![]));
    let gone = one.compare(&one, &none);
    assert_eq!((gone.now, gone.at_next_start), (vec![], vec!["tls-cert"]));
}

#[test]
fn tables_are_compared_by_their_keys() {
    let folder = Folder::new();
    let proxy = "[[proxy]]\npath = \"/a\"\nto = \"http://127.0.0.1:1\"\nmax-requests = 5\n";
    let begun = folder.file(proxy).unwrap().snapshot;
    let changed = |text: &str| begun.compare(&begun, &folder.file(text).unwrap().snapshot).at_next_start;
    assert!(changed(&format!("\n\n{proxy}")).is_empty());
    let former = proxy.replace("proxy", "pass").replace("max-requests", "most");
    assert!(changed(&former).is_empty(), "keys still work by the name they had before");
    assert_eq!(changed(&proxy.replace("/a", "/b")), ["proxy"]);
}
