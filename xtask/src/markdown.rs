//! A reader of Markdown pages: links, anchors and code blocks.

use std::collections::HashMap;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page, read.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) links: Vec<Link>,
    /// The names of its headings, as readers of Markdown make them.
    pub(crate) anchors: Vec<String>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) words: Vec<Word>,
}

/// A link, or a picture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) target: String,
    pub(crate) line: usize,
}

/// A fenced block of code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// What stands after the fence.
    pub(crate) kind: String,
    pub(crate) line: usize,
}

/// Code within a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Link {
    /// The file that it leads to and the place in it; `None` where it leads out of the repository.
    pub(crate) fn inside(&self) -> Option<(&str, Option<&str>)> {
        let outside = self.target.contains("://") || self.target.starts_with("mailto:");
        let (file, anchor) = match self.target.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor)),
            None => (self.target.as_str(), None),
        };
        (!outside).then_some((file, anchor))
    }
}

/// Reads a page.
pub(crate) fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    let mut seen: HashMap<String, usize> = HashMap::new();
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let line = || 1 + text[..range.start].matches('\n').count();
        if let Event::Code(code) = &event {
            page.words.push(Word {
                text: code.to_string(),
                line: line(),
            });
        }
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(Link {
                    target: dest_url.to_string(),
                    line: line(),
                });
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(kind))) => page.blocks.push(Block {
                kind: kind.to_string(),
                line: line(),
            }),
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = seen.entry(slug.clone()).or_default();
                page.anchors.push(match count {
                    0 => slug,
                    _ => format!("{slug}-{count}"),
                });
                *count += 1;
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    page
}

/// The name of a heading: its letters, digits, hyphens and low lines, in lower case; spaces are
/// hyphens.
pub(crate) fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// `target` as seen from `file`, without `.` and `..`; `None` where it leads out of the root. Both
/// are relative to the root.
pub(crate) fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_pictures_headings_and_code_are_found() {
        let text = "# A `b`, c\n\nsee [x](y.md#z), ![p](p.svg)\n\n```rust,no_run\n[no](link)\n```\n\n## A b c\n## A b c\n";
        let page = read(text);
        let targets: Vec<&str> = page.links.iter().map(|l| l.target.as_str()).collect();
        assert_eq!(targets, ["y.md#z", "p.svg"]);
        assert_eq!(page.links[0].line, 3);
        assert_eq!(page.anchors, ["a-b-c", "a-b-c-1", "a-b-c-2"]);
        assert_eq!(page.blocks[0].kind, "rust,no_run");
        let words: Vec<&str> = page.words.iter().map(|w| w.text.as_str()).collect();
        assert_eq!((words, page.words[0].line), (vec!["b"], 1));
    }

    #[test]
    fn what_leads_out_is_none_of_ours() {
        let link = |target: &str| Link {
            target: target.to_owned(),
            line: 1,
        };
        assert_eq!(link("https://example.com/a#b").inside(), None);
        assert_eq!(link("a.md#b").inside(), Some(("a.md", Some("b"))));
        assert_eq!(link("#b").inside(), Some(("", Some("b"))));
    }

    #[test]
    fn paths_are_seen_from_their_file() {
        assert_eq!(
            resolve("docs/a.md", "../spec/p.md").as_deref(),
            Some("spec/p.md")
        );
        assert_eq!(resolve("a.md", "./docs/b.md").as_deref(), Some("docs/b.md"));
        assert_eq!(resolve("a.md", "../out.md"), None);
    }
}
