use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_vfs::{FileError, Storage, VirtualPath};

use super::*;

/// A served folder and one outside of it, both removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("millrace-homes-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let place = std::env::temp_dir().canonicalize().unwrap().join(name);
        for folder in ["served/home", "served/made", "outside/sub"] {
            std::fs::create_dir_all(place.join(folder)).unwrap();
        }
        std::fs::write(place.join("outside/secret"), "").unwrap();
        Self(place)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn homes(&self) -> Homes {
        Homes::new(self.file("served"), LocalOptions::default())
    }

    /// Puts a link that leads out in the place of `name`.
    fn swap(&self, name: &str) {
        let served = self.file("served");
        std::fs::rename(served.join(name), served.join("aside")).unwrap();
        symlink("../outside", served.join(name)).unwrap();
    }

    fn swap_back(&self, name: &str) {
        let served = self.file("served");
        std::fs::remove_file(served.join(name)).unwrap();
        std::fs::rename(served.join("aside"), served.join(name)).unwrap();
    }

    /// Swaps until the answer is there.
    fn while_swapped<T>(&self, name: &str, act: impl FnOnce() -> T) -> T {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    self.swap(name);
                    self.swap_back(name);
                }
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            done.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text.as_bytes()).unwrap()
}

fn is_outside(storage: &LocalStorage) -> bool {
    !matches!(storage.metadata(&path("/secret"), Wait::Allowed), Err(FileError::NotFound))
}

#[test]
fn a_folder_that_was_removed_or_moved_and_made_anew_is_opened_anew() {
    let place = Place::new();
    let (homes, folder) = (place.homes(), place.file("served/home"));
    let make = |storage: &LocalStorage| storage.make_directory(&path("/made"));
    let first = homes.open("home", false, false).unwrap();
    assert!(Arc::ptr_eq(&first, &homes.open("home", false, false).unwrap()));

    std::fs::remove_dir(&folder).unwrap();
    assert!(homes.ready("home", false).is_none());
    homes.open("home", false, false).unwrap_err();
    std::fs::create_dir(&folder).unwrap();
    let second = homes.open("home", false, false).unwrap();
    make(&first).unwrap_err();
    make(&second).unwrap();

    std::fs::rename(&folder, place.file("old")).unwrap();
    std::fs::create_dir(&folder).unwrap();
    assert!(homes.ready("home", false).is_none());
    make(&homes.open("home", false, false).unwrap()).unwrap();
    assert!(folder.join("made").is_dir());
}

#[test]
fn a_home_swapped_for_a_link_in_a_loop_never_leads_out() {
    let place = Place::new();
    let (mut opened, mut refused) = (0, 0);
    place.while_swapped("home", || {
        while opened < 500 || refused < 500 {
            // A different folder each time, because open ones are not looked up.
            match place.homes().open("home", false, false) {
                Ok(storage) => {
                    assert!(!is_outside(&storage), "after {opened} homes and {refused} refusals");
                    opened += 1;
                }
                Err(_) => refused += 1,
            }
        }
    });
}

#[test]
fn a_home_is_never_made_outside_while_its_parent_is_swapped() {
    let place = Place::new();
    place.while_swapped("made", || {
        for round in 0..500 {
            let _ = place.homes().open(&format!("made/{round}"), false, true);
        }
    });
    let outside = std::fs::read_dir(place.file("outside")).unwrap().count();
    assert_eq!(outside, 2, "something was made outside");
}

#[test]
fn a_folder_that_was_found_is_served_even_if_its_name_is_taken_meanwhile() {
    let place = Place::new();
    let homes = place.homes();
    let found = homes.find(Path::new("home"), false).unwrap();
    let parent = homes.root.find(Path::new("made"), Wait::Allowed).unwrap();
    place.swap("home");
    let storage = homes.serve(&found, false).unwrap();
    assert!(!is_outside(&storage));
    place.swap_back("home");
    place.swap("made");
    parent.make("new".as_ref()).unwrap();
    assert!(place.file("served/aside/new").is_dir() && !place.file("outside/new").exists());
}

#[test]
fn a_home_that_is_open_is_given_up_once_a_link_leads_out_in_its_place() {
    let place = Place::new();
    let homes = place.homes();
    homes.open("home", false, false).unwrap();
    place.swap("home");
    assert!(homes.ready("home", false).is_none());
    let error = homes.open("home", false, false).unwrap_err();
    assert!(matches!(error, HomeError::LeadsOut { .. }), "{error}");
    homes.check("home", true).unwrap_err();
}

#[test]
fn the_root_is_held_where_a_link_takes_its_place() {
    let place = Place::new();
    let homes = place.homes();
    std::fs::rename(place.file("served"), place.file("moved")).unwrap();
    symlink("outside", place.file("served")).unwrap();
    for folder in ["", "home"] {
        assert!(!is_outside(&homes.open(folder, false, false).unwrap()), "{folder:?}");
    }
    homes.open("sub", false, false).unwrap_err();
    // A directory that the operator creates there later is another root.
    std::fs::remove_file(place.file("served")).unwrap();
    std::fs::create_dir_all(place.file("served/other")).unwrap();
    homes.open("other", false, false).unwrap();
}

#[test]
fn links_within_lead_to_homes_also_absolute_ones() {
    let place = Place::new();
    symlink("home", place.file("served/relative")).unwrap();
    symlink(place.file("served/home"), place.file("served/absolute")).unwrap();
    symlink(place.file("outside"), place.file("served/out")).unwrap();
    std::fs::write(place.file("served/home/inside"), "").unwrap();
    let homes = place.homes();
    for folder in ["relative", "absolute"] {
        let storage = homes.open(folder, false, false).unwrap();
        storage.metadata(&path("/inside"), Wait::Allowed).unwrap();
    }
    homes.open("out", false, false).unwrap_err();
    homes.open("out/sub", false, true).unwrap_err();
}
