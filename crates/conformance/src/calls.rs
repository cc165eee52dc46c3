//! The calls that a check makes, each with what it expects of them.

use std::fmt::Debug;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use semel_core::{
    Busy, Claim, Claimed, Fence, Grant, Identity, InDoubt, Record, Renewed, Replay, Resolution,
    Resolved, Settled, Settlement,
};

use super::{CheckVerdict, Scene};

impl Scene {
    /// Sends a claim.
    pub async fn claim(&self, claim: &Claim) -> anyhow::Result<Claimed> {
        self.store().claim(claim).await.context("claim failed")
    }

    /// Sends a claim that has to win.
    pub async fn won(&self, claim: &Claim) -> anyhow::Result<Grant> {
        match self.claim(claim).await? {
            Claimed::Won(grant) => Ok(grant),
            other => unexpected("Won", &other),
        }
    }

    /// Sends a claim that has to find the key busy.
    pub async fn busy(&self, claim: &Claim) -> anyhow::Result<Busy> {
        match self.claim(claim).await? {
            Claimed::Busy(busy) => Ok(busy),
            other => unexpected("Busy", &other),
        }
    }

    /// Sends a claim that has to be answered from the record.
    pub async fn replayed(&self, claim: &Claim) -> anyhow::Result<Replay> {
        match self.claim(claim).await? {
            Claimed::Replay(replay) => Ok(replay),
            other => unexpected("Replay", &other),
        }
    }

    /// Sends a claim that has to find the key in doubt.
    pub async fn in_doubt(&self, claim: &Claim) -> anyhow::Result<InDoubt> {
        match self.claim(claim).await? {
            Claimed::InDoubt(doubt) => Ok(doubt),
            other => unexpected("InDoubt", &other),
        }
    }

    /// Sends a claim that has to be refused for its payload, and to change nothing.
    pub async fn mismatch(&self, claim: &Claim) -> CheckVerdict {
        let before = self.read(&claim.identity).await?;
        match self.claim(claim).await? {
            Claimed::Mismatch(_) => self.unchanged(&claim.identity, &before).await,
            other => unexpected("Mismatch", &other),
        }
    }

    /// Sends a renewal.
    pub async fn renew(&self, lease: &Grant, checkpoint: Option<&[u8]>) -> anyhow::Result<Renewed> {
        let checkpoint = checkpoint.map(Bytes::copy_from_slice);
        self.store()
            .renew(lease, checkpoint.as_ref())
            .await
            .context("renew failed")
    }

    /// Sends a renewal that has to be accepted.
    pub async fn held(&self, lease: &Grant, checkpoint: Option<&[u8]>) -> CheckVerdict {
        let renewed = self.renew(lease, checkpoint).await?;
        ensure!(
            renewed == Renewed::Held,
            "expected the renewal to be Held, got {renewed:?}"
        );
        Ok(())
    }

    /// Sends a renewal that has to be Lost, and to change nothing.
    pub async fn renew_is_lost(&self, lease: &Grant) -> CheckVerdict {
        let before = self.read(&lease.identity).await?;
        let renewed = self.renew(lease, Some(b"from a stale owner")).await?;
        ensure!(
            renewed == Renewed::Lost,
            "expected the renewal to be Lost, got {renewed:?}"
        );
        self.unchanged(&lease.identity, &before).await
    }

    /// Sends a settlement.
    pub async fn settle(&self, lease: &Grant, settlement: &Settlement) -> anyhow::Result<Settled> {
        self.store()
            .settle(lease, settlement)
            .await
            .context("settle failed")
    }

    /// Sends a settlement that has to be accepted.
    pub async fn settled(&self, lease: &Grant, settlement: &Settlement) -> CheckVerdict {
        let settled = self.settle(lease, settlement).await?;
        ensure!(
            settled == Settled::Done,
            "expected {settlement:?} to be Done, got {settled:?}"
        );
        Ok(())
    }

    /// Sends a settlement that has to be Lost, and to change nothing.
    pub async fn settle_is_lost(&self, lease: &Grant, settlement: &Settlement) -> CheckVerdict {
        let before = self.read(&lease.identity).await?;
        let settled = self.settle(lease, settlement).await?;
        ensure!(
            settled == Settled::Lost,
            "expected {settlement:?} to be Lost, got {settled:?}"
        );
        self.unchanged(&lease.identity, &before).await
    }

    /// Sends a resolution.
    pub async fn resolve(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> anyhow::Result<Resolved> {
        self.store()
            .resolve(identity, fence, resolution)
            .await
            .context("resolve failed")
    }

    /// Sends a resolution that has to be accepted.
    pub async fn resolved(
        &self,
        id: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> CheckVerdict {
        let resolved = self.resolve(id, fence, resolution).await?;
        ensure!(
            resolved == Resolved::Done,
            "expected {resolution:?} to be Done, got {resolved:?}"
        );
        Ok(())
    }

    /// Sends a resolution that has to be NotInDoubt, and to change nothing.
    pub async fn resolve_is_refused(
        &self,
        id: &Identity,
        fence: Fence,
        with: &Resolution,
    ) -> CheckVerdict {
        let before = self.read(id).await?;
        let resolved = self.resolve(id, fence, with).await?;
        let refused = resolved == Resolved::NotInDoubt;
        ensure!(
            refused,
            "expected {with:?} to be NotInDoubt, got {resolved:?}"
        );
        self.unchanged(id, &before).await
    }

    /// Reads a record.
    pub async fn read(&self, identity: &Identity) -> anyhow::Result<Option<Record>> {
        self.store().read(identity).await.context("read failed")
    }

    /// Reads a record that has to be there.
    pub async fn record(&self, identity: &Identity) -> anyhow::Result<Record> {
        self.read(identity)
            .await?
            .context("expected a record, read found none")
    }

    /// Checks that the record is, in every field, what it was.
    pub async fn unchanged(&self, identity: &Identity, before: &Option<Record>) -> CheckVerdict {
        let after = self.read(identity).await?;
        ensure!(
            after == *before,
            "expected no change; was {before:?}, is {after:?}"
        );
        Ok(())
    }
}

fn unexpected<T>(expected: &str, got: &impl Debug) -> anyhow::Result<T> {
    bail!("expected {expected}, got {got:?}")
}
