//! `semel plan`: capacity planning from measured figures, with the arithmetic.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use semel_server::config::{Size, Span};
use serde::Serialize;

use crate::bench::constants::{self, Constants};
use crate::exit::Exit;
use crate::out::{self, Style, Tone, bytes, number};

/// Calculates how much store a load needs, and shows the arithmetic.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel plan --rps 5000 --ttl 24h --body 2KiB
  semel bench --store redis://127.0.0.1 --out mine.json
  semel plan --rps 5000 --ttl 24h --body 2KiB --constants mine.json")]
pub(crate) struct Plan {
    /// Requests with a key per second, at peak.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rps: u64,
    /// The retention of records.
    #[arg(long, value_name = "SPAN", default_value = "24h")]
    ttl: Span,
    /// The size of a response body.
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    body: Size,
    /// The percentage of requests that are repeats.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=99))]
    repeats: u64,
    /// The kind of store.
    #[arg(long, default_value = "redis")]
    store: Kind,
    /// Memory (redis) or disk (postgres) of one primary.
    #[arg(long, value_name = "SIZE")]
    per_primary: Option<Size>,
    /// The maximum utilization of a primary, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=100))]
    fill: u64,
    /// A file with the figures of your own store, from `semel bench`.
    #[arg(long, value_name = "FILE")]
    constants: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Redis or Valkey, a single server or a cluster.
    Redis,
    /// PostgreSQL.
    Postgres,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    /// The default size of one primary.
    const fn size(self) -> u64 {
        match self {
            Self::Redis => 32 << 30,
            Self::Postgres => 1 << 40,
        }
    }
}

/// A figure, and how it is calculated.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    arithmetic: String,
}

impl Plan {
    pub(crate) fn run(&self) -> Exit {
        let all = match constants::read(self.constants.as_deref()) {
            Ok(all) => all,
            Err(exit) => return exit,
        };
        let constants = match constants::for_store(&all, self.store.name()) {
            Ok(constants) => constants,
            Err(exit) => return exit,
        };
        let figures = self.figures(constants);
        if self.json {
            out::json(
                &serde_json::json!({"store": self.store.name(), "figures": figures, "constants": constants}),
            );
        } else {
            self.show(&figures, constants);
        }
        Exit::Ok
    }

    fn figures(&self, constants: &Constants) -> Vec<Figure> {
        let rps = self.rps as f64;
        let repeats = rps * self.repeats as f64 / 100.0;
        let fresh = rps - repeats;
        let ttl = self.ttl.0.as_secs_f64();
        let records = fresh * ttl;
        let body = self.body.0 as f64;
        let each = constants.bytes_fixed + constants.bytes_per_body_byte * body;
        let data = records * each;
        let fill = self.fill as f64 / 100.0;
        let holds = self.per_primary.map_or(self.store.size(), |size| size.0) as f64;
        let by_size = (data / (holds * fill)).ceil().max(1.0);
        let work = fresh / constants.fresh_per_second + repeats / constants.replays_per_second;
        let by_work = (work / fill).ceil().max(1.0);
        let primaries = by_size.max(by_work);
        let room = match self.store {
            Kind::Redis => "memory",
            Kind::Postgres => "disk",
        };
        let percent = self.fill;
        let mut figures = vec![
            Figure {
                name: "records",
                value: records,
                unit: "",
                arithmetic: format!("{} fresh/s × {} s", number(fresh), number(ttl)),
            },
            Figure {
                name: "each",
                value: each,
                unit: "bytes",
                arithmetic: format!(
                    "{:.0} + {:.2} × {body:.0}",
                    constants.bytes_fixed, constants.bytes_per_body_byte
                ),
            },
            Figure {
                name: room,
                value: data,
                unit: "bytes",
                arithmetic: format!("{} records × {each:.0} B", number(records)),
            },
            Figure {
                name: "primaries by room",
                value: by_size,
                unit: "",
                arithmetic: format!("{} / ({} × {percent} %)", bytes(data), bytes(holds)),
            },
            Figure {
                name: "primaries by work",
                value: by_work,
                unit: "",
                arithmetic: format!(
                    "({} / {} fresh/s + {} / {} replays/s) / {percent} %",
                    number(fresh),
                    number(constants.fresh_per_second),
                    number(repeats),
                    number(constants.replays_per_second)
                ),
            },
            Figure {
                name: "primaries",
                value: primaries,
                unit: "",
                arithmetic: "the larger of the two; replicas come on top".to_owned(),
            },
        ];
        figures.extend(self.traffic(constants, fresh, repeats, primaries));
        figures
    }

    /// The load on the primaries.
    fn traffic(
        &self,
        constants: &Constants,
        fresh: f64,
        repeats: f64,
        primaries: f64,
    ) -> Vec<Figure> {
        let calls = fresh * 2.0 + repeats;
        let seconds = constants.fresh_alone_ms / 2.0 / 1000.0;
        let busy = (calls * seconds).ceil().max(1.0);
        match self.store {
            Kind::Redis => {
                let commands = fresh * constants.commands_per_fresh.unwrap_or(2.0)
                    + repeats * constants.commands_per_replay.unwrap_or(1.0);
                vec![
                    Figure {
                        name: "commands/s",
                        value: commands,
                        unit: "",
                        arithmetic: format!(
                            "{} × {:.2} + {} × {:.2}; {} on each primary",
                            number(fresh),
                            constants.commands_per_fresh.unwrap_or(2.0),
                            number(repeats),
                            constants.commands_per_replay.unwrap_or(1.0),
                            number(commands / primaries)
                        ),
                    },
                    Figure {
                        name: "connections",
                        value: primaries + 1.0,
                        unit: "per process",
                        arithmetic: "one shared connection to each primary, and one for wake-ups; \
                                     up to 64 more to each with durability=wait"
                            .to_owned(),
                    },
                ]
            }
            Kind::Postgres => {
                let wal = fresh * constants.wal_bytes_per_fresh.unwrap_or(0.0);
                vec![
                    Figure {
                        name: "commits/s",
                        value: fresh * 2.0,
                        unit: "",
                        arithmetic: format!(
                            "{} × 2 (claim, settle); at most as many log flushes, fewer with \
                             group commit",
                            number(fresh)
                        ),
                    },
                    Figure {
                        name: "log written/s",
                        value: wal,
                        unit: "bytes",
                        arithmetic: format!(
                            "{} × {:.0} B",
                            number(fresh),
                            constants.wal_bytes_per_fresh.unwrap_or(0.0)
                        ),
                    },
                    Figure {
                        name: "busy connections",
                        value: busy,
                        unit: "",
                        arithmetic: format!(
                            "{} calls/s × {:.2} ms; twice as many in the pools",
                            number(calls),
                            seconds * 1000.0
                        ),
                    },
                ]
            }
        }
    }

    fn show(&self, figures: &[Figure], constants: &Constants) {
        let look = Style::for_stdout();
        out::say(format!(
            "{} requests/s with a key, {} % of them repeats; responses of {}, stored for {}; on \
             {}\n",
            number(self.rps as f64),
            self.repeats,
            bytes(self.body.0 as f64),
            self.ttl,
            self.store.name(),
        ));
        let mut table = look.table(["", "", "BECAUSE"]);
        for figure in figures {
            let value = match figure.unit {
                "bytes" => bytes(figure.value),
                "" => number(figure.value),
                unit => format!("{} {unit}", number(figure.value)),
            };
            table.add_row([
                look.cell(Tone::Plain, figure.name),
                look.cell(Tone::Strong, value),
                look.cell(Tone::Quiet, &figure.arithmetic),
            ]);
        }
        out::say(table.trim_fmt());
        out::say(look.paint(
            Tone::Quiet,
            format!(
                "\nfrom figures measured on {}: {}",
                constants.server, constants.measured
            ),
        ));
        if self.constants.is_none() {
            let hint = "measure your own store: `semel bench --store URL --out mine.json`, then \
                        --constants mine.json";
            out::say(look.paint(Tone::Quiet, hint));
        }
    }
}
