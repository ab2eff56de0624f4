//! Properties that clients keep here without our knowing what they mean ("dead" ones, RFC 4918 section 4.5).
//!
//! They are kept up to a bound that all share, of which each user has a quarter, and the driver has them outlive the server.

use std::collections::{BTreeMap, HashMap};

use super::Name;
use super::body::Change;
use super::multistatus::Property;
use super::place::Place;
use crate::Status;

/// Bytes of all properties together, and of the places that have them.
pub const MAX_BYTES: usize = 8 << 20;

/// Bytes of the properties of one user.
pub const SHARE: usize = MAX_BYTES / 4;

/// The live properties of every resource, in the order of output.
pub const LIVE: [&str; 9] = [
    "creationdate",
    "displayname",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "resourcetype",
    "supportedlock",
];

/// Told only to those who ask (RFC 4331).
pub const ON_REQUEST: [&str; 2] = ["quota-available-bytes", "quota-used-bytes"];

/// Returns whether clients cannot set a property.
pub fn is_protected(name: &Name) -> bool {
    name.as_dav().is_some_and(|local| LIVE.contains(&local) || ON_REQUEST.contains(&local))
}

/// The properties of one resource: each as the XML that was given.
pub type PropertyValues = BTreeMap<Name, String>;

/// All dead properties.
#[derive(Debug, Default)]
pub struct Properties {
    by_place: HashMap<Place, Owned>,
    /// Bytes of each user's.
    by_user: HashMap<Option<Vec<u8>>, usize>,
    bytes: usize,
    /// Counts what changed them.
    changes: u64,
}

/// The properties of a place, and the user who has last made them longer, as part of whose share they count.
#[derive(Debug)]
struct Owned {
    values: PropertyValues,
    user: Option<Vec<u8>>,
}

/// What a place with properties takes, about as much as where it is kept; nothing without any.
fn size(place: &Place, values: &PropertyValues) -> usize {
    if values.is_empty() {
        return 0;
    }
    let each = |(name, value): (&Name, &String)| name.space.len() + name.local.len() + value.len() + 64;
    place.size() + values.iter().map(each).sum::<usize>()
}

impl Properties {
    /// How many places have any.
    pub fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Counts what changed them.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&Place, &PropertyValues, Option<&[u8]>)> {
        self.by_place.iter().map(|(place, owned)| (place, &owned.values, owned.user.as_deref()))
    }

    /// Those of a place.
    pub fn of(&self, place: &Place) -> Option<&PropertyValues> {
        self.by_place.get(place).map(|owned| &owned.values)
    }

    /// Those of a place, as part of whose share they count, and how many bytes they take there.
    pub fn owned(&self, place: &Place) -> Option<(&PropertyValues, Option<&[u8]>, usize)> {
        let owned = self.by_place.get(place)?;
        Some((&owned.values, owned.user.as_deref(), size(place, &owned.values)))
    }

    /// Gives a place other properties, which a user has set; `false` where there is no room for them, or not in the user's
    /// share.
    pub fn set(&mut self, place: &Place, values: PropertyValues, user: Option<&[u8]>) -> bool {
        self.replace(place, values, user, SHARE)
    }

    /// Gives a place the properties that it had before the server was started; `false` where there is no room for them.
    pub fn restore(&mut self, place: &Place, values: PropertyValues, user: Option<&[u8]>) -> bool {
        // They may be from before there were shares.
        self.replace(place, values, user, MAX_BYTES)
    }

    fn replace(&mut self, place: &Place, values: PropertyValues, user: Option<&[u8]>, share: usize) -> bool {
        let before = self.by_place.get(place);
        let (old, old_user) =
            before.map_or((0, None), |owned| (size(place, &owned.values), Some(owned.user.clone())));
        let new = size(place, &values);
        // A user who only takes away does not take over.
        let user = old_user.clone().filter(|_| new <= old).unwrap_or_else(|| user.map(<[u8]>::to_vec));
        let own = if old_user.as_ref() == Some(&user) { old } else { 0 };
        let of_user = self.by_user.get(&user).map_or(0, |bytes| bytes - own) + new;
        if new > old && (self.bytes - old + new > MAX_BYTES || of_user > share) {
            return false;
        }
        self.bytes = self.bytes - old + new;
        self.changes += u64::from(old > 0 || new > 0);
        if let Some(old_user) = old_user {
            self.count_user(old_user, |bytes| bytes - old);
        }
        match values.is_empty() {
            true => drop(self.by_place.remove(place)),
            false => {
                self.count_user(user.clone(), |bytes| bytes + new);
                self.by_place.insert(place.clone(), Owned { values, user });
            }
        }
        true
    }

    /// Changes what is counted of a user.
    fn count_user(&mut self, user: Option<Vec<u8>>, change: impl FnOnce(usize) -> usize) {
        let bytes = change(self.by_user.get(&user).copied().unwrap_or_default());
        match bytes {
            0 => drop(self.by_user.remove(&user)),
            _ => drop(self.by_user.insert(user, bytes)),
        }
    }

    /// Changes properties of a place, all or none, and returns them by the status that each gets: what would have been
    /// done fails with what cannot be (RFC 4918 section 9.2).
    pub fn patch(
        &mut self,
        place: &Place,
        changes: Vec<Change>,
        user: Option<&[u8]>,
    ) -> Vec<(Status, Vec<Property>)> {
        let names = changes.iter().map(|(Change::Set(name, _) | Change::Remove(name))| (name.clone(), None));
        let (barred, others): (Vec<_>, Vec<_>) = names.partition(|(name, _)| is_protected(name));
        let mut groups = if !barred.is_empty() {
            vec![(Status::FORBIDDEN, barred), (Status::FAILED_DEPENDENCY, others)]
        } else if self.apply(place, changes, user) {
            vec![(Status::OK, others)]
        } else {
            vec![(Status::INSUFFICIENT_STORAGE, others)]
        };
        groups.retain(|(_, properties)| !properties.is_empty());
        groups
    }

    fn apply(&mut self, place: &Place, changes: Vec<Change>, user: Option<&[u8]>) -> bool {
        let mut values = self.of(place).cloned().unwrap_or_default();
        for change in changes {
            match change {
                Change::Set(name, value) => _ = values.insert(name, value),
                Change::Remove(name) => _ = values.remove(&name),
            }
        }
        self.set(place, values, user)
    }

    /// What was at a place is gone.
    pub fn forget(&mut self, place: &Place) {
        self.set(place, PropertyValues::new(), None);
    }

    /// The same file has another name, or a copy, which counts as the same user's.
    pub fn copy(&mut self, from: &Place, to: &Place) {
        let known = self.by_place.get(from).map(|owned| (owned.values.clone(), owned.user.clone()));
        let (values, user) = known.unwrap_or_default();
        // What was there is gone; a copy for which there is no room has none.
        self.forget(to);
        self.set(to, values, user.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_change_all_or_none() {
        let place = Place::within((0, 0), b"f");
        let set = |local: &str, length: usize| Change::Set(Name::dav(local), "x".repeat(length));
        let remove = |local: &str| Change::Remove(Name::dav(local));
        let mut properties = Properties::default();
        for (changes, expected, kept) in [
            (vec![set("a", 1), set("b", 1)], &[(Status::OK, &["a", "b"][..])][..], &["a", "b"][..]),
            (vec![remove("a"), remove("z")], &[(Status::OK, &["a", "z"])], &["b"]),
            (
                vec![set("c", 1), set("getetag", 1), remove("b")],
                &[(Status::FORBIDDEN, &["getetag"]), (Status::FAILED_DEPENDENCY, &["c", "b"])],
                &["b"],
            ),
            (vec![remove("quota-used-bytes")], &[(Status::FORBIDDEN, &["quota-used-bytes"])], &["b"]),
            (vec![remove("b"), set("c", MAX_BYTES)], &[(Status::INSUFFICIENT_STORAGE, &["b", "c"])], &["b"]),
        ] {
            let groups = properties.patch(&place, changes, Some(b"u"));
            let names =
                |group: &[Property]| group.iter().map(|(name, _)| name.local.clone()).collect::<Vec<_>>();
            let told: Vec<_> = groups.iter().map(|(status, group)| (*status, names(group))).collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(status, names)| (*status, names.iter().map(|name| (*name).to_owned()).collect()))
                .collect();
            assert_eq!(told, expected);
            let left: Vec<_> = properties.of(&place).unwrap().keys().map(|name| &name.local).collect();
            assert_eq!(left, kept);
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_given_back() {
        let mut properties = Properties::default();
        let [one, two] = [b"1", b"2"].map(|name| Place::within((0, 0), name));
        let values = |length: usize| PropertyValues::from([(Name::dav("x"), "x".repeat(length))]);
        let user = Some(&b"u"[..]);
        assert!(properties.set(&one, values(SHARE / 2), user));
        assert!(!properties.set(&two, values(SHARE / 2), user));
        assert!(properties.set(&one, values(10), user));
        properties.copy(&one, &two);
        assert_eq!(properties.of(&two), Some(&values(10)));
        properties.forget(&one);
        properties.forget(&two);
        // A long name takes more where it is kept than a short value.
        let long = |at: usize| Place::within((0, at as u64), &[b'n'; 255]);
        let kept = (0..).take_while(|at| properties.set(&long(*at), values(1), user)).count();
        assert!((250..2200).contains(&kept), "{kept}");
        (0..kept).for_each(|at| properties.forget(&long(at)));
        assert_eq!((properties.bytes, properties.len(), properties.by_user.len()), (0, 0, 0));
    }

    #[test]
    fn a_user_has_a_share_and_leaves_the_rest_to_others() {
        let mut properties = Properties::default();
        let place = |at: usize| Place::within((0, 0), at.to_string().as_bytes());
        let values = |length: usize| PropertyValues::from([(Name::dav("x"), "x".repeat(length))]);
        let [one, two] = [Some(&b"one"[..]), Some(&b"two"[..])];
        let most = (0..).take_while(|at| properties.set(&place(*at), values(10_000), one)).count();
        assert!(most < MAX_BYTES / 10_000 / 4 + 1, "{most}");
        assert!(!properties.set(&place(most), values(10_000), one));
        assert!(properties.set(&place(most), values(10_000), two));
        assert!(properties.set(&place(most + 1), values(10_000), None), "the anonymous user is another");
        // What another user makes longer is that user's from then on; what is only made shorter stays.
        assert!(properties.set(&place(0), values(9_000), two));
        assert!(!properties.set(&place(most + 2), values(10_000), one));
        assert!(properties.set(&place(0), values(9_001), two));
        assert!(properties.set(&place(most + 2), values(10_000), one));
        (0..most + 3).for_each(|at| properties.forget(&place(at)));
        assert_eq!((properties.bytes, properties.by_user.len()), (0, 0));
    }
}
