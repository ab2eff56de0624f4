//! Moving file bytes: each call says what it moved, and none of them waits for a socket.
//!
//! Whether they wait for a *disk* is the point of [`read_cached`] and [`is_cached`]: a reactor thread checks first, and
//! leaves data outside the page cache to the blocking pool.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2, read, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Reads from the page cache alone; [`io::ErrorKind::WouldBlock`] where the bytes are not in it, also
/// where the file system cannot tell (vfat and others never can, whatever was read before).
pub fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    scatter_cached(file, &mut [IoSliceMut::new(buffer)], offset)
}

/// The same, into several buffers.
pub fn scatter_cached(file: &File, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    match retry_on_intr(|| preadv2(file, buffers, offset, ReadWriteFlags::NOWAIT)) {
        Ok(count) => Ok(count),
        Err(Errno::OPNOTSUPP) if is_in_memory(file) => scatter(file, buffers, offset),
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

/// Reads into several buffers, and may wait for the disk.
pub fn scatter(file: &File, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| preadv(file, buffers, offset))?)
}

/// Returns true if a file lies on tmpfs or ramfs, which do not know `RWF_NOWAIT` and have nothing to wait for (but
/// what was swapped out).
fn is_in_memory(file: &File) -> bool {
    // The magic is 32 bits wide; the kernel's field is wider, and signed on some machines.
    #[allow(clippy::unnecessary_cast)]
    rustix::fs::fstatfs(file).is_ok_and(|stat| matches!(stat.f_type as u32, 0x0102_1994 | 0x8584_58f6))
}

/// Returns true if a range of a file lies in the page cache, by looking at its first and last byte.
///
/// Reading ahead fills ranges from their start, so a range with both ends present has, nearly always,
/// its middle too; where it has not, the price is one wait.
pub fn is_cached(file: &File, offset: u64, length: u64) -> bool {
    let mut byte = [0];
    let ends = [offset, offset + length.saturating_sub(1)];
    ends.iter().all(|&end| read_cached(file, &mut byte, end).is_ok())
}

/// Sends up to `length` bytes of a file from `offset`, without copying them through this process. 0 is the end of the
/// file; [`io::ErrorKind::WouldBlock`] a full socket. On [`Side::Kernel`] the caller must read and write the file
/// instead.
pub fn send_file(
    socket: impl AsFd,
    file: &File,
    offset: u64,
    length: usize,
) -> Result<usize, (Side, io::Error)> {
    let mut offset = offset;
    rustix::fs::sendfile(socket, file, Some(&mut offset), length).map_err(|errno| {
        let side = match errno {
            errno if is_refused(errno) => Side::Kernel,
            Errno::IO => Side::File,
            _ => Side::Socket,
        };
        (side, errno.into())
    })
}

/// Returns true if the system call itself is unavailable: the file system lacks it, or a seccomp filter forbids it.
fn is_refused(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
}

/// A pipe that pages pass through from a socket to a file.
#[derive(Debug)]
pub struct Conduit {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

/// The size asked for; 1 MiB was measured against 256 KiB.
const CONDUIT_SIZE: usize = 1 << 20;

impl Conduit {
    /// Opens a pipe, as large as the system allows up to 1 MiB.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let capacity = fcntl_setpipe_size(&write, CONDUIT_SIZE).unwrap_or(64 * 1024);
        Ok(Self { read, write, capacity })
    }

    /// Moves what has come on the socket, up to `most` bytes, into the file at `offset`. 0 is the end of the stream;
    /// [`io::ErrorKind::WouldBlock`] an empty socket. Bytes read from the socket are always written, or the error is
    /// the file's ([`Side::File`]). With [`Side::Kernel`] no byte was read, and the call will never work.
    pub fn receive(
        &mut self,
        socket: impl AsFd,
        file: &File,
        offset: u64,
        most: u64,
    ) -> Result<usize, (Side, io::Error)> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let wanted = self.capacity.min(usize::try_from(most).unwrap_or(usize::MAX));
        let taken = match splice(socket, None, &self.write, None, wanted, flags) {
            Ok(taken) => taken,
            Err(error) if is_refused(error) => return Err((Side::Kernel, error.into())),
            Err(error) => return Err((Side::Socket, error.into())),
        };
        let mut written = 0;
        while written < taken {
            let mut position = offset + written as u64;
            match splice(&self.read, None, file, Some(&mut position), taken - written, SpliceFlags::MOVE) {
                Ok(0) => return Err((Side::File, io::ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(error) if is_refused(error) => {
                    self.write_out(file, position, taken - written).map_err(|error| (Side::File, error))?;
                    written = taken;
                }
                Err(error) => return Err((Side::File, error.into())),
            }
        }
        Ok(taken)
    }

    /// Writes this many bytes of those in the pipe, as any file takes them.
    fn write_out(&self, file: &File, mut position: u64, mut left: usize) -> io::Result<()> {
        let mut chunk = vec![0; left.min(64 * 1024)];
        while left > 0 {
            let most = chunk.len().min(left);
            let count = retry_on_intr(|| read(&self.read, &mut chunk[..most]))?;
            file.write_all_at(&chunk[..count], position)?;
            position += count as u64;
            left -= count;
        }
        Ok(())
    }
}

/// The side that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The network's.
    Socket,
    /// The file system's.
    File,
    /// Neither side's fault: the kernel does not support the operation here.
    Kernel,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn file(content: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("millrace-copy-{}-{:p}", std::process::id(), content));
        std::fs::write(&path, content).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn a_written_file_is_cached_and_sent() {
        let file = file(b"hello, kernel");
        assert!(is_cached(&file, 0, 13));
        let (mut client, server) = pair();
        assert_eq!(send_file(&server, &file, 7, 100).unwrap(), 6);
        assert_eq!(send_file(&server, &file, 13, 100).unwrap(), 0);
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kernel");
    }

    #[test]
    fn a_conduit_writes_at_the_offset_and_sees_the_end() {
        let file = file(b"0123456789");
        let (mut client, server) = pair();
        let mut conduit = Conduit::new().unwrap();
        client.write_all(b"abc").unwrap();
        drop(client);
        assert_eq!(conduit.receive(&server, &file, 4, 2).unwrap(), 2);
        assert_eq!(conduit.receive(&server, &file, 6, 100).unwrap(), 1);
        assert_eq!(conduit.receive(&server, &file, 7, 100).unwrap(), 0);
        let mut content = [0; 10];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"0123abc789");
    }

    /// Into a file that was opened to append to, the kernel splices nothing.
    #[test]
    fn data_that_splice_cannot_move_is_written() {
        let path = std::env::temp_dir().join(format!("millrace-copy-{}-append", std::process::id()));
        let file = File::options().read(true).append(true).create(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let (mut client, server) = pair();
        let content: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        client.write_all(&content[..100]).unwrap();
        let mut conduit = Conduit::new().unwrap();
        assert_eq!(conduit.receive(&server, &file, 0, 70).unwrap(), 70);
        let (rest, writer) = (content[100..].to_vec(), client.try_clone().unwrap());
        std::thread::spawn(move || (&writer).write_all(&rest).unwrap());
        let mut length = 70;
        while length < content.len() {
            length += conduit.receive(&server, &file, length as u64, 1 << 20).unwrap_or_else(|(_, error)| {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                0
            });
        }
        let mut written = vec![0; content.len()];
        file.read_exact_at(&mut written, 0).unwrap();
        assert!(written == content);
    }

    #[test]
    fn an_unsupported_sendfile_is_neither_sides_error() {
        let (_client, server) = pair();
        let directory = File::open(std::env::temp_dir()).unwrap();
        assert_eq!(send_file(&server, &directory, 0, 1).unwrap_err().0, Side::Kernel);
    }

    #[test]
    fn a_reset_is_the_sockets_error() {
        let file = file(b"x");
        let (client, server) = pair();
        crate::stream::reset_on_close(&client);
        drop(client);
        let (side, _) = Conduit::new().unwrap().receive(&server, &file, 0, 100).unwrap_err();
        assert_eq!(side, Side::Socket);
    }
}
