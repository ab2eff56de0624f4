//! Policies and certificates that change while the server runs.

use std::sync::atomic::AtomicU32;

use millrace_net::tls::{KeyPair, self_signed};

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("millrace-follow-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// A pair of certificate and key, as if it had been made this many seconds after 1970.
    fn make(&self, seconds: u64) -> KeyPair {
        let pair = KeyPair::self_signed(&self.0);
        let _ = fs::remove_dir_all(pair.key.parent().unwrap());
        self_signed(&self.0, &["localhost".to_owned()]).unwrap();
        for file in [&pair.certificate, &pair.key] {
            let file = fs::File::options().write(true).open(file).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        }
        pair
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn security(pair: &KeyPair) -> Security {
    Security::new(&Tls::new(Plan { identities: vec![pair.clone()], ..Plan::default() })).unwrap()
}

#[test]
fn files_that_change_are_read_again_when_they_rest() {
    let folder = Folder::new();
    let security = security(&folder.make(1));
    let first = security.acceptor.fingerprints();
    assert!(security.follow().is_none());
    folder.make(2);
    assert!(security.follow().is_none(), "the file may still be written");
    assert!(security.follow().unwrap().is_ok());
    assert_ne!(security.acceptor.fingerprints(), first);
    assert!(security.follow().is_none());
}

#[test]
fn a_reload_of_certificates_does_not_undo_a_policy() {
    let folder = Folder::new();
    let security = security(&folder.make(1));
    let policy = |login_required| Tls { login_required, ..(*security.policy()).clone() };
    let (policies, is_over) = ([policy(false), policy(true)], AtomicBool::new(false));
    let taken_back = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                security.reload().unwrap();
            }
        });
        let taken_back = policies.iter().cycle().take(200).filter(|policy| {
            security.replace(policy).unwrap();
            // The concurrent reload has ended.
            drop(security.seen());
            security.policy().login_required != policy.login_required
        });
        let taken_back = taken_back.count();
        is_over.store(true, Ordering::Relaxed);
        taken_back
    });
    assert_eq!(taken_back, 0);
}

#[test]
fn files_of_no_use_are_told_of_once() {
    let folder = Folder::new();
    let pair = folder.make(1);
    let security = security(&pair);
    let first = security.acceptor.fingerprints();
    fs::remove_file(&pair.key).unwrap();
    assert!(security.follow().is_none());
    assert!(security.follow().unwrap().is_err());
    assert!(security.follow().is_none());
    assert_eq!(security.acceptor.fingerprints(), first);
    folder.make(2);
    assert!(security.follow().is_none());
    assert!(security.follow().unwrap().is_ok());
}

#[test]
fn files_that_could_not_be_read_are_tried_again_although_they_look_the_same() {
    let folder = Folder::new();
    let security = security(&folder.make(1));
    let pair = folder.make(2);
    let files = stamps(&security.policy().plan);
    let mut seen = security.seen();
    let failure = |code| Err(LoadError::Unread(pair.key.clone(), std::io::Error::from_raw_os_error(code)));
    assert!(seen.judge(files.clone(), &failure(5)), "it is told of");
    assert!(!seen.judge(files.clone(), &failure(5)), "once");
    assert!(seen.judge(files, &failure(24)), "there is another reason");
    drop(seen);
    assert!(security.follow().is_none(), "the file may still be written");
    assert!(security.follow().unwrap().is_ok());
    assert!(security.follow().is_none());
}

#[test]
fn new_problems_of_a_certificate_are_reported_once() {
    const DAY: Duration = Duration::from_secs(86_400);
    let folder = Folder::new();
    let security = security(&folder.make(1));
    let until = KeyPair::self_signed(&folder.0).info(&[]).unwrap().until;
    for (now, word) in [
        (until - 8 * DAY, None),
        (until - 4 * DAY, Some("expires in 4 days")),
        (until - 4 * DAY, None),
        (until - 3 * DAY, Some("expires in 3 days")),
        (until, Some("has expired")),
        (until + DAY, None),
        // The clock is set.
        (SystemTime::UNIX_EPOCH, Some("is not good yet")),
    ] {
        let doubts = security.doubts(now);
        match word {
            None => assert_eq!(doubts, [""; 0], "{now:?}"),
            Some(word) => assert!(doubts.len() == 1 && doubts[0].contains(word), "{doubts:?}"),
        }
    }
    security.reload().unwrap();
    assert_eq!(security.doubts(until).len(), 1, "what is read again is judged again");
}

#[test]
fn mixers_are_told_apart_by_their_networks_up_to_a_bound_and_for_a_day() {
    let (mixers, now) = (Mixers::default(), Instant::now());
    let address = |number: u32| IpAddr::from(number.to_be_bytes());
    assert!(!mixers.has(address(1), now));
    mixers.note(address(1), now);
    assert!(mixers.has(address(1), now) && !mixers.has(address(2), now));
    assert!(!mixers.has(address(1), now + Mixers::MEMORY));
    let [one, same, other] =
        ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"].map(|text| text.parse().unwrap());
    mixers.note(one, now);
    assert!(mixers.has(same, now) && !mixers.has(other, now));
    let second = now + Duration::from_secs(1);
    mixers.note(address(1), second);
    (3..2 + Mixers::MOST as u32).for_each(|number| mixers.note(address(number), second));
    assert!(!mixers.has(one, second), "the oldest gives way");
    assert!(mixers.has(address(1), second) && !mixers.has(address(2), second), "and no other address");
}
