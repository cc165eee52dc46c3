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
