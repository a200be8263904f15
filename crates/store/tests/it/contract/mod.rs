//! One suite for every implementation of [`Store`]. The memory store is the specification; a
//! store that passes here can take its place.

mod agents;
mod attachments;
mod cloud;
mod commits;
mod histories;
mod lists;
mod log;
mod owners;
mod purge;
mod queue;
mod requests;
mod sessions;
mod snapshots;
mod tenants;
mod versions;

use ash_store::memory::MemoryStore;
use ash_store::sqlite::SqliteStore;

/// Runs every behavior on every implementation.
macro_rules! contract {
    ($($group:ident: $($behavior:ident),+;)+) => {
        mod memory {
            $($(
                #[tokio::test]
                async fn $behavior() {
                    super::$group::$behavior(&super::MemoryStore::new()).await;
                }
            )+)+
        }

        mod sqlite {
            $($(
                #[tokio::test]
                async fn $behavior() {
                    let directory = tempfile::tempdir().unwrap();
                    let store = super::SqliteStore::open(&directory.path().join("ash.db")).unwrap();
                    super::$group::$behavior(&store).await;
                    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
                }
            )+)+
        }

        mod sqlite_alone {
            $($(
                #[tokio::test]
                async fn $behavior() {
                    let directory = tempfile::tempdir().unwrap();
                    let path = directory.path().join("ash.db");
                    let store = super::SqliteStore::open_alone(&path).unwrap();
                    super::$group::$behavior(&store).await;
                }
            )+)+
        }
    };
}

contract! {
    cloud:
        a_place_is_noted_beside_the_other,
        how_far_the_cloud_is_behind_can_be_told,
        the_latest_head_of_a_session_is_noted,
        in_another_cloud_there_is_nothing_yet;
    histories:
        a_session_can_begin_with_the_history_of_another,
        what_is_attached_comes_with_a_history_or_nothing_does,
        what_was_consumed_before_a_fork_is_counted_once,
        a_session_can_be_brought_from_elsewhere,
        a_refused_import_leaves_nothing,
        another_tenants_history_does_not_exist,
        a_snapshot_that_is_lost_meanwhile_is_not_inherited,
        an_import_can_leave_a_receipt,
        what_follows_an_import_is_written_with_it;
    purge:
        all_but_the_latest_snapshots_are_pruned_and_those_that_are_needed,
        a_snapshot_is_needed_as_long_as_a_session_of_its_tenant_has_it_here,
        sessions_that_rest_are_listed_with_their_deadlines,
        a_deadline_is_recorded_unless_the_log_has_grown,
        a_purged_session_leaves_nothing,
        only_a_session_that_has_ended_is_purged_and_only_by_its_owner,
        the_last_session_of_a_deleted_agent_takes_it_along,
        what_follows_a_purge_is_written_with_it,
        a_long_log_goes_in_steps_and_nothing_of_it_is_found_meanwhile,
        what_agents_consist_of_is_used_as_long_as_they_or_their_sessions_are;
    snapshots:
        a_snapshot_is_recorded_with_its_decision,
        snapshots_are_listed_newest_first,
        where_a_snapshot_lies_is_noted_until_it_is_forgotten;
    tenants:
        the_default_tenant_exists_from_the_start,
        tenants_are_listed_by_id,
        a_tenant_is_added_once,
        an_api_key_is_found_by_its_hash,
        an_api_key_needs_its_tenant,
        no_two_api_keys_share_an_id_or_a_hash,
        a_revoked_api_key_is_gone,
        another_tenants_api_key_does_not_exist,
        a_credential_comes_back_as_it_was_sealed,
        a_credential_is_added_once_and_needs_its_tenant,
        another_tenants_credential_does_not_exist,
        a_deleted_credential_is_gone,
        a_used_credential_says_when,
        a_key_and_a_credential_can_leave_a_receipt,
        a_key_or_a_credential_whose_receipt_exists_is_not_added,
        what_is_refused_leaves_no_receipt;
    versions:
        a_draft_is_a_version_that_new_sessions_do_not_get,
        another_version_becomes_the_active_one_and_a_deployment_takes_its_place,
        what_is_said_about_a_version_changes_and_the_rest_stays,
        a_version_can_be_made_of_something_else_and_sessions_keep_what_they_had,
        a_deleted_version_is_gone_but_for_its_sessions,
        the_active_version_is_not_deleted,
        another_tenants_versions_do_not_exist;
    agents:
        versions_are_numbered_and_do_not_change,
        settings_are_replaced_and_hold_for_every_version,
        a_deployment_leaves_a_receipt_with_its_version,
        agents_are_listed_by_name_in_their_latest_version,
        another_tenants_agent_does_not_exist,
        an_agent_needs_its_tenant,
        an_agents_id_is_never_used_for_another,
        a_deleted_agent_is_gone_and_its_name_is_free,
        deleting_an_agent_names_the_sessions_that_go_on,
        the_sessions_of_a_deleted_agent_are_hidden_but_can_be_claimed;
    sessions:
        a_new_session_comes_back_as_it_was_created,
        a_session_is_created_once,
        what_a_session_spends_is_added_up_for_it_alone,
        a_session_needs_a_deployed_agent_of_its_tenant,
        a_refused_creation_leaves_nothing,
        another_tenants_session_does_not_exist,
        a_session_whose_record_names_another_is_a_conflict;
    owners:
        owners_are_counted_from_one,
        who_was_followed_makes_no_session_any_more,
        every_claim_raises_the_fence,
        a_claim_of_nothing_finds_nothing,
        a_later_owner_takes_a_session_from_an_earlier_one,
        an_earlier_owner_is_superseded_and_changes_nothing,
        the_owner_that_created_a_session_keeps_it_from_earlier_ones,
        a_hidden_session_is_kept_from_earlier_owners_too;
    lists:
        sessions_are_listed_newest_first_and_in_pages,
        sessions_are_filtered_by_agent_and_status,
        sessions_are_filtered_by_the_beginning_of_their_id,
        the_census_counts_what_goes_on_now,
        sessions_that_are_not_at_rest_are_unsettled,
        sandboxed_sessions_are_the_live_and_the_frozen_ones,
        housed_sessions_are_all_that_may_have_a_sandbox,
        abandoned_sessions_go_on_though_their_agent_is_deleted,
        due_sessions_come_most_overdue_first,
        the_expected_incarnation_is_that_of_what_may_run,
        every_list_follows_every_commit;
    commits:
        a_commit_records_everything_in_one_piece,
        a_stale_fence_is_refused_and_changes_nothing,
        a_fence_from_the_future_is_refused_too,
        a_commit_on_another_end_of_the_log_is_refused,
        a_commit_decided_before_the_last_one_is_refused,
        entries_that_do_not_follow_each_other_are_refused,
        a_session_that_does_not_agree_with_its_entries_is_refused,
        a_commit_without_entries_still_needs_the_expected_end,
        a_commit_to_nothing_finds_nothing,
        a_commit_whose_receipt_exists_changes_nothing,
        a_commit_whose_outbox_task_exists_changes_nothing,
        a_commit_that_names_an_outbox_task_twice_changes_nothing,
        a_commit_with_an_unknown_run_changes_nothing,
        a_run_is_accepted_once,
        an_entry_that_is_too_large_is_refused,
        settings_change_only_when_they_are_given,
        concurrent_commits_leave_one_winner;
    log:
        the_log_is_read_in_order_and_in_pages,
        a_page_of_large_entries_is_short,
        the_log_of_nothing_is_not_found,
        messages_are_the_prompts_and_the_whole_answers,
        json_is_kept_exactly_as_it_came,
        a_run_is_followed_from_accepted_to_ended,
        a_cut_run_keeps_its_failure,
        runs_are_listed_newest_first,
        a_run_of_another_session_is_not_found,
        the_prompt_of_a_run_is_what_was_written,
        usage_is_summed_over_runs_that_ended,
        usage_is_filtered_by_session_agent_and_time,
        runs_that_ended_are_listed_with_their_agents_the_last_one_first,
        usage_of_a_deleted_agent_still_counts,
        an_absurd_usage_does_not_spoil_the_sum;
    queue:
        an_item_comes_back_as_it_was_added,
        an_item_can_leave_a_receipt,
        another_tenants_item_does_not_exist,
        items_are_listed_newest_first_and_counted,
        items_are_taken_by_priority_then_by_age,
        an_item_is_leased_and_taken_again_when_its_lease_passed,
        what_was_taken_can_be_released,
        only_the_latest_taker_writes,
        a_failed_attempt_is_made_again_in_the_same_session,
        of_one_session_one_item_is_taken_at_a_time,
        what_waits_for_a_session_at_rest_is_left_alone,
        only_what_waits_is_withdrawn,
        an_item_that_another_clock_put_back_is_not_waited_for,
        items_that_are_over_are_forgotten_in_time,
        receipts_of_an_item_stay_until_it_is_over;
    attachments:
        an_attachment_comes_back_as_it_was_added,
        no_two_attachments_of_a_session_lie_at_the_same_path,
        an_attachment_needs_a_session_of_its_tenant,
        what_was_not_placed_is_known_until_it_is,
        an_attachment_takes_its_receipt_along_if_that_is_named;
    requests:
        a_receipt_comes_back_as_it_was_written,
        a_receipt_is_another_one_for_another_tenant_route_or_key,
        a_new_session_can_leave_a_receipt,
        old_receipts_are_forgotten,
        a_task_is_taken_when_it_is_ready,
        a_taken_task_is_leased,
        a_task_whose_lease_passed_is_taken_again,
        what_was_taken_or_put_back_can_be_made_ready,
        only_the_latest_attempt_finishes_a_task,
        only_the_latest_attempt_puts_a_task_back,
        tasks_are_taken_by_topic_in_order_up_to_a_limit,
        a_task_that_another_clock_put_back_is_not_waited_for;
}
