//! Patterns of paths, of hooks' rules and of what HTTP says of some paths.
//!
//! However many `**` a pattern has, each component of a path is compared with each part of it once: paths are the clients'
//! to choose, and are matched on the reactors.

use millrace_ftp::glob::Glob;
use millrace_ftp::listing::search::{Level, Searched};
use millrace_vfs::VirtualPath;

/// A pattern of paths: `/in/*.zip`, `/home/*/drafts/**`. `**` stands for any number of components. Other than in
/// listings, a `*` matches hidden names too.
#[derive(Debug, Clone)]
pub struct PathPattern(Vec<Option<Glob>>);

impl PathPattern {
    /// Compiles a pattern.
    pub fn new(pattern: &str) -> Self {
        let components = pattern.split('/').filter(|component| !component.is_empty());
        Self(components.map(|one| (one != "**").then(|| Glob::new(one.as_bytes()))).collect())
    }

    /// Returns true if a path matches.
    pub fn covers(&self, path: &VirtualPath) -> bool {
        self.matches(&path.components().collect::<Vec<_>>())
    }

    /// Returns true if a folder may match which is gone into.
    pub(super) fn may_cover(&self, searched: &Searched) -> bool {
        let mut ways = vec![self.begun()];
        let mut gone_into = |level: &Level| {
            match level {
                Level::Name(name) if name == b".." => {
                    // Above the first there is nothing.
                    ways.truncate((ways.len() - 1).max(1));
                }
                Level::Name(name) => ways.push(self.behind(&ways, |glob| matches_hidden(glob, name))),
                Level::Pattern(pattern) => ways.push(self.behind(&ways, |glob| glob.overlaps(pattern))),
            }
            ways.last().is_some_and(|places| places[self.0.len()])
        };
        for name in searched.folder.components() {
            gone_into(&Level::Name(name.to_vec()));
        }
        searched.levels.iter().any(gone_into)
    }

    /// Returns true if a folder matches, or that something may which lies in it, however deep.
    pub(super) fn may_cover_within(&self, folder: &VirtualPath) -> bool {
        let way = folder
            .components()
            .fold(self.begun(), |way, name| self.behind(&[way], |glob| matches_hidden(glob, name)));
        way.contains(&true)
    }

    /// Returns true if names match, each one component.
    pub(super) fn matches(&self, components: &[&[u8]]) -> bool {
        let begun = vec![self.begun()];
        let ways = components
            .iter()
            .fold(begun, |ways, name| vec![self.behind(&ways, |glob| matches_hidden(glob, name))]);
        ways[0][self.0.len()]
    }

    /// Where in the pattern one may be before the first component. However many ways there are to some place, each
    /// component is compared with each part once.
    fn begun(&self) -> Vec<bool> {
        let mut places = vec![false; self.0.len() + 1];
        places[0] = true;
        self.pass(places)
    }

    /// Where one may be behind another component, from where the last of these ways leads.
    fn behind(&self, ways: &[Vec<bool>], matches: impl Fn(&Glob) -> bool) -> Vec<bool> {
        let mut places = vec![false; self.0.len() + 1];
        let parts = self.0.iter().enumerate();
        for (place, part) in parts.filter(|(place, _)| ways.last().is_some_and(|before| before[*place])) {
            match part {
                None => places[place] = true,
                Some(glob) => places[place + 1] |= matches(glob),
            }
        }
        self.pass(places)
    }

    /// `**` stands for no component, too.
    fn pass(&self, mut places: Vec<bool>) -> Vec<bool> {
        for (place, part) in self.0.iter().enumerate() {
            places[place + 1] |= places[place] && part.is_none();
        }
        places
    }
}

fn matches_hidden(glob: &Glob, name: &[u8]) -> bool {
    if glob.matches(name) {
        return true;
    }
    match name.split_first() {
        // As if its dot were any other character.
        Some((b'.', rest)) if !glob.names_hidden() => glob.matches(&[&[1], rest].concat()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let path = VirtualPath::parse(path.as_bytes()).unwrap();
        PathPattern::new(pattern).matches(&path.components().collect::<Vec<_>>())
    }

    #[test]
    fn a_pattern_knows_what_may_lie_in_a_folder() {
        for (pattern, folder, expected) in [
            ("/in/secret/**", "/in", true),
            ("/in/secret/**", "/in/secret", true),
            ("/in/secret/**", "/in/secret/a/b", true),
            ("/in/secret/**", "/in/open", false),
            ("/in/*/keys", "/in/a", true),
            ("/in/*/keys", "/in/a/b", false),
            ("/in", "/in", true),
            ("/in", "/in/a", false),
            ("/**/*.key", "/any/where", true),
            ("/out/*", "/in", false),
            ("/out/*", "/", true),
        ] {
            let folder = VirtualPath::parse(folder.as_bytes()).unwrap();
            assert_eq!(PathPattern::new(pattern).may_cover_within(&folder), expected, "{pattern} {folder}");
        }
    }

    #[test]
    fn patterns_match_paths_and_hidden_names_too() {
        for (pattern, path, expected) in [
            ("/in/*", "/in/a", true),
            ("/in/*", "/in/.hidden", true),
            ("/in/*", "/in/a/b", false),
            ("/in/**", "/in/a/b", true),
            ("/in/**", "/in", true),
            ("/**/*.zip", "/a/b/c.zip", true),
            ("/**/*.zip", "/c.zip", true),
            ("/**/*.zip", "/c.zip.txt", false),
            ("/home/*/drafts/**", "/home/ann/drafts/x/y", true),
            ("/home/*/drafts/**", "/home/ann/x", false),
            ("**", "/", true),
            ("/**/a/**/b/**/c", "/x/a/y/b/c", true),
            ("/**/a/**/b/**/c", "/x/b/y/a/c", false),
            ("/**/**", "/a", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        // Tried way by way this would take years.
        assert!(!matches(&"/**/a".repeat(12), &"/a/b".repeat(1000)));
    }

    /// Matches a pattern by trying all alternatives: each part stands for one component, and `**` for any number of
    /// them.
    fn means<T>(pattern: &[Option<Glob>], rest: &[T], is_one: &dyn Fn(&Glob, &T) -> bool) -> bool {
        match (pattern.split_first(), rest.split_first()) {
            (None, None) => true,
            (Some((None, after)), _) => {
                (0..=rest.len()).any(|skipped| means(after, &rest[skipped..], is_one))
            }
            (Some((Some(glob), after)), Some((one, beneath))) => {
                is_one(glob, one) && means(after, beneath, is_one)
            }
            (None, Some(_)) | (Some((Some(_), _)), None) => false,
        }
    }

    /// Any path of these components.
    fn paths(components: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
        proptest::collection::vec(proptest::sample::select(components), 0..6)
    }

    proptest! {
        #[test]
        fn patterns_mean_what_trying_every_way_says(
            pattern in paths(&["a", "b", "a*", "*", "?b", "**", "**"]),
            path in paths(&["a", "b", "ab", ".b"]),
            levels in paths(&["a", "b", "b*", "*", "..", ".."]),
        ) {
            let pattern = PathPattern::new(&pattern.join("/"));
            let names: Vec<&[u8]> = path.iter().map(|name| name.as_bytes()).collect();
            let expected = means(&pattern.0, &names, &|glob, name| matches_hidden(glob, name));
            prop_assert_eq!(pattern.matches(&names), expected);

            let folder = VirtualPath::parse(format!("/{}", path.join("/")).as_bytes()).unwrap();
            let mut at: Vec<Level> = names.iter().map(|name| Level::Name(name.to_vec())).collect();
            let levels: Vec<Level> = levels.iter().map(|level| Level::new(level.as_bytes())).collect();
            let expected = levels.iter().any(|level| {
                match level {
                    Level::Name(name) if name == b".." => drop(at.pop()),
                    level => at.push(level.clone()),
                }
                means(&pattern.0, &at, &|glob, level| match level {
                    Level::Name(name) => matches_hidden(glob, name),
                    Level::Pattern(level) => glob.overlaps(level),
                })
            });
            prop_assert_eq!(pattern.may_cover(&Searched { folder, levels }), expected);
        }
    }
}
