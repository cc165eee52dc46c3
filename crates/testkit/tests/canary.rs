//! The canary (P41): nodes with different secrets must not share a store.

use std::sync::Arc;

use semel_core::canary::{self, CanaryError};
use semel_core::{MemoryConfig, MemoryStore, Secret};
use semel_testkit::clock::{FakeClock, env};

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
async fn p41_a_tool_needs_the_nodes_secret_and_chooses_none_for_them() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let env = env(&clock, 1);
    let look = async |secret: &Secret| canary::look(&store, &env, secret, "production").await;
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
