//! The registry of checks. The table for programs and the generated tests both come from it.

use semel_core::BoxFuture;

use super::{CheckVerdict, Scene};
use super::{
    claim, doubt, elsewhere, forms, identity, keys, listing, mismatch, races, renew, replay,
    resend, resolve, restore, room, settle, storms, takeover, terms, time, wake,
};

/// One check.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ConformanceCheck {
    /// Its name: the rule's number, then what has to hold.
    pub name: &'static str,
    /// The rules and invariants that it is about.
    pub rules: &'static str,
    /// Runs it.
    pub run: fn(Scene) -> BoxFuture<'static, CheckVerdict>,
}

impl ConformanceCheck {
    /// The check of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|check| check.name == name)
    }
}

impl std::fmt::Debug for ConformanceCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Check({})", self.name)
    }
}

/// Hands the list of checks to another macro: `module name "rules";`, after its own arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! with_conformance_checks {
    ($($callback:ident)::+ ! ($($argument:tt)*)) => {
        $($callback)::+! { ($($argument)*)
            identity p02_namespaces_never_meet "P2";
            identity p02_neighbours_are_left_alone "P2";
            identity p02_namespaces_are_text "P2 P29";
            races p04_a_new_key_has_one_winner "P4 I1";
            races p04_a_released_key_has_one_winner "P4 I1";
            races p04_a_deleted_key_has_one_winner "P4 I1";
            races p04_an_expired_key_has_one_winner "P4 I1";
            races p04_a_lapsed_lease_has_one_winner "P4 P9 I1";
            races p04_a_held_lease_has_no_winner "P4 P10 I5";
            claim p04_a_retry_is_answered_alike "P4";
            claim p05_absent_is_won "P5";
            claim p05_released_is_won "P5";
            claim p05_released_is_won_with_another_payload "P5";
            claim p05_released_is_won_by_the_same_token "P5 P22";
            claim p05_expired_is_won "P5 P20";
            claim p06_resent_claim_wins_the_same_lease "P6 I6";
            claim p06_resent_claim_after_lapse_wins_the_same_lease "P6 I6";
            claim p06_resent_claim_with_another_payload_is_a_mismatch "P6 P7 I7";
            claim p06_resent_claim_after_takeover_is_busy "P6 P8";
            races p06_copies_of_a_claim_win_one_lease "P6 I6";
            mismatch p07_mismatch_while_running "P7 I7";
            mismatch p07_mismatch_when_lapsed "P7 I7";
            mismatch p07_mismatch_when_completed "P7 I7";
            mismatch p07_mismatch_when_failed "P7 I7";
            mismatch p07_mismatch_when_in_doubt "P7 I7";
            claim p08_busy_while_the_lease_lives "P8 P23 I1";
            claim p08_busy_counts_attempts "P8";
            takeover p09_lapsed_is_taken_over "P9 I10";
            takeover p09_takeover_hands_on_the_checkpoint "P9 P15";
            takeover p09_no_takeover_before_the_lease_ended "P9 P23 I5";
            doubt p10_hold_is_in_doubt_after_lapse "P10 I5";
            doubt p10_reading_puts_nothing_in_doubt "P10";
            doubt p10_attempts_used_up "P10";
            doubt p11_in_doubt_stays_in_doubt "P11";
            doubt p11_the_owner_finds_the_doubt_too "P11 P17";
            replay p12_completed_is_replayed "P12 P23 I2";
            replay p12_failed_is_replayed "P12 I2";
            replay p12_the_owner_is_replayed_too "P12 I6";
            replay p12_another_process_is_replayed "P12 I2";
            replay p12_replay_is_byte_equal "P12 I2";
            races p12_racing_callers_run_one_effect "P4 P12 I1";
            races p12_each_release_runs_one_more_effect "P4 P12 I1";
            terms p13_stored_hold_beats_the_askers_takeover "P13 I5";
            terms p13_stored_takeover_beats_the_askers_hold "P13";
            terms p13_stored_attempts_beat_the_askers "P13";
            terms p13_a_takeover_brings_its_own_spans "P13";
            terms p13_a_released_key_takes_new_terms "P5 P13";
            renew p14_a_renewal_is_held "P14";
            renew p14_a_renewed_lease_lives_its_full_span "P14";
            renew p14_a_renewal_restarts_the_retention "P14 P20";
            renew p14_what_was_renewed_past_its_first_retention_settles "P14 P16 P20";
            renew p14_a_lapsed_lease_can_be_renewed "P14";
            renew p14_a_stale_renewal_is_lost "P14 I3";
            renew p14_a_renewal_needs_the_fence "P14 I3";
            renew p14_a_renewal_needs_the_token "P14 I3";
            renew p14_a_settled_lease_cannot_be_renewed "P14 I3";
            renew p14_an_absent_lease_cannot_be_renewed "P14 I3";
            storms p14_renewal_and_takeover_exclude_each_other "P9 P14 I1";
            renew p15_a_checkpoint_replaces_the_last "P15";
            renew p15_a_plain_renewal_keeps_the_checkpoint "P15";
            renew p15_a_checkpoint_is_binary "P15";
            settle p16_a_settlement_is_written "P16";
            settle p16_a_settlement_needs_the_fence "P16 I3";
            settle p16_a_settlement_needs_the_token "P16 I3";
            settle p16_a_stale_settlement_is_lost "P16 I3";
            settle p16_a_stale_release_frees_nothing "P16 I3 I13";
            settle p16_an_absent_lease_settles_nothing "P16 I3";
            settle p16_a_deleted_lease_settles_nothing_later "P16 I3";
            storms p16_settlement_and_takeover_exclude_each_other "P9 P16 I3";
            settle p17_a_late_settlement_is_accepted "P17";
            settle p17_a_late_settlement_ends_a_noticed_doubt "P17";
            settle p17_an_owner_may_end_its_own_doubt "P17";
            settle p18_a_resent_settlement_is_done "P18 I6";
            settle p18_another_settlement_is_lost "P18 I2";
            settle p18_the_first_answer_stays "P18 I2";
            storms p18_one_of_many_settlements_is_done "P18 I2";
            storms p18_copies_of_a_settlement_are_done "P18 I6";
            resolve p19_a_doubt_can_be_completed "P19";
            resolve p19_a_doubt_can_be_failed "P19";
            resolve p19_a_doubt_can_be_released "P19 P22";
            resolve p19_an_unnoticed_lapse_can_be_resolved "P19 P10";
            resolve p19_a_resolution_needs_the_fence "P19";
            resolve p19_a_run_cannot_be_resolved "P19";
            resolve p19_only_a_doubt_can_be_resolved "P19";
            resolve p19_a_resent_resolution_is_done "P19 I6";
            resolve p19_a_doubt_is_resolved_once "P18 P19";
            storms p19_one_of_many_resolutions_is_done "P19";
            time p20_expired_is_absent_at_once "P20 I12";
            time p20_settling_restarts_the_retention "P20";
            time p20_replaying_does_not_prolong "P20";
            time p21_sweep_removes_the_expired "P21";
            time p21_sweep_leaves_live_records "P21 I12";
            storms p21_a_sweep_takes_no_fresh_claim "P21 I12";
            time p22_a_deleted_key_is_new "P22";
            time p22_a_deleted_key_lives_its_full_span "P22 P6 P20";
            time p22_fences_grow_across_release "P22 I1";
            time p22_fences_grow_across_delete "P22 I1";
            time p22_fences_grow_across_expiry "P22 I1";
            time p22_fences_grow_across_sweep "P22 I1";
            time p22_fences_grow_across_takeover "P22 I1";
            storms p22_fences_grow_in_a_storm "P22 I1";
            time p23_spans_are_the_stores "P23";
            identity p24_anothers_record_is_an_error "P24 P28 I8";
            identity p25_an_unknown_version_is_an_error "P25 P28";
            room p26_full_refuses_a_new_key "P26 P28 I14";
            room p26_full_still_renews_and_settles "P26 I14";
            room p26_the_expired_make_room "P26";
            replay p27_a_full_head_and_a_mebibyte "P27 P12";
            replay p27_the_largest_answer "P27 P12";
            replay p27_an_omitted_body_stays_omitted "P27 P12";
            elsewhere p44_a_body_kept_elsewhere_is_named_exactly "P44 P12";
            replay p27_an_empty_body_is_kept "P27 P12";
            replay p27_the_largest_checkpoint "P27 P15";
            resend p28_a_dropped_claim_is_sent_again "P28 P6 I6";
            resend p28_a_dropped_claim_blocks_nobody "P28 I10";
            resend p28_a_dropped_settlement_is_sent_again "P28 P18 I6";
            resend p28_a_dropped_renewal_is_sent_again "P28 P14 I6";
            resend p28_a_dropped_call_answers_no_other "P28 I8";
            listing p29_each_record_is_listed_once "P29";
            listing p29_filters_are_exact "P29";
            listing p29_an_empty_filter_means_empty "P29";
            listing p29_states_are_as_they_stand "P29 P10";
            listing p29_a_listing_is_current "P29";
            listing p29_traffic_disturbs_no_listing "P29";
            listing p29_a_bad_cursor_is_refused "P29 P28";
            listing p29_what_cannot_be_read_is_counted "P29 P25";
            restore p43_a_restored_record_is_as_it_was "P43";
            restore p43_what_is_there_is_kept "P43 I2 I3";
            restore p43_a_released_record_is_replaced "P43 P22";
            restore p43_the_expired_is_not_restored "P43 P20";
            restore p43_a_restored_record_expires_when_it_would_have "P43 P20";
            restore p43_a_resent_record_is_written "P43 I6";
            restore p43_a_record_and_claims_have_one_winner "P43 P4 I1";
            keys p46_a_claim_without_the_key_changes_nothing "P46 P16 P18";
            forms p50_an_answer_of_its_own_expires_alone "P50 P18 P20";
            forms p51_a_compressed_body_comes_back_byte_for_byte "P51 P12 P18";
            wake p34_a_settlement_wakes "P34";
            wake p34_a_resolution_wakes "P34";
            wake p34_an_early_settlement_is_not_missed "P34";
            wake p34_all_waiters_wake "P34";
        }
    };
}

macro_rules! table {
    (() $($module:ident $name:ident $rules:literal;)*) => {
        /// Every check, in the order of the rules.
        pub const ALL: &[ConformanceCheck] = &[$(ConformanceCheck {
            name: stringify!($name),
            rules: $rules,
            run: |scene| Box::pin($module::$name(scene)),
        }),*];
    };
}

with_conformance_checks!(table!());
