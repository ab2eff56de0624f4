//! What the operations on users and groups are asked and answer.

use super::super::operation::Kind::{Flag, Object, Records, Text, Texts, Whole};
use super::super::operation::{Field, field, needed};
use super::OK;

pub(super) const USERS_QUERY: &[Field] = &[
    field("text", Text, "Part of the name or of a group's name, whatever its case"),
    field("group", Text, "Only members of this group"),
    field("limit", Whole, "So many at most"),
    field("offset", Whole, "So many are left out"),
];

pub(super) const USERS: &[Field] = &[
    OK,
    needed("total", Whole, "How many are meant"),
    needed("users", Records(LISTED_USER), "The users: by source, and of one by name"),
    needed("sources", Records(USER_SOURCE), "Where users are looked up, in this order"),
];

const USER_SOURCE: &[Field] = &[
    needed("name", Text, "What the log calls it"),
    needed("listed", Flag, "Whether its users are listed; others are known by name alone"),
    needed("writable", Flag, "Whether users are changed here"),
];

const LISTED_USER: &[Field] = &[
    needed("name", Text, "What the client logs in by"),
    needed("source", Text, "The source that knows it"),
    needed("writable", Flag, "Whether it is changed here; else in the configuration"),
    needed("password", Flag, "Whether it has a password"),
    needed("second-factor", Flag, "Whether one-time codes are asked for"),
    needed("groups", Texts, "The groups, the one that goes first in front"),
    needed("settings", Object, "What is set of the user itself, as in a [[user]] table"),
];

pub(super) const USER: &[Field] = &[
    OK,
    needed("name", Text, "What the client logs in by"),
    needed("source", Text, "The source that knows it"),
    needed("writable", Flag, "Whether it is changed here; else in the configuration"),
    needed("password", Flag, "Whether it has a password"),
    needed("second-factor", Flag, "Whether one-time codes are asked for"),
    needed("groups", Texts, "The groups, the one that goes first in front"),
    needed("settings", Object, "What is set of the user itself, as in a [[user]] table"),
    needed("effective", Records(EFFECTIVE), "What holds for the user"),
    needed("etag", Text, "For If-Match"),
];

const EFFECTIVE: &[Field] = &[
    needed("key", Text, "The setting"),
    needed("value", Text, "What holds"),
    needed("origin", Text, "default, user or group NAME"),
];

pub(super) const SOURCE: &[Field] =
    &[field("source", Text, "The source, where several know the name; else the first of them")];

pub(super) const NEW_USER: &[Field] = &[
    needed("name", Text, "What the client logs in by"),
    field("password", Text, "The password"),
    field("hash", Text, "The hash of the password, instead of the password"),
    field("groups", Texts, "Groups of the configuration, the one that goes first in front"),
    field("settings", Object, "As in a [[user]] table"),
    field("source", Text, "The database; else the first of them"),
];

pub(super) const CHANGED_USER: &[Field] = &[
    needed("groups", Texts, "Groups of the configuration, the one that goes first in front"),
    needed("settings", Object, "As in a [[user]] table; what is left out is set no longer"),
];

pub(super) const NEW_PASSWORD: &[Field] = &[
    field("password", Text, "The password"),
    field("hash", Text, "The hash of the password, instead of the password"),
];

pub(super) const CODES: &[Field] = &[
    OK,
    needed("secret", Text, "The secret for an authenticator app"),
    needed("url", Text, "The same as a URL"),
    needed("etag", Text, "For If-Match"),
];

pub(super) const GROUPS_QUERY: &[Field] = &[field("text", Text, "Part of the name, whatever its case")];

pub(super) const GROUPS: &[Field] =
    &[OK, needed("groups", Records(LISTED_GROUP), "The groups of the configuration, by name")];

const LISTED_GROUP: &[Field] = &[
    needed("name", Text, "Its name"),
    needed("members", Whole, "How many of the listed users are members"),
    needed("settings", Object, "What its members have that do not say otherwise"),
];

pub(super) const GROUP: &[Field] = &[
    OK,
    needed("name", Text, "Its name"),
    needed("members", Whole, "How many of the listed users are members"),
    needed("settings", Object, "What its members have that do not say otherwise"),
];
