//! Blocks of code in Markdown pages, for tests that run what documents say.

use std::path::PathBuf;

/// A fenced block of a page.
#[derive(Debug)]
pub struct Block {
    /// What stands after the fence, such as `sh`.
    pub kind: String,
    /// The lines between the fences.
    pub text: String,
    /// Where it begins.
    pub line: usize,
}

impl Block {
    /// The name of the file that the block is, from the comment in its first line.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        let name = first
            .strip_prefix("# ")
            .or_else(|| first.strip_prefix("// "))?;
        let is_name = name.contains('.') && !name.contains(' ');
        is_name.then_some(name)
    }
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The blocks of a page, in order.
///
/// # Panics
/// Where a block has no end.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let mut text = String::new();
        loop {
            let (_, line) = lines.next().expect("a block has an end");
            if line == "```" {
                break;
            }
            text.push_str(line);
            text.push('\n');
        }
        blocks.push(Block {
            kind: kind.to_owned(),
            text,
            line: number + 1,
        });
    }
    blocks
}

/// A shell block, and what the page says that it prints.
#[derive(Debug)]
pub struct ShellBlock {
    /// The commands.
    pub text: String,
    /// The `text` block that follows it directly.
    pub output: Option<String>,
    /// Where it begins.
    pub line: usize,
}

/// The shell blocks of a page, each with the output that the page shows.
#[must_use]
pub fn commands(page: &str) -> Vec<ShellBlock> {
    let mut found: Vec<ShellBlock> = Vec::new();
    let mut follows_shell = false;
    for block in blocks(page) {
        let is_shell = block.kind == "sh";
        if is_shell {
            found.push(ShellBlock {
                text: block.text,
                output: None,
                line: block.line,
            });
        } else if block.kind == "text"
            && follows_shell
            && let Some(shell) = found.last_mut()
        {
            shell.output = Some(block.text);
        }
        follows_shell = is_shell;
    }
    found
}

/// Checks that every line of `expected` was printed, in this order. `…` stands for any text within
/// a line; other lines may stand in between. The number of spaces does not count, because the
/// columns of a table depend on its content.
///
/// # Panics
/// Where a line is missing.
pub fn assert_shown(expected: &str, printed: &str, line: usize) {
    let mut lines = printed.lines().map(str::trim_end);
    for wanted in expected.lines().filter(|wanted| !wanted.trim().is_empty()) {
        assert!(
            lines.any(|line| is_like(wanted.trim_end(), line)),
            "the block at line {line} does not print {wanted:?}, but:\n{printed}"
        );
    }
}

/// Whether `line` is `pattern`, in which `…` stands for any text.
fn is_like(pattern: &str, line: &str) -> bool {
    let single_spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (&*single_spaced(pattern), &*single_spaced(line));
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut ends_open = false;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        ends_open = part.is_empty();
    }
    rest.is_empty() || ends_open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_compared_line_by_line() {
        assert!(is_like("a…c", "abbc") && is_like("a…", "abc") && is_like("…", "x"));
        assert!(!is_like("a…c", "abd") && !is_like("ab", "abc") && !is_like("a", "b"));
        let page = "```sh\necho 1\n```\n\n```text\n1\n```\n\n```sh\necho 2\n```\n\n```json\n{}\n```\n\n```text\nno\n```\n";
        let found = commands(page);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].output.as_deref(), Some("1\n"));
        assert_eq!(found[1].output, None, "something else stands in between");
    }

    #[test]
    fn a_block_names_its_file_in_its_first_line() {
        let page = "```python\n# app.py\n```\n```toml\n# a comment. Not a name\n```\n```rust\n// src/main.rs\n```\n";
        let files: Vec<Option<String>> = blocks(page)
            .iter()
            .map(|block| block.file().map(str::to_owned))
            .collect();
        assert_eq!(
            files,
            [Some("app.py".into()), None, Some("src/main.rs".into())]
        );
    }

    #[test]
    #[should_panic(expected = "does not print")]
    fn a_missing_line_is_noticed() {
        assert_shown("1\n3\n", "1\n2\n", 1);
    }
}
