//! What a reload changes, and what it says of the rest.

use super::*;

#[test]
fn a_reload_tells_which_keys_count_from_the_next_start_only() {
    let folder = Folder::new();
    let first = "http = \"127.0.0.1:1\"\nstate = \"a\"\n";
    let begun = folder.file(first).unwrap().snapshot;
    let changed = |text: &str| begun.changed(&folder.file(text).unwrap().snapshot, true).join(" ");
    assert_eq!(changed(first), "");
    assert_eq!(changed(&format!("# moves all places\n{first}")), "");
    assert_eq!(changed(&format!("{first}idle-timeout = \"5m\"\n")), "", "it is the default");
    assert_eq!(changed(&format!("{first}download-limit = 5\narchives = true\n")), "");
    let more =
        "http = \"127.0.0.1:2\"\nstate = \"b\"\npassive-ports = 50000\nidle-timeout = 7\nquiet = true\n";
    assert_eq!(changed(more), "http passive-ports state idle-timeout quiet");
    let now =
        folder.file(&format!("{first}download-limit = 5\narchives = true\nquiet = true\n")).unwrap().snapshot;
    assert_eq!(begun.changed(&now, false), ["archives", "download-limit"]);
    let password = format!("{first}shutdown-password = \"{HASH}\"\n");
    assert_eq!(changed(&password), "shutdown-password");
    let begun = folder.file(&password).unwrap().snapshot;
    let another = folder.file(&password.replace("c29tZXNhbHQ", "c29tZXNhbHU")).unwrap().snapshot;
    assert_eq!(begun.changed(&another, true), ["shutdown-password"]);
}

#[test]
fn tables_are_compared_by_their_keys() {
    let folder = Folder::new();
    let proxy = "[[proxy]]\npath = \"/a\"\nto = \"http://127.0.0.1:1\"\nmax-requests = 5\n";
    let begun = folder.file(proxy).unwrap().snapshot;
    let changed = |text: &str| begun.changed(&folder.file(text).unwrap().snapshot, true);
    assert!(changed(&format!("\n\n{proxy}")).is_empty());
    let former = proxy.replace("proxy", "pass").replace("max-requests", "most");
    assert!(changed(&former).is_empty(), "keys still work by the name they had before");
    assert_eq!(changed(&proxy.replace("/a", "/b")), ["proxy"]);
}
