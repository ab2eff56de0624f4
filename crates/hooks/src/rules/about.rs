//! Whether a rule is about what happens: the event, the verb, the user, the path, the size.
//!
//! A rule about one way to a thing is about the others, of FTP and of HTTP: there is no way round it.

use millrace_ftp::listing::search::Searched;
use millrace_storage::{Archives, Conversions};
use millrace_vfs::{VirtualPath, Wait};

use super::{Action, Rule};
use crate::{Event, EventContext, Refusal};

/// The FTP commands that correspond to methods of HTTP and to the names of RFC 775, and further ones for directories: a
/// rule about one applies to the others, so that it cannot be bypassed.
const ALIKE: &[(&str, &[&str], &[&str])] = &[
    ("GET", &["RETR"], LISTS),
    ("HEAD", &["GET", "RETR"], LISTS),
    ("PUT", &["STOR"], &[]),
    // It creates a missing file.
    ("LOCK", &["STOR"], &[]),
    ("DELETE", &["DELE", "RMD", "RMDA"], &[]),
    ("MKCOL", &["MKD"], &[]),
    ("MOVE", &["RNTO", "RNFR"], &[]),
    ("COPY", &["SITE COPY"], &[]),
    ("PROPFIND", LISTS, &[]),
    ("XCWD", &["CWD"], &[]),
    ("XCUP", &["CDUP"], &[]),
    ("XPWD", &["PWD"], &[]),
    ("XMKD", &["MKD"], &[]),
    ("XRMD", &["RMD"], &[]),
];

/// The commands that list a directory.
const LISTS: &[&str] = &["LIST", "MLSD", "NLST"];

impl Rule {
    pub(super) fn is_about_verb(&self, verb: &str, is_directory: bool) -> bool {
        let row = ALIKE.iter().find(|row| row.0 == verb);
        let (alike, of_directories) = row.map_or((&[][..], &[][..]), |row| (row.1, row.2));
        let is_alike = |one: &str| alike.contains(&one) || (is_directory && of_directories.contains(&one));
        let names = |one: &String| one == verb || one == first_word(verb) || is_alike(one);
        self.verbs.is_empty() || self.verbs.iter().any(names)
    }

    /// As `is_about_verb`, where of `SITE` the subcommand is not known yet, and of HTTP the path.
    pub(super) fn may_be_about(&self, verb: &str) -> bool {
        self.is_about_verb(verb, true) || self.verbs.iter().any(|one| first_word(one) == verb)
    }

    pub(super) fn matches(&self, context: &EventContext) -> bool {
        self.fits(context) || self.reaches_into_conversion(context)
    }

    /// As `matches`, of files that are sent as they are.
    fn fits(&self, context: &EventContext) -> bool {
        let is_about = self.is_about(context.event, context)
            || (self.is_of(context.event, context) && self.reaches_into_archive(context));
        is_about && self.size_matches(context)
    }

    /// Returns true if a download is a folder's archive, in which something may be that the rule is about.
    fn reaches_into_archive(&self, context: &EventContext) -> bool {
        let Some(folder) = may_be_archive(context.event, context) else { return false };
        let covers =
            self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.may_cover_within(&folder));
        covers && is_archive(context, &folder)
    }

    /// Returns true if a download is a conversion of what the rule is about.
    fn reaches_into_conversion(&self, context: &EventContext) -> bool {
        let is_of_source = |source: EventContext| self.fits(&source) && is_there(&source);
        sources(context).any(is_of_source) && !is_there(context)
    }

    /// Returns true if a download may be of what the rule is about in another form, as far as the paths tell.
    pub(super) fn may_reach_into(&self, event: Event, context: &EventContext) -> bool {
        let is_archive = |context: &EventContext| may_be_archive(event, context).is_some();
        is_archive(context)
            || sources(context).any(|source| self.is_about(event, &source) || is_archive(&source))
    }

    /// As `matches`, of a moment that may be of another event, and a file whatever its size.
    pub(super) fn is_about(&self, event: Event, context: &EventContext) -> bool {
        let mut paths = context.path.iter().chain(&context.to).chain(&context.also);
        self.is_of(event, context)
            && (self.paths.is_empty()
                || paths.any(|path| self.covers(path))
                || context.searched.as_ref().is_some_and(|searched| self.may_cover(searched)))
    }

    /// Like `is_about`, for any path.
    fn is_of(&self, event: Event, context: &EventContext) -> bool {
        self.on.contains(&event)
            && (context.verb.is_empty() || self.is_about_verb(&context.verb, context.is_directory))
            && (self.users.is_empty()
                || context
                    .user
                    .as_deref()
                    .is_some_and(|user| self.users.iter().any(|one| one.matches(&[user]))))
    }

    fn covers(&self, path: &VirtualPath) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.covers(path))
    }

    /// Returns true if one of the folders may match.
    fn may_cover(&self, searched: &Searched) -> bool {
        self.paths.iter().any(|pattern| pattern.may_cover(searched))
    }

    /// Returns true if a command which matches is to be about another path. Where the path that matches is not one that
    /// can be taken out, nothing is done at all: the rule was to keep it from just that path.
    pub(super) fn rewrites(&self, context: &EventContext) -> Result<bool, Refusal> {
        let can = Action::check_rewrite(&context.verb).is_ok();
        let covers = |path: &VirtualPath| self.covers(path);
        match (&context.path, &context.to) {
            // A rule about no path is not about a second one either.
            (None, _) => Ok(false),
            (Some(path), _) if can && covers(path) => Ok(true),
            // Of what RNTO renames RNFR was asked.
            (_, to)
                if can
                    && !to.as_ref().is_some_and(covers)
                    && !self.reaches_into_archive(context)
                    && !self.reaches_into_conversion(context) =>
            {
                Ok(false)
            }
            _ => Err(Refusal::of_rewriting()),
        }
    }

    fn size_matches(&self, context: &EventContext) -> bool {
        if self.larger_than.is_none() && self.smaller_than.is_none() {
            return true;
        }
        // Of a file that is to come or has no name yet, what was said of it; of one that is there, its own size: an upload may have
        // gone on with what was there before.
        let fits = |size: u64| {
            self.larger_than.is_none_or(|least| size > least)
                && self.smaller_than.is_none_or(|most| size < most)
        };
        let there = |path: &VirtualPath| {
            let metadata = context.storage.as_ref()?.metadata(path, Wait::Allowed).ok()?;
            metadata.is_file().then_some(metadata.size)
        };
        let to_come = context.bytes.filter(|_| context.event == Event::Command || context.is_pending());
        let size = to_come.or_else(|| context.path.as_ref().and_then(there)).or(context.bytes);
        size.is_some_and(fits) || context.also.iter().filter_map(there).any(fits)
    }
}

/// The folder whose archive a command asks for, if there is such a folder, and no file of the name.
fn may_be_archive(event: Event, context: &EventContext) -> Option<VirtualPath> {
    let reads = event == Event::Command && matches!(&*context.verb, "RETR" | "GET" | "HEAD");
    context.path.as_ref().filter(|_| reads && !context.is_directory).and_then(Archives::folder_named)
}

/// Returns true if there is. May wait.
fn is_archive(context: &EventContext, folder: &VirtualPath) -> bool {
    let there = |path| context.storage.as_ref().and_then(|files| files.metadata(path, Wait::Allowed).ok());
    context.path.as_ref().is_some_and(|path| there(path).is_none())
        && there(folder).is_some_and(|folder| folder.is_directory())
}

/// A download, with each of the files in place of its path that it could be a conversion of.
fn sources(context: &EventContext) -> impl Iterator<Item = EventContext> {
    let reads = context.event == Event::Command && context.verb == "RETR";
    let paths = context.path.iter().filter(move |_| reads).flat_map(Conversions::sources);
    paths.map(|path| EventContext { path: Some(path), ..context.clone() })
}

/// Returns true if the path is a file's, or an archive's. May wait.
fn is_there(context: &EventContext) -> bool {
    let (Some(path), Some(files)) = (&context.path, &context.storage) else { return false };
    files.metadata(path, Wait::Allowed).is_ok_and(|metadata| metadata.is_file())
        || may_be_archive(context.event, context).is_some_and(|folder| is_archive(context, &folder))
}

pub(super) fn first_word(verb: &str) -> &str {
    verb.split(' ').next().unwrap_or_default()
}
