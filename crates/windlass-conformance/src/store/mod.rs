//! The promises of every store. [`store_cases!`](crate::store_cases) holds the
//! only list of cases; it is expanded into `#[test]` functions by
//! [`store_suite!`](crate::store_suite) and into [`all_cases`] for tests that
//! break a store on purpose and want to see who notices.

pub mod batches;
pub mod change;
pub mod change_again;
pub mod change_places;
pub mod children;
pub mod children_end;
pub mod claim;
pub mod claim_expired;
pub mod join;
pub mod migrate;
pub mod outbox;
pub mod purge;
pub mod query;
pub mod races;
pub mod record;
pub mod record_refused;
pub mod record_repeat;
pub mod renew;
pub mod settings;
pub mod steps;
pub mod submit;
pub mod submit_depth;
pub mod submit_drain;
pub mod submit_keys;
pub mod upkeep;

use crate::harness::Case;

/// Hands the list of cases to another macro of this crate, after its arguments.
/// A word behind a case is the capability it needs.
#[macro_export]
macro_rules! store_cases {
    ($then:ident $args:tt) => {
        $crate::$then! {
            $args
            submit {
                a_task_is_queued_with_its_event,
                a_delayed_task_waits_for_its_time,
                a_start_in_the_past_is_now,
                an_empty_plan_completes_at_once,
                every_field_reads_back,
                answers_come_in_order,
                one_bad_task_spoils_the_whole_batch,
                bad_fields_are_refused,
                an_empty_batch_is_answered_empty,
                more_tasks_than_a_batch_holds_are_refused,
                a_batch_may_be_as_large_as_promised,
                the_same_submission_again_writes_nothing,
                the_same_submission_again_after_the_end_runs_nothing,
                an_id_with_other_content_is_a_conflict,
                an_id_twice_in_one_batch_makes_one_task,
                an_id_twice_in_one_batch_with_other_content_is_a_conflict,
                a_missing_parent_is_not_found,
                an_ended_parent_takes_no_children,
                a_childs_key_is_unique_under_its_parent,
                a_child_names_its_parent,
            }
            submit_keys {
                a_replay_gets_the_first_answer,
                a_replay_after_the_end_gets_the_first_answer,
                a_key_with_another_body_is_refused_with_its_batch,
                the_whole_hash_of_a_body_counts,
                a_key_is_forgotten_after_its_time,
                a_key_taken_again_is_held_again,
                the_keys_job_forgets_only_what_is_over,
                a_key_twice_in_one_batch_makes_one_task,
                a_key_twice_in_one_batch_with_two_bodies_is_refused,
                a_unique_task_exists_once_while_it_lives,
                a_unique_key_is_free_after_any_end,
                a_unique_time_holds_beyond_the_end,
                a_unique_key_twice_in_one_batch_makes_one_task,
                the_two_sorts_of_keys_do_not_meet,
                keys_differ_by_every_letter,
                a_requeue_takes_the_unique_key_again,
                a_requeue_is_refused_while_another_holds_the_key,
            }
            submit_depth {
                a_full_queue_refuses,
                a_queue_that_drains_stays_open,
                a_batch_beyond_the_depth_is_refused_whole,
                waiting_for_a_time_counts_as_depth,
                running_and_ended_tasks_are_not_depth,
                a_replay_is_answered_by_a_full_queue,
                a_lifted_limit_lets_tasks_in,
            }
            submit_drain {
                a_draining_queue_refuses_new_tasks,
                repeats_are_answered_by_a_draining_queue,
                what_is_in_a_draining_queue_goes_on,
                a_requeue_is_let_in_and_a_rerun_is_not,
                resuming_ends_a_pause_and_a_drain,
            }
            join {
                a_node_is_seen_by_readers,
                live_nodes_have_their_own_slots,
                the_smallest_free_slot_is_given_again,
                a_sole_owner_voids_the_leases_before_it,
                a_sole_owner_leaves_remote_workers_alone,
                a_sole_owner_spares_workers_nobody_could_hear,
                a_sole_owner_after_a_goodbye_spares_workers_too,
                a_node_that_is_not_sole_voids_nothing,
                a_lost_node_is_announced_once,
                a_lost_node_with_tasks_is_announced_once_and_recovered,
                many_lost_nodes_are_announced_in_pieces,
                a_node_that_said_goodbye_is_not_lost,
                dead_workers_keep_nobody_from_joining,
                living_workers_leave_room_for_nodes,
            }
            claim {
                a_claim_gives_a_lease,
                a_claimed_task_is_not_claimed_again,
                highest_priority_goes_first_then_the_oldest,
                no_more_than_asked_for,
                a_claim_never_takes_more_than_the_maximum,
                a_kinds_own_maximum_holds,
                kinds_nobody_serves_stay_queued,
                kinds_nobody_serves_do_not_hide_those_behind_them,
                queues_not_served_are_left_alone,
                one_lane_cannot_starve_the_next,
                lanes_are_served_in_their_order,
                a_paused_queue_gives_nothing,
                ids_that_are_not_ready_are_passed_over,
                a_task_that_waits_for_a_time_is_not_ready,
                tokens_and_attempts_rise_with_each_claim,
                a_node_whose_lease_ended_claims_nothing,
                a_task_past_its_deadline_fails_instead_of_starting,
                a_deadline_also_holds_for_claims_by_id,
                a_deadline_counts_from_when_the_task_is_due,
                a_task_that_once_started_does_not_expire,
                a_resumed_task_comes_with_its_checkpoint,
                a_rollback_is_claimed_as_such,
                a_queues_concurrency_holds_across_nodes,
            }
            claim_expired {
                only_after_the_lease_has_ended,
                it_is_told_and_kept_in_the_history,
                a_renewed_lease_keeps_its_tasks,
                only_queues_and_kinds_that_are_served,
                no_more_than_asked_for,
                a_later_attempt_resumes_from_the_checkpoint,
                a_rollback_is_taken_over_as_such,
                a_death_between_steps_is_no_crash,
                a_death_inside_a_step_is_a_crash,
                a_recorded_step_clears_the_crashes,
                a_node_that_dies_after_a_step_dies_inside_the_next,
                the_second_crash_makes_it_run_alone,
                a_crash_while_alone_poisons_at_the_limit,
                a_death_while_it_waits_to_be_alone_is_no_crash,
                a_task_from_the_queue_waits_to_be_alone_too,
                a_process_that_lives_on_did_not_crash,
                a_limit_of_zero_never_poisons,
                what_people_asked_of_the_dead_node_still_counts,
            }
            renew {
                a_renewal_extends_the_lease,
                an_ended_lease_is_never_revived,
                what_is_no_longer_held_is_told,
                requests_are_told_for_held_tasks_only,
                a_lost_claim_answer_goes_back_with_nothing_burnt,
                a_request_survives_a_lost_claim_answer,
                writes_with_a_lease_given_back_are_refused,
                claims_not_yet_answered_are_left_alone,
                a_take_over_can_be_given_back_too,
                a_rollback_goes_back_as_a_rollback,
                tasks_of_other_nodes_are_not_given_back,
                a_leaving_node_is_gone_once_it_holds_nothing,
                counts_and_stage_are_shown,
                counts_of_several_voices_add_up,
                what_people_want_of_the_node_is_told,
                many_held_tasks_are_renewed_in_one_call,
            }
            record {
                done_completes_with_its_result,
                a_large_result_is_kept_but_not_told,
                fail_ends_with_a_dead_letter,
                an_error_waits_for_its_retry,
                the_latest_error_stays_in_sight,
                the_last_retry_is_the_end,
                a_snooze_and_a_limit_wait_for_their_time,
                waiting_holds_no_slot,
                a_release_burns_nothing,
                a_pause_holds_the_task,
                cancelled_is_an_end,
                a_rollback_backs_off_and_ends,
                a_failed_rollback_is_a_dead_letter,
                a_requested_cancel_picks_the_alternative,
                a_late_request_does_not_undo_done_work,
                a_requested_pause_keeps_the_time_to_go_back_to,
                a_requested_rollback_goes_before_a_cancel,
                progress_is_stored_and_told,
                all_parts_of_a_write_happen_at_once,
                a_transition_the_table_does_not_have_is_refused,
                one_bad_write_does_not_harm_its_neighbours,
                writes_about_one_task_happen_in_their_order,
                many_tasks_end_in_one_call,
                an_empty_record_is_answered_empty,
            }
            record_refused {
                a_stale_token_writes_nothing,
                another_node_writes_nothing,
                a_token_of_the_future_writes_nothing,
                the_same_node_with_its_older_token_writes_nothing,
                an_unknown_task_is_not_written,
                an_ended_task_is_settled_once,
                a_requeued_task_is_out_of_reach_of_its_former_run,
            }
            record_repeat {
                every_settlement_may_be_sent_again,
                a_done_sent_again_later_is_still_a_repeat,
                a_failure_sent_again_makes_one_dead_letter,
                a_failure_sent_again_after_a_requeue,
                a_retry_sent_again_after_its_time_came,
                a_retry_sent_again_while_another_node_runs_it,
                a_step_sent_again_is_recorded_once,
                a_step_that_took_odd_nanoseconds_sent_again,
                steps_with_their_settlement_sent_again,
                a_cancelled_settlement_sent_again,
                the_same_write_twice_in_one_call,
                children_sent_again_are_written_once,
                a_wait_sent_again_after_the_parent_was_woken,
            }
            steps {
                steps_are_read_back_in_order,
                a_log_is_kept_with_its_try_and_out_of_the_checkpoint,
                of_a_long_log_the_end_is_kept,
                nothing_recorded_is_no_checkpoint,
                a_version_that_is_not_newer_writes_nothing,
                versions_rise_within_one_write,
                a_later_attempt_continues_the_versions,
                completing_clears_the_checkpoint_and_keeps_the_history,
                failing_keeps_the_checkpoint,
                failed_tries_are_in_the_checkpoint,
                a_skipped_step_is_finished,
                a_cut_keeps_the_first_steps_and_is_told,
                a_cut_to_nothing_starts_afresh,
                an_undone_step_leaves_the_checkpoint,
            }
            change {
                every_change_in_every_state,
                a_cancelled_task_is_not_claimed,
                a_running_task_is_asked_once,
                a_pause_that_is_taken_back_in_time,
                a_paused_task_is_neither_claimed_nor_promoted,
                a_resumed_task_goes_back_to_its_time,
                an_edited_payload_is_what_runs,
                a_payload_of_null_is_refused,
                a_discarded_dead_letter_leaves_the_task_failed,
                a_rollback_of_a_failed_task_takes_its_dead_letter,
                an_unknown_task_does_not_harm_the_others,
                every_change_is_in_the_audit_list,
                refused_changes_are_in_the_audit_list_too,
            }
            change_again {
                a_requeue_is_a_new_run,
                a_cancelled_task_can_be_requeued,
                other_ends_cannot_be_requeued,
                a_requeue_goes_on_from_the_checkpoint,
                a_requeue_from_a_step_drops_it_and_the_later_ones,
                a_requeue_from_an_unknown_step_is_refused,
                a_requeue_may_bring_a_new_payload,
                a_refused_requeue_keeps_the_payload,
                a_second_failure_is_a_second_dead_letter,
                a_rerun_is_a_new_task_linked_to_the_old,
                a_rerun_sent_again_makes_one_task,
                only_ended_tasks_are_rerun,
            }
            change_places {
                pausing_a_queue_is_told_and_shown,
                a_queue_may_be_paused_before_its_first_task,
                the_bounds_of_a_queue_are_shown,
                changes_to_queues_are_in_the_audit_list,
                changes_to_a_node_are_told_once,
                an_unknown_node_is_not_found,
            }
            batches {
                a_batch_is_kept_as_it_was_ordered,
                a_bad_order_is_refused,
                batches_are_listed_newest_first,
                a_step_changes_tasks_and_moves_on_together,
                a_step_sent_again_touches_nothing,
                an_unknown_batch_takes_no_step,
                a_stopped_batch_takes_no_step,
                what_no_longer_matches_is_left_alone,
                one_that_is_refused_does_not_harm_the_others,
                a_running_task_is_asked,
                a_rerun_makes_its_own_task,
                only_dead_letters_where_that_is_asked_for,
                discarding_takes_letters_off_the_list,
                the_audit_list_has_beginning_and_end,
                no_more_than_may_run_are_begun,
                old_batches_go_and_running_ones_stay,
                a_batch_goes_on_after_reopening: durable,
            }
            children {
                children_are_written_with_their_step,
                a_childs_key_counts_once_under_its_parent,
                a_child_with_a_taken_id_is_refused_alone,
                a_bad_child_is_refused_with_its_step,
                the_last_child_resumes_its_parent,
                each_policy_gives_its_end,
                two_children_may_end_in_one_call,
                a_parent_that_waits_too_late_is_woken,
                a_parent_without_children_does_not_wait_forever,
                waiting_for_a_signal_is_not_ended_by_children,
                a_child_cancelled_by_a_person_counts,
                a_child_that_expires_counts,
                a_held_parent_is_woken_when_it_is_resumed,
                families_reach_over_three_generations,
            }
            children_end {
                the_first_failure_ends_a_fail_fast_parent,
                totals_freeze_when_the_parent_ends,
                cancelling_a_parent_cancels_its_children,
                a_cancel_reaches_grandchildren,
                a_cancel_asked_of_a_running_parent_reaches_its_children,
                many_children_are_ended_in_bounded_pieces,
                a_child_is_never_purged_before_its_parent,
            }
            upkeep {
                only_due_tasks_are_promoted,
                promotion_comes_in_pieces,
                promoted_tasks_keep_their_place_in_line,
                retries_and_snoozes_are_promoted,
                late_tasks_expire_with_a_dead_letter,
                a_task_nobody_promoted_in_time_expires,
                only_tasks_that_never_started_expire,
                expiry_comes_in_pieces,
                jobs_without_work_write_nothing,
            }
            purge {
                ended_tasks_go_after_their_time,
                dead_letters_have_their_own_time,
                live_tasks_are_never_deleted,
                a_live_key_keeps_its_task,
                a_unique_time_keeps_its_task,
                deletion_comes_in_pieces,
                old_events_go_and_readers_go_on,
                positions_are_never_given_again,
                old_audit_rows_go,
                long_lists_go_to_the_end,
                a_purged_id_is_free_of_ghosts,
            }
            outbox {
                nothing_leaves_without_a_rule,
                a_dead_letter_leaves_with_its_task,
                every_way_to_fail_leaves_a_row,
                a_refused_write_leaves_no_row,
                events_leave_in_order,
                a_rule_that_ends_keeps_what_it_wrote,
                a_taken_lane_is_closed_to_others,
                confirmed_rows_are_gone,
                the_holder_goes_on_with_its_lanes,
                taking_again_holds_the_lanes_longer,
                a_row_that_must_wait_holds_back_its_lane_only,
                a_task_that_fails_twice_leaves_twice,
            }
            query {
                filters_find_what_they_say,
                filters_know_time_attempts_and_errors,
                age_counts_from_the_submission,
                pages_are_newest_first_without_gap_or_repeat,
                a_filter_holds_across_pages,
                a_page_has_its_bounds,
                an_unknown_task_is_nothing,
                dead_letters_are_listed_by_filter_and_page,
                the_feed_resumes_at_any_position,
                stats_count_what_is_there,
                queues_count_what_they_hold,
                queues_count_every_state_once,
                ready_kinds_are_those_a_claim_would_find,
                queues_with_nothing_but_a_dead_letter_or_a_setting_are_listed,
                the_longest_wait_of_a_queue_is_told,
                the_next_due_time_is_the_earliest,
                the_audit_list_is_read_in_pages,
                both_handles_see_the_same,
            }
            settings {
                values_are_put_read_and_deleted,
                limits_are_put_read_and_deleted,
                a_bad_limit_or_schedule_is_refused,
                tokens_are_put_read_and_revoked,
                a_bad_or_second_token_is_refused,
                schedules_are_put_read_and_deleted,
                a_schedule_keeps_its_place_while_its_times_stay,
                settings_are_in_the_audit_list,
                a_schedule_fires_with_its_task,
                each_instant_fires_once,
                an_unknown_schedule_fires_nothing,
                a_refused_task_does_not_move_the_schedule,
                a_schedule_may_move_on_without_a_task,
            }
            migrate {
                migrating_again_changes_nothing,
                everything_is_there_after_reopening: durable,
                work_goes_on_after_reopening: durable,
                keys_are_held_after_reopening: durable,
                repeats_are_known_after_reopening: durable,
                numbers_go_on_after_reopening: durable,
                a_sole_owner_recovers_at_once_after_reopening: durable,
            }
            races {
                no_task_is_leased_twice,
                claims_by_id_go_to_one,
                an_expired_lease_goes_to_one_node,
                a_lease_ends_once,
                one_write_sent_many_times_is_written_once,
                a_version_is_written_once,
                one_idempotency_key_makes_one_task,
                one_unique_key_makes_one_task,
                nodes_that_join_at_once_get_their_own_slots,
                a_reader_of_the_feed_misses_nothing,
                a_claim_and_a_cancel_agree,
                the_last_children_cannot_both_miss,
                jobs_may_run_everywhere_at_once,
                an_outbox_row_is_with_one_node_at_a_time,
                a_step_of_a_batch_is_taken_once,
            }
        }
    };
}

/// Makes a module of tests, `memory::submit::a_case`, from an expression that
/// gives a [`Backend`](crate::harness::Backend).
#[macro_export]
macro_rules! store_suite {
    ($store:ident, $backend:expr) => {
        $crate::store_cases! { store_tests ($store, $backend) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_tests {
    (($store:ident, $backend:expr)
     $($module:ident { $($case:ident $(: $needs:ident)?),* $(,)? })*) => {
        mod $store {
            fn backend() -> ::std::sync::Arc<dyn $crate::harness::Backend> {
                #[allow(unused_imports)]
                use super::*;
                ::std::sync::Arc::new($backend)
            }
            $(mod $module {
                $(#[test]
                fn $case() {
                    let case = $crate::store_case!($module $case $($needs)?);
                    $crate::harness::run_test(super::backend(), case);
                })*
            })*
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_list {
    (() $($module:ident { $($case:ident $(: $needs:ident)?),* $(,)? })*) => {
        vec![$($($crate::store_case!($module $case $($needs)?),)*)*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_case {
    ($module:ident $case:ident) => {
        $crate::store_case!(@ $module $case $crate::harness::Needs::Nothing)
    };
    ($module:ident $case:ident durable) => {
        $crate::store_case!(@ $module $case $crate::harness::Needs::Durable)
    };
    (@ $module:ident $case:ident $needs:expr) => {
        $crate::harness::Case {
            module: stringify!($module),
            name: stringify!($case),
            run: |world| ::std::boxed::Box::pin($crate::store::$module::$case(world)),
            needs: $needs,
        }
    };
}

/// Every case, in the order of the list.
pub fn all_cases() -> Vec<Case> {
    store_cases! { store_list () }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_has_every_case_once() {
        let listed: Vec<String> =
            all_cases().iter().map(|c| format!("{}::{}", c.module, c.name)).collect();
        let distinct: BTreeSet<String> = listed.iter().cloned().collect();
        assert_eq!(distinct.len(), listed.len(), "a case is listed twice");
        assert_eq!(distinct, written(), "the list and the files differ");
    }

    /// The cases that stand in the files.
    fn written() -> BTreeSet<String> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let module = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let cases = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            found.extend(
                cases
                    .filter_map(|c| c.split_once("(w: World)"))
                    .map(|(name, _)| format!("{module}::{name}")),
            );
        }
        found
    }
}
