//! P2, P24, P25: a record belongs to one identity, and is used only if its format is known.

use std::fmt::Debug;

use anyhow::{bail, ensure};
use semel_core::namespace::MAX_PART_BYTES;
use semel_core::{
    Certainty, Claim, CrashPolicy, Grant, Identity, Namespace, Resolution, StoreErrorKind,
    StoreResult,
};

use super::make::{again, answer, claim_in, complete};
use super::{CheckVerdict, Scene};

/// The same key in another tenant, scope or environment is another key, all through its life.
pub(super) async fn p02_namespaces_never_meet(scene: Scene) -> CheckVerdict {
    let terms = scene.lasting(CrashPolicy::Takeover)?;
    let environment = scene.environment();
    let elsewhere = format!("{environment}-");
    let places = [
        (environment, "acme", "charge"),
        (environment, "acme", "refund"),
        (environment, "emca", "charge"),
        (environment, "", "charge"),
        (environment, "acmec", "harge"),
        (&*elsewhere, "acme", "charge"),
        (&*elsewhere, "", "charge"),
    ];
    let mut claims = Vec::new();
    for (environment, tenant, scope) in places {
        let claim = claim_in(Namespace::new(environment, tenant, scope)?, "ord-1", terms)?;
        let lease = scene.won(&claim).await?;
        let body = format!("{environment}/{tenant}/{scope}");
        scene.settled(&lease, &complete(&body)).await?;
        claims.push((claim, body));
    }
    for (claim, body) in claims {
        let replay = scene.replayed(&again(&claim)).await?;
        ensure!(
            replay.answer == answer(&body),
            "{body} was answered with another's answer"
        );
    }
    Ok(())
}

/// Deleting, resolving or settling one key leaves its neighbours alone.
pub(super) async fn p02_neighbours_are_left_alone(scene: Scene) -> CheckVerdict {
    let (ours, theirs) = (scene.fresh()?, scene.fresh()?);
    let lease = scene.won(&ours).await?;
    scene.won(&theirs).await?;
    let before = scene.read(&theirs.identity).await?;
    scene.held(&lease, Some(b"progress")).await?;
    scene.settled(&lease, &complete("the answer")).await?;
    ensure!(
        scene.store().delete(&ours.identity).await?,
        "delete found nothing"
    );
    scene.unchanged(&theirs.identity, &before).await
}

/// Namespaces are text: of any script, empty but for the scope, as long as allowed, with quotes.
pub(super) async fn p02_namespaces_are_text(scene: Scene) -> CheckVerdict {
    let terms = scene.lasting(CrashPolicy::Takeover)?;
    let longest = "ß".repeat(MAX_PART_BYTES / 2);
    let parts = [
        "Käufer GmbH",
        "商店",
        "🧾",
        "o'brien\"; --",
        "a b/c:d.e\\f",
        "%_*?[x]",
        &longest,
    ];
    for tenant in parts {
        let scope = tenant;
        let key = format!("{}-{}", scene.environment(), tenant.len());
        let claim = scene.claim_of(tenant, scope, &key, terms)?;
        scene.won(&claim).await?;
        let record = scene.record(&claim.identity).await?;
        ensure!(
            record.namespace == claim.namespace,
            "{:?} became {:?}",
            tenant,
            record.namespace
        );
        ensure!(
            record.hint == claim.hint,
            "{:?} became {:?}",
            claim.hint,
            record.hint
        );
    }
    // Where the environment is empty too, the key alone keeps this suite apart from others.
    let bare = claim_in(Namespace::new("", "", "s")?, scene.environment(), terms)?;
    scene.won(&bare).await?;
    let record = scene.record(&bare.identity).await?;
    ensure!(
        record.namespace == bare.namespace,
        "an empty part became {:?}",
        record.namespace
    );
    Ok(())
}

/// A record under the right address with another seal is another key's: an error, for every call.
pub(super) async fn p24_anothers_record_is_an_error(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    let stranger = Identity::from_halves(&claim.identity.address(), &[7; 16]);
    uses_nothing(&scene, &claim, &lease, stranger).await?;
    scene.settled(&lease, &complete("the answer")).await?;
    uses_nothing(&scene, &claim, &lease, stranger).await
}

/// A record that a later version wrote is an error for every call, and is never taken for absent.
pub(super) async fn p25_an_unknown_version_is_an_error(scene: Scene) -> CheckVerdict {
    let claim = scene.fresh()?;
    let lease = scene.won(&claim).await?;
    if !scene.subject().spoil(&claim.identity).await {
        let capabilities = scene.store().capabilities();
        let leaves = capabilities.durable || capabilities.shared;
        ensure!(
            !leaves,
            "records that outlive or leave their process are kept as bytes"
        );
        return Ok(());
    }
    refuses(&scene, &claim, &lease).await?;
    // Nothing above may have replaced what could not be read.
    let still = scene.store().read(&claim.identity).await;
    is_refused("read", &still)
}

/// Every call under `stranger` is refused, and the record at that address stays its owner's.
async fn uses_nothing(
    scene: &Scene,
    claim: &Claim,
    lease: &Grant,
    stranger: Identity,
) -> CheckVerdict {
    let before = scene.read(&claim.identity).await?;
    let claim_there = Claim {
        identity: stranger,
        ..again(claim)
    };
    let lease_there = Grant {
        identity: stranger,
        ..lease.clone()
    };
    refuses(scene, &claim_there, &lease_there).await?;
    let deleted = scene.store().delete(&stranger).await;
    ensure!(
        !matches!(deleted, Ok(true)),
        "delete removed another key's record"
    );
    scene.unchanged(&claim.identity, &before).await
}

async fn refuses(scene: &Scene, claim: &Claim, lease: &Grant) -> CheckVerdict {
    let store = scene.store();
    let (identity, fence) = (&claim.identity, lease.fence);
    is_refused("claim", &store.claim(&again(claim)).await)?;
    is_refused("renew", &store.renew(lease, None).await)?;
    is_refused("settle", &store.settle(lease, &complete("x")).await)?;
    is_refused(
        "resolve",
        &store.resolve(identity, fence, &Resolution::Release).await,
    )?;
    is_refused("read", &store.read(identity).await)
}

fn is_refused<T: Debug>(call: &str, result: &StoreResult<T>) -> CheckVerdict {
    match result {
        Ok(answer) => bail!("{call} used the record: {answer:?}"),
        Err(error) => {
            ensure!(
                error.kind == StoreErrorKind::Record,
                "{call} says {:?}",
                error.kind
            );
            ensure!(
                error.certainty == Certainty::Definite,
                "{call} says {:?}",
                error.certainty
            );
            Ok(())
        }
    }
}
