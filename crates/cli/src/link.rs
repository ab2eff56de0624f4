//! `millrace link`: a link to a file or a folder that expires, for those who have no account.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::SystemTime;

use millrace_log::{Event, IssuedLink};
use millrace_server::web::{Gives, Link};
use millrace_server::{Attempt, Protocol};
use millrace_vfs::VirtualPath;

use crate::announce::web_url;
use crate::args::MakeLink;
use crate::audit::Audit;
use crate::config::{self, Site, Written};
use crate::failure::Failure;

pub(crate) fn run(arguments: &MakeLink) -> Result<(), Failure> {
    let site = config::load(Written::default(), Some(&arguments.config))?;
    let path = VirtualPath::root().resolve(arguments.path.as_bytes());
    let path = path.map_err(|_| wrong(format!("{:?} cannot be a path", arguments.path)))?;
    may_be_linked(&site, &path)?;
    let user = arguments.user.clone().unwrap_or_else(|| "anonymous".to_owned());
    let gives = gives(&site, arguments, &user, &path)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let expires = (now + arguments.valid.value.0).as_secs();
    let permits = if gives == Gives::Upload { "put" } else { "get" };
    let link = Link { path, gives, user: user.clone().into_bytes(), expires };
    let links = &site.config.web.links;
    let target = links.sign(&link).ok_or_else(|| {
        wrong(
            "there is no key to sign links with: write http-link-keys = \"FILE\" in the configuration file"
                .to_owned(),
        )
    })?;
    let url = arguments.url.clone().or_else(|| web_url(&site)).ok_or_else(|| {
        wrong(
            "the configuration does not say where browsers find the server (http and https are off, or at a \
             port that is drawn): say it with --url"
                .to_owned(),
        )
    })?;
    let mut audit = Audit::open(site.config.audit.as_ref().map(|audit| &*audit.path))?;
    let (key, by) = (links.names().into_iter().next().unwrap_or_default(), audit.by());
    let issued = IssuedLink { path: &link.path, user: &user, permits, expires, key: &key };
    audit.record([Event::LinkIssued { link: &issued, by }])?;
    println!("{}{target}", url.trim_end_matches('/'));
    Ok(())
}

/// Refuses paths that are not files (programs, other servers): a link is for files only.
fn may_be_linked(site: &Site, path: &VirtualPath) -> Result<(), Failure> {
    let config = &site.config;
    let answers = if config.programs.folders.iter().any(|(mark, _)| path.starts_with(mark)) {
        "a program (cgi)"
    } else if config.proxy_routes.iter().any(|route| route.takes(path)) {
        "another server ([[proxy]])"
    } else {
        return Ok(());
    };
    Err(wrong(format!("{path} is answered by {answers}; a link is for files and folders")))
}

/// What the link permits; a path is a folder if it ends in a slash or is one on disk.
fn gives(site: &Site, arguments: &MakeLink, user: &str, path: &VirtualPath) -> Result<Gives, Failure> {
    let is_folder = arguments.path.ends_with('/')
        || path.is_root()
        || place(site, user, path).is_some_and(|place| place.is_dir());
    match (is_folder, arguments.put) {
        (true, true) => {
            Err(wrong(format!("{path} is a folder, and a link to send something is for one file: name it")))
        }
        (true, false) => Ok(Gives::Folder),
        (false, true) => Ok(Gives::Upload),
        (false, false) => Ok(Gives::File),
    }
}

/// Where a user's file lies in the served folder, as far as that can be told.
fn place(site: &Site, user: &str, path: &VirtualPath) -> Option<PathBuf> {
    let attempt = Attempt {
        user: user.as_bytes(),
        password: b"",
        from: IpAddr::V4(Ipv4Addr::LOCALHOST),
        protocol: Protocol::Http,
        encrypted: true,
        certified: true,
        host: "",
        now: SystemTime::now(),
    };
    let home = match site.accounts.explain(&attempt).ok()? {
        Some(explained) => explained.effective.directory().ok()?.unwrap_or_default(),
        // Nothing more is known of this user.
        None if site.config.anonymous && user == "anonymous" => String::new(),
        None => return None,
    };
    let home = site.directory.join(home.trim_start_matches('/'));
    let relative = path.as_bytes().strip_prefix(b"/").unwrap_or_default();
    Some(home.join(OsStr::from_bytes(relative)))
}

fn wrong(message: String) -> Failure {
    Failure::Configuration(format!("{message}."))
}
