//! The documentation of the API, made from the code: `/docs/json`, and a page at `/docs`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr, Response};
use utoipa::{IntoResponses, Modify, OpenApi as _};

use crate::api::Problem;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Ash",
        description = "Runs AI coding agents and keeps their sessions through anything.",
        license(name = "MIT"),
    ),
    tags(
        (name = "agents", description = "What sessions talk to"),
        (name = "sessions", description = "Conversations with their workspaces"),
        (name = "files", description = "What sessions work on"),
        (name = "messages", description = "Prompts and the log"),
        (name = "runs", description = "What became of each prompt"),
        (name = "queue", description = "Prompts that are worked on when there is room"),
        (name = "account", description = "Keys, credentials and usage"),
        (name = "operations", description = "For whoever runs the server"),
    ),
    components(schemas(Problem)),
    security(("key" = [])),
    modifiers(&Key),
)]
struct Frame;

struct Key;

impl Modify for Key {
    fn modify(&self, openapi: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("key", scheme);
    }
}

/// The document without its routes.
pub(super) fn frame() -> OpenApi {
    Frame::openapi()
}

/// The whole document, as it is served and kept in the repository.
pub fn document() -> String {
    DOCUMENT.clone()
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let (_, mut openapi) = super::routes().split_for_parts();
    let paths = std::mem::take(&mut openapi.paths.paths);
    // The router marks a parameter that takes the rest of a path; OpenAPI has no mark for it.
    openapi.paths.paths =
        paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    let mut text = openapi.to_pretty_json().expect("the document is JSON");
    text.push('\n');
    text
});

static PAGE: LazyLock<String> = LazyLock::new(|| crate::reference::page(&DOCUMENT));

/// Read this document
#[utoipa::path(
    get, path = "/docs/json", tag = "operations", operation_id = "getOpenapi", security(()),
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value), Foreign),
)]
pub(super) async fn json() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

/// Read the API reference
#[utoipa::path(
    get, path = "/docs", tag = "operations", operation_id = "getReference", security(()),
    responses((status = 200, description = "A page", body = String, content_type = "text/html"), Foreign),
)]
pub(super) async fn page() -> impl IntoResponse {
    let csp = "default-src 'none'; style-src 'unsafe-inline'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, csp),
    ];
    (headers, PAGE.as_str())
}

/// When to come back, in seconds.
fn retry_after() -> Header {
    let schema = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).build();
    HeaderBuilder::new().schema(Some(schema)).description(Some("Seconds to wait")).build()
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident: $(($status:literal, $description:literal)),+;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    [$(($status, $description)),+].map(|(status, description)| {
                        #[derive(IntoResponses)]
                        #[response(status = 400, description = "")]
                        #[expect(dead_code, reason = "only its shape is wanted")]
                        struct Shape(Problem);
                        let mut response = Shape::responses().remove("400").expect("it was just made");
                        if let RefOr::T(response) = &mut response {
                            response.description = description.to_owned();
                            if matches!(status, "429" | "503") {
                                response.headers.insert("Retry-After".to_owned(), retry_after().into());
                            }
                        }
                        (status.to_owned(), response)
                    })
                    .into()
                }
            }
        )*
    };
}

problems! {
    /// What every route that needs a key can answer.
    Always:
        ("401", "The key is missing or not known"),
        ("403", "The request comes by a foreign host name or from a foreign page"),
        ("429", "Too many requests; `Retry-After` says when to come back"),
        ("431", "The head of the request is too large"),
        ("500", "A defect, or a sandbox that could not be started"),
        ("503", "Not now; `Retry-After` says when to come back");
    /// What every route can answer that is told something.
    Invalid: ("400", "The request is not understood, or the session's state does not allow it");
    /// What every route can answer that needs no key.
    Foreign:
        ("403", "The request comes by a foreign host name or from a foreign page"),
        ("431", "The head of the request is too large");
    /// What whoever watches over the server can be told.
    Unready:
        ("500", "A defect"),
        ("503", "Its database cannot be read or written to, or it is on its way out");
    /// What every route that names something can answer.
    Missing: ("404", "There is no such thing, or it is another tenant's");
    /// What a route can answer whose request can be in the way of another.
    Conflict: ("409", "Another request is in the way, or the idempotency key was used for another one");
    /// What a route can answer that needs a snapshot.
    Expired: ("410", "There is no snapshot of it, or not any more, or the session has ended");
    /// What a route can answer that changes something of a session.
    Over: ("410", "The session has ended");
    /// Its bytes are nowhere.
    Lost: ("410", "What was attached is lost");
    /// What every route that takes a body can answer.
    TooLarge:
        ("408", "The body did not arrive in time"),
        ("413", "The body is too large"),
        ("415", "The body is not JSON");
    /// What a route can answer that takes a whole file.
    Unfitting:
        ("408", "The body did not arrive in time"),
        ("413", "The body is too large");
    /// What a route can answer that takes what others have made.
    Unusable: ("422", "What is to be imported is damaged, or of a later version");
    /// What a route can answer whose answer can be too large.
    Oversized: ("413", "There is too much to be sent");
    /// What a route can answer that writes to the disk of a session.
    Full: ("507", "There is no room left on the disk");
}
