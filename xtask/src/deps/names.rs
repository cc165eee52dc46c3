//! What one file says about modules and names: the files below it, what it defines, what it
//! imports, and the paths that it mentions.

use std::collections::BTreeSet;

/// The names of one file.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The modules that it declares with `mod name;`.
    pub(super) children: BTreeSet<String>,
    /// The items that it defines.
    pub(super) defined: BTreeSet<String>,
    pub(super) uses: Vec<Use>,
    pub(super) mentions: Vec<Mention>,
}

/// One name of a `use` declaration.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// The name under which the file knows it; `*` for everything of a module, and nothing where
    /// the file itself cannot say it (`as _`, or within an inline module).
    pub(super) name: String,
    /// A file that only hands a name on does not depend on it.
    pub(super) is_reexport: bool,
    pub(super) line: usize,
}

/// A path outside of `use` declarations.
#[derive(Debug)]
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    /// `::`
    Separator,
    Other(u8),
}

/// Words before the name of an item.
const ITEMS: [&str; 8] = [
    "const", "enum", "fn", "mod", "static", "struct", "trait", "type",
];

/// Reads code that has no comments, literals and tests any more.
pub(super) fn read(code: &str) -> Names {
    let tokens = tokens(code);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        names: Names::default(),
        braces: 0,
        inline: Vec::new(),
    };
    reader.read();
    reader.names
}

fn tokens(code: &str) -> Vec<(Token<'_>, usize)> {
    let bytes = code.as_bytes();
    let is_name = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
    };
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let start = at;
        at += 1;
        match bytes[start] {
            b'\n' => line += 1,
            byte if byte.is_ascii_whitespace() => {}
            _ if is_name(start) => {
                while is_name(at) {
                    at += 1;
                }
                // A lifetime is no name.
                if start == 0 || bytes[start - 1] != b'\'' {
                    found.push((Token::Name(&code[start..at]), line));
                }
            }
            b':' if bytes.get(at) == Some(&b':') => {
                at += 1;
                found.push((Token::Separator, line));
            }
            byte => found.push((Token::Other(byte), line)),
        }
    }
    found
}

struct Reader<'a> {
    tokens: &'a [(Token<'a>, usize)],
    at: usize,
    names: Names,
    braces: usize,
    /// The depths of the inline modules around this place.
    inline: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        while let Some(token) = self.peek(0) {
            match token {
                Token::Name("use") if self.peek(1) != Some(Token::Other(b'<')) => self.read_use(),
                Token::Name(word) if ITEMS.contains(&word) => self.read_item(word),
                Token::Name("macro_rules") => {
                    self.at += 2;
                    self.define();
                }
                Token::Name(_) => self.read_mention(),
                Token::Other(b'{') => {
                    self.braces += 1;
                    self.at += 1;
                }
                Token::Other(b'}') => {
                    self.braces = self.braces.saturating_sub(1);
                    self.inline.pop_if(|depth| *depth > self.braces);
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + ahead).map(|(token, _)| *token)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |(_, line)| *line)
    }

    /// Takes the name at this place into the definitions.
    fn define(&mut self) {
        if let Some(Token::Name(name)) = self.peek(0) {
            let name = name.to_owned();
            self.names.defined.insert(name);
            self.at += 1;
        }
    }

    fn read_item(&mut self, word: &str) {
        self.at += 1;
        let Some(Token::Name(name)) = self.peek(0) else {
            return;
        };
        // `const fn`, `static mut`: the name comes later.
        if ITEMS.contains(&name) || name == "mut" || name == "unsafe" || name == "async" {
            return;
        }
        let name = name.to_owned();
        match self.peek(1) {
            Some(Token::Other(b';')) if word == "mod" => {
                self.names.children.insert(name);
                self.at += 1;
            }
            Some(Token::Other(b'{')) if word == "mod" => {
                self.define();
                self.inline.push(self.braces + 1);
            }
            _ => self.define(),
        }
    }

    fn read_mention(&mut self) {
        let line = self.line();
        let before = |back: usize| self.at.checked_sub(back).map(|at| self.tokens[at].0);
        let dot = Some(Token::Other(b'.'));
        let is_member = before(1) == dot && before(2) != dot;
        let is_rest = before(1) == Some(Token::Separator);
        let mut path = Vec::new();
        while let Some(Token::Name(name)) = self.peek(0) {
            path.push(name.to_owned());
            self.at += 1;
            if self.peek(0) != Some(Token::Separator)
                || !matches!(self.peek(1), Some(Token::Name(_)))
            {
                break;
            }
            self.at += 1;
        }
        if !is_member
            && !is_rest
            && let Some(path) = self.outside_inline(path)
        {
            self.names.mentions.push(Mention { path, line });
        }
    }

    /// The path as seen from the file's own module, if it leaves the inline modules around it.
    fn outside_inline(&self, mut path: Vec<String>) -> Option<Vec<String>> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        match self.inline.len() {
            0 => Some(path),
            depth if ups >= depth => {
                path.drain(..depth);
                if ups == depth {
                    path.insert(0, "self".to_owned());
                }
                Some(path)
            }
            _ if path[0] == "crate" => Some(path),
            _ => None,
        }
    }

    fn read_use(&mut self) {
        let before = self.at.checked_sub(1).map(|at| self.tokens[at].0);
        let is_reexport = matches!(before, Some(Token::Name("pub") | Token::Other(b')')));
        self.at += 1;
        self.read_tree(&[], is_reexport);
    }

    /// One tree of a `use` declaration; stops before the comma, brace or semicolon after it.
    fn read_tree(&mut self, start: &[String], is_reexport: bool) {
        let mut path = start.to_vec();
        let mut name = None;
        let mut line = self.line();
        while let Some(token) = self.peek(0) {
            match token {
                Token::Name("as") => {
                    self.at += 1;
                    if let Some(Token::Name(alias)) = self.peek(0) {
                        name = Some(alias.to_owned());
                    }
                }
                Token::Name(segment) => {
                    path.push(segment.to_owned());
                    line = self.line();
                }
                Token::Other(b'*') => name = Some("*".to_owned()),
                Token::Other(b'{') => return self.read_group(&path, is_reexport),
                Token::Other(b',' | b';' | b'}') => break,
                _ => {}
            }
            self.at += 1;
        }
        // `a::{self}` is `a`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
        let is_nameless = name == "_" || !self.inline.is_empty();
        if let Some(path) = self.outside_inline(path).filter(|path| !path.is_empty()) {
            self.names.uses.push(Use {
                path,
                name: if is_nameless { String::new() } else { name },
                is_reexport,
                line,
            });
        }
    }

    fn read_group(&mut self, start: &[String], is_reexport: bool) {
        while self
            .peek(0)
            .is_some_and(|token| token != Token::Other(b'}'))
        {
            self.at += 1;
            if self.peek(0) != Some(Token::Other(b'}')) {
                self.read_tree(start, is_reexport);
            }
        }
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str) -> Vec<(String, String)> {
        let names = read(code);
        let uses = names.uses.into_iter();
        uses.map(|a| (a.path.join("::"), a.name)).collect()
    }

    #[test]
    fn groups_aliases_and_globs_are_followed() {
        let found = paths("use crate::{a::{self, b as c,}, d::*};\nuse super::e::F as _;");
        let expected = [
            ("crate::a", "a"),
            ("crate::a::b", "c"),
            ("crate::d", "*"),
            ("super::e::F", ""),
        ];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn paths_of_inline_modules_are_seen_from_the_file() {
        let code = "mod m { use super::a; use super::super::b; use crate::c; use d::e; }\nuse f;";
        let found: Vec<String> = paths(code).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, ["self::a", "super::b", "crate::c", "f"]);
    }

    #[test]
    fn items_and_children_are_told_apart() {
        let names = read("mod a;\npub mod b { }\nconst fn c() {}\nmacro_rules! d { () => {} }");
        assert_eq!(names.children, BTreeSet::from(["a".to_owned()]));
        let expected = ["b", "c", "d"].map(str::to_owned);
        assert_eq!(names.defined, BTreeSet::from(expected));
    }

    #[test]
    fn mentions_are_whole_paths_and_no_members() {
        let names = read("fn f() { a::b(x.c::<D>(), ..crate::e()); pub(crate) use g::h; }");
        let found: Vec<String> = names.mentions.iter().map(|m| m.path.join("::")).collect();
        assert_eq!(found, ["a::b", "x", "D", "crate::e", "pub", "crate"]);
        assert!(names.uses[0].is_reexport);
    }
}
