//! The canary (P41): nodes with different secrets must not share a store.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::{FakeClock, env};
use semel_core::canary::{self, CanaryError};
use semel_core::store::Query;
use semel_core::{
    Claim, ClaimTerms, Claimed, CrashPolicy, Env, Fingerprint, Identity, Key, MemoryConfig,
    MemoryStore, Namespace, Secret, Store as _, StoreAdmin as _, Token,
};

fn secret(id: u16) -> Secret {
    let byte = u8::try_from(id).expect("a small id");
    Secret::new(id, &[byte; 32]).expect("a secret")
}

#[tokio::test]
async fn p41_a_node_with_another_secret_does_not_start() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let env = env(&clock, 1);
    for _ in 0..3 {
        canary::check(&store, &env, &secret(1), "production")
            .await
            .unwrap();
    }
    let other = canary::check(&store, &env, &secret(2), "production").await;
    assert!(matches!(other, Err(CanaryError::OtherSecret { id: 2 })));
    let none = canary::check(&store, &env, &Secret::none(), "production").await;
    assert!(matches!(none, Err(CanaryError::OtherSecret { id: 0 })));
}

#[tokio::test]
async fn p41_tool_needs_the_nodes_secret_and_sets_none() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let env = env(&clock, 1);
    let look =
        async |secret: &Secret| canary::check_read_only(&store, &env, secret, "production").await;
    look(&Secret::none()).await.unwrap();
    canary::check(&store, &env, &secret(1), "production")
        .await
        .unwrap();
    look(&secret(1)).await.unwrap();
    let none = look(&Secret::none()).await;
    assert!(matches!(none, Err(CanaryError::OtherSecret { id: 0 })));
}

#[tokio::test]
async fn p41_environments_may_have_secrets_of_their_own() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let env = env(&clock, 1);
    canary::check(&store, &env, &secret(1), "production")
        .await
        .unwrap();
    canary::check(&store, &env, &secret(2), "staging")
        .await
        .unwrap();
}

/// Claims a key, as a node with this secret does.
async fn serve(store: &MemoryStore, env: &Env, id: u16) {
    let namespace = Namespace::new("production", "", "charge").expect("a namespace");
    let key = Key::parse("a-key").expect("a key");
    let span = Duration::from_secs(60);
    let claim = Claim {
        retry: false,
        identity: Identity::new(&secret(id), &namespace, &key),
        fingerprint: Fingerprint::builder(&secret(id)).finish(),
        token: Token(env.entropy.next_u128()),
        terms: ClaimTerms::new(span, span, CrashPolicy::Takeover, 5).expect("terms"),
        secret_id: id,
        hint: key.hint(),
        namespace,
    };
    let claimed = store.claim(&claim).await.expect("an answer");
    assert!(matches!(claimed, Claimed::Won(_)), "{claimed:?}");
}

/// As a bucket's own rule may, or an operator.
async fn remove_canaries(store: &MemoryStore) {
    let canaries = Query::default().with_scope(canary::SCOPE.to_owned());
    for (identity, _) in store.list(&canaries).await.expect("a listing").records {
        assert!(store.delete(&identity).await.expect("an answer"));
    }
}

#[tokio::test]
async fn p41_records_identify_the_secret_without_the_canary() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let env = env(&clock, 1);
    canary::check(&store, &env, &secret(1), "production")
        .await
        .unwrap();
    serve(&store, &env, 1).await;
    remove_canaries(&store).await;
    for stranger in [secret(2), Secret::none()] {
        let refused = canary::check(&store, &env, &stranger, "production").await;
        assert!(
            matches!(refused, Err(CanaryError::OtherSecret { .. })),
            "{refused:?}"
        );
    }
    // Another environment has records of its own, and the right node makes the canary anew.
    canary::check(&store, &env, &secret(2), "staging")
        .await
        .unwrap();
    canary::check(&store, &env, &secret(1), "production")
        .await
        .unwrap();
    canary::check_read_only(&store, &env, &secret(1), "production")
        .await
        .unwrap();
    let none = canary::check_read_only(&store, &env, &Secret::none(), "production").await;
    assert!(none.is_err(), "there is no canary");
}
