//! Passes the bytes of one socket on to another without copying them through this process: `splice`, by way of a pipe.
//!
//! A direction has a pipe only while bytes are in it that the receiver had no room for. The invariant: these are all bytes of a
//! connection that are held here, one pipe (64 KiB, unless the system says otherwise) in each direction.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use crate::stream;

/// Empty pipes that are kept.
const SPARE: usize = 16;

/// How much is asked for at a time: what an ordinary pipe holds.
const FILL: usize = 64 * 1024;

/// A pipe that bytes pass through.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// Empty pipes, for all connections of a thread.
#[derive(Debug, Default)]
pub struct Pipes(Vec<Pipe>);

impl Pipes {
    fn take(&mut self) -> io::Result<Pipe> {
        if let Some(pipe) = self.0.pop() {
            return Ok(pipe);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { read, write })
    }

    fn put_back(&mut self, pipe: Pipe) {
        if self.0.len() < SPARE {
            self.0.push(pipe);
        }
    }
}

/// One direction of a connection that is passed on.
#[derive(Debug, Default)]
pub struct Direction {
    /// With how many bytes are in it.
    held: Option<(Pipe, usize)>,
    has_ended: bool,
}

impl Direction {
    /// Returns whether the sender has ended its output, and the receiver was told so.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Passes on what can be passed on now. Returns how many bytes: where these are `most` or more, there may be more.
    pub fn advance(
        &mut self,
        from: impl AsFd,
        to: impl AsFd,
        pipes: &mut Pipes,
        most: usize,
    ) -> io::Result<usize> {
        let mut moved = 0;
        while moved < most && !self.has_ended {
            let (pipe, held) = match self.held.take() {
                Some(held) => held,
                None => match self.receive(&from, &to, pipes)? {
                    Some(held) => held,
                    None => break,
                },
            };
            match pass(&pipe.read, &to, held) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) if count == held => {
                    moved += count;
                    pipes.put_back(pipe);
                }
                Ok(count) => {
                    moved += count;
                    self.held = Some((pipe, held - count));
                }
                Err(Errno::AGAIN) => {
                    self.held = Some((pipe, held));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(moved)
    }

    /// Takes what has come into a pipe. An end is passed on at once: nothing is held here.
    fn receive(
        &mut self,
        from: impl AsFd,
        to: impl AsFd,
        pipes: &mut Pipes,
    ) -> io::Result<Option<(Pipe, usize)>> {
        let pipe = pipes.take()?;
        match pass(from, &pipe.write, FILL) {
            Ok(0) => {
                pipes.put_back(pipe);
                stream::end_writing(to)?;
                self.has_ended = true;
                Ok(None)
            }
            Ok(count) => Ok(Some((pipe, count))),
            Err(Errno::AGAIN) => {
                pipes.put_back(pipe);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn pass(from: impl AsFd, to: impl AsFd, most: usize) -> Result<usize, Errno> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    retry_on_intr(|| splice(&from, None, &to, None, most, flags))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A connection: the far end, which waits, and the end that is passed on.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let near = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        (far, near)
    }

    #[test]
    fn bytes_and_their_end_are_passed_on_and_the_other_direction_stays_open() {
        let ((mut client, near), (mut server, owner)) = (pair(), pair());
        let (mut up, mut down, mut pipes) = (Direction::default(), Direction::default(), Pipes::default());
        client.write_all(b"hello").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        while !up.has_ended() {
            assert!(stream::wait_readable(&near, PATIENCE));
            up.advance(&near, &owner, &mut pipes, usize::MAX).unwrap();
        }
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        server.write_all(b"and back").unwrap();
        assert!(stream::wait_readable(&owner, PATIENCE));
        assert_eq!(down.advance(&owner, &near, &mut pipes, usize::MAX).unwrap(), 8);
        assert!(!down.has_ended());
        let mut back = [0; 8];
        client.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"and back");
        assert_eq!(pipes.0.len(), 1, "one pipe has served both");
    }

    #[test]
    fn a_receiver_that_reads_nothing_stops_the_sender_and_loses_nothing() {
        let ((mut client, near), (mut server, owner)) = (pair(), pair());
        let content: Vec<u8> = (0..24 << 20_u32).map(|number| (number % 251) as u8).collect();
        let sent = content.clone();
        let sender = std::thread::spawn(move || {
            client.write_all(&sent).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            client
        });
        let (mut up, mut pipes) = (Direction::default(), Pipes::default());
        // Until the receiver's buffers are full, and the pipe.
        while up.held.is_none() {
            assert!(stream::wait_readable(&near, PATIENCE));
            up.advance(&near, &owner, &mut pipes, usize::MAX).unwrap();
        }
        assert!(up.held.as_ref().is_some_and(|(_, held)| *held <= FILL));
        assert_eq!(up.advance(&near, &owner, &mut pipes, usize::MAX).unwrap(), 0);
        let receiver = std::thread::spawn(move || {
            let mut received = Vec::new();
            server.read_to_end(&mut received).unwrap();
            received
        });
        while !up.has_ended() {
            assert!(stream::wait_writable(&owner, PATIENCE) && stream::wait_readable(&near, PATIENCE));
            up.advance(&near, &owner, &mut pipes, 1 << 20).unwrap();
        }
        assert!(receiver.join().unwrap() == content);
        drop(sender.join().unwrap());
    }

    #[test]
    fn a_reset_is_an_error_and_no_end() {
        let ((client, near), (_server, owner)) = (pair(), pair());
        stream::reset_on_close(&client);
        drop(client);
        assert!(stream::wait_readable(&near, PATIENCE));
        let mut up = Direction::default();
        up.advance(&near, &owner, &mut Pipes::default(), usize::MAX).unwrap_err();
        assert!(!up.has_ended());
    }
}
