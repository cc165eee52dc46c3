//! The rule for published crates: whoever finds one has its licence, its README and its
//! documentation.

use std::collections::BTreeMap;

use super::rules::{Finding, Level};

/// The name under which findings are counted.
pub(crate) const RULE: &str = "published-crates";

/// Files that each package carries. The licences are those of the root.
pub(crate) const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Entries of the manifest that a registry shows.
const ENTRIES: [&str; 7] = [
    "categories",
    "description",
    "documentation",
    "keywords",
    "license",
    "readme",
    "repository",
];

/// Checks the manifests below `crates/`; `texts` is every text file of the repository by its path.
pub(crate) fn check(texts: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in texts {
        let Some(folder) = path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        // The rule about lints reports a manifest that cannot be read.
        let Ok(manifest) = text.parse::<toml::Table>() else {
            continue;
        };
        if !folder.starts_with("crates/") || !is_published(&manifest) {
            continue;
        }
        let mut report = |place: String, message: String| {
            findings.push(Finding {
                rule: RULE,
                level: Level::Failure,
                place,
                message,
            });
        };
        for entry in missing_entries(&manifest) {
            report(path.clone(), format!("is published and lacks `{entry}`"));
        }
        for file in FILES {
            let own = texts.get(&format!("{folder}/{file}"));
            if own.is_none() {
                report(folder.to_owned(), format!("is published and lacks {file}"));
            } else if file.starts_with("LICENSE") && own != texts.get(file) {
                report(format!("{folder}/{file}"), format!("differs from {file}"));
            }
        }
    }
    findings
}

/// The folder and the name of each published package.
pub(crate) fn packages(texts: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let package = |(path, text): (&String, &String)| {
        let folder = path.strip_suffix("/Cargo.toml")?;
        let manifest = text.parse::<toml::Table>().ok()?;
        let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
        let counts = folder.starts_with("crates/") && is_published(&manifest);
        counts.then(|| (folder.to_owned(), name))
    };
    texts.iter().filter_map(package).collect()
}

fn is_published(manifest: &toml::Table) -> bool {
    let package = manifest.get("package");
    let publish = package.and_then(|package| package.get("publish"));
    package.is_some() && publish.and_then(toml::Value::as_bool) != Some(false)
}

fn missing_entries(manifest: &toml::Table) -> Vec<&'static str> {
    let package = manifest.get("package");
    let entry = |name: &str| package.and_then(|package| package.get(name));
    let mut missing: Vec<_> = ENTRIES
        .into_iter()
        .filter(|name| entry(name).is_none())
        .collect();
    let docs = entry("metadata").and_then(|metadata| metadata.get("docs"));
    let docs = docs.and_then(|docs| docs.get("rs")?.get("all-features"));
    if docs.and_then(toml::Value::as_bool) != Some(true) {
        missing.push("metadata.docs.rs.all-features = true");
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str = "[package]\nname = \"a\"\ncategories.workspace = true\n\
        description = \"x\"\ndocumentation = \"x\"\nkeywords = []\nlicense = \"x\"\n\
        readme = \"README.md\"\nrepository = \"x\"\n\
        [package.metadata.docs.rs]\nall-features = true\n";

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()));
        let found = check(&texts.collect());
        found
            .into_iter()
            .map(|f| format!("{} {}", f.place, f.message))
            .collect()
    }

    #[test]
    fn complete_and_unpublished_crates_are_fine() {
        let found = messages(&[
            ("LICENSE-APACHE", "a"),
            ("LICENSE-MIT", "m"),
            ("crates/a/Cargo.toml", COMPLETE),
            ("crates/a/LICENSE-APACHE", "a"),
            ("crates/a/LICENSE-MIT", "m"),
            ("crates/a/README.md", "r"),
            ("crates/b/Cargo.toml", "[package]\npublish = false\n"),
            ("xtask/Cargo.toml", "[package]\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn what_a_published_crate_lacks_is_reported() {
        let bare = COMPLETE.replace("keywords = []\n", "");
        let bare = bare.replace("all-features = true", "features = []");
        let found = messages(&[
            ("LICENSE-APACHE", "a"),
            ("LICENSE-MIT", "m"),
            ("crates/a/Cargo.toml", &bare),
            ("crates/a/LICENSE-MIT", "another"),
            ("crates/a/README.md", "r"),
        ]);
        let expected = [
            "crates/a/Cargo.toml is published and lacks `keywords`",
            "crates/a/Cargo.toml is published and lacks `metadata.docs.rs.all-features = true`",
            "crates/a is published and lacks LICENSE-APACHE",
            "crates/a/LICENSE-MIT differs from LICENSE-MIT",
        ];
        assert_eq!(found, expected);
    }
}
