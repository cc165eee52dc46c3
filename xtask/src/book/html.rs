//! Follows every link of the built pages, because links may break on the way from Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::markdown::resolve;

pub(crate) struct Checked {
    pub(crate) pages: usize,
    pub(crate) broken: Vec<String>,
}

/// The print page and the error page, which are not linked to.
const LEFT_OUT: [&str; 2] = ["print.html", "404.html"];

/// Follows the links of all pages under `root`.
pub(crate) fn check(root: &Path) -> Result<Checked> {
    let mut files = BTreeSet::new();
    walk(root, root, &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.ends_with(".html")) {
        let text = std::fs::read_to_string(root.join(file))
            .with_context(|| format!("cannot read {file}"))?;
        pages.insert(file.as_str(), text);
    }
    let ids: BTreeMap<&str, BTreeSet<&str>> = pages
        .iter()
        .map(|(file, text)| (*file, values(text, " id=\"").collect()))
        .collect();
    let mut broken = BTreeSet::new();
    for (file, text) in pages.iter().filter(|(file, _)| !LEFT_OUT.contains(file)) {
        for target in values(text, " href=\"").chain(values(text, " src=\"")) {
            if let Some(why) = wrong(file, target, &files, &ids) {
                broken.insert(format!("{file}: {target}: {why}"));
            }
        }
    }
    Ok(Checked {
        pages: pages.len(),
        broken: broken.into_iter().collect(),
    })
}

fn walk(root: &Path, folder: &Path, files: &mut BTreeSet<String>) -> Result<()> {
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            walk(root, &path, files)?;
        } else if let Ok(inside) = path.strip_prefix(root) {
            files.insert(inside.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(attribute)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
}

fn wrong(
    file: &str,
    target: &str,
    files: &BTreeSet<String>,
    ids: &BTreeMap<&str, BTreeSet<&str>>,
) -> Option<&'static str> {
    let outside = ["://", "mailto:", "data:", "javascript:"];
    if target.is_empty() || outside.iter().any(|mark| target.contains(mark)) {
        return None;
    }
    let (path, anchor) = target
        .split_once('#')
        .map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = path.split('?').next().unwrap_or_default();
    let Some(page) = (if path.is_empty() {
        Some(file.to_owned())
    } else {
        resolve(file, path)
    }) else {
        return Some("leads out of the book");
    };
    if !files.contains(&page) {
        return Some("there is no such file");
    }
    let anchor = anchor.filter(|anchor| !anchor.is_empty())?;
    let known = ids.get(page.as_str())?;
    (!known.contains(anchor)).then_some("there is no such place on that page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_to_their_place() {
        let files: BTreeSet<String> = ["a.html", "b/c.html", "b/p.svg"].map(str::to_owned).into();
        let ids = BTreeMap::from([
            ("a.html", BTreeSet::from(["here"])),
            ("b/c.html", BTreeSet::new()),
        ]);
        let wrong = |target| wrong("b/c.html", target, &files, &ids);
        assert_eq!(wrong("../a.html#here"), None);
        assert_eq!(wrong("p.svg"), None);
        assert_eq!(wrong("https://example.com/x#y"), None);
        assert!(wrong("../a.html#there").is_some());
        assert!(wrong("d.html").is_some());
        assert!(wrong("../../a.html").is_some());
    }

    #[test]
    fn attributes_are_found() {
        let text = r#"<a href="x.html">x</a><img alt="" src="p.png"><h2 id="here">"#;
        assert_eq!(values(text, " href=\"").collect::<Vec<_>>(), ["x.html"]);
        assert_eq!(values(text, " src=\"").collect::<Vec<_>>(), ["p.png"]);
        assert_eq!(values(text, " id=\"").collect::<Vec<_>>(), ["here"]);
    }
}
