//! The HTTP server: what crosses the wire becomes a call of the engine, and what the engine says
//! becomes an answer. It contains no decision about sessions.
//!
//! | part | job |
//! |---|---|
//! | `connection` | accepts, within bounds; cuts off who does not read |
//! | `layer` | names a request, lets it in, gives every error one shape |
//! | `unread` | what is still sent when a request is answered already |
//! | `auth` | from a key to a tenant; foreign hosts and origins |
//! | `extract` | reads bodies, paths and queries, once, at the edge |
//! | `wrong`, `base64` | what is wrong with a body, in words; what bytes in a text stand for |
//! | `code` | the closed list of names for what goes wrong |
//! | `error` | the only mapping from what went wrong to what is told |
//! | `view`, `sse` | how the log looks from outside: lists and streams |
//! | the rest | one file for each kind of thing there are routes for |

mod agent_files;
mod agent_versions;
mod agents;
mod app;
mod attached;
mod attachments;
mod auth;
mod base64;
mod bundles;
mod checks;
mod cloud;
mod code;
mod connection;
mod credentials;
mod egress;
mod error;
mod exec;
mod extract;
mod files;
mod health;
mod history;
mod idempotency;
mod internal;
mod keys;
mod layer;
mod log;
mod media;
mod messages;
mod metrics;
mod openapi;
mod permissions;
mod pieces;
mod queue;
mod runs;
mod sessions;
mod snapshots;
mod sse;
mod stream;
mod unread;
mod usage;
mod view;
mod workspace;
mod wrong;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use app::{App, AppParts};
pub use auth::Origins;
pub use code::codes;
pub use connection::Bounds;
pub use metrics::Metrics;
pub use openapi::document;
pub(crate) use queue::QueueDesk;

/// Serves the API until told to stop, and then until the connections that are open are done.
pub async fn serve(listener: TcpListener, app: App, bounds: Bounds, stop: CancellationToken) {
    connection::serve(listener, router(app), bounds, stop).await;
}

/// Every route and what every request goes through.
fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    let router = NOT_OFFERED
        .iter()
        .fold(router, |router, path| router.route(path, any(internal::not_offered)));
    router
        .route("/docs/", get(openapi::page))
        .fallback(error::no_such_route)
        .layer(from_fn_with_state(app.clone(), layer::finish))
        .with_state(app)
}

/// What clients of others may ask for, and is not offered: evaluations, files of a project, and machines that run sandboxes
/// for another one.
const NOT_OFFERED: [&str; 17] = [
    "/api/agents/{name}/eval-cases",
    "/api/agents/{name}/eval-cases/{*rest}",
    "/api/agents/{name}/eval-runs",
    "/api/agents/{name}/eval-runs/{*rest}",
    "/api/agents/{name}/eval-results",
    "/api/agents/{name}/eval-results/{*rest}",
    "/api/eval-cases",
    "/api/eval-cases/{*rest}",
    "/api/eval-runs",
    "/api/eval-runs/{*rest}",
    "/api/eval-results",
    "/api/eval-results/{*rest}",
    "/api/files",
    "/api/files/{*rest}",
    "/api/internal/runners/register",
    "/api/internal/runners/heartbeat",
    "/api/internal/runners/deregister",
];

/// Every route, as it is in the documentation.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::get, sessions::end))
        .routes(routes!(sessions::configure))
        .routes(routes!(sessions::pause))
        .routes(routes!(sessions::resume))
        .routes(routes!(sessions::stop))
        .routes(routes!(sessions::interrupt))
        .routes(routes!(permissions::list))
        .routes(routes!(permissions::decide))
        .routes(routes!(messages::send, messages::list))
        .routes(routes!(stream::follow))
        .routes(routes!(log::events))
        .routes(routes!(log::logs))
        .routes(routes!(egress::list))
        .routes(routes!(snapshots::list))
        .routes(routes!(history::fork))
        .routes(routes!(history::rewind))
        .routes(routes!(history::diff))
        .routes(routes!(bundles::export))
        .routes(routes!(bundles::import))
        .routes(routes!(cloud::list))
        .routes(routes!(cloud::import))
        .routes(routes!(runs::list))
        .routes(routes!(runs::get))
        .routes(routes!(exec::exec))
        .routes(routes!(files::list, files::write))
        .routes(routes!(files::read, files::delete))
        .routes(routes!(workspace::download, workspace::upload))
        .routes(routes!(attachments::create, attachments::list))
        .routes(routes!(attachments::read, attachments::delete))
        .routes(routes!(queue::create, queue::list))
        .routes(routes!(queue::stats))
        .routes(routes!(queue::get, queue::cancel))
        .routes(routes!(agents::deploy, agents::list))
        .routes(routes!(agents::get, agents::update, agents::delete))
        .routes(routes!(agents::config, agents::configure))
        .routes(routes!(agent_versions::list, agent_versions::create))
        .routes(routes!(agent_versions::get, agent_versions::update, agent_versions::delete))
        .routes(routes!(agent_versions::activate))
        .routes(routes!(agent_files::list, agent_files::write))
        .routes(routes!(agent_files::read, agent_files::delete))
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::revoke))
        .routes(routes!(credentials::create, credentials::list))
        .routes(routes!(credentials::delete))
        .routes(routes!(usage::events))
        .routes(routes!(usage::stats))
        .routes(routes!(usage::analytics))
        .routes(routes!(internal::create_key))
        .routes(routes!(internal::runners))
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::metrics))
        .routes(routes!(openapi::json))
        .routes(routes!(openapi::page))
}
