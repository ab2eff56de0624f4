//! `millrace link`: a link to a file or a folder that expires, for those who have no account.

use millrace_log::Administrator;
use millrace_server::{LinkMaker, LinkRefused, NewLink};
use millrace_terminal::Failure;

use crate::announce::web_url;
use crate::args::MakeLink;
use crate::audit::Audit;
use crate::config::{self, Written};

/// What to do where `serve` is given more than the configuration file.
const FORCE: &str = "where flags of \"serve\" name users or the folder, --force makes the link";

pub(crate) fn run(arguments: &MakeLink) -> Result<(), Failure> {
    let site = config::load(Written::default(), Some(&arguments.config))?;
    let url = arguments.url.clone().or_else(|| web_url(&site));
    let new = NewLink {
        path: &arguments.path,
        user: arguments.user.as_deref().unwrap_or("anonymous"),
        valid: arguments.valid.value.0,
        is_upload: arguments.put,
        is_forced: arguments.force,
        url: url.as_deref().unwrap_or_default(),
    };
    let maker = LinkMaker::new(&*site.accounts, &site.config.web.links, &site.config);
    let made = maker.make(&new).map_err(refused)?;
    let url = url.ok_or_else(|| {
        wrong(
            "the configuration does not say where browsers find the server (http and https are off, or at a \
             port that is drawn): say it with --url",
        )
    })?;
    if let Some(doubt) = &made.doubt {
        eprintln!("warning: {doubt}.");
    }
    let mut audit = Audit::open(site.config.audit.as_ref().map(|audit| &*audit.path))?;
    made.event(Administrator::Local(audit.by()), |event| audit.record([event]))?;
    println!("{}{}", url.trim_end_matches('/'), made.target);
    Ok(())
}

fn refused(why: LinkRefused) -> Failure {
    match why {
        LinkRefused::AnonymousOff => wrong("anonymous is off: name a user with --user"),
        LinkRefused::Expired => wrong("--for 0: the link would have expired; write 24h or 7d"),
        why if why.yields_to_force() => wrong(&format!("{why}; {FORCE}")),
        why => wrong(&why.to_string()),
    }
}

fn wrong(message: &str) -> Failure {
    Failure::Configuration(format!("{message}."))
}
