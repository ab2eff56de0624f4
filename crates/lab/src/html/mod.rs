//! One page with plots, for who reads no tables.
//!
//! A page is self-contained and makes no requests, which `Content-Security-Policy` also enforces: it opens offline,
//! from a mail or a build's artifacts. Its numbers are the JSON's; see [`words::number`].

mod bars;
mod parts;
mod pictures;
mod plot;
mod race;
mod run;
mod search;
mod words;

pub use self::race::render as race;
pub use self::run::render as run;
pub use self::search::render as search;

use self::words::escaped;

const STYLE: &str = include_str!("style.css");

/// The frame around everything; `kind` stands small above the title.
fn page(kind: &str, title: &str, about: &str, body: &str) -> String {
    let (kind, title, about) = (escaped(kind), escaped(title), escaped(about));
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title} - {kind}</title>
<style>
{STYLE}</style>
</head>
<body>
<main>
<header><p class="kind">{kind}</p><h1>{title}</h1><p class="soft">{about}</p></header>
{body}</main>
</body>
</html>
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_makes_no_requests() {
        let page = page("a <kind>", "a title", "about", "");
        for outward in ["http:", "https:", "url(", "@import", "<script", "<link", "src="] {
            assert!(!page.contains(outward), "{outward}");
        }
        assert!(page.contains("a &lt;kind&gt;"));
    }
}
