//! Owners: a later one takes sessions from an earlier one, never the other way round.

use ash_core::number::{Fence, Owner};
use ash_core::session::Request;
use ash_store::{Store, StoreError};

use crate::support::{Conversation, deploy, name, refusal, session_id, us};

/// Asks for session 10 and is told that somebody later has it.
async fn superseded(store: &dyn Store, owner: u64) {
    let error = store.claim_session(session_id(10), Owner::new(owner)).await.unwrap_err();
    let StoreError::Superseded(session) = error else { panic!("{error:?}") };
    assert_eq!(session, session_id(10));
    assert!(!error.is_transient(), "it would be superseded again");
}

pub(super) async fn owners_are_counted_from_one(store: &dyn Store) {
    // What is claimed with a number does not make it count.
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    for number in [1, 2, 3] {
        assert_eq!(store.next_owner().await.unwrap(), Owner::new(number));
    }
    store.claim_session(session_id(10), Owner::new(40)).await.unwrap();
    assert_eq!(store.next_owner().await.unwrap(), Owner::new(4));
}

pub(super) async fn who_was_followed_makes_no_session_any_more(store: &dyn Store) {
    deploy(store, 1).await;
    let (_, mut new) = Conversation::draft(10);
    let earlier = store.next_owner().await.unwrap();
    let later = store.next_owner().await.unwrap();
    new.owner = earlier;
    assert!(refusal(store.create_session(&new).await).starts_with("Superseded"));
    assert_eq!(refusal(store.session_record(session_id(10)).await), r#"NotFound("session")"#);
    new.owner = later;
    store.create_session(&new).await.unwrap();
}

pub(super) async fn every_claim_raises_the_fence(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::begin(store, 10).await;
    for fence in [2, 3, 4] {
        // The same owner that claims again has a new life too.
        let claimed = store.claim_session(session_id(10), Owner::new(2)).await.unwrap();
        assert_eq!(claimed.fence, Fence::new(fence));
        assert_eq!(claimed.session, conversation.session);
        assert_eq!(claimed.record.id, session_id(10));
    }
}

pub(super) async fn a_claim_of_nothing_finds_nothing(store: &dyn Store) {
    let claimed = store.claim_session(session_id(10), Owner::new(2)).await;
    assert_eq!(refusal(claimed), r#"NotFound("session")"#);
}

pub(super) async fn a_later_owner_takes_a_session_from_an_earlier_one(store: &dyn Store) {
    deploy(store, 1).await;
    let mut earlier = Conversation::active(store, 10).await;
    let mut later = earlier.clone();
    later.claim(store, 2).await;
    assert_eq!(later.session, earlier.session);
    assert_eq!(later.fence, earlier.fence.next());
    let fenced = store.commit(&earlier.prompt(1, "too late")).await;
    assert!(refusal(fenced).starts_with("Fenced"));
    store.commit(&later.prompt(1, "hello")).await.unwrap();
    // However much later.
    later.claim(store, 7).await;
    store.commit(&later.prompt(2, "hello")).await.unwrap();
}

pub(super) async fn an_earlier_owner_is_superseded_and_changes_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let mut later = Conversation::active(store, 10).await;
    later.claim(store, 3).await;
    let before = store.session(&us(), session_id(10)).await.unwrap();
    for owner in [2, 1, 0] {
        superseded(store, owner).await;
    }
    assert_eq!(store.session(&us(), session_id(10)).await.unwrap(), before);
    // The fence is where it was, and so is the owner.
    store.commit(&later.prompt(1, "hello")).await.unwrap();
    superseded(store, 2).await;
    let fence = later.fence;
    later.claim(store, 3).await;
    assert_eq!(later.fence, fence.next());
}

pub(super) async fn the_owner_that_created_a_session_keeps_it_from_earlier_ones(store: &dyn Store) {
    deploy(store, 1).await;
    let (mut conversation, mut new) = Conversation::draft(10);
    new.owner = Owner::new(3);
    assert_eq!(store.create_session(&new).await.unwrap(), Fence::new(1));
    superseded(store, 2).await;
    store.commit(&conversation.started()).await.unwrap();
    conversation.claim(store, 3).await;
    assert_eq!(conversation.fence, Fence::new(2));
}

pub(super) async fn a_hidden_session_is_kept_from_earlier_owners_too(store: &dyn Store) {
    deploy(store, 1).await;
    let mut later = Conversation::active(store, 10).await;
    later.claim(store, 3).await;
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    superseded(store, 2).await;
    store.commit(&later.request(Request::End)).await.unwrap();
}
