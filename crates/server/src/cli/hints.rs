//! What to do about an error: the next command, where there is one.

use super::exit::says_ended;
use crate::client::{ClientError, is_loopback};

/// What to do about an error that says nothing about it itself.
pub(super) fn hint(error: &ClientError) -> Option<&'static str> {
    match error {
        ClientError::Unreachable { url, .. } if is_local(url) => Some("start one with: ash serve"),
        ClientError::Unreachable { .. } | ClientError::Broken { .. } => {
            Some("--server or ASH_SERVER_URL says where the server is")
        }
        ClientError::Silent { .. } => Some("it is there, and may be busy; try again"),
        ClientError::Address { .. } => Some("an address is such as http://127.0.0.1:4100"),
        ClientError::Key => Some("ASH_API_KEY holds the key"),
        ClientError::Problem(problem) => match problem.status_code {
            401 | 403
                if !matches!(
                    problem.code.as_str(),
                    "tenant_not_allowed" | "foreign_host" | "foreign_origin"
                ) =>
            {
                Some("set ASH_API_KEY, or say with --data-dir where the server's data directory is")
            }
            _ if says_ended(problem) => {
                Some("it cannot come back; begin another with: ash session create")
            }
            404 => of_code(&problem.code).or(Some(of_missing(&problem.error))),
            _ => of_code(&problem.code),
        },
        ClientError::Unexpected { .. } => {
            Some("it is no Ash server; --server or ASH_SERVER_URL says where one is")
        }
        ClientError::Stream(_) => None,
    }
}

/// Where things are listed of which one is not there.
fn of_missing(error: &str) -> &'static str {
    match error.split(' ').next().unwrap_or_default() {
        "Agent" | "Version" => "ash agent list shows what there is",
        "Credential" => "ash credential list shows what there is",
        "Queue" => "ash queue list shows what there is",
        "API" => "ash key list shows what there is",
        "File" => "ash session files <session> lists what there is",
        "Snapshot" => "ash session snapshots <session> lists what there is",
        "Run" => "ash session show <session> tells what it did",
        _ => "ash session list and ash agent list show what there is",
    }
}

/// What to do about a refusal, by its code. `docs/errors` says more about each.
fn of_code(code: &str) -> Option<&'static str> {
    Some(match code {
        "no_such_run" => "nothing runs; ash session show tells what it did last",
        "session_not_active" => "bring it back with: ash session resume, or send with --wake",
        "run_in_progress" => {
            "wait, cut it with: ash session interrupt, or send without --if-busy reject"
        }
        "rewind_in_progress" | "not_rewound" => "ash session show tells where it stands",
        "snapshot_expired" | "no_such_turn" => {
            "ash session snapshots lists what can still be brought back"
        }
        "snapshot_damaged" => {
            "ash session resume --fresh begins with what can be had; the conversation is kept"
        }
        "no_saved_state" => "without --require-state it begins with a fresh workspace",
        "no_cloud" => "start the server with ASH_SNAPSHOT_URL, which says where",
        "cloud_unavailable" => {
            "try again later; ash session resume --fresh does not wait for what is in the cloud"
        }
        "missing_claude_md" => "CLAUDE.md holds the agent's instructions; write one",
        "invalid_ash_toml" | "invalid_agent_file" => "docs/agents.md lists what an agent may have",
        "agent_too_large" => "an agent is instructions and small files; let it fetch the rest",
        "agent_link_outside" | "agent_directory_unreadable" => {
            "deploy the directory from here with: ash deploy <directory>"
        }
        "runtime_missing" => "install it with: ash agent-runtime install claude",
        "runtime_unavailable" => "ash agent-runtime list tells what is there",
        "budget_spent" => "ash session egress tells what was spent; a new session has a new budget",
        "host_not_allowed" | "path_not_allowed" | "address_not_allowed" | "bad_destination" => {
            "egress in the agent's ash.toml names the hosts that it may reach"
        }
        "host_unreachable" => "ash session egress tells what was tried",
        "sandbox_capacity" => "ash ps shows what runs; pause or end a session to make room",
        "queue_full" | "session_overloaded" => "wait for the runs that are queued: ash ps",
        "sandbox_died"
        | "sandbox_lost"
        | "sandbox_stuck"
        | "sandbox_out_of_memory"
        | "agent_failed"
        | "agent_unresponsive" => {
            "ash logs <session> tells what happened; ash session resume brings it back"
        }
        "hook_failed" => "ash logs <session> has what it printed; ash session resume runs it again",
        "sandbox_start_failed" | "sandbox_start_timeout" => {
            "ash logs <session> and ash doctor tell what is in the way"
        }
        "sandbox_disk_full" => "ash session exec <session> -- df -h . tells how full its disk is",
        "disk_full" | "disk_pressure" | "agent_storage_unavailable" => {
            "make room on the server's disk; ash doctor tells how much there is"
        }
        "turn_timeout" => "--timeout gives a run more time; turn_timeout_ms in ash.toml every run",
        "rate_limited"
        | "too_many_connections"
        | "too_many_bodies"
        | "too_many_tunnels"
        | "draining"
        | "unavailable"
        | "body_timeout" => "try again in a moment",
        "no_such_permission" | "permission_closed" | "permission_decided" => {
            "ash session permissions lists what waits for an answer"
        }
        "invalid_credential" => "ash credential list shows what there is",
        "attachment_lost" => "attach it again; a copy may be among ash session files <session>",
        "already_exists" => "it is there already; ash session list shows it",
        "import_damaged" | "invalid_bundle" => "export it again with: ash session export",
        "import_too_new" => "it was exported by a newer server; upgrade this one",
        "file_too_large" | "too_large" => "send less at once; docs/files.md has the limits",
        "not_a_file" | "invalid_path" | "file_denied" => {
            "ash session files <session> lists what there is"
        }
        "no_workspace" | "workspace_away" => "bring it back with: ash session resume",
        "workspace_too_large" => "ash session exec <session> -- du -sh * tells what is large",
        "tenant_not_allowed" => {
            "a key of the default tenant may; ash key list shows whose are whose"
        }
        "foreign_host" | "foreign_origin" => {
            "use the address that the server listens on; ALLOWED_ORIGINS allows others"
        }
        "internal" => "the server's log says more, under the same request id",
        "conversation_refused" => {
            "say it in another way; if every message is refused, ash session rewind goes back"
        }
        "version_active" => "activate another version first",
        "not_pending" => "ash queue show tells what became of it",
        "no_internal_secret" => "ASH_INTERNAL_SECRET opens these routes",
        "no_such_route" | "method_not_allowed" => {
            "the server may be older than this program: ash health tells its version"
        }
        _ => return None,
    })
}

/// Whether an address is of this machine.
fn is_local(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| is_loopback(&url))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::api::Problem;

    /// Nothing a person at a command line can do about them, or they never see them.
    const WITHOUT: [&str; 9] = [
        "head_too_large",
        "idempotency_mismatch",
        "invalid_request",
        "not_found",
        "not_offered",
        "route_not_open",
        "session_ended",
        "session_expired",
        "unsupported_media_type",
    ];

    fn hinted(status_code: u16, code: &str) -> Option<&'static str> {
        let (error, code, request_id) = ("no".to_owned(), code.to_owned(), "r".to_owned());
        let problem = Problem { error, status_code, code, retryable: false, request_id };
        hint(&ClientError::Problem(problem))
    }

    #[test]
    fn every_code_has_a_hint_or_cannot_have_one() {
        for code in crate::http::codes() {
            let is_hinted = of_code(code).is_some() || code == "unauthorized";
            assert_eq!(is_hinted, !WITHOUT.contains(&code), "{code}");
        }
        assert!(hinted(401, "unauthorized").unwrap().contains("ASH_API_KEY"));
        assert!(hinted(404, "not_found").unwrap().contains("ash session list"));
        assert_eq!(hinted(400, "invalid_request"), None);
    }

    #[test]
    fn what_is_not_there_is_looked_for_where_its_like_are_listed() {
        let hinted = |error: &str| {
            let (error, code) = (error.to_owned(), "not_found".to_owned());
            let (retryable, request_id) = (false, "r".to_owned());
            let problem = Problem { error, status_code: 404, code, retryable, request_id };
            hint(&ClientError::Problem(problem)).unwrap()
        };
        for (error, command) in [
            ("Session not found", "ash session list"),
            ("Agent \"x\" not found", "ash agent list"),
            ("Credential not found", "ash credential list"),
            ("Queue item not found", "ash queue list"),
            ("API key not found", "ash key list"),
            ("File not found", "ash session files"),
        ] {
            assert!(hinted(error).contains(command), "{error}");
        }
    }

    #[test]
    fn no_hint_names_what_always_fails() {
        for (status, code) in
            [(400, "session_ended"), (410, "session_ended"), (409, "session_expired")]
        {
            let told = hinted(status, code).unwrap();
            assert!(told.contains("ash session create") && !told.contains("resume"), "{told}");
        }
        assert!(hinted(409, "session_not_active").unwrap().contains("resume"));
        assert!(hinted(404, "no_such_run").unwrap().contains("nothing runs"));
        assert!(hinted(410, "snapshot_expired").unwrap().contains("ash session snapshots"));
        assert!(hinted(409, "snapshot_damaged").unwrap().contains("--fresh"));
        assert!(hinted(404, "no_cloud").unwrap().contains("ASH_SNAPSHOT_URL"));
        let silent = ClientError::Silent {
            url: "http://127.0.0.1:1".to_owned(),
            source: crate::client::Cause::new("no answer"),
        };
        assert!(!hint(&silent).unwrap().contains("ash serve"));
    }

    #[test]
    fn an_address_is_of_this_machine_by_its_host_alone() {
        assert!(is_local("http://127.0.0.9:1") && is_local("http://[::1]:1"));
        assert!(is_local("http://me:pw@localhost"));
        assert!(!is_local("http://127.example.com") && !is_local("http://a/?//localhost"));
    }
}
