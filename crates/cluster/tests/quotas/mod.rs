//! Quotas over several nodes, each with a ledger of its own, and files in one folder.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use millrace_cluster::{Cluster, Table, Told};
use millrace_storage::{
    Allowance, Ledger, LocalOptions, LocalStorage, Quota, Telling, TreeState, Uploads, Wish,
};
use millrace_vfs::{FileError, QuotaScope, Storage, Upload, VirtualPath, Wait, WriteMode};

use super::{Postgres, Server, end_grace, entry, eventually, node, silence, table};

const MOST: u64 = 1_000_000;

/// The folder that all nodes serve.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("millrace-shares-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Bytes and files that are stored.
    fn stored(&self) -> (u64, u64) {
        let found = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().metadata());
        // The next moment may have removed it.
        let files = found.filter_map(Result::ok).filter(|found| found.is_file());
        files.fold((0, 0), |(bytes, files), found| (bytes + found.len(), files + 1))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A node, and a quota as one of its users has it.
struct Door {
    cluster: Arc<Cluster>,
    ledger: Ledger,
    quota: Quota,
    _member: Arc<Server>,
}

impl Door {
    fn open(server: &Postgres, folder: &Folder, name: &str) -> Self {
        let (cluster, member) = node(server, name);
        let cluster = Arc::new(cluster);
        let ledger = Ledger::new(None).share(Arc::clone(&cluster) as _);
        let options = LocalOptions { uploads: Uploads::Staged, ..LocalOptions::default() };
        let files: Arc<dyn Storage> = Arc::new(LocalStorage::open(&folder.0, options).unwrap());
        let allowance = Allowance { bytes: Some(MOST), files: None };
        let quota =
            Quota::new(Arc::clone(&files), ledger.tally("tree", &files), allowance, QuotaScope::Account);
        Self { cluster, ledger, quota, _member: member }
    }

    fn begin(&self, name: &str) -> Box<dyn Upload> {
        self.quota.open_write(&path(name), WriteMode::Replace, Wait::Allowed).unwrap()
    }

    fn store(&self, name: &str, size: usize) -> Result<u64, FileError> {
        let mut upload = self.quota.open_write(&path(name), WriteMode::Replace, Wait::Allowed)?;
        for piece in vec![7; size].chunks(10_000) {
            upload.write_all(piece)?;
        }
        upload.commit().map(|committed| committed.size)
    }
}

fn path(name: &str) -> VirtualPath {
    VirtualPath::root().join(name.as_bytes()).unwrap()
}

/// What the database says, once no node changes anything.
#[track_caller]
fn settle(server: &Postgres, doors: &[&Door]) -> (u64, u64) {
    eventually("all nodes have told their shares, and the tree is not in doubt", || {
        doors.iter().for_each(|door| door.ledger.keep(false).unwrap());
        server
            .run("SELECT (SELECT count(*) FROM millrace_cluster.share), doubtful FROM millrace_cluster.tree")
            == "0|f"
    });
    let row = server.run("SELECT bytes, files, lost_bytes FROM millrace_cluster.tree");
    let numbers: Vec<u64> = row.split('|').map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers[2], 0, "{row}");
    (numbers[0], numbers[1])
}

fn is_over<T: std::fmt::Debug>(result: &Result<T, FileError>) -> bool {
    matches!(result, Err(FileError::OverQuota(_)))
}

#[test]
fn changes_of_the_same_names_on_three_nodes_are_counted_once_each_and_never_over_the_quota() {
    let Some(server) = Postgres::new() else { return };
    let folder = Folder::new();
    fs::write(folder.0.join("0"), [7; 1000]).unwrap();
    let doors = ["a", "b", "c"].map(|name| Door::open(&server, &folder, name));
    thread::scope(|scope| {
        for number in 0..9_usize {
            let (door, folder) = (&doors[number % 3], &folder);
            scope.spawn(move || {
                for round in 0..25 {
                    let name = format!("{}", (number + round) % 4);
                    match (number * 7 + round) % 5 {
                        0 => drop(door.quota.remove_file(&path(&name))),
                        1 => {
                            let own = format!("own-{number}");
                            if door.store(&own, 1000 + number).is_ok() {
                                let _ = door.quota.rename(&path(&own), &path(&name));
                            }
                        }
                        2 => {
                            drop(door.quota.copy(&path(&name), &path(&format!("copy-{name}")), &mut |_| true))
                        }
                        _ => drop(door.store(&name, round * 11_003)),
                    }
                    let stored = folder.stored().0;
                    assert!(stored <= MOST, "{stored}");
                }
            });
        }
    });
    let all: Vec<&Door> = doors.iter().collect();
    assert_eq!(settle(&server, &all), folder.stored());
    let number = server.run("SELECT count(*) FROM millrace_cluster.name_lock");
    eventually("all names are free", || server.run("SELECT count(*) FROM millrace_cluster.name_lock") == "0");
    assert!(number.parse::<u32>().unwrap() < 300);
}

#[test]
fn an_upload_is_refused_where_the_others_have_left_no_room_and_admitted_when_they_have() {
    let Some(server) = Postgres::new() else { return };
    let folder = Folder::new();
    let [one, other] = ["one", "other"].map(|name| Door::open(&server, &folder, name));
    assert_eq!(one.store("a", 600_000).unwrap(), 600_000);
    let mut upload = one.begin("b");
    upload.write_all(&[7; 200_000]).unwrap();
    assert!(is_over(&other.store("c", 300_000)), "the other reserves it");
    let space = other.quota.space(&path("a")).unwrap();
    assert_eq!(space.held.unwrap().bytes, 600_000, "what others reserve is not stored yet");
    assert!(space.available <= 200_000);
    upload.commit().unwrap();
    assert_eq!(settle(&server, &[&one, &other]), (800_000, 2));
    assert!(is_over(&other.store("c", 200_001)));
    other.store("c", 200_000).unwrap();
    other.quota.remove_file(&path("a")).unwrap();
    assert_eq!(settle(&server, &[&one, &other]), (400_000, 2));
    one.store("d", 600_000).unwrap();
    assert_eq!(settle(&server, &[&one, &other]), folder.stored());
}

#[test]
fn a_node_that_has_heard_of_a_full_tree_asks_again() {
    let Some(server) = Postgres::new() else { return };
    let folder = Folder::new();
    let [one, other] = ["one", "other"].map(|name| Door::open(&server, &folder, name));
    let mut upload = other.begin("runs");
    upload.write_all(&[7; 10]).unwrap();
    one.store("a", 500_000).unwrap();
    // Room that is not needed is given back.
    [(); 2].iter().for_each(|()| other.ledger.keep(false).unwrap());
    one.store("b", 499_990).unwrap();
    assert!(is_over(&other.store("c", 1)));
    one.quota.remove_file(&path("a")).unwrap();
    [(); 2].iter().for_each(|()| one.ledger.keep(false).unwrap());
    other.store("c", 100_000).unwrap();
    upload.commit().unwrap();
    assert_eq!(settle(&server, &[&one, &other]), (600_000, 3));
}

#[test]
fn what_a_dead_node_has_stored_and_not_told_is_found() {
    let Some(server) = Postgres::new() else { return };
    let folder = Folder::new();
    let [dies, lives] = ["dies", "lives"].map(|name| Door::open(&server, &folder, name));
    lives.store("a", 100_000).unwrap();
    let mut upload = dies.begin("b");
    upload.write_all(&[7; 300_000]).unwrap();
    dies.store("c", 50_000).unwrap();
    // Nothing more is told: neither the file, nor that the upload has ended.
    std::mem::forget(upload);
    dies.cluster.leave();
    std::mem::forget(dies);
    lives.store("d", 1000).unwrap();
    assert_eq!(settle(&server, &[&lives]), (151_000, 3));
    assert_eq!(folder.stored(), (151_000, 3));
}

#[test]
fn a_node_that_registers_anew_keeps_its_share_unless_it_was_taken_for_dead() {
    let Some(server) = Postgres::new() else { return };
    let table = table(&server);
    let epoch = table.register(&entry("one"), None, &[]).unwrap();
    let other = table.register(&entry("other"), None, &[]).unwrap();
    end_grace(&server);
    let most = Allowance { bytes: Some(1000), files: None };
    let wish = Wish { bytes: 80, files: 0, most, ahead: 0 };
    let new = Telling { is_new: true, ..Telling::default() };
    let known = |told| match told {
        Told::Known(state) => state,
        told => panic!("{told:?}"),
    };
    let tell = |epoch, telling, wish| table.tell_share(epoch, "t", telling, wish).unwrap();
    assert_eq!(known(tell(epoch, new, Some(wish))).granted_bytes, 80);
    assert!(table.count_tree(epoch, "t", (100, 1), 0).unwrap());

    let next = table.register(&entry("one"), Some(epoch), &[]).unwrap();
    let mut again = Telling::default();
    again.share.reserved_bytes = 80;
    assert_eq!(tell(epoch, again, None), Told::Fenced);
    let state = known(tell(next, again, None));
    assert!(!state.is_doubtful && state.is_counted);
    let state = known(tell(other, new, Some(Wish { bytes: 821, ..wish })));
    assert_eq!((state.over.is_some(), state.bytes, state.others_bytes), (true, 100, 80));

    silence(&server, next, 60);
    table.renew(other, Default::default(), &[]).unwrap();
    let state = known(tell(other, Telling::default(), None));
    assert_eq!((state.is_doubtful, state.others_bytes), (true, 80), "it may have stored that");
    let last = table.register(&entry("one"), Some(next), &[]).unwrap();
    assert_eq!(tell(last, again, None), Told::Ended);
    assert!(!table.count_tree(last, "t", (180, 2), state.changes).unwrap(), "another has a share");
    known(tell(other, Telling { is_last: true, ..Telling::default() }, None));
    let TreeState { changes, .. } = known(tell(last, new, None));
    assert!(!table.count_tree(last, "t", (180, 2), changes - 1).unwrap(), "something has changed");
    assert!(table.count_tree(last, "t", (180, 2), changes).unwrap());
    let state = known(tell(last, Telling::default(), None));
    assert_eq!((state.bytes, state.others_bytes, state.is_doubtful), (180, 0, false));
}

#[test]
fn while_the_database_is_away_uploads_go_on_with_a_part_of_what_was_left_and_are_counted_later() {
    let Some(mut server) = Postgres::new() else { return };
    let folder = Folder::new();
    let door = Door::open(&server, &folder, "one");
    let mut upload = door.begin("a");
    upload.write_all(&[7; 100_000]).unwrap();
    server.daemon.kill();
    eventually("the node notices", || door.cluster.epoch().is_none());
    upload.write_all(&[7; 100_000]).unwrap();
    upload.commit().unwrap();
    assert!(is_over(&door.store("b", 400_000)), "others may take as much");
    door.store("c", 10_000).unwrap();
    let fresh = Folder::new();
    let files: Arc<dyn Storage> = Arc::new(LocalStorage::open(&fresh.0, LocalOptions::default()).unwrap());
    let unknown = door.ledger.tally("another tree", &files);
    let unknown = Quota::new(files, unknown, Allowance::default(), QuotaScope::Account);
    let refused = unknown.open_write(&path("a"), WriteMode::Replace, Wait::Allowed);
    assert!(matches!(refused, Err(FileError::Busy)), "nothing is known of it");
    server.start();
    eventually("it is back", || door.cluster.epoch().is_some());
    server.run("UPDATE millrace_cluster.pulse SET closed_until = clock_timestamp()");
    assert_eq!(settle(&server, &[&door]), (210_000, 2));
    assert_eq!(folder.stored(), (210_000, 2));
}

#[test]
fn a_tree_with_a_quota_is_known_to_every_node() {
    let Some(server) = Postgres::new() else { return };
    let folder = Folder::new();
    let [one, other] = ["one", "other"].map(|name| Door::open(&server, &folder, name));
    one.store("a", 1000).unwrap();
    let files: Arc<dyn Storage> = Arc::new(LocalStorage::open(&folder.0, LocalOptions::default()).unwrap());
    eventually("the other node counts what users without a quota do", || {
        other.ledger.tally_of_others("tree", &files, false).is_some()
    });
    assert!(other.ledger.tally_of_others("no quota", &files, true).is_none());
}
