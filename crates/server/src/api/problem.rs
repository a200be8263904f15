//! What a client is told when it does not get what it asked for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error. `error` and `statusCode` are for everybody; `code` never changes and has a page of its
/// own in the documentation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A sentence for a person.
    pub error: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status_code: u16,
    /// A stable name for a program.
    #[schema(pattern = "^[a-z0-9_]+$")]
    pub code: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What to quote when asking somebody about it.
    pub request_id: String,
}
