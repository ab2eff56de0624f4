//! Row 12: uploads are hashed as they pass, and files that decay are found.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::site::{Client, Folder, Site, program};

/// Changes a byte of a file as a disk does: nothing says so.
fn decay(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_at(b"X", 1).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

/// The facts of a file.
fn facts(client: &mut Client, path: &str) -> String {
    client.say("OPTS MLST size;x.hash;", "200");
    client.say(&format!("MLST {path}"), "250")
}

fn verify(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String) {
    let output = folder.run(&[&["verify", "files"], arguments].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_hash_is_stored_told_without_reading_and_decay_is_found() {
    let site = Site::start("hash", "upload-hash = [\"sha256\", \"crc32\"]");
    let files = site.folder.0.join("files");
    let mut bob = site.log_in("bob");
    let long: Vec<u8> = (0..3_000_000_u32).map(|number| (number >> 7) as u8).collect();
    bob.put("small", b"the content");
    bob.put("large", &long);
    let sum = bob.say("XSHA256 small", "250");
    assert!(facts(&mut bob, "small").contains(&format!("x.hash=SHA-256:{};", sum[4..].trim_end())));
    let crc = bob.say("XCRC large", "250");
    let hash = bob.say("XSHA256 large", "250");
    assert!(site.folder.log().contains(&format!(
        "hash=\"CRC32:{} SHA-256:{}\"",
        crc[4..].trim_end(),
        hash[4..].trim_end()
    )));
    assert_eq!(verify(&site.folder, &[]).0, Some(0));
    // The file is not read any more to tell its hash.
    decay(&files.join("large"));
    assert_eq!(bob.say("XSHA256 large", "250"), hash);
    assert_ne!(bob.say("XSHA512 large", "250"), hash);
    let (code, told) = verify(&site.folder, &["--jobs", "3"]);
    assert_eq!(code, Some(1));
    assert!(told.contains("damaged    files/large; stored: CRC32:"), "{told}");
    assert!(
        told.contains("1 file, 11 bytes: as they came.") && told.contains("1 file: without a hash."),
        "{told}"
    );
    let (code, told) = verify(&site.folder, &["--json"]);
    assert_eq!(code, Some(1));
    let lines: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["state"], &lines[0]["path"]), (&"damaged".into(), &"files/large".into()));
    assert_eq!((&lines[1]["damaged"], &lines[1]["intact"]), (&1.into(), &1.into()));
    // Another program has changed it, and says so.
    fs::write(files.join("large"), "another").unwrap();
    let (code, told) = verify(&site.folder, &[]);
    assert!(code == Some(0) && told.contains("changed    files/large\n"), "{told}");
    assert_ne!(bob.say("XSHA256 large", "250"), hash);
}

#[test]
fn appends_renames_copies_and_times_keep_the_hash_right() {
    let site = Site::start("hash-kept", "upload-hash = \"sha256\"");
    let mut bob = site.log_in("bob");
    bob.put("a", b"first, ");
    let mut data = bob.data();
    bob.say("APPE a", "150");
    std::io::Write::write_all(&mut data, b"second").unwrap();
    drop(data);
    assert!(bob.reply().starts_with("226"));
    bob.put("whole", b"first, second");
    let expected = bob.say("XSHA256 whole", "250");
    let told = |bob: &mut Client, path: &str| facts(bob, path).contains(expected[4..].trim_end());
    assert!(told(&mut bob, "a"), "an append");
    bob.say("RNFR a", "350");
    bob.say("RNTO b", "250");
    assert!(told(&mut bob, "b"), "a rename");
    bob.say("SITE CPFR b", "350");
    bob.say("SITE CPTO c", "250");
    assert!(told(&mut bob, "c"), "a copy");
    bob.say("MFMT 20200101000000 c", "213");
    assert!(told(&mut bob, "c"), "a time that a client sets");
    assert_eq!(verify(&site.folder, &[]).0, Some(0));
    // A part that is written over is not the file that was hashed.
    bob.say("REST 3", "350");
    bob.put("c", b"XX");
    assert!(!facts(&mut bob, "c").contains("x.hash"));
    // Nor is one that another program has changed, whatever time a client gives it.
    let b = site.folder.0.join("files/b");
    let before = fs::metadata(&b).unwrap().modified().unwrap();
    fs::write(&b, "first, SECOND").unwrap();
    bob.say("MFMT 20200101000000 b", "213");
    File::options().write(true).open(&b).unwrap().set_times(FileTimes::new().set_modified(before)).unwrap();
    assert!(!facts(&mut bob, "b").contains("x.hash"));
    assert_eq!(verify(&site.folder, &[]).0, Some(0));
}

/// What curl prints.
fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--fail-with-body", "-ubob:password"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn http_stores_and_tells_the_hash_and_so_do_hooks() {
    if program("curl", true).is_none() {
        return;
    }
    let folder = Folder::new("hash-http");
    let (up, told) = (folder.0.join("up"), folder.0.join("told"));
    fs::write(&up, vec![b'u'; 300_000]).unwrap();
    let keys = format!(
        "http = \"127.0.0.1:0\"\nupload-hash = \"sha256\"\nhttp-digest = 0\n[[hook]]\non = \"upload\"\n\
         run = [\"/bin/sh\", \"-c\", \"echo $MILLRACE_PATH $MILLRACE_HASH >> {}\"]\n[[folder]]\n\
         path = \"/rows\"\ndatabase = \"rows.db\"\n",
        told.display()
    );
    let site = Site::start_in(folder, &keys);
    let url = |path: &str| format!("http://{}/{path}", site.http);
    curl(&["-T", up.to_str().unwrap(), &url("put")]);
    // The same in pieces, by tus.
    let head = curl(&["-D-", "-XPOST", "-HTus-Resumable: 1.0.0", "-HUpload-Length: 300000", &url("tus")]);
    let place = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
    let place = url(place.rsplit_once(&site.http).map_or(place, |(_, path)| path).trim_start_matches('/'));
    for offset in [0, 200_000] {
        let piece = format!("{}-piece", up.display());
        fs::write(&piece, vec![b'u'; if offset == 0 { 200_000 } else { 100_000 }]).unwrap();
        let (offset, piece) = (format!("-HUpload-Offset: {offset}"), format!("@{piece}"));
        let kind = "-HContent-Type: application/offset+octet-stream";
        curl(&["-XPATCH", "-HTus-Resumable: 1.0.0", kind, &offset, "--data-binary", &piece, &place]);
    }
    curl(&["-XCOPY", &format!("-HDestination: {}", url("copy")), &url("put")]);
    let mut bob = site.log_in("bob");
    bob.put("rows/f", &vec![b'u'; 300_000]);
    let hash = bob.say("XSHA256 put", "250")[4..].trim_end().to_owned();
    let digest = |path: &str| {
        let head = curl(&["-I", "-HWant-Repr-Digest: sha-256=10", &url(path)]);
        head.lines().find_map(|line| line.strip_prefix("Repr-Digest: sha-256=").map(str::to_owned))
    };
    let right = digest("put");
    assert!(right.is_some());
    for name in ["put", "tus", "copy"] {
        decay(&site.folder.0.join("files").join(name));
        assert_eq!(digest(name), right, "{name} was read");
    }
    for name in ["put", "tus", "copy", "rows/f"] {
        assert!(facts(&mut bob, name).contains(&hash), "{name}");
    }
    let mut lines: Vec<String> = fs::read_to_string(told).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["/put", "/rows/f", "/tus"].map(|path| format!("{path} SHA-256:{hash}")));
}

#[test]
fn nothing_is_hashed_where_that_is_off_or_encrypted() {
    let folder = Folder::new("hash-off");
    fs::create_dir(folder.0.join("vault")).unwrap();
    fs::write(folder.0.join("key"), "00ff".repeat(16)).unwrap();
    let keys = "upload-hash = \"none\"\n[[folder]]\npath = \"/vault\"\ndirectory = \"vault\"\nkey-file = \"key\"\n\
                upload-hash = \"sha256\"\n";
    let site = Site::start_in(folder, keys);
    let mut bob = site.log_in("bob");
    bob.put("plain", b"the content");
    bob.put("vault/secret", b"the content");
    for path in ["plain", "vault/secret"] {
        assert!(!facts(&mut bob, path).contains("x.hash"), "{path}");
    }
    let output = site.folder.run(&["verify", "vault"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("1 file: without a hash."));
    let output = site.folder.run(&["verify", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("name a folder to look through"));
}
