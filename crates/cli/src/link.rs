//! `millrace link`: a link to a file that expires, for those who have no account.

use std::time::SystemTime;

use millrace_server::web::Link;
use millrace_vfs::VirtualPath;

use crate::args::MakeLink;
use crate::config::{self, Written};
use crate::failure::Failure;

pub(crate) fn run(arguments: &MakeLink) -> Result<(), Failure> {
    let site = config::load(Written::default(), Some(&arguments.config))?;
    let path = VirtualPath::root().resolve(arguments.path.as_bytes());
    let path = path.map_err(|_| wrong(format!("{:?} cannot be a path", arguments.path)))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let expires = (now + arguments.valid.value.0).as_secs();
    let user = arguments.user.clone().unwrap_or_else(|| "anonymous".to_owned()).into_bytes();
    let link = Link { path, puts: arguments.put, user, expires };
    let target = site.config.web.links.sign(&link).ok_or_else(|| {
        wrong(
            "there is no key to sign links with: write http-link-keys = \"FILE\" in the configuration file"
                .to_owned(),
        )
    })?;
    println!("{}{target}", arguments.url.trim_end_matches('/'));
    Ok(())
}

fn wrong(message: String) -> Failure {
    Failure::Configuration(format!("{message}."))
}
