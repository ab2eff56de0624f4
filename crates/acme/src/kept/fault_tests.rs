//! Calls for the files that last, each of which fails in turn, alone and with all after it.

use super::super::calls::faults::each;
use super::tests::{Folder, issued, settings};
use super::*;

const DOMAIN: &str = "a.example";

/// The names in the folder, sorted.
fn names(settings: &Acme) -> Vec<String> {
    let entries = fs::read_dir(&settings.folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder as the first start makes it, with another text for its certificate.
fn stored(test: &str, certificate: &str) -> (Acme, Folder) {
    let (settings, folder) = settings(test, DOMAIN);
    settings.prepare().unwrap();
    fs::write(settings.identity().certificate, certificate).unwrap();
    (settings, folder)
}

#[test]
fn whichever_call_of_a_start_fails_the_next_has_a_whole_certificate() {
    let prepare = || settings("fault-start", DOMAIN);
    let calls = each(
        prepare,
        |(settings, _)| settings.prepare(),
        |fault, (settings, _), _| {
            match settings.identity().info(&[]) {
                Ok(_) => {}
                Err(LoadError::Unread(_, error)) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
                Err(error) => panic!("{fault:?}: {error}"),
            }
            assert_eq!(settings.prepare().unwrap(), None, "{fault:?}");
            assert!(settings.identity().info(&[]).is_ok());
            assert_eq!(names(settings), ["certificate.pem"], "{fault:?}");
        },
    );
    assert!(calls >= 8, "{calls} calls");
}

#[test]
fn whichever_call_fails_an_unusable_certificate_is_kept() {
    let calls = each(
        || stored("fault-aside", "garbage"),
        |(settings, _)| settings.prepare().map_err(|error| error.to_string()),
        |fault, (settings, _), prepared| {
            let again = settings.prepare().unwrap();
            // The second start says what was renamed, unless the first had done that before its call failed.
            let told = prepared.ok().flatten().or(again).is_some();
            let aside = settings.folder.join("certificate.unusable-1.pem");
            assert!(told || aside.exists(), "{fault:?}");
            let kept = fs::read_to_string(aside);
            assert_eq!(kept.as_deref().ok(), Some("garbage"), "{fault:?}");
            assert_eq!(names(settings), ["certificate.pem", "certificate.unusable-1.pem"], "{fault:?}");
        },
    );
    assert!(calls >= 12, "{calls} calls");
}

#[test]
fn whichever_call_fails_the_old_certificate_is_whole_or_the_new_one_is() {
    let (old, new) = (issued(DOMAIN), issued(DOMAIN));
    let text = |(chain, key): &(String, String)| [key.as_str(), chain].concat();
    let calls = each(
        || stored("fault-issued", &text(&old)),
        |(settings, _)| settings.keep_certificate(&new.0, &new.1).map_err(|error| error.to_string()),
        |fault, (settings, _), kept| {
            let path = settings.identity().certificate;
            let now = fs::read_to_string(&path).unwrap();
            match kept {
                Ok(_) => assert_eq!(now, text(&new), "{fault:?}"),
                Err(why) => {
                    assert!(now == text(&old) || now == text(&new), "{fault:?}: {why}");
                    assert!(why.contains("certificate.pem cannot be written: "), "{fault:?}: {why}");
                }
            }
            settings.keep_certificate(&new.0, &new.1).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text(&new), "{fault:?}");
            assert_eq!(names(settings), ["certificate.pem"], "{fault:?}");
        },
    );
    assert!(calls >= 7, "{calls} calls");
}

#[test]
fn whichever_call_fails_no_account_is_lost() {
    let calls = each(
        || stored("fault-account", "any"),
        |(settings, _)| replace(&settings.account_path(), "account"),
        |fault, (settings, _), kept| {
            let now = fs::read_to_string(settings.account_path()).ok();
            let is_whole = now.as_deref() == Some("account");
            assert!(is_whole || (now.is_none() && kept.is_err()), "{fault:?}: {now:?}");
            replace(&settings.account_path(), "account").unwrap();
            assert_eq!(names(settings), ["account.json", "certificate.pem"], "{fault:?}");
        },
    );
    assert!(calls >= 7, "{calls} calls");
    let garbled = || {
        let (settings, folder) = stored("fault-account", "any");
        fs::write(settings.account_path(), "garbage").unwrap();
        (settings, folder)
    };
    let calls = each(
        garbled,
        |(settings, _)| settings.account().map(|account| account.is_some()),
        |fault, (settings, _), _| {
            assert!(settings.account().unwrap().is_none(), "{fault:?}");
            let kept = fs::read_to_string(settings.folder.join("account.unusable-1.json"));
            assert_eq!(kept.ok().as_deref(), Some("garbage"), "{fault:?}");
        },
    );
    assert!(calls >= 5, "{calls} calls");
}
