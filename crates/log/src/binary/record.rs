//! Records: bytes with a checksum and a number, by which those that were not written whole are told.

/// Bytes of a record.
pub(crate) const SIZE: usize = 256;

/// Where the names begin in the first record of an entry, and in the others.
const NAMES: usize = 112;
const MORE_NAMES: usize = 24;

/// The last byte of each record.
const END: u8 = b'\n';

/// The kind of further records.
const MORE: u8 = 3;

/// Records of an entry at most; the names are cut so that they are enough.
pub(super) const PARTS: usize = 32;

/// A record.
pub(super) type Record = [u8; SIZE];

/// Appends the first bytes of an entry, up to the names. The names are to be appended then, and [`finish`] called.
/// Returns where the entry begins.
pub(super) fn begin(head: &[u8; NAMES], out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.reserve(SIZE);
    out.extend_from_slice(head);
    start
}

/// Makes records of the entry that begins there. Most are one record, which needs no copy of the names. The ring numbers
/// them.
pub(super) fn finish(start: usize, out: &mut Vec<u8>) {
    let used = out.len() - start - NAMES;
    if used > SIZE - 1 - NAMES {
        let names = out.split_off(start + NAMES);
        let mut head = head();
        head.copy_from_slice(&out[start..]);
        out.truncate(start);
        return append(&head, &names, out);
    }
    out.resize(start + SIZE, 0);
    let record = &mut out[start..];
    (record[17], record[18], record[SIZE - 1]) = (1, 0, END);
    record[20..22].copy_from_slice(&(used as u16).to_le_bytes());
}

/// Appends the records of an entry: its first bytes, and the names.
fn append(head: &[u8; NAMES], names: &[u8], out: &mut Vec<u8>) {
    let (first, mut rest) = names.split_at(names.len().min(SIZE - 1 - NAMES));
    let parts = 1 + rest.len().div_ceil(SIZE - 1 - MORE_NAMES);
    let mut record = [0; SIZE];
    record[..NAMES].copy_from_slice(head);
    put_part(&mut record, NAMES, first, [head[16], parts as u8, 0]);
    out.extend_from_slice(&record);
    for index in 1..parts {
        let (part, behind) = rest.split_at(rest.len().min(SIZE - 1 - MORE_NAMES));
        let mut record = [0; SIZE];
        put_part(&mut record, MORE_NAMES, part, [MORE, parts as u8, index as u8]);
        out.extend_from_slice(&record);
        rest = behind;
    }
}

fn put_part(record: &mut Record, at: usize, names: &[u8], [kind, parts, index]: [u8; 3]) {
    (record[16], record[17], record[18]) = (kind, parts, index);
    record[20..22].copy_from_slice(&(names.len() as u16).to_le_bytes());
    record[at..at + names.len()].copy_from_slice(names);
    record[SIZE - 1] = END;
}

/// Returns an empty first part of an entry.
pub(super) fn head() -> [u8; NAMES] {
    [0; NAMES]
}

/// Returns how many entries begin in whole records.
pub(crate) fn entries(records: &[u8]) -> u64 {
    records.chunks_exact(SIZE).filter(|record| record[18] == 0).count() as u64
}

/// Numbers a record, and adds the checksum.
pub(super) fn seal(record: &mut [u8], sequence: u64) {
    record[8..16].copy_from_slice(&sequence.to_le_bytes());
    let sum = checksum(record);
    record[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the number of a record that was written whole.
pub(super) fn sequence(record: &Record) -> Option<u64> {
    let is_whole = record[SIZE - 1] == END && number(record, 0) == checksum(record);
    is_whole.then(|| number(record, 8))
}

/// Returns whether nothing was ever written here.
pub(super) fn is_empty(record: &Record) -> bool {
    record.iter().all(|byte| *byte == 0)
}

/// Returns how many records the entry has that begins here.
pub(super) fn parts(first: &Record) -> Option<usize> {
    let is_first = first[18] == 0 && first[16] != MORE && (1..=PARTS).contains(&usize::from(first[17]));
    is_first.then(|| first[17].into())
}

/// Returns the names in the record of this place in its entry.
pub(super) fn names(record: &Record, place: usize) -> Option<&[u8]> {
    let at = if place == 0 { NAMES } else { MORE_NAMES };
    let used = usize::from(u16::from_le_bytes([record[20], record[21]]));
    let is_its = usize::from(record[18]) == place && (place == 0 || record[16] == MORE);
    record[at..SIZE - 1].get(..used).filter(|_| is_its)
}

/// Returns a number of 64 bits.
pub(super) fn number(record: &[u8], at: usize) -> u64 {
    record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Returns a sum over all but the first 8 bytes, which tells a record from a part of it and of another. A forger is not
/// kept out: who may write the file may write records.
fn checksum(record: &[u8]) -> u64 {
    // The multiplier of FxHash, and a start that is not 0, so that an empty record is none.
    let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let (words, _) = record.as_chunks();
    words.iter().skip(1).map(|word| u64::from_le_bytes(*word)).fold(SIZE as u64, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_which_a_byte_is_another_is_not_whole() {
        let mut out = Vec::new();
        let start = begin(&head(), &mut out);
        out.extend_from_slice(b"names");
        finish(start, &mut out);
        let mut record: Record = out.try_into().unwrap();
        assert_eq!(sequence(&record), None);
        seal(&mut record, 7);
        assert_eq!(sequence(&record), Some(7));
        for at in 0..SIZE {
            let mut torn = record;
            torn[at] ^= 1;
            assert_eq!(sequence(&torn), None, "{at}");
        }
        assert!(is_empty(&[0; SIZE]) && sequence(&[0; SIZE]).is_none());
    }

    #[test]
    fn names_go_on_in_further_records() {
        for length in [0, 1, SIZE - 1 - NAMES, SIZE - NAMES, 1000, 5000] {
            let long: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut first = head();
            first[16] = 1;
            let mut out = Vec::new();
            append(&first, &long, &mut out);
            // Behind another entry, and without a copy where there is one record.
            let mut in_place = vec![7; SIZE];
            let start = begin(&first, &mut in_place);
            in_place.extend_from_slice(&long);
            finish(start, &mut in_place);
            assert_eq!(in_place, [&[7; SIZE], &out[..]].concat());
            let records: Vec<&Record> = out.chunks_exact(SIZE).map(|one| one.try_into().unwrap()).collect();
            assert_eq!((parts(records[0]), entries(&out)), (Some(records.len()), 1));
            let joined = records.iter().enumerate().map(|(place, record)| names(record, place).unwrap());
            assert_eq!(joined.collect::<Vec<_>>().concat(), long);
            assert!(records.iter().skip(1).all(|record| parts(record).is_none()));
        }
    }
}
