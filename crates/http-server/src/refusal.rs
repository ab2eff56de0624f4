//! The answer to a client that the server cannot admit now.

/// What a client is told that cannot be served now.
pub fn refusal(reason: &str, out: &mut Vec<u8>) {
    use millrace_http::{Status, page};
    use std::io::Write;
    let (status, page) = (Status::SERVICE_UNAVAILABLE, page::of(Status::SERVICE_UNAVAILABLE, reason));
    let _ = write!(
        out,
        "HTTP/1.1 {} {}\r\nConnection: close\r\nRetry-After: 10\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
        status.0,
        status.reason(),
        page::MEDIA_TYPE,
        page.len()
    );
    out.extend_from_slice(&page);
}
