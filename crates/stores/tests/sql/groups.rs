//! Callers that come at the same time share statements, and nothing else.

use std::sync::Arc;

use futures_util::future::join_all;
use semel_core::{Answer, Claim, Claimed, Grant, Settled, Settlement, Store};
use semel_testkit::proxy::{Cut, Proxy};

use crate::support::{again, fresh};

/// Enough callers for a batch in each lane.
const CALLERS: usize = 60;

fn claims() -> Vec<Claim> {
    (0..CALLERS).map(|_| fresh()).collect()
}

/// An answer that no other key has.
fn answer_to(claim: &Claim) -> Settlement {
    let text = format!("answer {:032x}", claim.token.0);
    Settlement::Complete(Arc::new(Answer::from_body(text)))
}

async fn claim_all(store: &impl Store, claims: &[Claim]) -> Vec<Claimed> {
    let answers = join_all(claims.iter().map(|claim| store.claim(claim))).await;
    let answers = answers.into_iter().map(|answer| answer.expect("an answer"));
    answers.collect()
}

/// Claims all keys at once.
pub(crate) async fn win_all(store: &impl Store, claims: &[Claim]) -> Vec<Grant> {
    let answers = claim_all(store, claims).await.into_iter();
    answers
        .zip(claims)
        .map(|(answer, claim)| match answer {
            Claimed::Won(grant) if grant.token == claim.token => grant,
            other => panic!("a lease was expected: {other:?}"),
        })
        .collect()
}

/// Settles all leases at once.
pub(crate) async fn settle_all(
    store: &impl Store,
    claims: &[Claim],
    grants: &[Grant],
) -> Vec<Settled> {
    let answers: Vec<_> = claims.iter().map(answer_to).collect();
    let pairs = grants.iter().zip(&answers);
    let settled = join_all(pairs.map(|(grant, answer)| store.settle(grant, answer))).await;
    let settled = settled.into_iter().map(|answer| answer.expect("an answer"));
    settled.collect()
}

/// Checks that each key has its own answer.
async fn assert_own_answers(store: &impl Store, claims: &[Claim]) {
    for (claim, replayed) in claims.iter().zip(claim_all(store, claims).await) {
        let Claimed::Replay(replay) = replayed else {
            panic!("a replay was expected: {replayed:?}");
        };
        assert_eq!(Some(&replay.answer), answer_to(claim).answer());
    }
}

/// Two callers for each key: one of them wins it, with a fence of its own key. A lease that is not
/// the owner's, in the same batch as those that are, settles nothing (P18).
pub(crate) async fn each_key_has_one_owner(store: &impl Store) {
    let claims = claims();
    let twice: Vec<_> = claims
        .iter()
        .flat_map(|claim| [claim.clone(), again(claim)])
        .collect();
    let answers = claim_all(store, &twice).await;
    let mut winners = Vec::new();
    for pair in answers.chunks(2) {
        let won: Vec<_> = pair
            .iter()
            .filter_map(|answer| match answer {
                Claimed::Won(grant) => Some(grant.clone()),
                Claimed::Busy(_) => None,
                other => panic!("neither won nor busy: {other:?}"),
            })
            .collect();
        assert_eq!(won.len(), 1, "{pair:?}");
        winners.extend(won);
    }
    let owned: Vec<_> = winners
        .iter()
        .zip(&claims)
        .map(|(grant, claim)| Claim {
            token: grant.token,
            ..claim.clone()
        })
        .collect();
    let mut leases = winners.clone();
    for stale in leases.iter_mut().step_by(7) {
        stale.token.0 ^= 2;
    }
    let settled = settle_all(store, &owned, &leases).await;
    for (index, settled) in settled.into_iter().enumerate() {
        let expected = if index % 7 == 0 {
            Settled::Lost
        } else {
            Settled::Done
        };
        assert_eq!(settled, expected, "{index}");
    }
    settle_all(store, &owned, &winners).await;
    assert_own_answers(store, &owned).await;
}

/// Callers leave while their calls are under way. All others are answered, with their own leases.
pub(crate) async fn caller_that_leaves_takes_nobody_along<S>(store: &S)
where
    S: Store + Clone + 'static,
{
    let claims = claims();
    let start = |claim: &Claim| {
        let (store, claim) = (store.clone(), claim.clone());
        tokio::spawn(async move { store.claim(&claim).await })
    };
    let calls: Vec<_> = claims.iter().map(start).collect();
    for call in calls.iter().step_by(3) {
        call.abort();
        tokio::task::yield_now().await;
    }
    for (index, (call, claim)) in calls.into_iter().zip(&claims).enumerate() {
        match call.await {
            Ok(Ok(Claimed::Won(grant))) => assert_eq!(grant.token, claim.token),
            Err(error) if error.is_cancelled() => assert_eq!(index % 3, 0),
            other => panic!("{other:?}"),
        }
    }
    // Whoever left may ask again, and gets the same lease or a new one.
    let grants = win_all(store, &claims).await;
    settle_all(store, &claims, &grants).await;
    assert_own_answers(store, &claims).await;
}

/// Connections break while calls are under way. Each caller that is told of a lease has it.
pub(crate) async fn lost_reply_doubts_nobody(proxy: &Proxy, store: &impl Store) {
    for lots in 0..6 {
        let claims = claims();
        proxy.cut_after(lots, Cut::BeforeReply);
        let grants = win_all(store, &claims).await;
        proxy.cut_after(lots, Cut::BeforeReply);
        for settled in settle_all(store, &claims, &grants).await {
            assert_eq!(settled, Settled::Done);
        }
        proxy.disarm();
        assert_own_answers(store, &claims).await;
    }
}
