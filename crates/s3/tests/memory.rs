//! Many uploads at once share the memory for parts, and all end well. Alone in its process, whose memory it looks at.

mod common;

use std::fs;

use common::{Server, path};
use millrace_vfs::{Storage, Wait, WriteMode};

const UPLOADS: usize = 12;
const PIECES: usize = 16;
const PIECE: usize = 1 << 20;

/// The most memory that the process has had, in bytes.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn uploads_wait_for_memory_and_no_more_is_taken() {
    let Some(server) = Server::seaweed() else { return };
    let storage = server.storage("");
    millrace_s3::set_part_memory(10 << 20);
    let before = most_memory();
    std::thread::scope(|scope| {
        for number in 0..UPLOADS {
            let storage = &storage;
            scope.spawn(move || {
                let name = path(&format!("/{number}"));
                let mut upload = storage.open_write(&name, WriteMode::Replace, Wait::Allowed).unwrap();
                for _ in 0..PIECES {
                    upload.write_all(&vec![number as u8; PIECE]).unwrap();
                }
                assert_eq!(upload.commit().unwrap().size, (PIECES * PIECE) as u64);
            });
        }
    });
    let taken = most_memory() - before;
    // Two parts, the pieces of the threads, and buffers of sockets; all uploads have 192 MiB.
    assert!(taken < 48 << 20, "{taken} bytes");
    for number in 0..UPLOADS {
        let metadata = storage.metadata(&path(&format!("/{number}")), Wait::Allowed).unwrap();
        assert_eq!(metadata.size, (PIECES * PIECE) as u64);
    }
}
