//! The rules, each a function from one file to its findings.

use serde::Serialize;

/// Above this length, a file should be split at the next change.
const LONG: usize = 300;

/// Above this length, a file must be split.
const TOO_LONG: usize = 600;

/// The width of comments in Rust. The formatter holds the code to it and leaves comments alone.
const COMMENT_WIDTH: usize = 100;

/// Files whose length counts.
const SOURCE_ENDINGS: [&str; 7] = [".rs", ".py", ".ts", ".tsx", ".js", ".mjs", ".go"];

/// Folders at the root of one particular machine. Without their slashes, so that this list does not
/// break the rule that it feeds.
const MACHINE_FOLDERS: [&str; 6] = ["home", "root", "Users", "work", "workspace", "builds"];

/// Hosts of package registries: a package is named by its name, and where it comes from is each
/// machine's own setting. In two parts for the same reason.
const REGISTRY_HOSTS: [(&str, &str); 6] = [
    ("crates", ".io"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("deb.debian", ".org"),
];

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Warning,
    Failure,
}

/// A finding.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) rule: &'static str,
    pub(crate) level: Level,
    pub(crate) place: String,
    pub(crate) message: String,
}

/// The names under which findings are counted.
pub(crate) const RULES: [&str; 4] = [
    "file-length",
    "forbidden-words",
    "inherited-lints",
    "comment-width",
];

/// All rules on one text file; `path` is relative to the root.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(file_length(path, text));
    findings.extend(forbidden_words(path, text));
    findings.extend(inherited_lints(path, text));
    findings.extend(comment_width(path, text));
    findings
}

fn file_length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    if !SOURCE_ENDINGS.iter().any(|ending| path.ends_with(ending)) || lines <= LONG {
        return None;
    }
    let level = if lines > TOO_LONG {
        Level::Failure
    } else {
        Level::Warning
    };
    let message = format!("{lines} lines; aim below {LONG}, never past {TOO_LONG}");
    Some(Finding {
        rule: RULES[0],
        level,
        place: path.to_owned(),
        message,
    })
}

fn forbidden_words(path: &str, text: &str) -> Vec<Finding> {
    // Cargo writes where each package came from into its lock file; nobody chose that text.
    if path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words_in(line) {
            findings.push(Finding {
                rule: RULES[1],
                level: Level::Failure,
                place: format!("{path}:{}", number + 1),
                message: format!("must not name {word}"),
            });
        }
    }
    findings
}

fn words_in(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for folder in MACHINE_FOLDERS {
        let word = format!("/{folder}/");
        if line
            .match_indices(&word)
            .any(|(at, _)| starts_a_path(&line[..at]))
        {
            words.push(word);
        }
    }
    for (name, ending) in REGISTRY_HOSTS {
        let word = format!("{name}{ending}");
        if line.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// Whether a slash after `before` begins an absolute path, rather than goes on with a relative one
/// or with an address.
fn starts_a_path(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "._-/}*~".contains(c))
}

/// Comments that are wider than the code. Rows of tables, code between fences and addresses have no
/// place to break.
fn comment_width(path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_code = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if comment.starts_with("```") {
            in_code = !in_code;
        }
        let breakable = comment.contains(' ') && !comment.starts_with('|') && !in_code;
        let width = line.chars().count();
        if width > COMMENT_WIDTH && breakable {
            findings.push(Finding {
                rule: RULES[3],
                level: Level::Failure,
                place: format!("{path}:{}", number + 1),
                message: format!("{width} columns; comments have at most {COMMENT_WIDTH}"),
            });
        }
    }
    findings
}

/// The macros of this crate write code that allows `unsafe_code`, which `forbid` refuses. So its
/// manifest repeats the lints of the workspace, with `deny`.
const REPEATS_LINTS: &str = "crates/node/Cargo.toml";

/// The lints of the workspace, with `deny` for `forbid`.
fn repeated_lints() -> Option<toml::Value> {
    let root: toml::Table = include_str!("../../../Cargo.toml").parse().ok()?;
    let mut lints = root.get("workspace")?.get("lints")?.clone();
    let rust = lints.get_mut("rust")?.as_table_mut()?;
    rust.insert("unsafe_code".to_owned(), "deny".into());
    Some(lints)
}

fn inherited_lints(path: &str, text: &str) -> Option<Finding> {
    if !(path == "Cargo.toml" || path.ends_with("/Cargo.toml")) {
        return None;
    }
    let broken = |message: String| Finding {
        rule: RULES[2],
        level: Level::Failure,
        place: path.to_owned(),
        message,
    };
    let manifest: toml::Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return Some(broken(format!("not TOML: {error}"))),
    };
    // An example is an application, with rules of its own; the root of a workspace has nobody to
    // inherit from.
    if path.starts_with("examples/") {
        return None;
    }
    if !manifest.contains_key("package") || manifest.contains_key("workspace") {
        return None;
    }
    if path == REPEATS_LINTS {
        let repeats = manifest.get("lints") == repeated_lints().as_ref();
        return (!repeats)
            .then(|| broken("needs the lints of the workspace, `unsafe_code` denied".to_owned()));
    }
    let inherits = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"));
    if inherits.and_then(toml::Value::as_bool) == Some(true) {
        return None;
    }
    Some(broken("needs `[lints] workspace = true`".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        "x\n".repeat(count)
    }

    #[test]
    fn long_files_warn_and_very_long_ones_fail() {
        assert!(check("a.rs", &lines(300)).is_empty());
        assert_eq!(check("a.rs", &lines(301))[0].level, Level::Warning);
        assert_eq!(check("a.rs", &lines(600))[0].level, Level::Warning);
        assert_eq!(check("a.py", &lines(601))[0].level, Level::Failure);
        assert_eq!(check("a.go", &lines(601))[0].level, Level::Failure);
        assert!(check("a.md", &lines(601)).is_empty(), "prose may be long");
    }

    #[test]
    fn the_paths_of_a_machine_fail() {
        for folder in MACHINE_FOLDERS {
            let text = format!("fine\nread(\"/{folder}/someone/notes\")\n");
            let findings = check("docs/a.md", &text);
            assert_eq!(findings.len(), 1, "{folder}");
            assert_eq!(findings[0].place, "docs/a.md:2");
            assert_eq!(findings[0].level, Level::Failure);
        }
    }

    #[test]
    fn the_rest_of_a_longer_path_is_no_machine_path() {
        for folder in MACHINE_FOLDERS {
            let text = format!("see examples/{folder}/guide and https://example.com/{folder}/a");
            assert!(check("a.md", &text).is_empty(), "{text}");
        }
    }

    #[test]
    fn registry_hosts_fail_but_not_in_the_lock_file() {
        for (name, ending) in REGISTRY_HOSTS {
            let text = format!("https://{name}{ending}/thing");
            assert_eq!(check("README.md", &text).len(), 1, "{text}");
            assert!(check("Cargo.lock", &text).is_empty());
        }
    }

    #[test]
    fn wide_comments_fail() {
        let words = "word ".repeat(30);
        for mark in ["//", "///", "//!", "    // -"] {
            let findings = check("a.rs", &format!("{mark} {words}\n"));
            assert_eq!(findings.len(), 1, "{mark}");
            assert_eq!(findings[0].rule, "comment-width");
        }
        assert!(check("a.py", &format!("// {words}\n")).is_empty());
    }

    #[test]
    fn tables_code_and_addresses_may_be_wide() {
        let words = "word ".repeat(30);
        let address = format!("// https://example.com/{}\n", "a".repeat(100));
        let code = format!("//! ```\n//! {words}\n//! ```\n");
        for text in [format!("//! | {words} |\n"), code.clone(), address] {
            assert!(check("a.rs", &text).is_empty(), "{text}");
        }
        let after_code = format!("{code}//! {words}\n");
        assert_eq!(check("a.rs", &after_code).len(), 1, "the fence has ended");
    }

    #[test]
    fn this_file_keeps_its_own_rules() {
        assert!(check("xtask/src/house/rules.rs", include_str!("rules.rs")).is_empty());
    }

    #[test]
    fn a_crate_without_inherited_lints_fails() {
        let bare = "[package]\nname = \"a\"\n";
        assert_eq!(
            check("crates/a/Cargo.toml", bare)[0].rule,
            "inherited-lints"
        );
        let off = format!("{bare}[lints]\nworkspace = false\n");
        assert_eq!(check("crates/a/Cargo.toml", &off).len(), 1);
        assert_eq!(check("crates/a/Cargo.toml", "[package").len(), 1, "damaged");
        let is_fine = |text: &str| check("a/Cargo.toml", text).is_empty();
        assert!(is_fine(&format!("{bare}[lints]\nworkspace = true\n")));
        assert!(is_fine(&format!("lints.workspace = true\n{bare}")));
        assert!(check("Cargo.toml", "[workspace]\nmembers = []\n").is_empty());
    }
}
