//! Output for people: lines, tables, colours on a terminal, readable durations and sizes.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use crossterm::style::Stylize as _;
use serde::Serialize;

/// Writes a line to standard output.
pub(crate) fn say(line: impl std::fmt::Display) {
    write(format_args!("{line}\n"));
}

/// Writes to standard output. A closed pipe (`| head`) ends the command without an error.
pub(crate) fn write(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        let code = i32::from(error.kind() != ErrorKind::BrokenPipe);
        std::process::exit(code);
    }
}

/// Writes a value as JSON.
pub(crate) fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(escape_json(&text)),
        Err(error) => note(format_args!("the output can't be written as JSON: {error}")),
    }
}

/// JSON text whose strings have no control characters. JSON requires escapes up to U+001F only, but
/// U+007F to U+009F control terminals, too.
pub(crate) fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside of strings, JSON has no control characters but line breaks.
        match c {
            '\u{7f}'..='\u{9f}' => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Writes a note to standard error.
pub(crate) fn note(text: impl std::fmt::Display) {
    eprintln!("semel: {}", printable(&text.to_string()));
}

/// The style of the output: with or without colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    colours: bool,
    width: Option<u16>,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Careful,
    Bad,
    Quiet,
    Strong,
    Plain,
}

impl Style {
    /// Chooses the style for standard output.
    pub(crate) fn for_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let size = is_terminal.then(crossterm::terminal::size);
        Self {
            colours: is_terminal && !is_set("NO_COLOR") && !is_dumb,
            width: size.and_then(Result::ok).map(|(columns, _)| columns),
        }
    }

    /// Whether standard output is a terminal.
    pub(crate) const fn is_terminal(self) -> bool {
        self.width.is_some()
    }

    pub(crate) fn paint(self, tone: Tone, text: impl std::fmt::Display) -> String {
        let text = printable(&text.to_string());
        if !self.colours {
            return text;
        }
        match tone {
            Tone::Good => text.green().to_string(),
            Tone::Careful => text.yellow().to_string(),
            Tone::Bad => text.red().bold().to_string(),
            Tone::Quiet => text.dim().to_string(),
            Tone::Strong => text.bold().to_string(),
            Tone::Plain => text,
        }
    }

    /// An empty table. On a terminal it fits the width.
    pub(crate) fn table<const N: usize>(self, header: [&str; N]) -> Table {
        let mut table = self.bare_table();
        table.set_header(header.map(|name| self.cell(Tone::Quiet, name)));
        table
    }

    /// An empty table without a header.
    pub(crate) fn bare_table(self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        match self.width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic);
                table.set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        if self.colours {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }

    /// A cell of a table.
    pub(crate) fn cell(self, tone: Tone, text: impl std::fmt::Display) -> Cell {
        let cell = Cell::new(printable(&text.to_string()));
        match tone {
            Tone::Good => cell.fg(Color::Green),
            Tone::Careful => cell.fg(Color::Yellow),
            Tone::Bad => cell
                .fg(Color::Red)
                .add_attribute(comfy_table::Attribute::Bold),
            Tone::Quiet => cell.add_attribute(comfy_table::Attribute::Dim),
            Tone::Strong => cell.add_attribute(comfy_table::Attribute::Bold),
            Tone::Plain => cell,
        }
    }
}

/// The text without control characters: errors of workers and names of callers must not control
/// the operator's terminal.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        _ if c.is_control() => '\u{fffd}',
        _ => c,
    };
    text.chars().map(shown).collect()
}

/// The tone of a record's state.
pub(crate) fn tone_of_state(state: &str) -> Tone {
    match state {
        "completed" => Tone::Good,
        "running" => Tone::Strong,
        "in_doubt" => Tone::Bad,
        "failed" => Tone::Careful,
        _ => Tone::Quiet,
    }
}

/// A state as words: underscores become spaces.
pub(crate) fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// A duration in its two largest units: `2h 5m`, `41s`, `250ms`.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |large: u64, unit: &str, small: u64, then: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit} {small}{then}")
        }
    };
    match (days, hours, minutes, seconds) {
        (1.., ..) => two(days, "d", hours, "h"),
        (_, 1.., ..) => two(hours, "h", minutes, "m"),
        (_, _, 1.., _) => two(minutes, "m", seconds % 60, "s"),
        (_, _, _, 1..) => format!("{seconds}s"),
        _ => format!("{millis}ms"),
    }
}

/// A size with a unit.
pub(crate) fn bytes(count: f64) -> String {
    let mut left = count;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if left < 1024.0 {
            let digits = usize::from(left < 100.0 && unit != "B");
            return format!("{left:.digits$} {unit}");
        }
        left /= 1024.0;
    }
    format!("{left:.1} PiB")
}

/// A number with a comma every three digits.
pub(crate) fn number(count: f64) -> String {
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A prefix of a record's ID, long enough for a table.
pub(crate) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_are_readable() {
        for (millis, text) in [
            (0, "0ms"),
            (250, "250ms"),
            (41_900, "41s"),
            (60_000, "1m"),
            (7_500_000, "2h 5m"),
            (86_400_000, "1d"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(millis), text);
        }
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(2048.0), "2.0 KiB");
        assert_eq!(bytes(1024.0 * 1024.0 * 1024.0 * 812.0), "812 GiB");
        assert_eq!(number(999.0), "999");
        assert_eq!(number(1_234_567.0), "1,234,567");
    }

    #[test]
    fn output_has_no_colours_without_a_terminal() {
        let plain = Style {
            colours: false,
            width: None,
        };
        assert_eq!(plain.paint(Tone::Bad, "x"), "x");
        let mut table = plain.table(["a"]);
        table.add_row([plain.cell(Tone::Bad, "b")]);
        assert!(!table.to_string().contains('\u{1b}'));
    }

    #[test]
    fn json_escapes_every_control_character() {
        let error = "boom\u{9b}31m\u{85}\u{7f}\u{1b}]0;ü\u{a0}";
        let value = serde_json::json!({ error: error });
        let text = escape_json(&value.to_string());
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.contains("\\u009b31m\\u0085\\u007f"), "{text}");
        assert!(text.contains("ü\u{a0}"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, value, "the meaning stays");
    }

    #[test]
    fn texts_of_others_cannot_control_the_terminal() {
        let plain = Style {
            colours: false,
            width: None,
        };
        let error = "boom\u{1b}]0;owned\u{7}\u{9b}31m\r\tend";
        let painted = plain.paint(Tone::Bad, error);
        assert_eq!(
            painted,
            "boom\u{fffd}]0;owned\u{fffd}\u{fffd}31m\u{fffd}\tend"
        );
        let mut table = plain.table(["error"]);
        table.add_row([plain.cell(Tone::Plain, error)]);
        let shown = table.to_string();
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{shown:?}");
    }
}
