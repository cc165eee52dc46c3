//! The seeded bugs, each with the check that must catch it.

/// Hands the list of bugs to another macro: `/// what it does` `name Variant "check";`.
#[doc(hidden)]
#[macro_export]
macro_rules! with_seeded_bugs {
    ($($callback:ident)::+ !) => {
        $($callback)::+! {
            /// A key is looked up by its text, whatever namespace it lives in.
            key_without_namespace KeyWithoutNamespace "p02_namespaces_never_meet";
            /// A deletion takes the whole namespace along.
            delete_takes_neighbours DeleteTakesNeighbours "p02_neighbours_are_left_alone";
            /// Namespaces are kept in ASCII.
            namespace_is_ascii NamespaceIsAscii "p02_namespaces_are_text";
            /// A claim reads, and then writes what it decided, whatever was written in between.
            check_then_act CheckThenAct "p04_a_new_key_has_one_winner";
            /// A write that changed no value counts as a win: the loser is told Won.
            owner_by_rows_affected OwnerByRowsAffected "p08_busy_while_the_lease_lives";
            /// A retry of a key that nobody knows is told to wait for it.
            unknown_retry_is_busy UnknownRetryIsBusy "p04_a_retry_is_answered_alike";
            /// Some of what a claim says is not written down.
            hint_is_lost HintIsLost "p05_absent_is_won";
            /// A released key still refuses other payloads.
            released_keeps_its_payload ReleasedKeepsItsPayload
                "p05_released_is_won_with_another_payload";
            /// A claim sent again is not known to be the owner's.
            resent_claim_is_busy ResentClaimIsBusy "p06_resent_claim_wins_the_same_lease";
            /// The payload is not compared while the key runs.
            mismatch_ignored_while_running MismatchIgnoredWhileRunning
                "p07_mismatch_while_running";
            /// The payload is not compared once the key is settled.
            mismatch_ignored_when_settled MismatchIgnoredWhenSettled "p07_mismatch_when_completed";
            /// Completing a record writes it anew, without its fingerprint.
            fingerprint_dropped_on_completion FingerprintDroppedOnCompletion
                "p07_mismatch_when_completed";
            /// The fingerprint is dropped from a doubt.
            fingerprint_dropped_on_doubt FingerprintDroppedOnDoubt "p07_mismatch_when_in_doubt";
            /// A takeover needs the key, and not the payload.
            takeover_ignores_payload TakeoverIgnoresPayload "p07_mismatch_when_lapsed";
            /// The record lives as long as the lease, so that a lapse forgets the key.
            lease_is_ttl LeaseIsTtl "p10_hold_is_in_doubt_after_lapse";
            /// Half of a lease is taken for all of it.
            takeover_before_lapse TakeoverBeforeLapse "p09_no_takeover_before_the_lease_ended";
            /// A lease counts from the claim, whatever was renewed since.
            renewal_not_counted RenewalNotCounted "p14_a_renewed_lease_lives_its_full_span";
            /// A lapsed lease is never taken over: a crash blocks the key.
            no_takeover NoTakeover "p09_lapsed_is_taken_over";
            /// What the last owner kept is lost when the next takes over.
            checkpoint_lost_on_takeover CheckpointLostOnTakeover
                "p09_takeover_hands_on_the_checkpoint";
            /// A takeover starts a new record: the time of the first claim is lost.
            takeover_starts_anew TakeoverStartsAnew "p09_lapsed_is_taken_over";
            /// `hold` is taken for takeover.
            takeover_under_hold TakeoverUnderHold "p04_a_held_lease_has_no_winner";
            /// Runs are not counted, so a key that kills its owners runs for ever.
            attempts_not_counted AttemptsNotCounted "p10_attempts_used_up";
            /// A doubt is free to claim.
            doubt_is_free DoubtIsFree "p11_in_doubt_stays_in_doubt";
            /// The owner's claim, sent again after its settlement, wins once more.
            resent_claim_runs_again ResentClaimRunsAgain "p12_the_owner_is_replayed_too";
            /// A second process asks a replica that is one write behind.
            replica_lags ReplicaLags "p12_another_process_is_replayed";
            /// A second process can't read the answer yet, and calls it a doubt.
            answer_is_doubted_elsewhere AnswerIsDoubtedElsewhere
                "p12_another_process_is_replayed";
            /// A second process can't read the answer yet, and says that the key runs.
            answer_is_busy_elsewhere AnswerIsBusyElsewhere "p12_another_process_is_replayed";
            /// A final failure is replayed as if it had been an answer.
            failure_replayed_as_answer FailureReplayedAsAnswer "p12_failed_is_replayed";
            /// Answers are kept as text.
            answer_is_text AnswerIsText "p12_replay_is_byte_equal";
            /// The asker's crash policy decides, not the stored one.
            askers_policy_wins AskersPolicyWins "p13_stored_hold_beats_the_askers_takeover";
            /// The asker's number of attempts decides, not the stored one.
            askers_attempts_win AskersAttemptsWin "p13_stored_attempts_beat_the_askers";
            /// A released key keeps the terms that it was first claimed on.
            released_keeps_its_terms ReleasedKeepsItsTerms "p13_a_released_key_takes_new_terms";
            /// A renewal that brings no checkpoint is answered, and not written.
            plain_renewal_not_written PlainRenewalNotWritten "p14_a_renewal_is_held";
            /// A renewal writes a record whether or not there is one.
            renew_is_upsert RenewIsUpsert "p14_an_absent_lease_cannot_be_renewed";
            /// Whoever has the token may renew, under any fence.
            renew_ignores_fence RenewIgnoresFence "p14_a_renewal_needs_the_fence";
            /// Whoever knows the fence may renew.
            renew_ignores_token RenewIgnoresToken "p14_a_renewal_needs_the_token";
            /// Anybody may renew.
            renew_ignores_owner RenewIgnoresOwner "p14_a_stale_renewal_is_lost";
            /// A renewal of a settled record sets it running again.
            renew_revives RenewRevives "p14_a_settled_lease_cannot_be_renewed";
            /// A lapsed lease is lost to its owner even if nobody took over.
            late_renewal_refused LateRenewalRefused "p14_a_lapsed_lease_can_be_renewed";
            /// A renewal without a checkpoint clears the last one.
            renewal_clears_checkpoint RenewalClearsCheckpoint
                "p15_a_plain_renewal_keeps_the_checkpoint";
            /// An empty checkpoint is taken for none.
            empty_checkpoint_ignored EmptyCheckpointIgnored "p15_a_checkpoint_replaces_the_last";
            /// A checkpoint is cut at 4 KiB.
            checkpoint_is_cut CheckpointIsCut "p27_the_largest_checkpoint";
            /// Whoever has the token may settle, under any fence.
            settle_ignores_fence SettleIgnoresFence "p16_a_settlement_needs_the_fence";
            /// Whoever knows the fence may settle.
            settle_ignores_token SettleIgnoresToken "p16_a_settlement_needs_the_token";
            /// A settlement is an unconditional update: a paused worker overwrites its successor.
            settle_ignores_owner SettleIgnoresOwner "p16_a_stale_settlement_is_lost";
            /// A settlement writes its record whether or not there is one.
            settle_is_upsert SettleIsUpsert "p16_an_absent_lease_settles_nothing";
            /// A call that gave up frees the key, whoever runs it by now.
            anybody_may_release AnybodyMayRelease "p16_a_stale_release_frees_nothing";
            /// A doubt is written as a release.
            doubt_is_released DoubtIsReleased "p16_a_settlement_is_written";
            /// A settlement after the lease lapsed is refused though nobody took over.
            late_settle_refused LateSettleRefused "p17_a_late_settlement_is_accepted";
            /// Once in doubt, the owner isn't heard any more.
            doubt_silences_owner DoubtSilencesOwner "p17_a_late_settlement_ends_a_noticed_doubt";
            /// A settlement that ends a doubt is answered, and not written.
            late_settlement_not_written LateSettlementNotWritten
                "p17_a_late_settlement_ends_a_noticed_doubt";
            /// A settlement sent again is taken for another.
            resent_settle_is_lost ResentSettleIsLost "p18_a_resent_settlement_is_done";
            /// The last answer of an owner counts, not the first.
            second_settle_overwrites SecondSettleOverwrites "p18_the_first_answer_stays";
            /// A resolution ends whatever doubt it finds, also another than the one looked at.
            resolve_ignores_fence ResolveIgnoresFence "p19_a_resolution_needs_the_fence";
            /// A resolution ends a run that is under way.
            resolve_ends_a_run ResolveEndsARun "p19_a_run_cannot_be_resolved";
            /// A lapse that no claim has noticed cannot be resolved.
            unnoticed_lapse_stays UnnoticedLapseStays "p19_an_unnoticed_lapse_can_be_resolved";
            /// A resolution sent again is refused.
            resent_resolve_refused ResentResolveRefused "p19_a_resent_resolution_is_done";
            /// An expired answer is replayed until a sweep removes it.
            expired_is_replayed ExpiredIsReplayed "p05_expired_is_won";
            /// An expired record can be read until a sweep removes it.
            expired_is_read ExpiredIsRead "p20_expired_is_absent_at_once";
            /// The retention counts from the claim: an answer lives shorter than agreed.
            settling_keeps_the_old_retention SettlingKeepsTheOldRetention
                "p20_settling_restarts_the_retention";
            /// Every replay keeps the record longer.
            replay_prolongs ReplayProlongs "p20_replaying_does_not_prolong";
            /// A sweep takes running records too.
            sweep_takes_running SweepTakesRunning "p21_sweep_leaves_live_records";
            /// A sweep finds what has expired, and then removes what is there by now.
            sweep_takes_fresh_claims SweepTakesFreshClaims "p21_a_sweep_takes_no_fresh_claim";
            /// A sweep does nothing.
            sweep_removes_nothing SweepRemovesNothing "p21_sweep_removes_the_expired";
            /// Fences start over when a key was released.
            fence_restarts_after_release FenceRestartsAfterRelease
                "p22_fences_grow_across_release";
            /// Fences start over when a record has expired.
            fence_restarts_after_expiry FenceRestartsAfterExpiry "p22_fences_grow_across_expiry";
            /// Fences are counted in the record, and forgotten with it.
            fence_forgotten_with_the_record FenceForgottenWithTheRecord
                "p22_fences_grow_across_delete";
            /// A takeover keeps the fence.
            takeover_keeps_the_fence TakeoverKeepsTheFence "p22_fences_grow_across_takeover";
            /// The time left is always the whole lease.
            busy_for_a_whole_lease BusyForAWholeLease "p23_spans_are_the_stores";
            /// Whatever lies under the address is used, whosever it is.
            seal_not_checked SealNotChecked "p24_anothers_record_is_an_error";
            /// A record that can't be read counts as absent.
            unreadable_is_absent UnreadableIsAbsent "p25_an_unknown_version_is_an_error";
            /// A full store forgets a live record for a new one.
            full_forgets FullForgets "p26_full_refuses_a_new_key";
            /// A full store refuses renewals and settlements too.
            full_refuses_settlements FullRefusesSettlements "p26_full_still_renews_and_settles";
            /// A full store doesn't look for what has expired.
            full_stays_full FullStaysFull "p26_the_expired_make_room";
            /// An answer is cut at 64 KiB.
            answer_is_cut AnswerIsCut "p27_a_full_head_and_a_mebibyte";
            /// An empty body is taken for one that was not kept.
            empty_body_is_omitted EmptyBodyIsOmitted "p27_an_empty_body_is_kept";
            /// A body that is kept elsewhere is taken for one that was not kept.
            body_elsewhere_is_omitted BodyElsewhereIsOmitted
                "p44_a_body_kept_elsewhere_is_named_exactly";
            /// Half of a digest is kept.
            digest_cut DigestCut "p44_a_body_kept_elsewhere_is_named_exactly";
            /// The length of a body that was not kept is not kept either.
            omitted_length_lost OmittedLengthLost "p27_an_omitted_body_stays_omitted";
            /// A claim that is given up half way leaves its key locked.
            dropped_claim_leaves_a_lock DroppedClaimLeavesALock
                "p28_a_dropped_claim_is_sent_again";
            /// A reply that nobody took is given to the next caller.
            dropped_reply_is_given_on DroppedReplyIsGivenOn
                "p28_a_dropped_call_answers_no_other";
            /// Every page but the first leaves out a record.
            pages_skip PagesSkip "p29_each_record_is_listed_once";
            /// A page is told by its number, which traffic shifts.
            pages_are_counted PagesAreCounted "p29_traffic_disturbs_no_listing";
            /// Filters fit whatever begins like them.
            filters_are_prefixes FiltersArePrefixes "p29_filters_are_exact";
            /// A lapsed lease under `hold` is listed as running.
            lapse_listed_as_running LapseListedAsRunning "p29_states_are_as_they_stand";
            /// A cursor that makes no sense starts the listing anew.
            bad_cursor_starts_anew BadCursorStartsAnew "p29_a_bad_cursor_is_refused";
            /// A listing passes over what can't be read without a word.
            unreadable_passed_over UnreadablePassedOver "p29_what_cannot_be_read_is_counted";
            /// A restored record takes the place of whatever is there.
            restore_overwrites RestoreOverwrites "p43_what_is_there_is_kept";
            /// A restored record does not take the place of a released one.
            restore_leaves_released RestoreLeavesReleased "p43_a_released_record_is_replaced";
            /// A restored record has the fence that it brought, though a larger one was given out
            /// here.
            restored_fence_goes_back RestoredFenceGoesBack "p43_a_released_record_is_replaced";
            /// What has expired lives again when it is restored.
            restore_revives RestoreRevives "p43_the_expired_is_not_restored";
            /// A restored record was first asked for when it was restored.
            restore_forgets_the_first_time RestoreForgetsTheFirstTime "p43_a_restored_record_is_as_it_was";
            /// A restored record lives for its whole retention again.
            restore_restarts_the_retention RestoreRestartsTheRetention "p43_a_restored_record_expires_when_it_would_have";
            /// A record sent again is taken for another.
            resent_restore_is_kept ResentRestoreIsKept "p43_a_resent_record_is_written";
            /// Restoring looks, and then writes, whatever was written in between.
            restore_looks_first RestoreLooksFirst "p43_a_record_and_claims_have_one_winner";
            /// A claim is decided without a look at the claimant's keys.
            claim_without_the_key ClaimWithoutTheKey "p46_a_claim_without_the_key_changes_nothing";
            /// Wake-ups are promised and never come.
            never_wakes NeverWakes "p34_a_settlement_wakes";
            /// A resolution wakes nobody.
            resolve_wakes_nobody ResolveWakesNobody "p34_a_resolution_wakes";
            /// Only who has lost a claim since counts as waiting.
            wakes_only_who_lost WakesOnlyWhoLost "p34_an_early_settlement_is_not_missed";
            /// One of many waiters is woken.
            wakes_only_one WakesOnlyOne "p34_all_waiters_wake";
        }
    };
}

macro_rules! bugs {
    ($($(#[doc = $about:literal])+ $name:ident $variant:ident $check:literal;)*) => {
        /// A bug that a [`BrokenStore`](super::BrokenStore) may have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[doc = $about])+ $variant,)*
        }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name),)* }
            }

            /// The check that has to catch it.
            #[must_use]
            pub const fn expected_check(self) -> &'static str {
                match self { $(Self::$variant => $check,)* }
            }
        }
    };
}

with_seeded_bugs!(bugs!);
