//! Row 2: wu-ftpd's conversions of single files while they are sent, by FTP, with the programs that users have for them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::site::{Folder, Site};

const KEYS: &str = "conversions = true\narchives = true\nxferlog = \"xferlog\"\n";

/// What has which ending: the program that compresses to its standard output, and the one that decompresses.
const PROGRAMS: [(&str, &[&str], &[&str]); 3] = [
    (".gz", &["gzip", "-9c"], &["gzip", "-dc"]),
    (".zst", &["zstd", "-19", "-qc"], &["zstd", "-dqc"]),
    (".Z", &["compress", "-c"], &["compress", "-dc"]),
];

/// What a program makes of these bytes; `None` where it is not installed.
fn filter(program: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(super::site::program(program[0], true)?)
        .args(&program[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    // compress says with 2 that its output is longer.
    assert!(matches!(output.status.code(), Some(0 | 2)), "{program:?}: {}", output.status);
    Some(output.stdout)
}

/// Contents of all lengths and patterns that matter.
fn contents() -> [(&'static str, Vec<u8>); 5] {
    let mut state = 7_u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let text =
        (0..50_000).flat_map(|line| format!("{} green bottles, {line}\n", line % 99).into_bytes()).collect();
    let noise = (0..600_000).map(|_| byte()).collect();
    [("empty", vec![]), ("one", vec![1]), ("runs", vec![0; 2_000_000]), ("noise", noise), ("text", text)]
}

#[test]
fn programs_read_what_was_compressed_and_the_server_what_they_compress() {
    let site = Site::start("conversions", KEYS);
    let files = site.folder.0.join("files");
    let mut client = site.log_in("bob");
    for (name, content) in contents() {
        fs::write(files.join(name), &content).unwrap();
        for (ending, compress, decompress) in PROGRAMS {
            let packed = client.get(&format!("{name}{ending}"));
            let Some(unpacked) = filter(decompress, &packed) else { continue };
            assert!(unpacked == content, "{name}{ending} reads as {} bytes", unpacked.len());
            // `compress` writes nothing at all of nothing.
            let Some(packed) = filter(compress, &content).filter(|packed| !packed.is_empty()) else {
                continue;
            };
            fs::write(files.join(format!("by-{name}{ending}")), packed).unwrap();
            let unpacked = client.get(&format!("by-{name}"));
            assert!(unpacked == content, "by-{name} of {ending} has {} bytes", unpacked.len());
            fs::remove_file(files.join(format!("by-{name}{ending}"))).unwrap();
        }
    }
}

#[test]
fn a_name_that_is_converted_has_no_size_and_is_no_file() {
    let site = Site::start("converted-names", KEYS);
    let files = site.folder.0.join("files");
    fs::write(files.join("packed.gz"), filter(&["gzip", "-c"], b"content").unwrap()).unwrap();
    let mut client = site.log_in("bob");
    for line in ["SIZE f.gz", "MDTM f.zst", "SIZE packed", "HASH f.Z"] {
        client.send(line);
        let reply = client.reply();
        assert!(reply.starts_with("504 ") || reply.starts_with("502 "), "{line}: {reply}");
    }
    client.say("SIZE none.gz", "550");
    client.say("DELE f.gz", "550");
    client.say("RNFR packed", "550");
    let mut data = client.data();
    client.say("REST 5", "350");
    client.say("RETR f.gz", "554");
    drop(data);
    data = client.data();
    client.say("NLST", "150");
    let mut names = String::new();
    data.read_to_string(&mut names).unwrap();
    client.expect("226");
    assert_eq!(names, "f\r\npacked.gz\r\n");
    // A file may be made that has the name, and is then what is read.
    for (line, name) in [("STOR f.gz", "f.gz"), ("STOU packed", "packed"), ("APPE f.Z", "f.Z")] {
        let mut data = client.data();
        client.say(line, "150");
        data.write_all(b"itself").unwrap();
        drop(data);
        client.expect("226");
        assert_eq!(client.get(name), b"itself", "{line}");
        assert_eq!(fs::read(files.join(name)).unwrap(), b"itself", "{line}");
    }
}

#[test]
fn what_a_user_may_not_read_is_not_converted_either_and_the_setting_says_whether() {
    let folder = Folder::new("conversions-rules");
    fs::create_dir(folder.0.join("files/in")).unwrap();
    for name in ["files/in/f", "files/in/g.gz", "files/.hidden"] {
        fs::write(folder.0.join(name), filter(&["gzip", "-c"], b"content").unwrap()).unwrap();
    }
    let rule =
        "[[user]]\nname = \"eva\"\npassword = \"$HASH\"\ntree = [{ path = \"/in\", access = [\"list\"] }]\n";
    let rule = rule.replace("$HASH", super::site::HASH);
    let mut site = Site::start_in(folder, &format!("{KEYS}{rule}"));
    for (user, line, code) in [
        ("eva", "RETR in/f.Z", "550"),
        ("eva", "RETR in/g", "550"),
        ("eva", "RETR in.tar.Z", "150"),
        ("bob", "RETR in/g", "150"),
        ("anonymous", "RETR .hidden.gz", "550"),
        ("bob", "RETR .hidden.gz", "150"),
    ] {
        let mut client = site.log_in(user);
        let _data = client.data();
        client.say(line, code);
    }
    let folder = Folder::new("no-conversions");
    site = Site::start_in(folder, "");
    let mut client = site.log_in("bob");
    let _data = client.data();
    client.say("RETR f.gz", "550");
}

#[test]
fn the_transfer_log_tells_what_was_done() {
    let site = Site::start("conversions-log", &format!("http = \"127.0.0.1:0\"\n{KEYS}"));
    fs::write(site.folder.0.join("files/packed.gz"), filter(&["gzip", "-c"], b"content").unwrap()).unwrap();
    fs::create_dir(site.folder.0.join("files/d")).unwrap();
    let mut client = site.log_in("bob");
    for (name, flags) in
        [("f", "_"), ("f.Z", "C"), ("packed", "U"), ("d.tar", "T"), ("d.tar.gz", "CT"), ("d.tar.Z", "CT")]
    {
        let length = client.get(name).len();
        let line = super::site::eventually("the line of the transfer", || {
            let log = fs::read_to_string(site.folder.0.join("xferlog")).unwrap_or_default();
            log.lines().find(|line| line.contains(&format!(" {length} /{name} b "))).map(str::to_owned)
        });
        assert!(line.contains(&format!(" /{name} b {flags} o r bob ftp 0 * c")), "{line}");
    }
    let mut stream = TcpStream::connect(&site.http).unwrap();
    stream.write_all(b"GET /d.tar.gz HTTP/1.0\r\n\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    super::site::eventually("the line of the archive by HTTP", || {
        let log = fs::read_to_string(site.folder.0.join("xferlog")).unwrap_or_default();
        log.contains(" /d.tar.gz b CT o a anonymous http 0 * c").then_some(())
    });
}

#[test]
fn a_file_that_grows_without_end_takes_no_memory_and_a_damaged_one_ends_the_transfer() {
    let site = Site::start("conversions-bomb", KEYS);
    let files = site.folder.0.join("files");
    // 8 GiB of zeros in a file without blocks, and 300 MB of them in the least bytes.
    fs::File::create(files.join("sparse")).unwrap().set_len(8 << 30).unwrap();
    fs::write(files.join("bomb.zst"), filter(&["zstd", "-19", "-qc"], &vec![0; 300_000_000]).unwrap())
        .unwrap();
    let gzip = filter(&["gzip", "-c"], &contents()[3].1).unwrap();
    fs::write(files.join("cut.gz"), &gzip[..gzip.len() / 2]).unwrap();
    let before = site.peak_memory();
    let mut client = site.log_in("bob");
    assert_eq!(client.get("bomb").len(), 300_000_000);
    for name in ["sparse.gz", "sparse.zst", "sparse.Z"] {
        let mut data = client.data();
        client.say(&format!("RETR {name}"), "150");
        data.read_exact(&mut [0; 1000]).unwrap();
        drop(data);
        client.expect("426");
    }
    assert!(site.peak_memory() - before < 64 << 20, "{} bytes more", site.peak_memory() - before);
    let mut data = client.data();
    client.say("RETR cut", "150");
    let mut part = Vec::new();
    let _ = data.read_to_end(&mut part);
    client.expect("451");
}
