//! The model's properties hold, and each of them notices when a rule is broken.

#![cfg(feature = "model")]

use semel_testkit::model::{Break, Breaks, Space, exhibits, rules, violation};

#[test]
fn every_broken_rule_is_noticed_by_the_property_it_breaks() {
    for exhibit in exhibits() {
        let found = violation(exhibit.space, Some(exhibit.property));
        let found = found
            .unwrap_or_else(|| panic!("{} should break {:?}", exhibit.broken, exhibit.property));
        assert!(found.properties.contains(&exhibit.property));
        assert!(!found.steps.is_empty());
    }
}

#[test]
fn the_same_spaces_hold_with_no_rule_broken() {
    for exhibit in exhibits() {
        if matches!(exhibit.space, Space::Move(_)) {
            // Those are spaces of `cargo xtask model --quick` as they are; a test beside them says
            // so.
            continue;
        }
        let found = violation(exhibit.space.with(Breaks::NONE), None);
        assert!(
            found.is_none(),
            "in the space of {}: {found:#?}",
            exhibit.broken
        );
    }
}

#[test]
fn every_rule_has_an_exhibit_and_every_property_can_fail() {
    let exhibits = exhibits();
    for broken in Break::ALL {
        assert!(
            exhibits.iter().any(|exhibit| exhibit.broken == *broken),
            "{broken} is not shown"
        );
        assert_eq!(broken.name().parse(), Ok(*broken));
    }
    for rule in rules() {
        assert!(
            exhibits.iter().any(|exhibit| exhibit.property == rule),
            "{rule:?} never fails"
        );
    }
}

/// The token is a second line behind the fence: it takes both to fail for a stranger to settle.
#[test]
fn a_token_alone_stops_a_stale_lease_when_fences_repeat() {
    let stale = "I3 a stale lease changes nothing";
    let both = exhibits()
        .into_iter()
        .find(|exhibit| exhibit.broken == Break::SettleAnyToken);
    let space = both.expect("an exhibit").space;
    assert!(violation(space, Some(stale)).is_some());
    let fences_repeat = space.with(Breaks::of(Break::FenceAfterExpiry));
    assert!(violation(fences_repeat, Some(stale)).is_none());
    let any_token = space.with(Breaks::of(Break::SettleAnyToken));
    assert!(violation(any_token, Some(stale)).is_none());
}
