//! `SITE MKDIR`, `RMDIR`, `SYMLINK`, as ProFTPD's mod_site_misc has them.

use millrace_vfs::{FileError, VirtualPath};

use super::{Argument, Command, Feat, PATH, Paths, ROW, words};
use crate::reply::{Reply, code};
use crate::session::commands::{files, tree};
use crate::session::{Answer, Permission, Permissions, Request, Session, Step, wrong_syntax};

pub(super) const MKDIR: Command = Command {
    verb: "MKDIR",
    argument: Argument::Required,
    needs: Permissions::only(Permission::MakeDirectory),
    feat: Feat::Line("MKDIR"),
    paths: PATH,
    help: "SITE MKDIR <directory>, with those above it",
    source: "ProFTPD mod_site_misc",
    run: mkdir,
    ..ROW
};

pub(super) const RMDIR: Command = Command {
    verb: "RMDIR",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Delete),
    feat: Feat::Line("RMDIR"),
    paths: PATH,
    help: "SITE RMDIR <directory>, with all that is in it",
    source: "ProFTPD mod_site_misc",
    run: tree::rmda,
    ..ROW
};

pub(super) const SYMLINK: Command = Command {
    verb: "SYMLINK",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Link),
    feat: Feat::Line("SYMLINK"),
    paths: Paths::Within(|session, argument| {
        let (link, target) = link_and_target(session, argument)?;
        // A target that cannot be a path here leads nowhere.
        let target = link.parent().resolve(&target).ok();
        Ok(std::iter::once(link).chain(target).collect())
    }),
    help: "SITE SYMLINK <target> <new link>; with quotes around a name that has a blank in it",
    source: "ProFTPD mod_site_misc",
    note: "the same link again is no failure; one that leads out of the tree can be made, but not followed",
    run: symlink,
    ..ROW
};

/// Makes the directories from the top down; those that exist already are no failure, but the last one is.
fn mkdir(session: &mut Session, argument: &[u8]) -> Step {
    let path = match session.path(argument) {
        Ok(path) => path,
        Err(reply) => return reply.into(),
    };
    let mut above = Vec::new();
    let mut parent = path.parent();
    while !parent.is_root() {
        above.push(parent.clone());
        parent = parent.parent();
    }
    make_next(session, above, path)
}

fn make_next(session: &mut Session, mut above: Vec<VirtualPath>, path: VirtualPath) -> Step {
    let bits = super::directory_bits(session);
    let Some(next) = above.pop() else {
        return session.ask_about(path, |path| Request::MakeDirectory(path, bits), files::made);
    };
    session.ask_whether(Request::MakeDirectory(next.clone(), bits), |session, answer| match answer {
        Answer::Done | Answer::Failed(FileError::AlreadyExists) => make_next(session, above, path),
        Answer::Failed(error) => {
            session.subject = Some(next);
            session.refusal(&error).into()
        }
        _ => Step::mismatch(),
    })
}

fn symlink(session: &mut Session, argument: &[u8]) -> Step {
    let (path, target) = match link_and_target(session, argument) {
        Ok(read) => read,
        Err(reply) => return reply.into(),
    };
    let request = Request::MakeSymlink(target.clone(), path.clone());
    session.ask_whether(request, move |session, answer| match answer {
        Answer::Done => Reply::new(code::OK, "Link made.").into(),
        Answer::Failed(error) => refused_link(session, path, target, error),
        _ => Step::mismatch(),
    })
}

/// The new link, and what it is to say.
fn link_and_target(session: &Session, argument: &[u8]) -> Result<(VirtualPath, Vec<u8>), Reply> {
    let two = words(argument).and_then(|words| <[_; 2]>::try_from(words).ok());
    let [target, link] = two.ok_or_else(|| wrong_syntax(&SYMLINK))?;
    Ok((session.path(&link)?, target))
}

/// A client that mirrors a tree again (lftp does not check links by `MLSD`) makes existing links: that counts as
/// success.
fn refused_link(session: &mut Session, path: VirtualPath, target: Vec<u8>, error: FileError) -> Step {
    session.subject = Some(path.clone());
    if !matches!(error, FileError::AlreadyExists) {
        return session.refusal(&error).into();
    }
    session.ask_whether(Request::Entry(path), move |session, answer| match answer {
        Answer::Entry(entry) if entry.link_text() == Some(&target) => {
            Reply::new(code::OK, "The link is there.").into()
        }
        _ => session.refusal(&error).into(),
    })
}
