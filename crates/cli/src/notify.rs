//! Notifies a service manager (`sd_notify(3)`): `Type=notify` of systemd.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};

/// Sends a message such as `READY=1`. Errors are ignored.
pub(crate) fn say(message: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    let Some(address) = address(&name) else { return };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    if let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None) {
        let _ = sendto(&socket, message.as_bytes(), SendFlags::NOSIGNAL, &address);
    }
}

/// A path, or with `@` before it a name that is in no file system.
fn address(name: &OsStr) -> Option<SocketAddrUnix> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name).ok(),
        [b'/', ..] => SocketAddrUnix::new(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_path_or_abstract() {
        let path = address(OsStr::new("/run/notify")).unwrap();
        assert_eq!(path.path_bytes(), Some(&b"/run/notify"[..]));
        let name = address(OsStr::new("@/org/manager")).unwrap();
        assert_eq!(name.abstract_name(), Some(&b"/org/manager"[..]));
        for other in ["", "vsock:2:1234", "relative"] {
            assert!(address(OsStr::new(other)).is_none(), "{other}");
        }
    }
}
