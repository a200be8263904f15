//! What an attachment belongs to: the message that it is for, and the copy that the agent has.

use std::io::Read;

use ash_core::id::SessionId;
use ash_core::number::{Cursor, LogEpoch, Seq};
use ash_engine::files::{FileError, FilePath};
use ash_engine::{Workspace, WorkspaceError};
use ash_store::Attachment;

use super::app::App;
use super::attachments::blocking;
use super::auth::Caller;
use super::error::ApiError;
use super::messages::named_id;

/// How many messages are looked through at once.
const PAGE: u32 = 1_000;

/// How much of two files is compared at once.
const PIECE: usize = 64 * 1024;

/// The place of a message in the log, as it is kept, by its id: the one that lists have, or its cursor. Refuses that of
/// a message that the session has not. Both ids are others in a fork, and wherever else the session is taken.
pub(super) async fn place_of_message(
    app: &App,
    caller: &Caller,
    session: SessionId,
    message: Option<&str>,
) -> Result<Option<String>, ApiError> {
    let Some(message) = message else { return Ok(None) };
    let epoch = app.session(caller, session).await?.session.log_epoch();
    let mut after = Seq::ZERO;
    loop {
        let page = app.store().messages_after(session, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for logged in &page {
            let seq = logged.seq;
            let cursor = Cursor { epoch, seq }.to_string();
            if message == cursor {
                return Ok(Some(format!("@{seq}")));
            }
            if message == named_id(&["message", &session.to_string(), &cursor]).to_string() {
                return Ok(Some(seq.to_string()));
            }
        }
    }
    Err(ApiError::invalid("messageId names no message of this session"))
}

/// The id of the message that an attachment is for, as this history of its session has it.
pub(super) fn message_of(attachment: &Attachment, epoch: LogEpoch) -> String {
    let Some(message) = &attachment.message else { return "unlinked".to_owned() };
    let Some(seq) = attachment.message_seq() else { return message.clone() };
    let cursor = Cursor { epoch, seq }.to_string();
    if message.starts_with('@') {
        return cursor;
    }
    named_id(&["message", &attachment.session.to_string(), &cursor]).to_string()
}

/// Removes the copy that the agent has of an attachment, as long as it is one: what was changed is the agent's.
pub(super) async fn remove_copy(app: &App, attachment: &Attachment) -> Result<(), ApiError> {
    let session = attachment.session;
    let workspace = match app.engine().workspace_to_change(&attachment.tenant, session).await {
        Ok(workspace) => workspace,
        // What is in a snapshot alone stays, and what is over is not touched.
        Err(WorkspaceError::Away | WorkspaceError::None | WorkspaceError::Engine(_)) => {
            return Ok(());
        }
        Err(error @ WorkspaceError::File(_)) => return Err(error.into()),
    };
    let path = FilePath::file(attachment.path.as_bytes())?;
    if !is_copy(app, attachment, &workspace, path.clone()).await? {
        return Ok(());
    }
    match workspace.remove(path).await {
        Ok(()) | Err(WorkspaceError::File(FileError::NotFound)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn is_copy(
    app: &App,
    attachment: &Attachment,
    workspace: &Workspace,
    path: FilePath,
) -> Result<bool, ApiError> {
    let mut copy = match workspace.read(path, attachment.size).await {
        Ok(copy) => copy,
        // It was removed, replaced, or has grown.
        Err(WorkspaceError::File(_)) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let (session, id) = (attachment.session, attachment.id);
    blocking(app.attachments(), move |kept| match kept.open(session, id) {
        Ok(mut kept) => is_same(&mut kept, &mut copy.file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    })
    .await
}

/// Whether two files have the same bytes.
fn is_same(one: &mut impl Read, other: &mut impl Read) -> std::io::Result<bool> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        one.take(PIECE as u64).read_to_end(&mut left)?;
        other.take(PIECE as u64).read_to_end(&mut right)?;
        if left != right {
            return Ok(false);
        }
        if left.is_empty() {
            return Ok(true);
        }
    }
}
