//! Canonical form of plain JSON in one pass.
//!
//! Most payloads are plain: printable ASCII, no escapes, whole numbers of few digits, little
//! nesting. Such a text becomes canonical by leaving out white space and ordering the members of
//! objects. Anything else, and anything that has to be refused, goes to the full parser of
//! [`crate::canonical`]: this scanner decides nothing but that it isn't plain.
//!
//! Written here because a parser that visits each value costs several times as much, and because
//! no JSON library copies the text of its values as it stands.

use std::cmp::Ordering;

/// The deepest nesting that counts as plain. It bounds the recursion.
const MAX_PLAIN_DEPTH: usize = 16;

/// The most digits of a plain number: every number of so many is exact as a double.
const MAX_PLAIN_DIGITS: usize = 15;

/// Appends the canonical form of a plain JSON text to `out`. `None` if the text isn't plain: `out`
/// is then as it was.
pub(crate) fn append(out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    let before = out.len();
    let mut scanner = Scanner {
        text,
        at: 0,
        copied: 0,
        out,
        members: Vec::new(),
    };
    let done = scanner.document();
    if done.is_none() {
        out.truncate(before);
    }
    done
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Up to here, the text has been copied to `out` or left out.
    copied: usize,
    out: &'a mut Vec<u8>,
    /// The members of all objects that are open, those of the innermost last.
    members: Vec<Member<'a>>,
}

/// A member of an object: its name, and where `"name":value` stands in `out`.
struct Member<'a> {
    name: &'a [u8],
    from: usize,
    to: usize,
}

impl<'a> Scanner<'a> {
    fn document(&mut self) -> Option<()> {
        self.value(0)?;
        self.skip_space();
        if self.at < self.text.len() {
            return None;
        }
        self.copy();
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        let depth = deeper(depth)?;
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        let (start, first) = (self.written(), self.members.len());
        let mut is_sorted = true;
        loop {
            if self.peek()? != b'"' {
                return None;
            }
            let from = self.written();
            let name = self.string()?;
            if let Some(before) = self.members[first..].last() {
                is_sorted &= before.name < name;
            }
            self.expect(b':')?;
            // Pushed first, so that the members of inner objects come after it.
            let at = self.members.len();
            self.members.push(Member { name, from, to: 0 });
            self.value(depth)?;
            self.members.get_mut(at)?.to = self.written();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        if !is_sorted {
            self.sort(start, first)?;
        }
        self.members.truncate(first);
        self.at += 1;
        Some(())
    }

    /// Orders the members of an object that stand after `start`. `None` if two have one name.
    fn sort(&mut self, start: usize, first: usize) -> Option<()> {
        self.copy();
        let members = &mut self.members[first..];
        members.sort_unstable_by(|a, b| a.name.cmp(b.name));
        let is_twice = |pair: &[Member<'_>]| pair[0].name.cmp(pair[1].name) == Ordering::Equal;
        if members.windows(2).any(is_twice) {
            return None;
        }
        let unsorted = self.out.split_off(start);
        for (number, member) in members.iter().enumerate() {
            if number > 0 {
                self.out.push(b',');
            }
            let text = unsorted.get(member.from - start..member.to - start)?;
            self.out.extend_from_slice(text);
        }
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let depth = deeper(depth)?;
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value(depth)?;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
        }
        self.at += 1;
        Some(())
    }

    /// Passes a string of printable ASCII without escapes, and returns what is between its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let text: &'a [u8] = self.text.get(self.at + 1..)?;
        let is_plain = |byte: u8| matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\';
        let length = text.iter().position(|byte| !is_plain(*byte))?;
        if text[length] != b'"' {
            return None;
        }
        self.at += length + 2;
        Some(&text[..length])
    }

    /// Passes a whole number without a leading zero. Zero itself has no sign.
    fn number(&mut self) -> Option<()> {
        let text = &self.text[self.at..];
        let sign = usize::from(text[0] == b'-');
        let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        let has_zero = text.get(sign) == Some(&b'0');
        if !(1..=MAX_PLAIN_DIGITS).contains(&digits) || (has_zero && digits + sign > 1) {
            return None;
        }
        // A fraction or an exponent would follow.
        if matches!(text.get(sign + digits), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.at += sign + digits;
        Some(())
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        if !self.text[self.at..].starts_with(literal) {
            return None;
        }
        self.at += literal.len();
        Some(())
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let found = self.peek()? == byte;
        self.at += 1;
        found.then_some(())
    }

    /// The next byte that isn't white space.
    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        if self.text.get(self.at).is_some_and(is_space) {
            self.copy();
            while self.text.get(self.at).is_some_and(is_space) {
                self.at += 1;
            }
            self.copied = self.at;
        }
    }

    /// Copies what was passed since the last time.
    fn copy(&mut self) {
        self.out.extend_from_slice(&self.text[self.copied..self.at]);
        self.copied = self.at;
    }

    /// Where in `out` the next byte of the text will be.
    const fn written(&self) -> usize {
        self.out.len() + (self.at - self.copied)
    }
}

fn deeper(depth: usize) -> Option<usize> {
    (depth < MAX_PLAIN_DEPTH).then_some(depth + 1)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::canonical;

    fn plain(text: &str) -> Option<String> {
        let mut out = b"before".to_vec();
        let done = append(&mut out, text.as_bytes());
        let written = String::from_utf8(out).unwrap();
        let written = written.strip_prefix("before").unwrap().to_owned();
        assert!(done.is_some() || written.is_empty(), "{text}: {written}");
        done.map(|()| written)
    }

    #[test]
    fn p03_plain_texts_are_written_in_order_and_without_space() {
        for (text, form) in [
            ("0", "0"),
            (" -12 ", "-12"),
            ("999999999999999", "999999999999999"),
            ("\"a b\"", "\"a b\""),
            (
                " [ 1 , \"x\" , null , true , false ] ",
                r#"[1,"x",null,true,false]"#,
            ),
            ("[]", "[]"),
            ("{ }", "{}"),
            ("[ [ ] , { } ]", "[[],{}]"),
            (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (
                "{\"c\" : {\"z\":1, \"y\":[{\"b\":1,\"a\":2}]},\n\t\"a\":\"x\",\r\"ab\":0}",
                r#"{"a":"x","ab":0,"c":{"y":[{"a":2,"b":1}],"z":1}}"#,
            ),
            (
                r#"{"":1,"A":2,"a":3,"aa":4}"#,
                r#"{"":1,"A":2,"a":3,"aa":4}"#,
            ),
        ] {
            assert_eq!(plain(text).as_deref(), Some(form), "{text}");
        }
    }

    #[test]
    fn p03_whatever_is_not_plain_is_left_to_the_full_parser() {
        let deep = format!("{}1{}", "[".repeat(17), "]".repeat(17));
        for text in [
            "",
            " ",
            "-",
            "-0",
            "00",
            "01",
            "-01",
            "1.0",
            "1e2",
            "1E2",
            "+1",
            ".5",
            "0x1",
            "9999999999999999",
            "tru",
            "truee",
            "nul",
            "\"",
            "\"a",
            "\"\\n\"",
            "\"\u{e9}\"",
            "\"\u{7f}\"",
            "\"\t\"",
            "'a'",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{,}",
            "{a:1}",
            "{\"a\" 1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1]",
            "[1}",
            "1 2",
            "{} {}",
            "\u{feff}{}",
            "\u{b}1",
            "1\0",
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"b":2,"a":1}"#,
            r#"[{"a":1,"a":1}]"#,
            &deep,
        ] {
            assert_eq!(plain(text), None, "{text}");
        }
        assert!(plain(&deep[1..deep.len() - 1]).is_some());
    }

    /// What the full parser makes of a text that the scanner took.
    fn assert_same(text: &str) {
        if let Some(scanned) = plain(text) {
            let mut parsed = Vec::new();
            let result = canonical::parse(&mut parsed, text.as_bytes());
            assert_eq!(result, Ok(()), "{text}");
            assert_eq!(scanned.as_bytes(), parsed, "{text}");
        }
    }

    fn space() -> impl Strategy<Value = String> {
        "[ \t\n\r]{0,2}"
    }

    /// JSON of all kinds, much of it plain, with white space.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "\"[ -!#-~]{0,8}\"",
            "\"[a-c\\\\\"\u{e9}]{0,3}\"",
            "-?[0-9]{1,17}",
            "-?[0-9]{1,3}(\\.[0-9]{1,3})?(e[0-9])?",
            "true|false|null",
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            let item = (space(), inner, space())
                .prop_map(|(a, b, c)| a + &b + &c)
                .boxed();
            let member = (space(), "\"[a-cA-C]{0,2}\"", space(), item.clone())
                .prop_map(|(a, name, b, value)| a + &name + &b + ":" + &value);
            prop_oneof![
                vec(item, 1..5).prop_map(|items| format!("[{}]", items.join(","))),
                vec(member, 1..5).prop_map(|members| format!("{{{}}}", members.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn p03_scanner_and_parser_agree_on_json(text in json()) {
            assert_same(&text);
        }

        #[test]
        fn p03_scanner_and_parser_agree_on_what_looks_like_json(
            text in r#"[\[\]{}:,"ab0-1 .e\-\\\ntruefalsn]{0,12}"#,
        ) {
            assert_same(&text);
        }
    }
}
