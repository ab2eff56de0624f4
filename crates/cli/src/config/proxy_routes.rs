//! `[[proxy]]` tables, turned into paths of HTTP that others answer.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use millrace_server::config::{Peer, ProxyRoute, Upstream};
use millrace_terminal::Failure;
use millrace_vfs::VirtualPath;

use super::places::Places;
use super::said::Said;
use super::setting::{default, required, settings, unset};
use super::slot::One;
use super::value::{Count, Period, Switch};

settings! {
    /// A `[[proxy]]` table.
    ProxyTable of "proxy" {
        /// Where requests go: `"fastcgi://127.0.0.1:9000"`, `"fastcgi:/run/php/php-fpm.sock"`,
        /// `"http://127.0.0.1:3000"`, `"http:/run/app.sock"`. Names are not looked up.
        to: Said<String> = required();
        /// What lies beneath this path is passed on
        path: One<String> = default("/");
        /// And only where a name ends so, such as `".php"`: that is the script, what stands behind it is
        /// `PATH_INFO`. For FastCGI.
        suffix: One<String> = unset("none");
        /// The folder that scripts lie in (`DOCUMENT_ROOT`). With `suffix` it is within what is served: a
        /// script that is not in the user's tree, or not in this folder, is 404.
        root: One<PathBuf> = unset("`directory` with `suffix`, else none");
        /// The `Host` that another server is asked by
        host: One<String> = unset("what the client asked for");
        /// Whether connections are kept for the next request
        keep: One<Switch> = unset("`true` for HTTP, else `false`");
        /// Requests under way at a time; further ones wait
        max_requests: One<Count> = default("64").positive();
        /// How long a request may make no progress; then the client is told 504, or the response that has begun
        /// is cut
        timeout: One<Period> = default("60s").positive();
    }
}

/// Routes as written; scripts lie in `directory` where nothing else is said.
pub(crate) fn proxy_routes(
    tables: Vec<ProxyTable>,
    directory: &Path,
    places: &Places<'_>,
) -> Result<Vec<ProxyRoute>, Failure> {
    tables.into_iter().map(|table| route(table, directory, places)).collect()
}

fn route(table: ProxyTable, directory: &Path, places: &Places<'_>) -> Result<ProxyRoute, Failure> {
    let to = upstream(&table.to, places)?;
    let default = ProxyRoute::new(to);
    let is_http = matches!(default.to, Upstream::Http(_));
    let only = |said: Option<&Said<String>>, is_right: bool, key: &str, whose: &str| match said {
        Some(said) if !is_right => Err(places.error(&said.place, key, &format!("this is for {whose} only"))),
        _ => Ok(()),
    };
    only(table.suffix.as_ref(), !is_http, "suffix", "applications that are asked by FastCGI")?;
    only(table.host.as_ref(), is_http, "host", "servers that are asked by HTTP")?;
    let root = match (&table.root, &table.suffix) {
        (Some(said), _) => Some(folder(said, places)?),
        (None, Some(_)) => Some(directory.to_owned()),
        (None, None) => None,
    };
    Ok(ProxyRoute {
        path: table.path.map_or(Ok(VirtualPath::root()), |said| path(&said, places))?,
        suffix: table.suffix.map(|said| suffix(&said, places)).transpose()?,
        root,
        host: table.host.map(|said| said.value),
        keep: table.keep.map_or(is_http, |said| said.value.0),
        most: table.max_requests.map_or(default.most, |said| said.value.0),
        silence: table.timeout.map_or(default.silence, |said| said.value.0),
        ..default
    })
}

/// `fastcgi://127.0.0.1:9000`, `fastcgi:/run/php/php-fpm.sock`, and the same with `http`.
fn upstream(said: &Said<String>, places: &Places<'_>) -> Result<Upstream, Failure> {
    let expected = || {
        let message = "expected fastcgi://ADDRESS:PORT, http://ADDRESS:PORT, or the same with a socket of this machine, such \
                       as fastcgi:/run/php/php-fpm.sock; names are not looked up, write the address";
        places.error(&said.place, "to", message)
    };
    let (scheme, rest) = said.value.split_once(':').ok_or_else(expected)?;
    let peer = match rest.strip_prefix("//") {
        Some(address) => {
            Peer::Tcp(address.trim_end_matches('/').parse::<SocketAddr>().map_err(|_| expected())?)
        }
        None if rest.starts_with('/') => Peer::Unix(PathBuf::from(rest)),
        None => return Err(expected()),
    };
    match scheme {
        "fastcgi" => Ok(Upstream::FastCgi(peer)),
        "http" => Ok(Upstream::Http(peer)),
        _ => Err(expected()),
    }
}

fn path(said: &Said<String>, places: &Places<'_>) -> Result<VirtualPath, Failure> {
    let path = VirtualPath::parse(said.value.as_bytes()).ok().filter(|_| said.value.starts_with('/'));
    path.ok_or_else(|| places.error(&said.place, "path", "expected a path as in URLs, such as \"/app\""))
}

fn suffix(said: &Said<String>, places: &Places<'_>) -> Result<String, Failure> {
    match said.value.starts_with('.') && said.value.len() > 1 && !said.value.contains('/') {
        true => Ok(said.value.clone()),
        false => Err(places.error(&said.place, "suffix", "expected the end of a name, such as \".php\"")),
    }
}

fn folder(said: &Said<PathBuf>, places: &Places<'_>) -> Result<PathBuf, Failure> {
    let path = places.path(said);
    match path.canonicalize() {
        Ok(folder) if folder.is_dir() => Ok(folder),
        _ => {
            let message = format!("{} is no folder; name the one that the scripts are in", path.display());
            Err(places.error(&said.place, "root", &message))
        }
    }
}
