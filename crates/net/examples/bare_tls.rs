//! What TLS over loopback costs when there is nothing else to do: rustls as its documentation uses it, and a
//! client that loads this loop and FTPS servers alike, so that their rates can be compared.
//!
//! ```text
//! bare_tls serve CERTIFICATE KEY                          prints its port
//! bare_tls load PORT download|drain|upload SECONDS BYTES        from, or to, that
//! bare_tls load PORT download|drain|upload SECONDS BYTES USER PASSWORD FILE     the same of an FTPS server
//! ```
//!
//! `drain` is a download that is not decrypted: after the handshake the client's kernel drops the data, so the rate is
//! the server's. The rate of a `download` is the client's where decryption is slower than encryption.
//!
//! `load` makes one transfer after the other and prints a line of JSON; the rate counts from the first byte asked for
//! to the end that TLS says (and for FTPS the 226), data handshakes included.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Client = StreamOwned<ClientConnection, TcpStream>;

/// The size of a read or write: four full records, as in Millrace.
const CHUNK: usize = 64 * 1024;

/// A server that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

const USAGE: &str = "bare_tls serve CERTIFICATE KEY
bare_tls load PORT download|drain|upload SECONDS BYTES [USER PASSWORD FILE]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["serve", certificate, key] => serve(certificate.as_ref(), key.as_ref()),
        ["load", port, direction @ ("download" | "drain" | "upload"), seconds, bytes] => {
            load(port, direction, seconds, bytes, None)
        }
        [
            "load",
            port,
            direction @ ("download" | "drain" | "upload"),
            seconds,
            bytes,
            user,
            password,
            file,
        ] => load(port, direction, seconds, bytes, Some([user, password, file])),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The ceiling: a connection says `D` or `U` and eight bytes of length, and gets or sends this many.
fn serve(certificate: &Path, key: &Path) -> Result<()> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    // As Millrace's data connections do.
    config.send_tls13_tickets = 0;
    let config = Arc::new(config);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    for socket in listener.incoming() {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config))?, socket?);
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [direction, length @ ..] = head;
        match direction {
            b'D' => {
                send(&mut stream, u64::from_be_bytes(length))?;
                stream.conn.send_close_notify();
                stream.flush()?;
            }
            _ => {
                receive(&mut stream)?;
            }
        }
    }
    Ok(())
}

fn send(stream: &mut impl Write, mut left: u64) -> io::Result<()> {
    let chunk = vec![0x5a; CHUNK];
    while left > 0 {
        let count = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&chunk[..count])?;
        left -= count as u64;
    }
    Ok(())
}

fn receive(stream: &mut impl Read) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok(total),
            count => total += count as u64,
        }
    }
}

/// Counts what comes, which the kernel drops; a few records at the start may have come with the handshake.
fn drain(stream: &mut Client) -> io::Result<u64> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let mut dropped = vec![0; 16 * CHUNK];
    let mut total = 0;
    loop {
        match recv(&stream.sock, &mut dropped[..], RecvFlags::TRUNC) {
            Ok((_, 0)) => return Ok(total),
            Ok((_, count)) => total += count as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Transfers until the time is over.
fn load(port: &str, direction: &str, seconds: &str, bytes: &str, ftps: Option<[&str; 3]>) -> Result<()> {
    let (port, seconds, bytes): (u16, f64, u64) = (port.parse()?, seconds.parse()?, bytes.parse()?);
    let config = client_config()?;
    let mut session = match ftps {
        Some([user, password, file]) => Some(Session::open(port, &config, user, password, file)?),
        None => None,
    };
    let (begun, time) = (Instant::now(), Duration::from_secs_f64(seconds));
    let (mut transfers, mut resumed, mut suite) = (0u64, 0u64, String::new());
    while begun.elapsed() < time {
        let mut stream = match &mut session {
            Some(session) => session.begin(direction)?,
            None => bare(port, &config, direction, bytes)?,
        };
        match direction {
            "download" => {
                let count = receive(&mut stream)?;
                if count != bytes {
                    return Err(format!("{count} of {bytes} bytes came").into());
                }
                part(&mut stream);
            }
            "drain" => {
                let count = drain(&mut stream)?;
                if count + (CHUNK as u64) < bytes {
                    return Err(format!("{count} of {bytes} bytes came").into());
                }
                part(&mut stream);
            }
            _ => {
                send(&mut stream, bytes)?;
                stream.conn.send_close_notify();
                stream.flush()?;
                stream.sock.shutdown(std::net::Shutdown::Write)?;
                // Its end says that all of it was read.
                let _ = receive(&mut stream);
            }
        }
        transfers += 1;
        resumed += u64::from(stream.conn.handshake_kind() == Some(HandshakeKind::Resumed));
        suite = stream.conn.negotiated_cipher_suite().map_or(String::new(), |it| format!("{:?}", it.suite()));
        drop(stream);
        if let Some(session) = &mut session {
            session.expect("226")?;
        }
    }
    let elapsed = begun.elapsed().as_secs_f64();
    let rate = (transfers * bytes) as f64 / elapsed / 1e6;
    println!(
        "{{\"transfers\": {transfers}, \"bytes\": {}, \"seconds\": {elapsed:.3}, \"mb_per_s\": {rate:.1}, \
         \"resumed\": {resumed}, \"suite\": \"{suite}\"}}",
        transfers * bytes
    );
    Ok(())
}

/// The client's end, for which vsftpd and ProFTPD wait before their 226.
fn part(stream: &mut Client) {
    stream.conn.send_close_notify();
    let _ = stream.conn.write_tls(&mut stream.sock);
}

fn client_config() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn connect(port: u16, config: &Arc<ClientConfig>) -> Result<Client> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    encrypt(socket, config)
}

fn encrypt(socket: TcpStream, config: &Arc<ClientConfig>) -> Result<Client> {
    socket.set_nodelay(true)?;
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&socket, Some(PATIENCE))?;
    }
    let name = ServerName::try_from("localhost")?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::clone(config), name)?, socket))
}

/// A transfer of the bare loop.
fn bare(port: u16, config: &Arc<ClientConfig>, direction: &str, bytes: u64) -> Result<Client> {
    let mut stream = connect(port, config)?;
    let mut head = if direction == "upload" { b"U".to_vec() } else { b"D".to_vec() };
    head.extend(bytes.to_be_bytes());
    stream.write_all(&head)?;
    Ok(stream)
}

/// A control connection under TLS, whose data connections are encrypted.
struct Session {
    control: BufReader<Client>,
    config: Arc<ClientConfig>,
    file: String,
}

impl Session {
    fn open(port: u16, config: &Arc<ClientConfig>, user: &str, password: &str, file: &str) -> Result<Self> {
        let mut plain = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
        reply(&mut plain, "220")?;
        plain.get_mut().write_all(b"AUTH TLS\r\n")?;
        reply(&mut plain, "234")?;
        let control = BufReader::new(encrypt(plain.into_inner(), config)?);
        let mut session = Self { control, config: Arc::clone(config), file: file.to_owned() };
        session.say(&format!("USER {user}"), "331")?;
        session.say(&format!("PASS {password}"), "230")?;
        for command in ["PBSZ 0", "PROT P", "TYPE I"] {
            session.say(command, "200")?;
        }
        Ok(session)
    }

    /// A data connection on which the bytes are about to move.
    fn begin(&mut self, direction: &str) -> Result<Client> {
        let line = self.say("PASV", "227")?;
        let numbers = line.split(['(', ')']).nth(1).ok_or("no address in 227")?;
        let numbers: Vec<u16> = numbers.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
        let &[.., high, low] = &numbers[..] else { return Err("no port in 227".into()) };
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, high << 8 | low))?;
        let verb = if direction == "upload" { "STOR" } else { "RETR" };
        let command = format!("{verb} {}", self.file);
        self.say(&command, "150")?;
        encrypt(socket, &self.config)
    }

    fn say(&mut self, command: &str, code: &str) -> Result<String> {
        self.control.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        self.expect(code)
    }

    fn expect(&mut self, code: &str) -> Result<String> {
        reply(&mut self.control, code)
    }
}

/// The last line of a reply, which has to be of this code.
fn reply(control: &mut impl BufRead, code: &str) -> Result<String> {
    loop {
        let mut line = String::new();
        if control.read_line(&mut line)? == 0 {
            return Err("the control connection was closed".into());
        }
        match line.as_bytes() {
            [_, _, _, b' ', ..] if line.starts_with(code) => return Ok(line),
            [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b' ', ..] => {
                return Err(format!("{code} was due: {line}").into());
            }
            _ => {}
        }
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
