//! A small reader of Rust source: the module path of a file, and its code without comments,
//! literals and tests.

use std::path::Path;

/// The module path of a file below `src/`; empty for the crate root.
pub(super) fn module_path(relative: &Path) -> Vec<String> {
    let mut names: Vec<String> = relative
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let is_root = names.len() == 1 && matches!(names[0].as_str(), "lib" | "main");
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// The source with comments and literals blanked out, line by line as before.
pub(super) fn without_texts(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_end(bytes, at) {
            Some(end) => end,
            None => {
                at += 1;
                continue;
            }
        };
        blank(&mut out[at..end]);
        at = end;
    }
    String::from_utf8(out).unwrap_or_default()
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The end of the comment or literal that begins here, if one does.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let find = |from: usize, text: &[u8]| {
        let tail = rest.get(from..).unwrap_or_default();
        let found = tail.windows(text.len()).position(|window| window == text);
        at + found.map_or(rest.len(), |found| from + found + text.len())
    };
    let follows_name = at > 0 && is_name(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => Some(find(2, b"\n")),
        [b'/', b'*', ..] => Some(find(2, b"*/")),
        [b'"', ..] => Some(at + quoted(rest, b'"')),
        [b'r', b'"' | b'#', ..] if !follows_name || bytes[at - 1] == b'b' => {
            let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
            let is_text = rest.get(1 + hashes) == Some(&b'"');
            let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
            is_text.then(|| find(2 + hashes, &close))
        }
        // A character, and not a lifetime.
        [b'\'', b'\\', ..] => Some(at + quoted(rest, b'\'')),
        [b'\'', _, b'\'', ..] => Some(at + 3),
        _ => None,
    }
}

/// The length of a literal in quotes with escapes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The code with items under `#[cfg(test)]` blanked out.
pub(super) fn without_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(") {
        let start = from + found;
        let Some(length) = code[start..].find(']') else {
            break;
        };
        let end = start + length + 1;
        from = end;
        if is_for_tests(&code[start..end]) {
            from = end + item_length(&code[end..]);
            blank(&mut out[start..from]);
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

fn is_for_tests(attribute: &str) -> bool {
    let mut names = attribute.split(|c: char| !c.is_alphanumeric() && c != '_');
    names.any(|name| name == "test") && !attribute.contains("not(")
}

/// The length of the item that begins here: up to its semicolon or its closing brace.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_paths_follow_files_and_folders() {
        for (file, expected) in [
            ("lib.rs", vec![]),
            ("a.rs", vec!["a"]),
            ("a/mod.rs", vec!["a"]),
            ("a/b.rs", vec!["a", "b"]),
            ("bin/tool.rs", vec!["bin", "tool"]),
        ] {
            assert_eq!(module_path(Path::new(file)), expected, "{file}");
        }
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let source = "a // b\n\"c\\\" d\" 'e' '\\'' r#\"f \" g\"# /* h\n */ i<'j>()";
        let code = without_texts(source);
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>(),
            ["a", "i<'j>()"]
        );
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn test_items_are_blanked() {
        let code = "#[cfg(test)]\nmod tests { use crate::a; fn f() {} }\nuse crate::b;\n\
                    #[cfg(all(test, unix))]\nuse crate::c;\n#[cfg(not(test))]\nuse crate::d;";
        let left = without_tests(code);
        let left: Vec<&str> = left.split_whitespace().collect();
        let expected = ["use", "crate::b;", "#[cfg(not(test))]", "use", "crate::d;"];
        assert_eq!(left, expected);
    }
}
