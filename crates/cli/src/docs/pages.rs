//! The pages of the documentation, and a search in them.

use std::borrow::Cow;

use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "../../docs/"]
#[include = "*.md"]
#[exclude = "SUMMARY.md"]
#[exclude = "book/*"]
struct Files;

const README: &str = include_str!("../../../../README.md");

/// The most pages that a search returns.
const MOST_HITS: usize = 8;

/// The most characters of an excerpt.
const EXCERPT: usize = 240;

/// A page.
pub(super) struct Page {
    /// Its path without the ending: `stores/redis`.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) text: Cow<'static, str>,
}

/// A page that a search found.
pub(super) struct Hit {
    pub(super) page: Page,
    /// The line that fits best.
    pub(super) excerpt: String,
    score: usize,
}

/// All pages by name; the README comes first.
pub(super) fn all() -> Vec<Page> {
    let mut names: Vec<_> = Files::iter().collect();
    names.sort();
    let files = names.iter().filter_map(|name| {
        let text = match Files::get(name)?.data {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        };
        Some(page(name.trim_end_matches(".md"), text))
    });
    std::iter::once(page("readme", Cow::Borrowed(README)))
        .chain(files)
        .collect()
}

fn page(name: &str, text: Cow<'static, str>) -> Page {
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    Page {
        name: name.to_owned(),
        title: heading.unwrap_or(name).to_owned(),
        text,
    }
}

/// The page of this name, in whatever letters; the ending and a leading `docs/` may be there.
pub(super) fn find(name: &str) -> Option<Page> {
    let name = name.trim().trim_start_matches("docs/");
    let name = name.trim_end_matches(".md");
    let mut pages = all().into_iter();
    pages.find(|page| page.name.eq_ignore_ascii_case(name))
}

/// The pages that contain every word: guides first, then pages about the project itself, those that
/// contain the words most often first. A word in the title counts ten times.
pub(super) fn search(words: &str) -> Vec<Hit> {
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    if words.is_empty() {
        return Vec::new();
    }
    let mut hits: Vec<Hit> = all()
        .into_iter()
        .filter_map(|page| hit(page, &words))
        .collect();
    hits.sort_by(|a, b| {
        let is_internal = |hit: &Hit| is_about_the_project(&hit.page.name);
        is_internal(a)
            .cmp(&is_internal(b))
            .then_with(|| b.score.cmp(&a.score))
            .then_with(|| a.page.name.cmp(&b.page.name))
    });
    hits.truncate(MOST_HITS);
    hits
}

/// Whether a page tells how Semel is made, not how it is used.
fn is_about_the_project(name: &str) -> bool {
    name == "conformance" || name.starts_with("documents/") || name.starts_with("adr/")
}

fn hit(page: Page, words: &[String]) -> Option<Hit> {
    let (text, title) = (page.text.to_lowercase(), page.title.to_lowercase());
    let mut score = 0;
    for word in words {
        let in_text = text.matches(word.as_str()).count();
        if in_text == 0 {
            return None;
        }
        // A long page is not better for being long.
        score += in_text.min(10) + 10 * usize::from(title.contains(word.as_str()));
    }
    let fit = |line: &str| {
        let line = line.to_lowercase();
        words
            .iter()
            .filter(|word| line.contains(word.as_str()))
            .count()
    };
    let lines = page.text.lines().filter(|line| !line.starts_with('#'));
    let best = lines.rev().max_by_key(|line| fit(line)).unwrap_or_default();
    let excerpt = best.chars().take(EXCERPT).collect();
    Some(Hit {
        page,
        excerpt,
        score,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_by_name_and_by_words() {
        let pages = all();
        assert_eq!(pages[0].name, "readme");
        assert!(pages.len() > 40, "{}", pages.len());
        for name in ["guarantees", "docs/guarantees.md", "Stores/Redis"] {
            assert!(find(name).is_some(), "{name}");
        }
        assert!(find("../Cargo.toml").is_none());
        let internal = |hit: &Hit| is_about_the_project(&hit.page.name);
        assert!(search("takeover hold").is_sorted_by_key(internal));
        let hits = search("in doubt resolve");
        assert!(!hits.is_empty() && hits.len() <= MOST_HITS);
        assert!(
            hits.iter()
                .all(|hit| hit.excerpt.chars().count() <= EXCERPT)
        );
        assert!(search("").is_empty() && search("xyzzyplugh").is_empty());
    }
}
