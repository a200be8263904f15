//! What a model gets for its calls to our own tools.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use crate::bench::{Bench, local, raw, text};

#[test]
fn a_file_is_read_with_its_lines_numbered() {
    local(async {
        let bench = Bench::with(&[("a.txt", "one\r\ntwo\nthrée"), ("empty", "")]).await;
        let all = bench.ok("read_file", json!({ "path": "a.txt" })).await;
        assert_eq!(all, "     1\tone\n     2\ttwo\n     3\tthrée\n");
        let some =
            bench.ok("read_file", json!({ "path": "a.txt", "offset": "2", "limit": 1 })).await;
        assert_eq!(some, "     2\ttwo\n[more follows: go on with offset 3]\n");
        let none = bench.ok("read_file", json!({ "path": "a.txt", "offset": 9 })).await;
        assert_eq!(none, "a.txt has only 3 lines, and none from line 9");
        let empty = bench.ok("read_file", json!({ "path": "empty" })).await;
        assert_eq!(empty, "(the file is empty)");
    });
}

#[test]
fn a_large_file_is_shown_in_part() {
    local(async {
        let lines = "x\n".repeat(3_000);
        let long = format!("{}\nend\n", "é".repeat(5_000));
        let many = format!("{}\n", "y".repeat(999)).repeat(1_000);
        let bench = Bench::with(&[("lines", &lines), ("long", &long), ("many", &many)]).await;
        let shown = bench.ok("read_file", json!({ "path": "lines" })).await;
        assert!(shown.ends_with("  2000\tx\n[more follows: go on with offset 2001]\n"));
        let shown = bench.ok("read_file", json!({ "path": "long" })).await;
        assert!(shown.contains("é [8000 more bytes in this line]\n     2\tend\n"));
        let shown = bench.ok("read_file", json!({ "path": "many" })).await;
        assert!(shown.len() < 105_000, "{}", shown.len());
    });
}

#[test]
fn pictures_and_documents_are_shown_as_such() {
    local(async {
        let bench = Bench::with(&[("d.pdf", "%PDF-1.7"), ("text.png", "only a name")]).await;
        fs::write(bench.path("p"), b"\x89PNG\r\n\x1a\n").unwrap();
        fs::write(bench.path("big.png"), [&b"\x89PNG\r\n\x1a\n"[..], &vec![0; 5 << 20]].concat())
            .unwrap();
        fs::write(bench.path("binary"), b"\x7fELF\0").unwrap();
        let block = |outcome: ash_bridge::builtin::tools::Outcome| outcome.content[0].clone();
        let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
        let seen = block(bench.call("read_file", json!({ "path": "p" })).await);
        assert_eq!(seen, json!({ "type": "image", "source": source }));
        let seen = block(bench.call("read_file", json!({ "path": "d.pdf" })).await);
        assert_eq!(
            (&seen["type"], &seen["source"]["data"]),
            (&json!("document"), &json!("JVBERi0xLjc="))
        );
        assert_eq!(
            bench.ok("read_file", json!({ "path": "text.png" })).await,
            "     1\tonly a name\n"
        );
        let said = bench.wrong("read_file", json!({ "path": "big.png" })).await;
        assert_eq!(said, "big.png has 5242888 bytes; at most 5 MB can be shown");
        assert!(
            bench.wrong("read_file", json!({ "path": "binary" })).await.contains("binary file")
        );
        let said = bench.wrong("read_file", json!({ "path": "." })).await;
        assert!(said.contains("use list_files"), "{said}");
    });
}

#[test]
fn what_would_hang_is_not_opened() {
    local(async {
        let bench = Bench::with(&[]).await;
        bench.ok("bash", json!({ "command": "mkfifo fifo; ln -s /dev/zero zero" })).await;
        for name in ["fifo", "zero"] {
            bench.wrong("read_file", json!({ "path": name })).await;
            bench.wrong("write_file", json!({ "path": name, "content": "x" })).await;
            bench.wrong("edit_file", json!({ "path": name, "old": "a", "new": "b" })).await;
        }
    });
}

#[test]
fn nothing_leads_out_of_the_workspace() {
    local(async {
        let bench = Bench::with(&[("in/file", "inside")]).await;
        let secret = bench.around.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        symlink("../secret", bench.path("relative")).unwrap();
        symlink(&secret, bench.path("absolute")).unwrap();
        symlink("..", bench.path("up")).unwrap();
        symlink("../new", bench.path("dangling")).unwrap();
        let outside = ["relative", "absolute", "up/secret", "../secret", "dangling", "/etc/passwd"];
        for path in outside.into_iter().chain([secret.to_str().unwrap(), "in/../../secret"]) {
            bench.wrong("read_file", json!({ "path": path })).await;
            bench.wrong("write_file", json!({ "path": path, "content": "x" })).await;
            bench.wrong("edit_file", json!({ "path": path, "old": "secret", "new": "x" })).await;
            let edits = json!([{ "path": path, "delete": true }]);
            bench.wrong("apply_patchset", json!({ "edits": edits })).await;
        }
        for path in ["up", "..", "/"] {
            bench.wrong("list_files", json!({ "path": path })).await;
        }
        bench.wrong("write_file", json!({ "path": "up/new", "content": "x" })).await;
        bench.wrong("write_file", json!({ "path": "up/a/b/new", "content": "x" })).await;
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        assert_eq!(fs::read_dir(bench.around.path()).unwrap().count(), 2);
        let listed = bench.ok("list_files", json!({ "pattern": "**" })).await;
        assert!(!listed.contains("up/secret"), "{listed}");
    });
}

#[test]
fn a_written_file_keeps_its_mode_and_the_links_to_it() {
    local(async {
        let bench = Bench::with(&[("run.sh", "old")]).await;
        fs::set_permissions(bench.path("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
        symlink("run.sh", bench.path("link")).unwrap();
        let input = json!({ "path": "link", "content": "new" });
        let outcome = bench.call("write_file", input).await;
        assert_eq!(outcome.touched, ["run.sh"]);
        assert_eq!(fs::read_to_string(bench.path("run.sh")).unwrap(), "new");
        assert_eq!(
            fs::metadata(bench.path("run.sh")).unwrap().permissions().mode() & 0o7777,
            0o751
        );
        assert!(bench.path("link").is_symlink());
        let absolute = bench.path("a/b/c.txt");
        let input = json!({ "path": absolute, "content": "deep" });
        assert_eq!(bench.call("write_file", input).await.touched, ["a/b/c.txt"]);
        let expected = [("a/b/c.txt", "deep"), ("link", "new"), ("run.sh", "new")];
        assert_eq!(bench.files(), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert!(
            bench
                .wrong("write_file", json!({ "path": "a", "content": "" }))
                .await
                .contains("ordinary")
        );
        bench.wrong("write_file", json!({ "path": "run.sh/x", "content": "" })).await;
        bench.wrong("write_file", json!({ "path": "", "content": "" })).await;
    });
}

#[test]
fn an_edit_replaces_what_occurs_once() {
    local(async {
        let bench = Bench::with(&[("f", "aba\nxyz\n")]).await;
        let edit = |old: &str, new: &str| json!({ "path": "f", "old": old, "new": new });
        assert!(bench.wrong("edit_file", edit("q", "x")).await.contains("occurs 0 times"));
        assert!(bench.wrong("edit_file", edit("a", "x")).await.contains("occurs 2 times"));
        bench.wrong("edit_file", edit("", "x")).await;
        bench.wrong("edit_file", edit("xyz", "xyz")).await;
        assert_eq!(bench.call("edit_file", edit("xyz", "é")).await.touched, ["f"]);
        assert_eq!(fs::read_to_string(bench.path("f")).unwrap(), "aba\né\n");
        bench.ok("write_file", json!({ "path": "o", "content": "aaa" })).await;
        let overlapping = json!({ "path": "o", "old": "aa", "new": "b" });
        assert!(bench.wrong("edit_file", overlapping).await.contains("occurs 2 times"));
        bench.ok("edit_file", json!({ "path": "new", "old": "", "new": "made" })).await;
        assert_eq!(fs::read_to_string(bench.path("new")).unwrap(), "made");
        bench.wrong("edit_file", json!({ "path": "none", "old": "a", "new": "b" })).await;
    });
}

#[test]
fn a_list_is_sorted_bounded_and_stays_inside() {
    local(async {
        let files = ["src/b.rs", "src/a/m.rs", ".git/config", "node_modules/x/y.rs", "z.rs"];
        let bench = Bench::with(&files.map(|name| (name, ""))).await;
        symlink("..", bench.path("src/circle")).unwrap();
        let list = async |input| bench.ok("list_files", input).await;
        assert_eq!(list(json!({})).await, ".git/\nnode_modules/\nsrc/\nz.rs");
        assert_eq!(list(json!({ "path": "src" })).await, "src/a/\nsrc/b.rs\nsrc/circle -> ..");
        let pattern = json!({ "pattern": "**/*.rs" });
        assert_eq!(list(pattern).await, "src/a/m.rs\nsrc/b.rs\nz.rs");
        assert_eq!(list(json!({ "path": "src", "pattern": "?.rs" })).await, "src/b.rs");
        assert!(list(json!({ "pattern": "*.py" })).await.starts_with("nothing matches"));
        bench.ok("bash", json!({ "command": "mkdir many; cd many; touch $(seq 1 1200)" })).await;
        let many = list(json!({ "path": "many" })).await;
        assert_eq!(many.lines().count(), 1_001);
        assert!(many.ends_with("[the list was cut: use a narrower path or pattern]"));
        bench
            .ok(
                "bash",
                json!({ "command": "d=deep; for i in $(seq 1 80); do d=$d/d; done; mkdir -p $d" }),
            )
            .await;
        assert!(list(json!({ "path": "deep", "pattern": "**" })).await.ends_with("pattern]"));
    });
}

#[test]
fn a_command_says_how_it_ended() {
    local(async {
        let bench = Bench::with(&[]).await;
        let run = async |command: &str| {
            bench.call("bash", json!({ "command": command, "timeoutMs": "60000" })).await
        };
        assert_eq!(text(&run("echo hi; pwd >/dev/null").await), "hi");
        assert_eq!(text(&run("true").await), "(no output)");
        let failed = run("echo out; echo err >&2; exit 3").await;
        assert!(failed.is_error);
        assert_eq!(text(&failed), "out\n[stderr]\nerr\n[exit code 3]");
        let long = text(&run("head -c 100000 /dev/zero | tr '\\0' x").await);
        assert!(long.len() < 31_000 && long.contains("[70000 bytes of output were left out"));
        let input = json!({ "command": "echo a; sleep 600", "timeoutMs": 200 });
        let said = bench.wrong("bash", input).await;
        assert!(said.starts_with("a\n[timed out after 200 ms"), "{said}");
        assert_eq!(bench.mark.alive(), Vec::<i32>::new());
    });
}

#[test]
fn a_wrong_call_says_how_to_do_it_right() {
    local(async {
        let bench = Bench::with(&[]).await;
        let said = bench.wrong("no_such_tool", json!({})).await;
        assert!(said.starts_with("there is no tool \"no_such_tool\"; there are: bash, read_file"));
        let said = bench.wrong("read_file", json!({})).await;
        assert_eq!(said, "the field \"path\" is missing: give a string");
        let said = bench.wrong("bash", json!({ "command": 7 })).await;
        assert_eq!(said, "the field \"command\" must be a string, and is a number");
        bench.wrong("bash", json!({ "command": " " })).await;
        for json in ["7", "[]", "null", "\"x\""] {
            assert!(bench.tools.call("bash", &raw(json)).await.is_error, "{json}");
        }
        let extra = json!({ "path": "x", "content": "", "more": [1] });
        bench.ok("write_file", extra).await;
        assert!(bench.tools.is_read_only("read_file") && bench.tools.is_read_only("list_files"));
        assert!(!bench.tools.is_read_only("bash") && !bench.tools.is_read_only("nothing"));
    });
}
