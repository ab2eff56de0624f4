//! Asks an application by FastCGI.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_http::cgi::{self, Environment};
use millrace_http::{Framing, fastcgi};
use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait};

use crate::conversation::{self, Contact, Conversation};
use crate::program;
use crate::request::GatewayRequest;
use crate::upstream::{ProxyRoute, Upstream};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Connects to the application of route `index`, where no connection to it was `kept`, and begins with the request; `uri` is
/// the path and the query as the client wrote them. May wait.
pub fn ask(
    (index, route): (usize, &ProxyRoute),
    kept: Option<OwnedFd>,
    request: &GatewayRequest,
    uri: &[u8],
) -> Result<Contact, FileError> {
    let Upstream::FastCgi(to) = &route.to else { return Err(FileError::Unsupported) };
    let Some(variables) = variables(route, request, uri)? else { return Ok(Contact::Nowhere) };
    let mut records = Vec::new();
    fastcgi::begin(&variables, route.keep, &mut records);
    let was_used = kept.is_some();
    let connected = kept.map_or_else(|| conversation::connect(to, route.silence.min(CONNECT)), Ok);
    Ok(match connected {
        Ok(socket) => {
            let has_body = request.head.framing != Framing::None;
            let mut conversation = Conversation::new(socket, index, records, has_body, route.keep);
            conversation.was_used = was_used;
            Contact::To(Box::new(conversation))
        }
        Err(error) => Contact::Failed(format!("{route} failed: it cannot be connected to: {error}")),
    })
}

/// What the application is told; `None` where the script that it is to run is none.
fn variables(
    route: &ProxyRoute,
    request: &GatewayRequest,
    uri: &[u8],
) -> Result<Option<Environment>, FileError> {
    let (script, path_info) = route.split(&request.path);
    let file = match (&route.root, &route.suffix) {
        // Applications that look for a script nearby would run what was uploaded as a picture.
        (Some(root), Some(_)) => match script_file(&*request.storage, script, root)? {
            Some(file) => Some(file),
            None => return Ok(None),
        },
        (None, Some(_)) => return Ok(None),
        (Some(root), None) => Some(root.join(relative(script))),
        (None, None) => None,
    };
    let path_info = program::path_info(path_info, request.is_directory);
    let mut variables = cgi::environment(&request.head, &request.for_script(script, &path_info, None));
    if let (Some(root), Some(file)) = (&route.root, &file) {
        variables.set("DOCUMENT_ROOT", root.as_os_str().as_bytes());
        variables.set("SCRIPT_FILENAME", file.as_os_str().as_bytes());
    }
    variables.set("REQUEST_URI", uri);
    Ok(Some(variables))
}

fn relative(script: &[u8]) -> &OsStr {
    OsStr::from_bytes(script.strip_prefix(b"/").unwrap_or(script))
}

/// The file of a script in the user's tree, if it is readable there: the opened one, after all roots and links. `None`
/// if it lies outside `root`. May block.
fn script_file(storage: &dyn Storage, script: &[u8], root: &Path) -> Result<Option<PathBuf>, FileError> {
    let path = VirtualPath::parse(script).map_err(|_| FileError::NameTooLong)?;
    let range = match storage.open_read(&path, Wait::Allowed) {
        Ok(ReadHandle::File(range)) => range,
        Ok(ReadHandle::Stream(_)) | Err(FileError::IsDirectory) => return Ok(None),
        Err(error) => return Err(error),
    };
    let file = std::fs::read_link(format!("/proc/self/fd/{}", range.file.as_raw_fd()))?;
    let root = root.canonicalize()?;
    Ok(file.starts_with(root).then_some(file))
}
