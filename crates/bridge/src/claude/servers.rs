//! What the program says of its MCP servers, and what a person has to know of that.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::turn::{Wish, passed_on};

/// How the program calls those that it cannot use. One that our proxy refuses is taken for one that wants a login.
const NOT_THERE: [&str; 2] = ["failed", "needs-auth"];

/// What is done about the begin of a turn: it is passed on, and with it what is missing.
pub(super) fn begun(init: Box<RawValue>) -> Vec<Wish> {
    let warnings = warnings(&init).into_iter().map(Wish::Notice);
    passed_on("system_init", init).into_iter().chain(warnings).collect()
}

/// Warnings of servers that are not there, by what the program says when it begins a turn.
fn warnings(init: &RawValue) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Init {
        mcp_servers: Vec<Server>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Server {
        name: String,
        status: String,
    }
    let Init { mcp_servers } = serde_json::from_str(init.get()).unwrap_or_default();
    let is_missing = |server: &Server| NOT_THERE.contains(&server.status.as_str());
    let missing = mcp_servers.into_iter().filter(is_missing);
    missing
        .map(|Server { name, status }| {
            format!(
                "the MCP server {name} is not connected ({status}). Its command has to be one that the sandbox has; if it has a url, its host has to be in `egress` of the agent's ash.toml"
            )
        })
        .collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_of_servers_that_are_not_there_it_is_warned() {
        let warned = |init: &str| warnings(&RawValue::from_string(init.to_owned()).unwrap());
        let init = r#"{"mcp_servers":[{"name":"a","status":"connected"},{"name":"b","status":"failed"},{"name":"c","status":"pending"},{"name":"d","status":"needs-auth"}]}"#;
        let [failed, refused] = &warned(init)[..] else { panic!("two are not there") };
        assert!(failed.contains("MCP server b is") && refused.contains("MCP server d is"));
        for strange in ["{}", r#"{"mcp_servers":7}"#, r#"{"mcp_servers":[{}]}"#, "[]"] {
            assert_eq!(warned(strange), Vec::<String>::new(), "{strange}");
        }
    }
}
