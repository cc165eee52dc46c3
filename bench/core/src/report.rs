//! Rows of a bench: a table for people, a JSON file for programs.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

/// The 95 % interval of a ratio.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Processor time of an operation, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cpu {
    /// Of the process that measures.
    pub client: f64,
    /// Of the server, where it is on this machine.
    pub server: Option<f64>,
}

/// One figure, with the bare thing beside it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// Ours.
    pub ours: f64,
    /// The bare alternative's.
    pub bare: f64,
    /// Ours over the other's.
    pub ratio: f64,
    /// The interval of the ratio, where pairs were measured.
    pub interval: Option<Interval>,
    /// Processor time of ours, where it was measured.
    pub ours_cpu: Option<Cpu>,
    /// Processor time of the bare alternative.
    pub bare_cpu: Option<Cpu>,
    /// Which side of the target is good.
    pub bound: &'static str,
    /// The bound on the ratio, where there is one.
    pub target: Option<f64>,
    /// Whether the ratio is within the target.
    pub met: Option<bool>,
}

impl Row {
    /// A row whose ratio should be at most `target`.
    pub fn at_most(
        name: impl Into<String>,
        unit: &'static str,
        ours: f64,
        bare: f64,
        target: Option<f64>,
    ) -> Self {
        Self {
            met: target.map(|target| ours / bare <= target),
            ..Self::new(name, unit, ours, bare, "≤", target)
        }
    }

    /// A row whose ratio should be at least `target`.
    pub fn at_least(
        name: impl Into<String>,
        unit: &'static str,
        ours: f64,
        bare: f64,
        target: Option<f64>,
    ) -> Self {
        Self {
            met: target.map(|target| ours / bare >= target),
            ..Self::new(name, unit, ours, bare, "≥", target)
        }
    }

    /// The same row with a ratio that was measured pair by pair, rather than that of the two
    /// medians.
    pub fn with_ratio(self, ratio: f64) -> Self {
        let meets = |target: f64| match self.bound {
            "≤" => ratio <= target,
            _ => ratio >= target,
        };
        Self {
            ratio,
            met: self.target.map(meets),
            ..self
        }
    }

    /// The same row with a ratio of pairs and its interval. The target is met if the whole interval
    /// is on its good side.
    #[must_use]
    pub fn with_interval(self, ratio: f64, interval: Interval) -> Self {
        let worst = match self.bound {
            "≤" => interval.high,
            _ => interval.low,
        };
        let met = self.clone().with_ratio(worst).met;
        Self {
            met,
            ratio,
            interval: Some(interval),
            ..self
        }
    }

    /// The same row with the processor time of both sides.
    #[must_use]
    pub fn with_cpu(self, ours: Cpu, bare: Cpu) -> Self {
        Self {
            ours_cpu: Some(ours),
            bare_cpu: Some(bare),
            ..self
        }
    }

    fn new(
        name: impl Into<String>,
        unit: &'static str,
        ours: f64,
        bare: f64,
        bound: &'static str,
        target: Option<f64>,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            ours,
            bare,
            ratio: ours / bare,
            interval: None,
            ours_cpu: None,
            bare_cpu: None,
            bound,
            target,
            met: None,
        }
    }
}

/// Prints the rows and writes `target/xtask/bench-NAME.json`. Processor time is that of the
/// client's process, then of the server's.
///
/// # Errors
/// Where the file can't be written.
pub fn publish(name: &str, rows: &[Row]) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "",
        "ours",
        "bare",
        "ratio",
        "CPU-µs: ours",
        "bare",
        "target",
        "met",
    ]);
    let cpu = |cpu: Option<Cpu>| match cpu {
        None => String::new(),
        Some(Cpu {
            client,
            server: None,
        }) => format!("{client:.0}"),
        Some(Cpu {
            client,
            server: Some(server),
        }) => format!("{client:.0} + {server:.0}"),
    };
    for row in rows {
        let number = |value: f64| format!("{value:.1} {}", row.unit);
        let met = row.met.map_or("", |met| if met { "yes" } else { "no" });
        let cells = [
            row.name.clone(),
            number(row.ours),
            number(row.bare),
            match row.interval {
                None => format!("{:.2}", row.ratio),
                Some(Interval { low, high }) => format!("{:.2} [{low:.2}, {high:.2}]", row.ratio),
            },
            cpu(row.ours_cpu),
            cpu(row.bare_cpu),
            row.target
                .map_or(String::new(), |target| format!("{} {target}", row.bound)),
            met.to_owned(),
        ];
        let right = |(i, text): (usize, String)| {
            let cell = Cell::new(text);
            if i == 0 {
                cell
            } else {
                cell.set_alignment(CellAlignment::Right)
            }
        };
        table.add_row(cells.into_iter().enumerate().map(right));
    }
    println!("{table}");
    let folder = PathBuf::from("target/xtask");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("bench-{name}.json"));
    let json = serde_json::to_string_pretty(&serde_json::json!({ "rows": rows }))?;
    fs::write(&path, json).with_context(|| format!("could not write {}", path.display()))
}

/// The median of measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
