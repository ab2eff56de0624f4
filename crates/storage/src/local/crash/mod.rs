//! Power cuts, and calls that fail: what is left, for all sequences of a few operations.
//!
//! The method is that of ALICE (Pillai and others, OSDI 2014) with the workloads of ACE (Mohan and others, OSDI 2018):
//! every sequence of up to three operations runs once, on a real directory, and its system calls are recorded. Then the
//! power is cut after each call, and each state that a file system may leave is compared with what was promised; a
//! server starts on each that differs in what it keeps for itself. Waits for the device are simulated.
//!
//! # The rules
//!
//! Those of the weakest of ext4 (`data=ordered`), XFS and btrfs with their default options, and weaker where that is
//! simpler; what this finds no fault with is safe on each.
//!
//! - After `fsync` and `fdatasync` of a file its bytes and its length are on the device (fsync(2)), but no name of it:
//!   "Calling fsync() does not necessarily ensure that the entry in the directory containing the file has also reached
//!   disk" (fsync(2)). After `fsync` of a directory the names in it are, but not its own in its parent.
//! - Bytes that were not waited for arrive block by block in any order, or not; the length arrives by itself, also
//!   before the bytes. What never arrived is zeros: all three write a new block before the length or the extent that
//!   lead to it (ext4's `data=ordered`, XFS's and btrfs's unwritten extents), so no other file's bytes are seen. A
//!   length ahead of its bytes is seen on XFS, which moves it as each write ends, in any order; on ext4 after an append
//!   within a block; on btrfs with `no-holes`. A block is written as a whole or not at all; here it has [`BLOCK`]
//!   bytes, so that anything longer is torn.
//! - A change of names is atomic, also a rename in two directories: it is one transaction in all three journals.
//! - Changes in one directory arrive in their order; changes in different directories in any. ext4 and XFS keep the
//!   order of all changes (one journal; "Documentation/filesystems/ext4", "xfs-delayed-logging-design"). btrfs keeps
//!   it, too, but what is synchronised goes ahead in its log tree: of a directory all its names, of a file those that
//!   lead to it. So the name of a file that was synchronised after it was named may arrive before others.
//! - A directory is removed only once what it held is.
//!
//! [`BLOCK`]: states::BLOCK
//!
//! # The bounds
//!
//! At most one file of a state has lost some of its blocks, while others have lost all of them or none. Of more than
//! four blocks one is lost or one is kept. Permission bits, owners and times are not looked at: no level promises them.

mod faults;
mod operations;
mod promises;
mod recovery;
mod sequences;
mod states;
