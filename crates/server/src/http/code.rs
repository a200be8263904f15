//! The stable names of everything that a client can be told went wrong. The list is closed: a code is
//! made here or nowhere, and each has a page in `docs/errors`.

use std::fmt;

use ash_core::failure::FailureCode;
use ash_core::refusal::Refusal;
use ash_engine::agent::DeployError;

/// The stable name of what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(&'static str);

macro_rules! codes {
    ($($name:ident = $text:literal;)*) => {
        impl Code {
            $(pub(crate) const $name: Self = Self($text);)*

            /// Those that are the server's own.
            const OWN: &[Self] = &[$(Self::$name),*];
        }
    };
}

codes! {
    ALREADY_EXISTS = "already_exists";
    ATTACHMENT_LOST = "attachment_lost";
    BODY_TIMEOUT = "body_timeout";
    BUDGET_SPENT = "budget_spent";
    CLOUD_UNAVAILABLE = "cloud_unavailable";
    DISK_FULL = "disk_full";
    DISK_PRESSURE = "disk_pressure";
    DRAINING = "draining";
    FILE_DENIED = "file_denied";
    FILE_TOO_LARGE = "file_too_large";
    FOREIGN_HOST = "foreign_host";
    FOREIGN_ORIGIN = "foreign_origin";
    HEAD_TOO_LARGE = "head_too_large";
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch";
    IMPORT_DAMAGED = "import_damaged";
    IMPORT_TOO_NEW = "import_too_new";
    INTERNAL = "internal";
    INVALID_BUNDLE = "invalid_bundle";
    INVALID_CREDENTIAL = "invalid_credential";
    INVALID_PATH = "invalid_path";
    INVALID_REQUEST = "invalid_request";
    METHOD_NOT_ALLOWED = "method_not_allowed";
    NO_CLOUD = "no_cloud";
    NO_INTERNAL_SECRET = "no_internal_secret";
    NO_SAVED_STATE = "no_saved_state";
    NO_SUCH_ROUTE = "no_such_route";
    NO_WORKSPACE = "no_workspace";
    NOT_A_FILE = "not_a_file";
    NOT_FOUND = "not_found";
    NOT_OFFERED = "not_offered";
    NOT_PENDING = "not_pending";
    NOT_REWOUND = "not_rewound";
    PATH_NOT_ALLOWED = "path_not_allowed";
    RATE_LIMITED = "rate_limited";
    RUNTIME_UNAVAILABLE = "runtime_unavailable";
    SESSION_OVERLOADED = "session_overloaded";
    SNAPSHOT_EXPIRED = "snapshot_expired";
    TENANT_NOT_ALLOWED = "tenant_not_allowed";
    TOO_LARGE = "too_large";
    TOO_MANY_BODIES = "too_many_bodies";
    TOO_MANY_CONNECTIONS = "too_many_connections";
    UNAUTHORIZED = "unauthorized";
    UNAVAILABLE = "unavailable";
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type";
    VERSION_ACTIVE = "version_active";
    WORKSPACE_AWAY = "workspace_away";
    WORKSPACE_TOO_LARGE = "workspace_too_large";
}

/// Every code that a client can be told, in order.
pub fn codes() -> Vec<&'static str> {
    let mut all: Vec<&'static str> = Code::OWN.iter().map(|code| code.0).collect();
    all.extend(Refusal::CODES);
    all.extend(DeployError::CODES);
    all.extend(crate::egress::REFUSALS);
    all.extend(FailureCode::ALL.map(FailureCode::as_str));
    all.sort_unstable();
    all.dedup();
    all
}

impl Code {
    pub(crate) const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl From<Refusal> for Code {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.code())
    }
}

impl From<FailureCode> for Code {
    fn from(code: FailureCode) -> Self {
        Self(code.as_str())
    }
}

impl From<&DeployError> for Code {
    fn from(error: &DeployError) -> Self {
        Self(error.code())
    }
}
