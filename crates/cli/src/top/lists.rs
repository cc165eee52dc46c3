//! The lists below the figures.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::{Span, Text};
use ratatui::widgets::{Paragraph, Row, Table};

use super::model::Model;
use super::style::{QUIET, panel, style};
use crate::out::Tone;
use crate::tail;

/// From this width on, events show their details.
const ROOMY: u16 = 84;

pub(super) fn scopes(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let block = panel("scopes of the last minute");
    let scopes = model.hot();
    if scopes.is_empty() {
        let text = if model.is_sidecar {
            "No request with a key in the last minute."
        } else {
            "Not available for a store."
        };
        frame.render_widget(Paragraph::new(text).style(QUIET).block(block), area);
        return;
    }
    let rows = scopes.iter().map(|scope| {
        let trouble = if scope.troubles > 0 {
            Tone::Careful
        } else {
            Tone::Quiet
        };
        let number = |count: u64, tone| {
            Text::from(count.to_string())
                .alignment(Alignment::Right)
                .style(style(tone))
        };
        Row::new(vec![
            Text::from(scope.name.clone()),
            number(scope.fresh, Tone::Plain),
            number(scope.replays, Tone::Good),
            number(scope.troubles, trouble),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(8),
    ];
    let head = ["scope", "run", "replays", "trouble"];
    let head = head.map(|name| {
        let side = if name == "scope" {
            Alignment::Left
        } else {
            Alignment::Right
        };
        Text::from(name).alignment(side)
    });
    let table = Table::new(rows, widths).header(Row::new(head).style(QUIET));
    frame.render_widget(table.block(block), area);
}

pub(super) fn events(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let block = panel("recent events");
    if model.entries.is_empty() {
        let text = if model.is_sidecar {
            "No events yet. Send a request with an Idempotency-Key twice, and watch."
        } else {
            "Not available for a store."
        };
        frame.render_widget(Paragraph::new(text).style(QUIET).block(block), area);
        return;
    }
    let is_roomy = area.width >= ROOMY;
    let rows = model.entries.iter().take(usize::from(area.height));
    let rows = rows.map(|entry| {
        let kind = entry.kind.trim_start_matches("idempotency.").to_owned();
        let id = entry.id.as_deref().unwrap_or_default();
        let clock = entry.clock();
        let mut cells = vec![
            Span::styled(clock.get(..8).unwrap_or(clock).to_owned(), QUIET),
            Span::styled(kind, style(tail::tone(&entry.kind))),
            Span::raw(entry.scope.clone()),
            Span::styled(id.get(..12).unwrap_or(id).to_owned(), QUIET),
        ];
        if is_roomy {
            cells.push(Span::styled(entry.details(), QUIET));
        }
        Row::new(cells)
    });
    let mut widths = vec![
        Constraint::Length(8),
        Constraint::Length(16),
        Constraint::Fill(2),
        Constraint::Length(12),
    ];
    if is_roomy {
        widths.push(Constraint::Fill(3));
    }
    frame.render_widget(Table::new(rows, widths).block(block), area);
}
