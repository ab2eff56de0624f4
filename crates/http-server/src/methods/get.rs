//! `GET` and `HEAD`: what a path stands for is found, and sent.

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_http::conditional::{self, Verdict};
use millrace_http::digest::{self, Algorithm};
use millrace_http::index::{Cursor, Format, Links, Order, POLICY};
use millrace_http::link;
use millrace_http::negotiate::{self, Coding};
use millrace_http::redirect;
use millrace_http::target::Target;
use millrace_http::{Field, Head, Status};
use millrace_limits::Direction;
use millrace_vfs::{FileError, Storage, Wait};

use crate::answer::{Answers, HARMLESS, Made, file};
use crate::cache::As;
use crate::connection::exchange::Exchange;
use crate::identity::Who;
use crate::listing::Shape;
use crate::lookup;
use crate::lookup::{Entry, Found};
use crate::methods::index;
use crate::methods::to_download_origin::sends_to_download_origin;
use crate::worker::{Core, Shared};

/// What the page of a directory says of itself, whatever its form.
const OF_PAGES: [(&str, &str); 2] = [("Vary", "Accept"), (HARMLESS.0, POLICY)];

/// The same of one that has too many entries to be sorted: programs get no more than an array of these.
const OF_UNSORTED: [(&str, &str); 3] = [OF_PAGES[0], OF_PAGES[1], ("X-Listing", "unsorted")];

fn fields_of_page(is_sorted: bool) -> &'static [(&'static str, &'static str)] {
    if is_sorted { &OF_PAGES } else { &OF_UNSORTED }
}

/// Answers `GET` and `HEAD`.
pub(crate) fn get(
    exchange: &mut Exchange<'_>,
    target: &Target<'_>,
    who: &Who,
    found: Option<Result<Found, FileError>>,
) {
    let head = exchange.head;
    if !exchange.permits(who, Permission::Read) {
        return;
    }
    let codings = match exchange.core.http.web.precompressed {
        true => negotiate::codings(head),
        false => Vec::new(),
    };
    let (storage, path) = (&who.account.storage, &target.path);
    let found = match found {
        Some(found) => found.inspect(|found| keep_found(exchange.core, storage, target, found)),
        // The link is for the folder: an index would lead to files that its author did not link.
        None if target.is_directory && who.may_list_by_link() => Ok(Found::Directory),
        None => find_now(exchange.core, storage, target, &codings),
    };
    if found.as_ref().is_ok_and(Found::is_content)
        && !head.wants_head_only()
        && !exchange.may_move(Direction::Download)
    {
        return exchange.core.discard(found);
    }
    match found {
        Err(FileError::WouldWait) => {
            let (storage, path, is_directory) = (Arc::clone(storage), path.clone(), target.is_directory);
            let (web, server) = (Arc::clone(&exchange.core.http.web), Arc::clone(&exchange.core.server));
            exchange.ask_pool(move || {
                let by = (&*web, &server.config);
                let found = lookup::find(by, &*storage, &path, is_directory, Wait::Allowed)?;
                lookup::prefer(&web, &*storage, found, &codings, Wait::Allowed)
            });
        }
        Err(error) => exchange.fail_with(&error),
        Ok(found) => answer_found(exchange, target, who, found),
    }
}

/// Answers with what was found.
fn answer_found(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who, found: Found) {
    let head = exchange.head;
    if let Found::File(entry) | Found::Stream(_, entry) = &found
        && sends_to_download_origin(exchange, target, entry, who)
    {
        return exchange.core.discard(found);
    }
    match found {
        Found::File(entry) => match wanted_digest(head, &entry) {
            None => {
                file::answer_file(exchange, &entry, None);
                // The last user closes it.
                if entry.end_may_wait() {
                    exchange.core.discard(entry);
                }
            }
            Some(algorithm) => {
                let (storage, most) = (Arc::clone(&who.account.storage), exchange.core.http.web.digest_bytes);
                exchange.ask_while_wanted(move |is_wanted| {
                    let found = entry.find_digest(&*storage, algorithm, most, is_wanted);
                    found.map(|()| Found::File(entry))
                });
            }
        },
        Found::Stream(stream, entry) => file::answer_file(exchange, &entry, Some(stream)),
        Found::Made(stream) => {
            let media_type = exchange.core.http.web.types.of(target.path.name());
            let (fields, made) = ([("Accept-Ranges", "none")], Made::File(stream));
            exchange.answer_stream(Status::OK, &media_type, &fields, made);
        }
        Found::Redirect => redirect(exchange, target),
        Found::Directory => list(exchange, target, who),
        Found::Index(index) => index::lead_to_index(exchange, target, &index),
        Found::Page { bytes, is_sorted } => {
            let media_type = listing_format(head).media_type();
            exchange.answer_bytes(Status::OK, media_type, fields_of_page(is_sorted), &bytes);
        }
        Found::LongPage(listing) => {
            let media_type = listing_format(head).media_type();
            let fields = fields_of_page(listing.is_sorted());
            exchange.answer_stream(Status::OK, media_type, fields, Made::Listing(listing));
        }
        Found::Changed(_)
        | Found::Program(..)
        | Found::NoProgram
        | Found::Contact(_)
        | Found::Dav(_)
        | Found::Tus(_) => {
            exchange.fail(Status::INTERNAL_SERVER_ERROR, "Internal server error.");
        }
    }
}

/// Answers a request for a page that is made for it, where a condition is in its way.
fn answers_condition(exchange: &mut Exchange<'_>) -> bool {
    let head = exchange.head;
    match conditional::evaluate_untagged(head) {
        Verdict::Proceed => return false,
        Verdict::NotModified => {
            let record = exchange.record();
            Answers::new(exchange.connection, exchange.core).answer_empty(
                record,
                Status::NOT_MODIFIED,
                &OF_PAGES,
            );
        }
        Verdict::Failed => {
            let reason = "The page does not meet the condition of the request.";
            exchange.fail(Status::PRECONDITION_FAILED, reason);
        }
    }
    true
}

fn list(exchange: &mut Exchange<'_>, target: &Target<'_>, who: &Who) {
    let head = exchange.head;
    if !exchange.permits(who, Permission::List) || answers_condition(exchange) {
        return;
    }
    let (storage, path) = (Arc::clone(&who.account.storage), target.path.clone());
    let lead_on = who.is_by_link().then(|| link::lead_on(&path, target.query)).flatten();
    let shape = Shape {
        format: listing_format(head),
        order: Order::from_query(target.query),
        cursor: Cursor::from_query(target.query),
        sort_entries: exchange.core.server.config.sort_entries,
        links: lead_on.map(|(query, is_top)| Links { query, is_top }).unwrap_or_default(),
    };
    exchange.ask_pool(move || lookup::page(&*storage, &path, shape));
}

fn redirect(exchange: &mut Exchange<'_>, target: &Target<'_>) {
    let location = redirect::directory_location(target);
    let record = exchange.record();
    let fields = [("Location", &*location)];
    Answers::new(exchange.connection, exchange.core).answer_page(
        record,
        Status::MOVED_PERMANENTLY,
        "This is a directory.",
        &fields,
    );
}

/// The content for a target, if it is known at once.
fn find_now(
    core: &mut Core,
    storage: &Arc<dyn Storage>,
    target: &Target<'_>,
    codings: &[Coding],
) -> Result<Found, FileError> {
    let (turn, now) = (core.turn, core.now.instant);
    let wanted = if target.is_directory { As::Directory } else { As::File };
    let Core { http: Shared { cache, web, .. }, server, .. } = core;
    let entry = match cache.look_up(storage, &target.path, wanted, turn, now) {
        Some(entry) => entry,
        None => match lookup::find(
            (web, &server.config),
            &**storage,
            &target.path,
            target.is_directory,
            Wait::Never,
        )? {
            Found::File(entry) => {
                cache.keep(storage, (target.path.clone(), wanted), &entry, turn, now);
                entry
            }
            other => return Ok(other),
        },
    };
    for coding in codings {
        let Some(path) = lookup::neighbour_path(&entry.path, *coding) else { continue };
        let coded = match cache.look_up(storage, &path, As::Coding, turn, now) {
            Some(coded) => coded,
            None => match lookup::neighbour(web, &**storage, &entry, *coding, Wait::Never)? {
                Some(coded) => {
                    cache.keep(storage, (path, As::Coding), &coded, turn, now);
                    coded
                }
                None => continue,
            },
        };
        if coded.modified >= entry.modified {
            return Ok(Found::File(coded));
        }
    }
    Ok(Found::File(entry))
}

/// Keeps a file that the pool has opened.
fn keep_found(core: &mut Core, storage: &Arc<dyn Storage>, target: &Target<'_>, found: &Found) {
    let Found::File(entry) = found else { return };
    if entry.generation != core.http.web.generation {
        return;
    }
    let key = match (entry.coding, target.is_directory) {
        (Some(_), _) => (entry.path.clone(), As::Coding),
        (None, true) => (target.path.clone(), As::Directory),
        (None, false) => (target.path.clone(), As::File),
    };
    core.http.cache.keep(storage, key, entry, core.turn, core.now.instant);
}

/// The digest that a request wants of a file, and that has to be found out first.
fn wanted_digest(head: &Head, entry: &Entry) -> Option<Algorithm> {
    head.get(Field::WantReprDigest)?;
    digest::wanted(head).filter(|algorithm| entry.may_find_digest(*algorithm))
}

fn listing_format(head: &Head) -> Format {
    match negotiate::prefers_json(head) {
        true => Format::Json,
        false => Format::Html,
    }
}
