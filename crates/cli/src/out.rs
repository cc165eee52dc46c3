//! What people see: lines, tables, colours only on a terminal, spans of time in words.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use crossterm::style::Stylize as _;
use serde::Serialize;

/// Writes a line to standard output.
pub(crate) fn say(line: impl std::fmt::Display) {
    write(format_args!("{line}\n"));
}

/// Writes to standard output. A reader that has seen enough (`| head`) ends the command in peace.
pub(crate) fn write(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        let code = i32::from(error.kind() != ErrorKind::BrokenPipe);
        std::process::exit(code);
    }
}

/// Writes a value as JSON, for programs.
pub(crate) fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(text),
        Err(error) => note(format_args!("this could not be written as JSON: {error}")),
    }
}

/// Tells people something beside the output.
pub(crate) fn note(text: impl std::fmt::Display) {
    eprintln!("semel: {text}");
}

/// How to look: colours or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    colours: bool,
    width: Option<u16>,
}

/// What a colour means, one meaning each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Careful,
    Bad,
    Quiet,
    Strong,
    Plain,
}

impl Look {
    /// As standard output deserves it.
    pub(crate) fn of_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let size = is_terminal.then(crossterm::terminal::size);
        Self {
            colours: is_terminal && !is_set("NO_COLOR") && !is_dumb,
            width: size.and_then(Result::ok).map(|(columns, _)| columns),
        }
    }

    /// Whether somebody looks at it on a terminal.
    pub(crate) const fn is_terminal(self) -> bool {
        self.width.is_some()
    }

    pub(crate) fn paint(self, tone: Tone, text: impl std::fmt::Display) -> String {
        let text = text.to_string();
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

    /// An empty table that fits the terminal; as wide as it likes elsewhere.
    pub(crate) fn table<const N: usize>(self, header: [&str; N]) -> Table {
        let mut table = self.bare_table();
        table.set_header(header.map(|name| self.cell(Tone::Quiet, name)));
        table
    }

    /// The same without a header.
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

    /// A cell of such a table.
    pub(crate) fn cell(self, tone: Tone, text: impl std::fmt::Display) -> Cell {
        let cell = Cell::new(text.to_string());
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

/// States are written as words, not as names of a format.
pub(crate) fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// A span as people say it, in the two largest units: `2h 5m`, `41s`, `250ms`.
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

/// Bytes as people say them.
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

/// A number with a thin gap every three digits.
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

/// The beginning of a record's id: enough to tell it by, in a table.
pub(crate) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_read_as_people_say_them() {
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
    fn without_a_terminal_nothing_is_coloured() {
        let plain = Look {
            colours: false,
            width: None,
        };
        assert_eq!(plain.paint(Tone::Bad, "x"), "x");
        let mut table = plain.table(["a"]);
        table.add_row([plain.cell(Tone::Bad, "b")]);
        assert!(!table.to_string().contains('\u{1b}'));
    }
}
