//! P29: listings for operators.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use semel_core::store::{Cursor, Page, Query};
use semel_core::{Certainty, CrashPolicy, Identity, Record, Settlement, State};

use super::make::{complete, settlements};
use super::{CheckVerdict, Scene};

pub(super) fn everything(scene: &Scene) -> Query {
    Query::default().with_environment(scene.environment().to_owned())
}

/// Follows the cursors to the end; an error where a record is listed twice by a store that says it
/// never does that.
pub(super) async fn walk(
    scene: &Scene,
    query: &Query,
) -> anyhow::Result<BTreeMap<Identity, Record>> {
    let mut seen = BTreeMap::new();
    let mut query = query.clone();
    let once = scene.store().capabilities().lists_once;
    for _ in 0..10_000 {
        let Page { records, next, .. } = scene.store().list(&query).await?;
        let most = query.page_size();
        ensure!(
            records.len() <= most,
            "a page of {} where {most} were asked",
            records.len()
        );
        for (identity, record) in records {
            let twice = seen.insert(identity, record).is_some();
            ensure!(!(once && twice), "{identity} was listed twice");
        }
        match next {
            Some(cursor) => query.after = Some(cursor),
            None => return Ok(seen),
        }
    }
    bail!("a listing never came to its end")
}

/// However small the pages, each record is listed, as often as the store says, and as `read` shows
/// it.
pub(super) async fn p29_each_record_is_listed_once(scene: Scene) -> CheckVerdict {
    let mut expected = BTreeMap::new();
    for _ in 0..23 {
        let claim = scene.fresh()?;
        scene.won(&claim).await?;
        expected.insert(claim.identity, scene.record(&claim.identity).await?);
    }
    for limit in [1, 2, 3, 7, 22, 23, 24, 0, Query::MAX_LIMIT + 1] {
        let listed = walk(&scene, &everything(&scene).with_limit(limit)).await?;
        let count = listed.len();
        ensure!(
            count == expected.len(),
            "pages of {limit}: {count} of {} listed",
            expected.len()
        );
        ensure!(
            listed == expected,
            "pages of {limit}: a listed record is not the one read"
        );
    }
    Ok(())
}

/// Filters by environment, tenant and scope are exact, also where they look like patterns.
pub(super) async fn p29_filters_are_exact(scene: Scene) -> CheckVerdict {
    let terms = scene.lasting(CrashPolicy::Takeover)?;
    let parts = [
        "a", "ab", "A", "%", "_", "*", "a%", "a*", "[a]", "ä", "a'b", "\\",
    ];
    let mut expected = Vec::new();
    for tenant in parts {
        for scope in parts {
            let key = format!("{}-{}", scene.environment(), expected.len());
            let claim = scene.claim_of(tenant, scope, &key, terms)?;
            scene.won(&claim).await?;
            expected.push((tenant, scope, claim.identity));
        }
    }
    for part in parts {
        let by_tenant = everything(&scene).with_tenant(part.to_owned());
        let by_scope = everything(&scene).with_scope(part.to_owned());
        let both = by_scope.clone().with_tenant(part.to_owned());
        let counts = [(by_tenant, parts.len()), (by_scope, parts.len()), (both, 1)];
        for (query, count) in counts {
            let listed = walk(&scene, &query.clone().with_limit(5)).await?;
            let fits = |tenant: &str, scope: &str| {
                query
                    .tenant
                    .as_deref()
                    .is_none_or(|wanted| wanted == tenant)
                    && query.scope.as_deref().is_none_or(|wanted| wanted == scope)
            };
            let wanted = expected
                .iter()
                .filter(|(tenant, scope, _)| fits(tenant, scope));
            let missing = wanted
                .filter(|(.., identity)| !listed.contains_key(identity))
                .count();
            let found = listed.len();
            let exact = missing == 0 && found == count;
            ensure!(
                exact,
                "{part:?}: {found} listed, {missing} missing, {count} expected"
            );
        }
    }
    let elsewhere = format!("{}-", scene.environment());
    let none = Query::default().with_environment(elsewhere);
    ensure!(
        walk(&scene, &none).await?.is_empty(),
        "another environment has these records"
    );
    Ok(())
}

/// An empty filter asks for what is empty, not for everything.
pub(super) async fn p29_an_empty_filter_means_empty(scene: Scene) -> CheckVerdict {
    let terms = scene.lasting(CrashPolicy::Takeover)?;
    let without = scene.claim_of("", "scope", "key-1", terms)?;
    scene.won(&without).await?;
    scene
        .won(&scene.claim_of("tenant", "scope", "key-1", terms)?)
        .await?;
    let query = everything(&scene).with_tenant(String::new());
    let listed = walk(&scene, &query).await?;
    let alone = listed.len() == 1 && listed.contains_key(&without.identity);
    ensure!(alone, "{} records without a tenant", listed.len());
    Ok(())
}

/// A filter by state shows where operations stand: a lapsed lease that may not be taken over is in
/// doubt, one that may be is running.
pub(super) async fn p29_states_are_as_they_stand(scene: Scene) -> CheckVerdict {
    let mut expected: BTreeMap<State, Vec<Identity>> = BTreeMap::new();
    for settlement in settlements() {
        let lease = scene.won(&scene.fresh()?).await?;
        scene.settled(&lease, &settlement).await?;
        expected
            .entry(settlement.state())
            .or_default()
            .push(lease.identity);
    }
    let live = scene
        .won(&scene.fresh_on(scene.lasting(CrashPolicy::Hold)?)?)
        .await?;
    let taken = scene
        .won(&scene.fresh_on(scene.lapsing(CrashPolicy::Takeover)?)?)
        .await?;
    let held = scene
        .won(&scene.fresh_on(scene.lapsing(CrashPolicy::Hold)?)?)
        .await?;
    let used_up = scene.fresh_on(scene.lapsing_after(CrashPolicy::Takeover, 1)?)?;
    let used_up = scene.won(&used_up).await?;
    scene.lapse().await;
    expected
        .entry(State::Running)
        .or_default()
        .extend([live.identity, taken.identity]);
    expected
        .entry(State::InDoubt)
        .or_default()
        .extend([held.identity, used_up.identity]);
    for (state, mut identities) in expected {
        identities.sort();
        let query = everything(&scene).with_state(state).with_limit(1);
        let listed: Vec<_> = walk(&scene, &query).await?.into_keys().collect();
        let word = state.as_str();
        ensure!(
            listed == identities,
            "{word}: expected {identities:?}, listed {listed:?}"
        );
    }
    Ok(())
}

/// A listing follows a record from state to state.
pub(super) async fn p29_a_listing_is_current(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let only = |state| everything(&scene).with_state(state);
    ensure!(
        walk(&scene, &only(State::Running)).await?.len() == 1,
        "the run is not listed"
    );
    scene.settled(&lease, &Settlement::Doubt).await?;
    ensure!(
        walk(&scene, &only(State::Running)).await?.is_empty(),
        "a doubt is listed as running"
    );
    ensure!(
        walk(&scene, &only(State::InDoubt)).await?.len() == 1,
        "the doubt is not listed"
    );
    scene.settled(&lease, &complete("the answer")).await?;
    ensure!(
        walk(&scene, &only(State::InDoubt)).await?.is_empty(),
        "an answer is listed as doubt"
    );
    scene.store().delete(&claim.identity).await?;
    ensure!(
        walk(&scene, &everything(&scene)).await?.is_empty(),
        "a deleted record is listed"
    );
    Ok(())
}

/// While other keys come and go, whatever is there throughout is listed as often as the store says.
pub(super) async fn p29_traffic_disturbs_no_listing(scene: Scene) -> CheckVerdict {
    let mut there = Vec::new();
    for _ in 0..24 {
        there.push(scene.won(&scene.fresh()?).await?);
    }
    let mut seen = BTreeMap::<Identity, usize>::new();
    let mut query = everything(&scene).with_limit(2);
    let mut passing = Vec::new();
    for _ in 0..1000 {
        let page = scene.store().list(&query).await?;
        for (identity, _) in page.records {
            *seen.entry(identity).or_default() += 1;
        }
        let Some(next) = page.next else { break };
        query.after = Some(next);
        // One page sees keys come, the next sees them go.
        if passing.is_empty() {
            for _ in 0..4 {
                passing.push(scene.won(&scene.fresh()?).await?.identity);
            }
        } else {
            for identity in passing.drain(..) {
                scene.store().delete(&identity).await?;
            }
        }
        scene.held(&there[0], None).await?;
    }
    let once = scene.store().capabilities().lists_once;
    for lease in there {
        let times = seen.get(&lease.identity).copied().unwrap_or(0);
        let kept = if once { times == 1 } else { times >= 1 };
        ensure!(kept, "{} was listed {times} times", lease.identity);
    }
    Ok(())
}

/// A record that can't be read is not listed, and is counted.
pub(super) async fn p29_what_cannot_be_read_is_counted(scene: Scene) -> CheckVerdict {
    let mut spoilt = Vec::new();
    for index in 0..5 {
        let claim = scene.fresh()?;
        scene.won(&claim).await?;
        // Where records are not kept as bytes, none can be damaged.
        if index % 2 == 0 && scene.subject().spoil(&claim.identity).await {
            spoilt.push(claim.identity);
        }
    }
    let (mut listed, mut unreadable) = (Vec::new(), 0);
    let mut query = everything(&scene).with_limit(1);
    for _ in 0..10_000 {
        let page = scene.store().list(&query).await?;
        listed.extend(page.records.into_iter().map(|(identity, _)| identity));
        unreadable += page.unreadable;
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    listed.sort();
    listed.dedup();
    ensure!(
        listed.len() == 5 - spoilt.len(),
        "{} of {} sound records are listed",
        listed.len(),
        5 - spoilt.len()
    );
    // Others may have damaged records on the same server.
    ensure!(
        unreadable >= spoilt.len(),
        "{unreadable} records are told as unreadable, of at least {}",
        spoilt.len()
    );
    Ok(())
}

/// A cursor that the store never gave out is refused.
pub(super) async fn p29_a_bad_cursor_is_refused(scene: Scene) -> CheckVerdict {
    scene.won(&scene.fresh()?).await?;
    for text in ["not a cursor", "", "0", "'; --"] {
        let query = everything(&scene).with_after(Cursor(text.to_owned()));
        match scene.store().list(&query).await {
            Ok(page) => bail!("cursor {text:?} gave {} records", page.records.len()),
            Err(error) => {
                ensure!(
                    error.certainty == Certainty::Definite,
                    "{:?}",
                    error.certainty
                );
            }
        }
    }
    Ok(())
}
