//! TLS at the admin address, with the certificates of the server.

use std::io;
use std::sync::Arc;

use millrace_net::tls::{ServerConfig, client_names};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a record of TLS begins with that begins a handshake.
const HANDSHAKE: u8 = 22;

/// The answer to a request in clear.
const REFUSED: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n\
                       This address has TLS (admin-tls): use https://.\n";

/// Returns true if what begins with this byte is TLS.
pub(crate) fn is_tls(first: u8) -> bool {
    first == HANDSHAKE
}

/// Makes the handshake. Returns the connection, and the names in the client's certificate, which was verified.
pub(crate) async fn accept(
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> io::Result<(TlsStream<TcpStream>, Arc<[String]>)> {
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let (_, connection) = stream.get_ref();
    let own = connection.peer_certificates().and_then(<[_]>::first);
    let names = own.map_or(Vec::new(), |certificate| client_names(certificate));
    Ok((stream, names.into()))
}

/// Tells a client that speaks no TLS what the matter is.
pub(crate) async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    // What it has sent is read, since the answer would be lost behind a reset.
    let _ = stream.read(&mut [0; 4096]).await?;
    stream.write_all(REFUSED.as_bytes()).await?;
    stream.shutdown().await
}
