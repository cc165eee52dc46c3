//! Draws the dashboard. A pure function of the model, so that tests can take snapshots.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Sparkline};

use super::lists;
use super::model::Model;
use super::style::{QUIET, STRONG, panel, style};
use crate::out::{self, Tone};

/// From this width on, scopes and events stand side by side.
const WIDE: u16 = 110;
/// The smallest screen.
const LEAST: (u16, u16) = (60, 16);

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!(
            "top needs {} columns and {} lines; q ends",
            LEAST.0, LEAST.1
        );
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(8),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [title, numbers, lists, footer] = rows.areas(area);
    draw_title(frame, model, title);
    let columns = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]);
    let [rates, now] = columns.areas(numbers);
    draw_rates(frame, model, rates);
    draw_now(frame, model, now);
    let (scopes, events) = split(lists);
    lists::scopes(frame, model, scopes);
    lists::events(frame, model, events);
    draw_footer(frame, model, footer);
}

fn split(area: Rect) -> (Rect, Rect) {
    if area.width >= WIDE {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(area);
        return (left, right);
    }
    let [above, below] = Layout::vertical([Constraint::Fill(2), Constraint::Fill(3)]).areas(area);
    (above, below)
}

fn draw_title(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let left = Line::from(vec![
        Span::styled(" semel top ", STRONG.add_modifier(Modifier::REVERSED)),
        Span::raw(format!(" {}", model.name)),
    ]);
    let right = match (&model.silence, model.paused) {
        (Some(_), _) => Span::styled("● no answer ", style(Tone::Bad)),
        (None, true) => Span::styled("‖ paused ", style(Tone::Careful)),
        (None, false) => Span::styled("● live ", style(Tone::Good)),
    };
    let up = format!("up {}  ", out::span(model.now.uptime_ms));
    let up = if model.is_sidecar { up } else { String::new() };
    frame.render_widget(Paragraph::new(left), area);
    let right = Line::from(vec![Span::styled(up, QUIET), right]);
    frame.render_widget(Paragraph::new(right).alignment(Alignment::Right), area);
}

fn rate(value: f64) -> String {
    if value > 0.0 && value < 10.0 {
        format!("{value:.1}")
    } else {
        out::number(value)
    }
}

fn draw_rates(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let peak = model.history.iter().max().copied().unwrap_or(0);
    let peak = match peak {
        0 => String::new(),
        peak => format!(" peak {} ", out::number(peak as f64)),
    };
    let block =
        panel("per second").title_top(Line::from(Span::styled(peak, QUIET)).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if !model.is_sidecar {
        let text = "A store has no rates: use --admin URL for a sidecar.";
        frame.render_widget(
            Paragraph::new(text).style(QUIET).wrap(Default::default()),
            inner,
        );
        return;
    }
    let [head, second, plot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
    ])
    .areas(inner);
    let rates = &model.rates;
    let part = |name: &str, value: f64, bad: Tone| {
        let tone = if value > 0.0 { bad } else { Tone::Quiet };
        [
            Span::styled(rate(value), style(tone)),
            Span::styled(format!(" {name}  "), QUIET),
        ]
    };
    let mut line = vec![
        Span::styled(rate(rates.requests), STRONG),
        Span::raw(" requests  "),
    ];
    line.extend(part("run", rates.fresh, Tone::Plain));
    line.extend(part("replays", rates.replays, Tone::Good));
    frame.render_widget(Paragraph::new(Line::from(line)), head);
    let mut line = Vec::new();
    line.extend(part("conflicts", rates.conflicts, Tone::Careful));
    line.extend(part("busy", rates.busy, Tone::Careful));
    line.extend(part("errors", rates.store_failures, Tone::Bad));
    line.extend(part("passed", rates.passed, Tone::Plain));
    frame.render_widget(Paragraph::new(Line::from(line)), second);
    let width = usize::from(plot.width);
    let skip = model.history.len().saturating_sub(width);
    let newest: Vec<u64> = model.history.iter().skip(skip).copied().collect();
    // The newest value stands at the right edge from the start.
    let mut data = vec![0; width - newest.len()];
    data.extend(newest);
    let plotted = Sparkline::default().data(data).style(style(Tone::Good));
    frame.render_widget(plotted, plot);
}

fn draw_now(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let now = &model.now;
    let line = |name: &str, value: String, tone: Tone| {
        Line::from(vec![
            Span::styled(format!("{name:>9}  "), QUIET),
            Span::styled(value, style(tone)),
        ])
    };
    let doubts = match model.doubts {
        None => ("…".to_owned(), Tone::Quiet),
        Some(doubts) => {
            let more = if doubts.is_all { "" } else { "+" };
            let tone = if doubts.count > 0 {
                Tone::Bad
            } else {
                Tone::Good
            };
            (format!("{}{more}", doubts.count), tone)
        }
    };
    let breaker = match now.engine.breaker.as_str() {
        "closed" => ("closed".to_owned(), Tone::Good),
        other => (out::words(other), Tone::Bad),
    };
    let records = now.store.records.map_or("not known".to_owned(), |records| {
        let most = now.store.capacity.map_or(String::new(), |most| {
            format!(" of {}", out::number(most as f64))
        });
        format!("{}{most}", out::number(records as f64))
    });
    let store = if now.store.reachable {
        (now.store.name.clone(), Tone::Plain)
    } else {
        (format!("{} can't be reached", now.store.name), Tone::Bad)
    };
    let waiting = if now.engine.waiting > 0 {
        Tone::Careful
    } else {
        Tone::Plain
    };
    let audit = match now.audit.lost {
        0 => (now.audit.sink.clone(), Tone::Plain),
        lost => (
            format!("{}, {lost} entries lost", now.audit.sink),
            Tone::Bad,
        ),
    };
    let text = Text::from(vec![
        line("in doubt", doubts.0, doubts.1),
        Line::from(vec![
            Span::styled("  running  ", QUIET),
            Span::styled(now.engine.running.to_string(), STRONG),
            Span::styled("   waiting  ", QUIET),
            Span::styled(now.engine.waiting.to_string(), style(waiting)),
        ]),
        line("breaker", breaker.0, breaker.1),
        line("store", store.0, store.1),
        line("records", records, Tone::Plain),
        line("audit", audit.0, audit.1),
    ]);
    frame.render_widget(Paragraph::new(text).block(panel("now")), area);
}

fn draw_footer(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let key = |key: &'static str, what: String| {
        [
            Span::styled(
                format!(" {key} "),
                Style::new().add_modifier(Modifier::REVERSED),
            ),
            Span::raw(format!(" {what}   ")),
        ]
    };
    let line = match &model.silence {
        Some(why) => Line::from(Span::styled(format!(" {why}"), style(Tone::Bad))),
        None => {
            let mut spans = Vec::new();
            spans.extend(key("q", "end".to_owned()));
            let pause = if model.paused { "go on" } else { "pause" };
            spans.extend(key("p", pause.to_owned()));
            spans.extend(key("+ -", format!("look every {}", out::span(model.every))));
            if model.doubts.is_some_and(|doubts| doubts.count > 0) {
                spans.push(Span::styled("semel keys list --in-doubt", style(Tone::Bad)));
            }
            Line::from(spans)
        }
    };
    frame.render_widget(Paragraph::new(line), area);
}
