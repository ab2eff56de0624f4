//! The drivers: a protocol that the benchmark can load implements [`Driver`].
//!
//! A cell runs in phases that all workers enter together ([`Gate`]); the coordinator meets them at each, and looks
//! at the machine meanwhile.

mod cancellable_wait;
mod error;
mod files;
mod ftp;
mod gap;
mod http;
mod life;
mod pipe;
mod receive_buffer;
mod security;
mod selector;
mod task;
mod worker;

use std::net::SocketAddr;
use std::time::Duration;

pub use self::error::DriverError;
use self::ftp::FtpDriver;
use self::http::HttpDriver;
pub use self::task::Meeting;
pub(crate) use self::task::{Driver, Gate, PHASES, WorkerTask, sit_out};
use crate::plan::{Cell, Op};
use crate::target::{Scheme, Target};

/// Makes the driver for a target: each scheme has its row here.
///
/// `patience` is the timeout for answers outside the measurement.
pub(crate) fn open(target: &Target, address: SocketAddr, patience: Duration) -> Box<dyn Driver> {
    match target.scheme {
        Scheme::Ftp | Scheme::Ftps | Scheme::Ftpes => {
            Box::new(FtpDriver::new(target.clone(), address, patience))
        }
        Scheme::Http | Scheme::Https => Box::new(HttpDriver::new(target.clone(), address, patience)),
    }
}

/// Checks whether a cell can be measured over a scheme at all.
pub fn permits(scheme: Scheme, cell: &Cell) -> Result<(), DriverError> {
    let is_plain = !cell.grows() && !cell.settings.barrier && cell.settings.chaos.is_none();
    let permits = match scheme {
        Scheme::Ftp | Scheme::Ftps | Scheme::Ftpes => cell.op != Op::Get,
        Scheme::Http | Scheme::Https => cell.op == Op::Get && is_plain,
    };
    if permits { Ok(()) } else { Err(DriverError::NoOperation { op: cell.op, scheme }) }
}
