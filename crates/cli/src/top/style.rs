//! The looks that all parts of the dashboard share.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Block, BorderType, Padding};

use crate::out::Tone;

pub(super) const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

pub(super) fn panel(title: &str) -> Block<'_> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(QUIET)
        .padding(Padding::horizontal(1))
        .title(Span::styled(format!(" {title} "), STRONG))
}

pub(super) const fn style(tone: Tone) -> Style {
    match tone {
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Careful => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Tone::Quiet => QUIET,
        Tone::Strong => STRONG,
        Tone::Plain => Style::new(),
    }
}
