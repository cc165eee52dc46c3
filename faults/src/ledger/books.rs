//! Compares the entries, the records and the responses of a ledger.

use std::collections::{BTreeMap, BTreeSet};

use super::bank::Entry;
use crate::report::FailedRun;

/// What is known at the end, when every key has its answer.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) entries: Vec<Entry>,
    /// By door and name: the run that the record names.
    pub(super) records: BTreeMap<(String, String), String>,
    /// By door and name: what clients were told.
    pub(super) told: Vec<(String, String, String)>,
    /// By door and name: keys with two records.
    pub(super) twice: Vec<(String, String)>,
}

impl Books {
    /// Checks that each stored answer has exactly one entry, and that there are no other entries.
    pub(super) fn check(&self) -> Vec<FailedRun> {
        let mut entries: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for Entry { door, name, run } in &self.entries {
            entries.entry((door, name)).or_default().push(run);
        }
        let mut found = Vec::new();
        let mut wrong = |door: &str, name: &str, what: String| {
            let history = self.story(door, name);
            found.push(FailedRun {
                invariant: "ledger",
                what: format!("ledger {door} {name}: {what}"),
                history,
            });
        };
        for ((door, name), run) in &self.records {
            match entries.get(&(&**door, &**name)).map(Vec::as_slice) {
                None => wrong(door, name, "a record without an entry".to_owned()),
                Some([one]) if one == run => {}
                Some([_]) => wrong(door, name, "the entry of another run".to_owned()),
                Some(many) => wrong(door, name, format!("done {} times", many.len())),
            }
        }
        let known: BTreeSet<(&str, &str)> = self
            .records
            .keys()
            .map(|(door, name)| (&**door, &**name))
            .collect();
        for (door, name) in entries.keys().filter(|key| !known.contains(key)) {
            wrong(door, name, "an entry without a record".to_owned());
        }
        for (door, name) in &self.twice {
            wrong(door, name, "two records for one key".to_owned());
        }
        let mut seen = BTreeSet::new();
        for (door, name, answer) in &self.told {
            let record = self.records.get(&(door.clone(), name.clone()));
            if record != Some(answer) && seen.insert((door, name)) {
                let what = format!("a caller was told {answer}, the record says {record:?}");
                wrong(door, name, what);
            }
        }
        found
    }

    fn story(&self, door: &str, name: &str) -> String {
        let mut text = String::new();
        let ours = |of: &str, named: &str| of == door && named == name;
        for entry in self.entries.iter().filter(|one| ours(&one.door, &one.name)) {
            text += &format!("    entry of run {}\n", entry.run);
        }
        for (of, named, answer) in &self.told {
            if ours(of, named) {
                text += &format!("    a caller was told {answer}\n");
            }
        }
        let record = self.records.get(&(door.to_owned(), name.to_owned()));
        text + &format!("    the record says {record:?}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings about one key.
    fn found(entries: &[&str], record: Option<&str>, told: &[&str]) -> Vec<String> {
        let (door, name) = ("run-in".to_owned(), "n".to_owned());
        let mut books = Books::default();
        for run in entries {
            books.entries.push(Entry {
                door: door.clone(),
                name: name.clone(),
                run: (*run).to_owned(),
            });
        }
        for answer in told {
            let told = (door.clone(), name.clone(), (*answer).to_owned());
            books.told.push(told);
        }
        if let Some(run) = record {
            books.records.insert((door, name), run.to_owned());
        }
        books.check().into_iter().map(|wrong| wrong.what).collect()
    }

    #[test]
    fn one_entry_for_a_kept_answer_is_right() {
        assert!(found(&["1-1"], Some("1-1"), &["1-1", "1-1"]).is_empty());
        assert!(found(&[], None, &[]).is_empty());
    }

    #[test]
    fn everything_else_is_wrong() {
        let table = [
            (&["1-1", "2-1"][..], Some("2-1"), &[][..], "done 2 times"),
            (&[], Some("1-1"), &[], "a record without an entry"),
            (&["1-1"], None, &[], "an entry without a record"),
            (&["1-1"], Some("2-1"), &[], "the entry of another run"),
            (&["1-1"], Some("1-1"), &["2-1"], "a caller was told 2-1"),
        ];
        for (entries, record, told, what) in table {
            let found = found(entries, record, told);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(what), "{found:?}");
        }
    }
}
