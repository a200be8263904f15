//! What the server is compared with: routes that do nothing but answer.

use axum::Router;
use axum::http::header;
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use futures_util::stream;
use tokio::net::TcpListener;

/// Serves until it is killed, and says where.
pub(crate) fn serve_bare(bytes: usize) {
    // As `ash serve` has it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        println!("listening on http://{}", listener.local_addr().expect("it has an address"));
        let listener = listener.tap_io(|stream| {
            let _no_matter = stream.set_nodelay(true);
        });
        axum::serve(listener, router(bytes)).await.expect("it serves for ever");
    });
}

fn router(bytes: usize) -> Router {
    let filler = "x".repeat(bytes.saturating_sub(r#"{"x":""}"#.len()));
    let json = format!(r#"{{"x":"{filler}"}}"#);
    let fixed = move || {
        let json = json.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], json) }
    };
    let echo = |body: String| async move {
        let event = Event::default().event("echo").data(body);
        Sse::new(stream::iter([Ok::<_, std::convert::Infallible>(event)]))
    };
    Router::new().route("/fixed/{id}", get(fixed)).route("/echo", post(echo))
}
