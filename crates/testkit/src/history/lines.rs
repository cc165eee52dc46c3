//! A history as JSON lines, so that everything is on disk when a process is killed.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::callers::CallerReport;
use super::event::{CallRecord, CallReply, EffectRecord, History};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// A call is about to be sent.
    Asked {
        /// Its number in this file.
        number: usize,
        /// The call, without an answer.
        call: CallRecord,
    },
    /// A call was answered.
    Answered {
        /// Which.
        number: usize,
        /// When, as [`CallRecord::end`].
        end: u64,
        /// When, as [`CallRecord::ended`].
        ended: u64,
        /// What was answered.
        reply: CallReply,
    },
    /// An effect begins. For the checker this line *is* the effect.
    Began(EffectRecord),
    /// An effect is over.
    Finished {
        /// Who ran it.
        client: u32,
        /// For which key.
        key: String,
        /// Under which lease.
        fence: u64,
        /// When.
        end: u64,
    },
    /// A caller was told something.
    Told(CallerReport),
}

/// Writes lines, each in one piece and at once: no buffer of ours dies with the process.
pub(super) struct Pen(Mutex<(usize, Box<dyn Write + Send>)>);

impl Pen {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self(Mutex::new((0, out)))
    }

    pub(super) fn write(&self, line: &Line) {
        put(&mut self.0.lock().1, line);
    }

    /// → the call's number.
    pub(super) fn asked(&self, call: CallRecord) -> usize {
        let mut pen = self.0.lock();
        let number = pen.0;
        pen.0 += 1;
        put(&mut pen.1, &Line::Asked { number, call });
        number
    }
}

/// A process that can't record its actions must stop, or the history would blame others.
fn put(out: &mut impl Write, line: &Line) {
    let text = serde_json::to_vec(line).map(|mut text| {
        text.push(b'\n');
        text
    });
    let written = text.map_err(std::io::Error::from);
    written
        .and_then(|text| out.write_all(&text))
        .expect("the history can be written");
}

/// What was read.
#[derive(Debug, Default)]
pub struct Read {
    /// Calls and effects.
    pub history: History,
    /// What callers were told.
    pub reports: Vec<CallerReport>,
}

/// Reads what one process wrote. A last line that is not whole was being written when the process
/// ended; it counts as not written.
///
/// # Errors
/// Where the text can't be read, or a line before the last isn't one.
pub fn read_lines(text: impl BufRead) -> std::io::Result<Read> {
    let mut read = Read::default();
    let mut open = HashMap::new();
    let mut torn = None;
    for line in text.lines() {
        if let Some(error) = torn {
            return Err(error);
        }
        match serde_json::from_str(&line?) {
            Ok(line) => read.take(line, &mut open),
            Err(error) => torn = Some(std::io::Error::from(error)),
        }
    }
    Ok(read)
}

impl Read {
    fn take(&mut self, line: Line, open: &mut HashMap<usize, usize>) {
        match line {
            Line::Asked { number, call } => {
                open.insert(number, self.history.calls.len());
                self.history.calls.push(call);
            }
            Line::Answered {
                number,
                end,
                ended,
                reply,
            } => {
                if let Some(index) = open.remove(&number) {
                    let call = &mut self.history.calls[index];
                    (call.end, call.ended, call.reply) = (Some(end), Some(ended), reply);
                }
            }
            Line::Began(effect) => self.history.effects.push(effect),
            Line::Finished {
                client,
                key,
                fence,
                end,
            } => {
                let mut effects = self.history.effects.iter_mut().rev();
                let ours = |effect: &&mut EffectRecord| {
                    (effect.client, effect.fence) == (client, fence) && effect.key == key
                };
                if let Some(effect) = effects.find(ours) {
                    effect.end = Some(end);
                }
            }
            Line::Told(report) => self.reports.push(report),
        }
    }

    /// Adds what another process wrote.
    pub fn merge(&mut self, other: Self) {
        self.history.merge(other.history);
        self.reports.extend(other.reports);
    }
}
