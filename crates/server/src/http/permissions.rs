//! What agents ask before they do something, and what people answer.

use ash_core::id::{QuestionId, SessionId};
use ash_core::json::Json;
use ash_core::permission::Permission;
use ash_engine::Question;
use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, PathIds, length};
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::api::{self, Behavior, DecidePermission};

/// The largest answer, with another input.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// How long a reason may be.
const MAX_MESSAGE_CHARS: usize = 10_000;

/// List the permission questions that are open
///
/// In the order in which they were asked. They stay open while the session is paused, and after the server was
/// started anew.
#[utoipa::path(
    get, path = "/api/sessions/{id}/permissions", tag = "runs", operation_id = "listPermissions",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    responses((status = 200, description = "The questions", body = api::Permissions), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
) -> Result<JsonAnswer<api::Permissions>, ApiError> {
    let questions = app.engine().questions(&caller.tenant, id).await?;
    Ok(JsonAnswer(api::Permissions { permissions: questions.iter().map(view).collect() }))
}

/// Answer a permission question
///
/// The first answer counts, and is kept until the agent has it, also over the end of the server. The same answer
/// again is fine; another one is refused, as is one to a question that is not open any more.
#[utoipa::path(
    post, path = "/api/sessions/{id}/permissions/{permission}", tag = "runs", operation_id = "decidePermission",
    params(
        ("id" = uuid::Uuid, Path, description = "The session"),
        ("permission" = uuid::Uuid, Path, description = "The question"),
    ),
    request_body = DecidePermission,
    responses(
        (status = 200, description = "The answer, which is kept", body = api::PermissionDecided),
        Always, Invalid, Missing, Conflict, TooLarge,
    ),
)]
pub(super) async fn decide(
    State(app): State<App>,
    caller: Caller,
    PathIds(id, question): PathIds<SessionId, QuestionId>,
    JsonBody { value: body, bytes, .. }: JsonBody<DecidePermission, MAX_ANSWER>,
) -> Result<JsonAnswer<api::PermissionDecided>, ApiError> {
    let decision = decision(&body, &bytes)?;
    app.engine().answer(&caller.tenant, id, question, decision).await?;
    let (id, behavior) = (question.as_uuid(), body.behavior);
    Ok(JsonAnswer(api::PermissionDecided { id, behavior }))
}

/// What was said, with the input as it came.
fn decision(body: &DecidePermission, bytes: &[u8]) -> Result<Permission, ApiError> {
    #[derive(Deserialize)]
    struct AsItCame {
        input: Option<Box<RawValue>>,
    }
    match body.behavior {
        Behavior::Allow if body.message.is_some() => {
            Err(ApiError::invalid("message is for behavior deny"))
        }
        Behavior::Deny if body.input.is_some() => {
            Err(ApiError::invalid("input is for behavior allow"))
        }
        Behavior::Allow => {
            let AsItCame { input } = serde_json::from_slice(bytes).map_err(ApiError::internal)?;
            let input = input.map(|input| Json::parse(input.get().to_owned()));
            Ok(Permission::Allow { input: input.transpose().map_err(ApiError::internal)? })
        }
        Behavior::Deny => {
            length("message", body.message.as_deref().unwrap_or_default(), MAX_MESSAGE_CHARS)?;
            Ok(Permission::Deny { message: body.message.clone() })
        }
    }
}

fn view(question: &Question) -> api::Permission {
    let behavior = question.decision.as_ref().map(|decision| match decision {
        Permission::Allow { .. } => Behavior::Allow,
        Permission::Deny { .. } => Behavior::Deny,
    });
    api::Permission {
        id: question.open.id.as_uuid(),
        run_id: question.open.run.as_uuid(),
        seq: question.open.asked.get(),
        tool: question.tool.clone(),
        input: serde_json::from_str(question.input.get()).unwrap_or(Value::Null),
        asked_at: api::rfc3339(question.at),
        decided: behavior,
    }
}
