//! The order of a listing that is small enough to be sorted.

use std::cmp::Ordering;

use millrace_vfs::DirEntry;

use super::options::Sort;

/// Sorts entries as `ls` does: names bytewise, times newest first, sizes largest first, equals by name.
pub fn sort(entries: &mut [DirEntry], by: Sort, reverse: bool) {
    let by_name = |a: &DirEntry, b: &DirEntry| a.name.cmp(&b.name);
    match by {
        Sort::Unsorted => {}
        Sort::Name => sort_by(entries, reverse, by_name),
        Sort::Time => sort_by(entries, reverse, |a, b| {
            b.metadata.modified.cmp(&a.metadata.modified).then_with(|| by_name(a, b))
        }),
        Sort::Size => sort_by(entries, reverse, |a, b| {
            b.metadata.size.cmp(&a.metadata.size).then_with(|| by_name(a, b))
        }),
    }
}

fn sort_by(entries: &mut [DirEntry], reverse: bool, order: impl Fn(&DirEntry, &DirEntry) -> Ordering) {
    entries.sort_unstable_by(|a, b| if reverse { order(b, a) } else { order(a, b) });
}
