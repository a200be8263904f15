//! The API from outside: a whole server, and clients that do well, badly, or nothing at all.

mod agent_versions;
mod agents;
mod asides;
mod asking;
mod attachments;
mod bad_requests;
mod brought_back;
mod buckets;
mod budget;
mod bundles;
mod carried;
mod client;
mod cloud;
mod crash;
mod edges;
mod egress;
mod exec;
mod files;
mod full;
mod gate;
mod heads;
mod hooks;
mod idempotency;
mod imported;
mod legacy;
mod logs;
mod lost;
mod originals;
mod orphans;
mod pages;
mod permissions;
mod pool;
mod prewarmed;
mod queue;
mod routes;
mod runtimes;
mod secrets;
pub(crate) mod served;
mod slow;
mod spawned;
mod streams;
mod takeover;
mod tenants;
mod terminals;
mod told;
mod unread;
mod wire;

use serde_json::Value;

/// Every operation that the documentation has: its method and its path, from the code.
fn operations() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&ash_server::http::document()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys();
        let known = methods
            .filter(|method| ["get", "post", "patch", "delete", "put"].contains(&method.as_str()));
        let path = path.clone();
        known.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    let all: Vec<_> = paths.iter().flat_map(methods).collect();
    assert!(all.len() > 30, "the document has few routes: {all:?}");
    all
}
