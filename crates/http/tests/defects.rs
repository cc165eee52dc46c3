//! What other layers get wrong, checked on ours. `cargo xtask bench peers` runs the same checks on
//! a peer.

#[path = "defects/mod.rs"]
mod defects;

use std::sync::Arc;

use axum::Router;
use defects::{StoreIs, Subject};
use futures_util::future::BoxFuture;
use semel::Semel;
use semel_core::{MemoryConfig, MemoryStore};
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

struct Ours;

impl Subject for Ours {
    fn wrap(&self, app: Router, store: StoreIs) -> BoxFuture<'static, Router> {
        Box::pin(async move {
            let clock = semel::tokio_env().clock;
            let memory = MemoryStore::new(MemoryConfig::default(), Arc::clone(&clock));
            let faulty = FaultyStore::sound(Arc::new(memory), clock);
            if store == StoreIs::Down {
                for _ in 0..100 {
                    faulty.next(CallKind::Claim, Fault::Refuse);
                }
            }
            let semel = Semel::builder().open_on(Arc::new(faulty)).await;
            app.layer(semel.expect("a store").http())
        })
    }
}

macro_rules! ours {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let defect = defects::DEFECTS.iter().find(|defect| defect.name == stringify!($name));
                let check = defect.expect("a check of that name").check;
                check(Arc::new(Ours)).await.expect("not our defect");
            }
        )*

        #[test]
        fn every_defect_is_a_test() {
            let tests = [$(stringify!($name)),*];
            let all: Vec<&str> = defects::DEFECTS.iter().map(|defect| defect.name).collect();
            assert_eq!(all, tests);
        }
    };
}

ours![
    axum_idempotent_concurrent_requests_both_run,
    axum_idempotent_runs_without_protection_when_the_store_is_down,
    axum_idempotent_a_large_request_is_not_protected,
    axum_idempotent_a_large_answer_is_run_again,
    powertools_a_late_finisher_changes_the_answer,
    diom_another_payload_gets_the_first_answer,
    restate_another_payload_attaches_while_running,
    warmplane_a_caller_that_gives_up_makes_the_retry_act_again,
    warmplane_a_caller_that_gives_up_cuts_the_work_in_half,
    idempotent_proxy_an_error_leaves_the_key_held,
    idempotent_proxy_the_path_is_not_part_of_the_payload,
    asgi_a_crash_leaves_the_key_held,
    express_of_many_at_once_several_run,
    fiber_another_users_answer_is_replayed,
    fiber_cookies_are_replayed,
    nestarc_a_streamed_answer_is_run_again,
    hono_location_is_lost_on_replay,
];
