//! What a run must keep to, as a function of what was seen: it can be shown to find what is wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use semel::core::clock::Tick;

/// What the service did once.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) key: String,
    pub(crate) attempt: u64,
    pub(crate) fence: u64,
    /// The sidecar that asked for it.
    pub(crate) via: usize,
    pub(crate) begun: Tick,
    pub(crate) answer: String,
}

/// What a caller was told.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) key: String,
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// A takeover, as an audit trail tells it.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) id: String,
    pub(crate) attempt: u64,
    pub(crate) fence: u64,
    pub(crate) via: usize,
}

/// A sidecar was killed, or paused, and went on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    pub(crate) via: usize,
    pub(crate) from: Tick,
    pub(crate) to: Tick,
    /// SIGKILL, not a pause: what it had not written yet is lost.
    pub(crate) killed: bool,
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) keys: BTreeSet<String>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) answers: Vec<Answer>,
    /// Key → id and state, of all records that were listed.
    pub(crate) records: HashMap<String, (String, String)>,
    /// The keys that were listed as in doubt.
    pub(crate) in_doubt: BTreeSet<String>,
    pub(crate) takeovers: Vec<Claim>,
    pub(crate) disturbances: Vec<Disturbance>,
}

/// What becomes of a key whose owner vanished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Hold,
    Takeover,
}

/// A process that was let go needs a moment to send what it was about to send.
const MOMENT: Duration = Duration::from_secs(2);

impl History {
    /// All that is wrong with it.
    pub(crate) fn wrong(&self, crash: Crash) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut effects: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
        for effect in &self.effects {
            effects.entry(&effect.key).or_default().push(effect);
        }
        for runs in effects.values_mut() {
            runs.sort_by_key(|effect| (effect.attempt, effect.fence, effect.begun));
        }
        self.answers_agree(&effects, &mut wrong);
        for key in &self.keys {
            let runs = effects.get(key.as_str()).map_or(&[][..], Vec::as_slice);
            self.ended(key, runs, crash, &mut wrong);
            if crash == Crash::Takeover {
                self.explained(key, runs, &mut wrong);
            }
        }
        if crash == Crash::Hold && !self.takeovers.is_empty() {
            wrong.push(format!("taken over under hold: {:?}", self.takeovers));
        }
        wrong
    }

    /// No two callers of a key have different answers, and each is what a run of this key said.
    fn answers_agree(&self, effects: &BTreeMap<&str, Vec<&Effect>>, wrong: &mut Vec<String>) {
        let mut told: BTreeMap<&str, BTreeSet<(u16, &str)>> = BTreeMap::new();
        for answer in &self.answers {
            match answer.status {
                200..=299 => {
                    let told = told.entry(&answer.key).or_default();
                    told.insert((answer.status, &answer.body));
                }
                409 | 429 | 502..=504 => {}
                other => wrong.push(format!("{}: told {other} {}", answer.key, answer.body)),
            }
        }
        for (key, answers) in told {
            if answers.len() > 1 {
                wrong.push(format!("{key}: callers were told {answers:?}"));
            }
            let runs = effects.get(key).map_or(&[][..], Vec::as_slice);
            for (_, body) in answers {
                if !runs.iter().any(|run| run.answer == body) {
                    wrong.push(format!("{key}: told {body}, which no run of it said"));
                }
            }
        }
    }

    /// Every key was done once, or is in doubt and listed as such where that may be.
    fn ended(&self, key: &str, runs: &[&Effect], crash: Crash, wrong: &mut Vec<String>) {
        let state = self.records.get(key).map(|(_, state)| state.as_str());
        let listed = self.in_doubt.contains(key);
        match (state, crash) {
            (Some("completed"), _) if !listed => {
                if runs.is_empty() {
                    wrong.push(format!("{key}: completed, and never done"));
                }
            }
            (Some("in_doubt"), Crash::Hold) if listed => {
                if let Some(run) = runs.first().filter(|run| !self.disturbed(run, None)) {
                    wrong.push(format!("{key}: in doubt, and nobody vanished: {run:?}"));
                }
            }
            _ => wrong.push(format!(
                "{key}: {state:?}, in doubt by the listing: {listed}"
            )),
        }
        if crash == Crash::Hold && runs.len() > 1 {
            wrong.push(format!("{key}: done {} times under hold", runs.len()));
        }
    }

    /// Every run after the first was a takeover, by the audit trail of the process that ran it,
    /// from one that was killed or paused meanwhile. A process that was killed right after its
    /// claim may not have written its entry.
    fn explained(&self, key: &str, runs: &[&Effect], wrong: &mut Vec<String>) {
        let id = self.records.get(key).map(|(id, _)| id.as_str());
        for pair in runs.windows(2) {
            let (before, run) = (pair[0], pair[1]);
            let audited = self.takeovers.iter().any(|claim| {
                Some(claim.id.as_str()) == id
                    && (claim.via, claim.attempt, claim.fence) == (run.via, run.attempt, run.fence)
                    && run.attempt > before.attempt
            });
            if !audited && !self.killed_after(run) {
                wrong.push(format!(
                    "{key}: no audit entry explains {run:?} after {before:?}"
                ));
            }
            if !self.disturbed(before, Some(run.begun)) {
                wrong.push(format!(
                    "{key}: nobody vanished between {before:?} and {run:?}"
                ));
            }
        }
    }

    /// Whether the process that ran it was killed within a moment of its beginning, before its
    /// queue of audit entries was written.
    fn killed_after(&self, run: &Effect) -> bool {
        let mut kills = self.disturbances.iter().filter(|one| one.killed);
        kills.any(|kill| {
            kill.via == run.via && run.begun <= kill.to && kill.from <= run.begun.plus(MOMENT)
        })
    }

    /// Whether the process that ran it was killed or paused before it could record that, and before
    /// `until`.
    fn disturbed(&self, run: &Effect, until: Option<Tick>) -> bool {
        let mut theirs = self.disturbances.iter().filter(|one| one.via == run.via);
        theirs.any(|one| {
            one.to.plus(MOMENT) >= run.begun && until.is_none_or(|until| one.from <= until)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::new(Duration::from_millis(ms))
    }

    fn effect(attempt: u64, via: usize, begun: u64) -> Effect {
        Effect {
            key: "k".to_owned(),
            attempt,
            fence: 10 + attempt,
            via,
            begun: at(begun),
            answer: format!("run {attempt} of {via}"),
        }
    }

    fn told(status: u16, body: &str) -> Answer {
        Answer {
            key: "k".to_owned(),
            status,
            body: body.to_owned(),
        }
    }

    fn disturbance(via: usize, from: u64, killed: bool) -> Disturbance {
        Disturbance {
            via,
            from: at(from),
            to: at(from + 10),
            killed,
        }
    }

    /// One key, done once.
    fn once() -> History {
        History {
            keys: ["k".to_owned()].into(),
            effects: vec![effect(1, 0, 100)],
            answers: vec![
                told(201, "run 1 of 0"),
                told(409, "busy"),
                told(201, "run 1 of 0"),
            ],
            records: [("k".to_owned(), ("id".to_owned(), "completed".to_owned()))].into(),
            ..History::default()
        }
    }

    /// One key, taken over from a process that was killed.
    fn taken_over() -> History {
        History {
            effects: vec![effect(1, 0, 100), effect(2, 1, 3000)],
            answers: vec![told(201, "run 2 of 1")],
            takeovers: vec![Claim {
                id: "id".to_owned(),
                attempt: 2,
                fence: 12,
                via: 1,
            }],
            disturbances: vec![disturbance(0, 150, true)],
            ..once()
        }
    }

    #[test]
    fn what_is_right_is_found_right() {
        let none: [String; 0] = [];
        assert_eq!(once().wrong(Crash::Hold), none);
        assert_eq!(once().wrong(Crash::Takeover), none);
        assert_eq!(taken_over().wrong(Crash::Takeover), none);
        let mut unwritten = taken_over();
        unwritten.takeovers.clear();
        unwritten.disturbances.push(disturbance(1, 3100, true));
        assert_eq!(unwritten.wrong(Crash::Takeover), none);
        let mut doubt = taken_over();
        doubt.effects.pop();
        doubt.answers.clear();
        doubt.takeovers.clear();
        doubt.in_doubt.insert("k".to_owned());
        doubt
            .records
            .insert("k".to_owned(), ("id".to_owned(), "in_doubt".to_owned()));
        assert_eq!(doubt.wrong(Crash::Hold), none);
        // In doubt is no end under takeover, and not being listed is none under hold.
        assert!(!doubt.wrong(Crash::Takeover).is_empty());
        doubt.in_doubt.clear();
        assert!(!doubt.wrong(Crash::Hold).is_empty());
    }

    /// Each history is right but for one thing.
    #[test]
    fn whatever_is_wrong_is_found() {
        type Seed = fn(&mut History);
        let seeds: [(&str, Seed); 12] = [
            ("callers were told", |h| {
                h.answers.push(told(201, "run 1 of 0"));
            }),
            ("which no run of it said", |h| {
                h.answers = vec![told(201, "else")];
            }),
            ("told 422", |h| h.answers.push(told(422, "conflict"))),
            ("no audit entry explains", |h| h.takeovers.clear()),
            ("no audit entry explains", |h| h.takeovers[0].fence = 11),
            // Only a kill of its own process, right after its beginning, explains a missing entry.
            ("no audit entry explains", |h| {
                h.takeovers.clear();
                h.disturbances.push(disturbance(1, 3100, false));
            }),
            ("no audit entry explains", |h| {
                h.takeovers.clear();
                h.disturbances.push(disturbance(2, 3100, true));
            }),
            ("no audit entry explains", |h| {
                h.takeovers.clear();
                h.disturbances.push(disturbance(1, 5100, true));
            }),
            ("nobody vanished between", |h| h.disturbances[0].via = 1),
            ("nobody vanished between", |h| {
                h.disturbances[0].from = at(5000);
            }),
            ("never done", |h| h.effects.clear()),
            ("None, in doubt", |h| h.records.clear()),
        ];
        for (words, seed) in seeds {
            let mut history = taken_over();
            seed(&mut history);
            let wrong = history.wrong(Crash::Takeover);
            assert!(
                wrong.iter().any(|line| line.contains(words)),
                "{words}: {wrong:?}"
            );
        }
        let wrong = taken_over().wrong(Crash::Hold).join("\n");
        assert!(wrong.contains("done 2 times under hold"), "{wrong}");
        assert!(wrong.contains("taken over under hold"), "{wrong}");
        let mut doubt = once();
        doubt.in_doubt.insert("k".to_owned());
        doubt
            .records
            .insert("k".to_owned(), ("id".to_owned(), "in_doubt".to_owned()));
        let wrong = doubt.wrong(Crash::Hold).join("\n");
        assert!(wrong.contains("in doubt, and nobody vanished"), "{wrong}");
    }
}
