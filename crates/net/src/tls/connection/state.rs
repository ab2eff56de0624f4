//! rustls without buffers of its own: one state of a connection at a time, for either side of it.

use std::ops::ControlFlow;

use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use crate::Wire;

/// The writing state of either side's connection.
pub(super) trait Writer {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError>;
    fn close(&mut self, room: &mut [u8]) -> Result<usize, EncryptError>;
    fn update_keys(&mut self) -> Result<(), rustls::Error>;
}

pub(super) type Work<'a> = dyn FnMut(&mut dyn Writer, &mut Wire) -> Result<(), rustls::Error> + 'a;

/// [`Writer`] over rustls's, of which updating the keys takes possession.
struct Traffic<'c, D>(Option<rustls::unbuffered::WriteTraffic<'c, D>>);

impl<D> Writer for Traffic<'_, D> {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError> {
        self.0.as_mut().map_or(Ok(0), |writer| writer.encrypt(plain, room))
    }

    fn close(&mut self, room: &mut [u8]) -> Result<usize, EncryptError> {
        self.0.as_mut().map_or(Ok(0), |writer| writer.queue_close_notify(room))
    }

    fn update_keys(&mut self) -> Result<(), rustls::Error> {
        self.0.take().map_or(Ok(()), |writer| writer.refresh_traffic_keys())
    }
}

/// One state of a connection that receives: `Break` when it has nothing more to do.
pub(super) fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    used: &mut usize,
    ended: &mut bool,
    out: &mut Wire,
    take: &mut dyn FnMut(&[u8]),
) -> Result<ControlFlow<()>, rustls::Error> {
    let UnbufferedStatus { discard, state } = status;
    *used += discard;
    let flow = match state? {
        ConnectionState::ReadTraffic(mut records) => {
            while let Some(record) = records.next_record() {
                let record = record?;
                *used += record.discard;
                take(record.payload);
            }
            ControlFlow::Continue(())
        }
        ConnectionState::PeerClosed => {
            *ended = true;
            ControlFlow::Continue(())
        }
        ConnectionState::EncodeTlsData(mut data) => encode(&mut |room| data.encode(room), out)?,
        ConnectionState::TransmitTlsData(data) => {
            // It is in `out`, which keeps the order.
            data.done();
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    };
    Ok(flow)
}

/// One state of a connection that wants to send: `Break` when the work is done.
pub(super) fn write<D>(
    status: UnbufferedStatus<'_, '_, D>,
    used: &mut usize,
    out: &mut Wire,
    work: &mut Work<'_>,
) -> Result<ControlFlow<()>, rustls::Error> {
    let UnbufferedStatus { discard, state } = status;
    *used += discard;
    match state? {
        ConnectionState::WriteTraffic(writer) => {
            work(&mut Traffic(Some(writer)), out).map(|()| ControlFlow::Break(()))
        }
        ConnectionState::EncodeTlsData(mut data) => encode(&mut |room| data.encode(room), out),
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(ControlFlow::Continue(()))
        }
        // Both sides have closed: there is no one left to send to.
        ConnectionState::Closed => Ok(ControlFlow::Break(())),
        _ => Err(rustls::Error::HandshakeNotComplete),
    }
}

fn encode(
    data: &mut dyn FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    out: &mut Wire,
) -> Result<ControlFlow<()>, rustls::Error> {
    let mut room = 512;
    loop {
        match data(out.room(room)) {
            Ok(count) => {
                out.fill(count);
                return Ok(ControlFlow::Continue(()));
            }
            Err(EncodeError::InsufficientSize(size)) if size.required_size > room => {
                room = size.required_size;
            }
            Err(error) => return Err(rustls::Error::General(error.to_string())),
        }
    }
}
