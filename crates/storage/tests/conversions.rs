//! Files read in other forms: what is made can be read again, and what is damaged is an error.

mod common;

use std::sync::Arc;

use common::path;
use millrace_storage::{Archives, Conversions, Fault, FaultStorage, MemoryStorage};
use millrace_vfs::{Conversion, FileError, ReadHandle, Storage, Wait, conformance};
use proptest::prelude::*;

const ENDINGS: [&str; 3] = [".gz", ".zst", ".Z"];

fn open(storage: &dyn Storage, name: &str) -> Result<ReadHandle, FileError> {
    storage.open_read(&path(name), Wait::Allowed)
}

/// The content of a name that is converted, in pieces of this length.
fn read_in(storage: &dyn Storage, name: &str, piece: usize) -> Result<Vec<u8>, FileError> {
    let ReadHandle::Stream(mut stream) = open(storage, name)? else { panic!("{name} is a file") };
    let (mut content, mut buffer) = (Vec::new(), vec![0; piece]);
    loop {
        match stream.read_at(content.len() as u64, &mut buffer)? {
            0 => return Ok(content),
            count => content.extend_from_slice(&buffer[..count]),
        }
    }
}

fn read(storage: &dyn Storage, name: &str) -> Result<Vec<u8>, FileError> {
    read_in(storage, name, 50_000)
}

/// Bytes without a pattern.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Contents that take the coders everywhere: nothing, a byte, runs, noise that fills the table of LZW more than once, text.
fn contents() -> Vec<Vec<u8>> {
    let text: Vec<u8> =
        (0..60_000).flat_map(|line| format!("line {line} of {}\n", line % 77).into_bytes()).collect();
    vec![vec![], vec![7], vec![0; 3_000_000], noise(700_000), text]
}

#[test]
fn a_layer_of_conversions_conforms() {
    conformance::run(&Conversions::new(Arc::new(MemoryStorage::new())));
}

#[test]
fn what_was_compressed_is_what_it_was_when_it_is_decompressed() {
    for content in contents() {
        let memory = MemoryStorage::new();
        memory.insert("/f", &content);
        let storage = Conversions::new(Arc::new(memory.clone()));
        for ending in ENDINGS {
            let packed = read(&storage, &format!("/f{ending}")).unwrap();
            assert_eq!(read_in(&storage, &format!("/f{ending}"), 999).unwrap(), packed);
            let back = MemoryStorage::new();
            back.insert(&format!("/g{ending}"), &packed);
            let unpacked = read(&Conversions::new(Arc::new(back)), "/g").unwrap();
            assert!(unpacked == content, "{ending} of {} bytes: {}", content.len(), unpacked.len());
        }
    }
}

#[test]
fn a_file_of_the_name_goes_first_and_no_folder_is_converted() {
    let memory = MemoryStorage::new();
    memory.insert("/f", "plain").insert("/f.gz", "a real file").insert("/d/f", "").insert("/d.Z/f", "");
    let storage = Conversions::new(Arc::new(memory));
    for name in ["/f", "/f.gz"] {
        assert!(open(&storage, name).unwrap().conversion().is_none(), "{name}");
        assert_ne!(open(&storage, name).unwrap().size(), None);
    }
    for missing in ["/d.gz", "/none", "/none.zst", "/.gz", "/f.gz.d", "/f.bz2", "/d/none"] {
        assert!(matches!(open(&storage, missing), Err(FileError::NotFound)), "{missing}");
        assert!(matches!(storage.metadata(&path(missing), Wait::Allowed), Err(FileError::NotFound)));
    }
    assert!(matches!(storage.metadata(&path("/f.Z"), Wait::Allowed), Err(FileError::Unsupported)));
    let mut handle = open(&storage, "/f.Z").unwrap();
    assert_eq!(handle.conversion(), Conversion { compressed: true, ..Conversion::default() });
    let ReadHandle::Stream(stream) = &mut handle else { panic!("it is converted") };
    assert!(matches!(stream.read_at(1, &mut [0]), Err(FileError::Unsupported)), "it is read in order");
}

#[test]
fn an_archive_can_be_compressed_and_a_compressed_one_is_an_archive() {
    let memory = MemoryStorage::new();
    memory.insert("/photos/a", "content");
    let archives = Archives::new(Arc::new(memory.clone()));
    let tar = read(&archives, "/photos.tar").unwrap();
    let storage = Conversions::new(Arc::new(archives));
    let packed = read(&storage, "/photos.tar.zst").unwrap();
    let done = open(&storage, "/photos.tar.zst").unwrap().conversion();
    assert_eq!(done, Conversion { compressed: true, archived: true, ..Conversion::default() });
    memory.insert("/other.tar.zst", &packed);
    assert_eq!(read(&storage, "/other.tar").unwrap(), tar);
    assert!(matches!(storage.metadata(&path("/photos.tar.Z"), Wait::Allowed), Err(FileError::Unsupported)));
}

#[test]
fn a_cut_or_damaged_file_is_an_error_and_so_is_a_failure_beneath() {
    let memory = MemoryStorage::new();
    memory.insert("/f", noise(300_000));
    let faulty = FaultStorage::new(memory);
    let faults = faulty.faults();
    let storage = Conversions::new(Arc::new(faulty));
    let mut damaged = vec![(".Z", b"no file of compress".to_vec()), (".gz", vec![]), (".zst", vec![])];
    for ending in [".gz", ".zst"] {
        let whole = read(&storage, &format!("/f{ending}")).unwrap();
        let mut wrong = whole.clone();
        wrong[whole.len() / 2] ^= 1;
        damaged.extend([(ending, wrong), (ending, whole[..whole.len() - 3].to_vec())]);
    }
    for (ending, bytes) in damaged {
        let memory = MemoryStorage::new();
        memory.insert(&format!("/g{ending}"), &bytes);
        let error = read(&Conversions::new(Arc::new(memory)), "/g").map(|content| content.len());
        let error = error.expect_err(ending).to_string();
        assert!(error.contains("cannot be converted: "), "{error}");
    }
    for ending in ENDINGS {
        faults.reset();
        read(&storage, &format!("/f{ending}")).unwrap();
        for call in 2..=faults.calls() {
            faults.reset();
            faults.once(call, Fault::Io);
            let whole = read(&storage, &format!("/f{ending}")).map(|bytes| bytes.len());
            whole.expect_err(&format!("{ending}: the failure of call {call} is passed over"));
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(form in 0..3_usize, head in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let heads: [&[u8]; 3] = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], &[0x28, 0xb5, 0x2f, 0xfd], &[0x1f, 0x9d, 0x90]];
        let memory = MemoryStorage::new();
        let file = [if head { heads[form] } else { &[] }, &bytes[..]].concat();
        memory.insert(&format!("/f{}", ENDINGS[form]), &file);
        let _ = read(&Conversions::new(Arc::new(memory)), "/f");
    }
}
