//! What a reload takes over, and what it says of the rest.

use super::*;

/// Keys that a reload takes over at once. All others count from the next start only, and it says so where they changed.
const TAKEN_OVER: &str = "directory user users group source anonymous folder archives host uploads durability http-sandbox \
    download-limit upload-limit user-download-limit user-upload-limit user-sessions session-download-limit \
    session-upload-limit logins logins-per-address logins-per-network user-logins listener allow deny proxy-from \
    ban-after ban-time hook hooks-queue tls-cert tls-key tls-self-signed tls-names tls-required tls-resumption \
    tls-close-notify tls-close-notify-excused tls-ccc tls-client-ca tls-client-crl tls-client-cert acme acme-agree \
    acme-contact acme-directory acme-ca acme-challenge index mime http-precompressed http-security-headers http-hsts \
    https-redirect http-digest http-link-keys header cors error-page";

#[test]
fn every_key_is_taken_over_by_a_reload_or_told_to_wait() {
    let folder = Folder::new();
    let mut keys = Begun::with(&folder.file("").unwrap()).keys();
    keys.extend(TAKEN_OVER.split_whitespace());
    // With `log-format` it makes one setting.
    keys.push("quiet");
    keys.sort_unstable();
    let mut all = keys::of_file().to_vec();
    all.sort_unstable();
    assert_eq!(keys, all);
}

#[test]
fn a_reload_tells_which_keys_count_from_the_next_start_only() {
    let folder = Folder::new();
    let first = "http = \"127.0.0.1:1\"\nstate = \"a\"\n";
    let begun = Begun::with(&folder.file(first).unwrap());
    let changed = |text: &str| begun.changed(&folder.file(text).unwrap()).join(" ");
    assert_eq!(changed(first), "");
    assert_eq!(changed(&format!("{first}download-limit = 5\narchives = true\n")), "");
    let more =
        "http = \"127.0.0.1:2\"\nstate = \"b\"\npassive-ports = 50000\nidle-timeout = 7\nquiet = true\n";
    assert_eq!(changed(more), "http passive-ports state idle-timeout log-format");
    let password = format!("{first}shutdown-password = \"{HASH}\"\n");
    assert_eq!(changed(&password), "shutdown-password");
    let begun = Begun::with(&folder.file(&password).unwrap());
    let another = folder.file(&password.replace("c29tZXNhbHQ", "c29tZXNhbHU")).unwrap();
    assert_eq!(begun.changed(&another), ["shutdown-password"]);
}
