//! What is known of files that were attached to sessions.

use ash_core::id::{AttachmentId, SessionId};
use ash_store::{Attachment, Store};

use crate::support::{
    Conversation, add_them, at, attachment_id, deploy, name, receipt, refusal, session_id, them, us,
};

const MISSING: &str = r#"NotFound("attachment")"#;

fn new(number: i64, session: i64, path: &str) -> Attachment {
    Attachment {
        id: attachment_id(number),
        tenant: us(),
        session: session_id(session),
        message: (number % 2 == 0).then(|| format!("message {number}")),
        filename: "a.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        size: 42,
        path: path.to_owned(),
        placed: false,
        created_at: at(number),
    }
}

/// Attaches something to a session.
pub(super) async fn attach(store: &dyn Store, session: SessionId) {
    let id = AttachmentId::from_uuid(session.as_uuid());
    store.create_attachment(&Attachment { id, session, ..new(1, 1, "a") }, None).await.unwrap();
}

pub(super) async fn an_attachment_comes_back_as_it_was_added(store: &dyn Store) {
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    Conversation::begin(store, 20).await;
    for (number, session, path) in [(2, 10, "b"), (1, 10, "a"), (3, 20, "a")] {
        store.create_attachment(&new(number, session, path), None).await.unwrap();
    }
    assert_eq!(store.attachment(&us(), attachment_id(2)).await.unwrap(), new(2, 10, "b"));
    let listed = store.attachments(&us(), session_id(10)).await.unwrap();
    assert_eq!(listed, [new(1, 10, "a"), new(2, 10, "b")]);
    assert_eq!(store.attachments(&us(), session_id(99)).await.unwrap(), []);
}

pub(super) async fn no_two_attachments_of_a_session_lie_at_the_same_path(store: &dyn Store) {
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    store.create_attachment(&new(1, 10, "a"), None).await.unwrap();
    let exists = r#"Exists("attachment")"#;
    assert_eq!(refusal(store.create_attachment(&new(1, 10, "b"), None).await), exists);
    assert_eq!(refusal(store.create_attachment(&new(2, 10, "a"), None).await), exists);
    store.delete_attachment(&us(), attachment_id(1), None).await.unwrap();
    store.create_attachment(&new(2, 10, "a"), None).await.unwrap();
}

pub(super) async fn an_attachment_needs_a_session_of_its_tenant(store: &dyn Store) {
    deploy(store, 1).await;
    add_them(store).await;
    Conversation::begin(store, 10).await;
    let gone = r#"NotFound("session")"#;
    assert_eq!(refusal(store.create_attachment(&new(1, 99, "a"), None).await), gone);
    let theirs = Attachment { tenant: them(), ..new(1, 10, "a") };
    assert_eq!(refusal(store.create_attachment(&theirs, None).await), gone);
    store.create_attachment(&new(1, 10, "a"), None).await.unwrap();
    assert_eq!(refusal(store.attachment(&them(), attachment_id(1)).await), MISSING);
    assert_eq!(store.attachments(&them(), session_id(10)).await.unwrap(), []);
    let deleted = store.delete_attachment(&them(), attachment_id(1), None).await;
    assert_eq!(refusal(deleted), MISSING);
    // It is hidden with its session.
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(refusal(store.attachment(&us(), attachment_id(1)).await), MISSING);
}

pub(super) async fn what_was_not_placed_is_known_until_it_is(store: &dyn Store) {
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    Conversation::begin(store, 20).await;
    for (number, session) in [(1, 10), (2, 10), (3, 20)] {
        let new = new(number, session, &number.to_string());
        store.create_attachment(&new, None).await.unwrap();
    }
    let sessions = async || store.sessions_with_unplaced().await.unwrap();
    assert_eq!(sessions().await, [session_id(10), session_id(20)]);
    store.place_attachment(attachment_id(3)).await.unwrap();
    store.place_attachment(attachment_id(1)).await.unwrap();
    assert_eq!(sessions().await, [session_id(10)]);
    let left = store.unplaced_attachments(session_id(10)).await.unwrap();
    assert_eq!(left, [new(2, 10, "2")]);
    assert!(store.attachment(&us(), attachment_id(1)).await.unwrap().placed);
    assert_eq!(refusal(store.place_attachment(attachment_id(9)).await), MISSING);
}

pub(super) async fn an_attachment_takes_its_receipt_along_if_that_is_named(store: &dyn Store) {
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    let kept = receipt("attached", 5);
    store.create_attachment(&new(1, 10, "a"), Some(&kept)).await.unwrap();
    let again = store.create_attachment(&new(2, 10, "b"), Some(&kept)).await;
    assert_eq!(refusal(again), r#"Exists("receipt")"#);
    assert_eq!(refusal(store.attachment(&us(), attachment_id(2)).await), MISSING);
    store.delete_attachment(&us(), attachment_id(1), Some(&kept.key)).await.unwrap();
    assert_eq!(store.receipt(&kept.key).await.unwrap(), None);
    assert_eq!(refusal(store.delete_attachment(&us(), attachment_id(1), None).await), MISSING);
    store.create_attachment(&new(1, 10, "a"), Some(&kept)).await.unwrap();
    store.delete_attachment(&us(), attachment_id(1), None).await.unwrap();
    assert_eq!(store.receipt(&kept.key).await.unwrap(), Some(kept));
}
