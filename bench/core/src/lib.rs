//! What Semel costs in process: instructions of its hot paths, latency and memory over the number
//! of records. Instructions are checked against committed budgets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ops`], `layer`, `keys` | the operations |
//! | `count` | their instructions, by callgrind |
//! | `budgets` | the check against `budgets.json` |
//! | `sizes` | latency and memory over the number of records |
//! | [`report`] | rows for people and programs, for the other benches too |

mod budgets;
mod count;
mod keys;
mod layer;
pub mod ops;
pub mod report;
mod sizes;

pub use budgets::check;
use count::instructions;
use ops::Op;
use report::{Row, publish};

/// `bench core`: rows against a bare map, and the growth up to `records` records.
///
/// # Errors
/// Where valgrind is missing or the result can't be written.
pub fn bench(records: usize) -> anyhow::Result<()> {
    let bare = instructions(Op::Bare)?;
    let bare_read = instructions(Op::BareRead)?;
    let no_layer = instructions(Op::NoLayer)?;
    let counted = [
        (Op::ClaimSettle, bare, Some(3.0)),
        (Op::Run, bare, Some(7.5)),
        (Op::RunWaits, bare, None),
        (Op::RunPayload, bare, None),
        (Op::Replay, bare_read, None),
        (Op::RunReplay, bare_read, None),
        (Op::LayerNewKey, no_layer, None),
        (Op::LayerReplay, no_layer, None),
        (Op::LayerNoKey, no_layer, None),
    ];
    let mut rows = Vec::new();
    for (op, bare, target) in counted {
        let ours = instructions(op)?;
        rows.push(Row::at_most(op.title(), "instr", ours, bare, target));
    }
    rows.extend(sizes::rows(records)?);
    publish("core", &rows)
}
