//! Suggestions for names with a typo.

/// The most similar name, if it is similar enough to be a typo.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let best = names.map(near).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.8).then_some(best.1)
}
