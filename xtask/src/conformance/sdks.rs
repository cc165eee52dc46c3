//! Lists the tests of the Python, TypeScript and Go packages from their files, without their tools.

use std::path::Path;

use anyhow::Result;

/// `sdks/python::test_chaos::test_…`, `sdks/typescript::chaos::two thousand …` and
/// `sdks/go::chaos::TestTwo…`.
pub(super) fn tests(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (folder, prefix, ending) in [
        ("sdks/python/tests", "sdks/python", ".py"),
        ("sdks/typescript/test", "sdks/typescript", ".test.ts"),
        ("sdks/typescript/test", "sdks/typescript", ".test.tsx"),
        ("sdks/go", "sdks/go", "_test.go"),
    ] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(file) = name.strip_suffix(ending) else {
                continue;
            };
            let text = std::fs::read_to_string(&path)?;
            let names = text.lines().filter_map(name_in);
            found.extend(names.map(|test| format!("{prefix}::{file}::{test}")));
        }
    }
    Ok(found)
}

/// The test that a line begins, if it does.
fn name_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let python = line
        .strip_prefix("def ")
        .or_else(|| line.strip_prefix("async def "));
    if let Some(rest) = python {
        let name = rest.split('(').next()?;
        return name.starts_with("test_").then_some(name);
    }
    if let Some(rest) = line.strip_prefix("func Test") {
        let length = rest.split_once("(t *testing.T)")?.0.len();
        return line.get("func ".len()..line.len() - rest.len() + length);
    }
    line.strip_prefix("test(\"")?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_tests_are_found_and_no_others() {
        assert_eq!(name_in("def test_a() -> None:"), Some("test_a"));
        assert_eq!(name_in("async def test_b(x: int) -> None:"), Some("test_b"));
        assert_eq!(name_in("def helper() -> None:"), None);
        assert_eq!(
            name_in("  test(\"one key\", async () => {"),
            Some("one key")
        );
        assert_eq!(name_in("testing(\"no\")"), None);
        assert_eq!(name_in("func TestKeys(t *testing.T) {"), Some("TestKeys"));
        assert_eq!(name_in("func TestMain(m *testing.M) {"), None);
    }
}
