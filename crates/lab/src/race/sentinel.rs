//! The sentinel: a fixed small work of this client alone, which no server takes part in.
//!
//! Its time measures the machine's speed at that moment. It does the most frequent work of a load, small messages
//! through the kernel's loopback, and takes some 50 ms.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

const MESSAGES: usize = 6000;
const BYTES: usize = 1024;

/// How long the work took, in milliseconds.
pub(super) fn reading() -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    let mut message = [0; BYTES];
    let begun = Instant::now();
    for _ in 0..MESSAGES {
        near.write_all(&message)?;
        far.read_exact(&mut message)?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_work_takes_some_time() {
        assert!(super::reading().unwrap() > 0.1);
    }
}
