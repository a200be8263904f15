//! What a model gets for its calls to our own tools.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use crate::bench::{Bench, local, raw, text};

/// A picture of one pixel.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn a_file_is_read_with_its_lines_numbered() {
    local(async {
        let bench = Bench::with(&[("a.txt", "one\r\ntwo\nthrée"), ("empty", "")]).await;
        let all = bench.ok("read_file", json!({ "path": "a.txt" })).await;
        let lines = "     1\tone\n     2\ttwo\n     3\tthrée\n";
        assert_eq!(all, format!("{lines}[some of these lines end with CRLF]\n"));
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
        let bench = Bench::with(&[("d.pdf", "%PDF-%%EOF"), ("text.png", "only a name")]).await;
        bench.ok("bash", json!({ "command": format!("echo {PNG} | base64 -d > p") })).await;
        let large = |name: &str, start: &[u8], length: usize| {
            let mut data = start.to_vec();
            data.resize(length, 0);
            fs::write(bench.path(name), data).unwrap();
        };
        large("cut.png", b"\x89PNG\r\n\x1a\n", 8);
        large("big.png", b"\x89PNG\r\n\x1a\n", (3 << 20) + (3 << 18) + 1);
        large("big.pdf", b"%PDF-%%EOF", (9 << 19) + 1);
        large("good.pdf", b"%PDF-%%EOF", 9 << 19);
        fs::write(bench.path("binary"), b"\x7fELF\0").unwrap();
        let block = |outcome: ash_bridge::builtin::tools::Outcome| outcome.content[0].clone();
        let source = json!({ "type": "base64", "media_type": "image/png", "data": PNG });
        let seen = block(bench.call("read_file", json!({ "path": "p" })).await);
        assert_eq!(seen, json!({ "type": "image", "source": source }));
        let seen = block(bench.call("read_file", json!({ "path": "d.pdf" })).await);
        assert_eq!(
            (&seen["type"], &seen["source"]["data"]),
            (&json!("document"), &json!("JVBERi0lJUVPRg=="))
        );
        let seen = block(bench.call("read_file", json!({ "path": "good.pdf" })).await);
        assert_eq!(seen["source"]["data"].as_str().unwrap().len(), 6 << 20);
        assert_eq!(
            bench.ok("read_file", json!({ "path": "text.png" })).await,
            "     1\tonly a name\n"
        );
        let said = bench.wrong("read_file", json!({ "path": "big.png" })).await;
        assert!(
            said.starts_with("big.png has 3932161 bytes, and a picture may have 5 MB"),
            "{said}"
        );
        let said = bench.wrong("read_file", json!({ "path": "big.pdf" })).await;
        assert!(said.contains("4.5 MB as a file"), "{said}");
        let said = bench.wrong("read_file", json!({ "path": "cut.png" })).await;
        assert_eq!(said, "cut.png cannot be shown, it is a damaged PNG; look at it with bash");
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
            if !bench.path(path).is_symlink() {
                let edits = json!([{ "path": path, "delete": true }]);
                bench.wrong("apply_patchset", json!({ "edits": edits })).await;
            }
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
fn a_list_of_long_names_is_cut_by_its_size() {
    local(async {
        let bench = Bench::with(&[]).await;
        let command = "n=$(printf 'x%.0s' $(seq 200)); for i in $(seq 100 599); do : > $n$i; done";
        bench.ok("bash", json!({ "command": command })).await;
        let list = bench.ok("list_files", json!({})).await;
        assert!(list.len() < 62_000, "{}", list.len());
        assert!(list.lines().count() > 290, "{}", list.lines().count());
        assert!(list.ends_with("[the list was cut: use a narrower path or pattern]"));
    });
}

#[test]
fn lines_that_end_with_crlf_are_edited_as_they_are_seen() {
    local(async {
        let bench = Bench::with(&[("f", "one\r\ntwo\r\nthree\r\n"), ("lf", "a\nb\n")]).await;
        let seen = bench.ok("read_file", json!({ "path": "f" })).await;
        assert!(seen.ends_with("     3\tthree\n[the lines end with CRLF]\n"), "{seen}");
        let edit = |old: &str, new: &str| json!({ "path": "f", "old": old, "new": new });
        let said = bench.ok("edit_file", edit("one\ntwo", "1\n2")).await;
        assert_eq!(said, "changed: f\n[f has CRLF line ends, and so have the new lines]");
        assert_eq!(fs::read_to_string(bench.path("f")).unwrap(), "1\r\n2\r\nthree\r\n");
        // What is found without its line ends gets them all the same.
        bench.ok("edit_file", edit("three", "3\n4")).await;
        let edits = json!([
            { "path": "f", "old": "1\n2\n", "new": "x\n" },
            { "path": "lf", "old": "a\nb", "new": "b\na" },
        ]);
        let said = bench.ok("apply_patchset", json!({ "edits": edits })).await;
        assert_eq!(said, "changed: f, lf\n[f has CRLF line ends, and so have the new lines]");
        assert_eq!(fs::read_to_string(bench.path("f")).unwrap(), "x\r\n3\r\n4\r\n");
        assert_eq!(fs::read_to_string(bench.path("lf")).unwrap(), "b\na\n");
        // Who writes them is taken at their word.
        assert_eq!(bench.ok("edit_file", edit("3\r\n4", "3")).await, "changed: f");
        assert!(bench.wrong("edit_file", edit("x\n\n", "y")).await.contains("occurs 0 times"));
    });
}

#[test]
fn a_link_is_deleted_and_not_what_it_leads_to() {
    local(async {
        let bench = Bench::with(&[("kept", "k"), ("d/kept", "k")]).await;
        for (target, link) in [("kept", "in"), ("../../x", "d/out"), ("none", "dangling")] {
            symlink(target, bench.path(link)).unwrap();
        }
        symlink("d", bench.path("dir")).unwrap();
        let delete = |path: &str| json!({ "path": path, "delete": true });
        let edits = json!([delete("in"), delete("dir/out"), delete("dangling"), delete("dir")]);
        let outcome = bench.call("apply_patchset", json!({ "edits": edits })).await;
        assert_eq!(outcome.touched, ["d/out", "dangling", "dir", "in"]);
        let kept = [("d/kept", "k"), ("kept", "k")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(bench.files(), kept);
        // Deleted and made anew by one call, it is a file.
        symlink("kept", bench.path("in")).unwrap();
        let edits = json!([delete("in"), { "path": "in", "content": "new" }]);
        bench.ok("apply_patchset", json!({ "edits": edits })).await;
        let metadata = fs::symlink_metadata(bench.path("in")).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o111 == 0);
        assert_eq!(fs::read_to_string(bench.path("kept")).unwrap(), "k");
        let edits = json!([delete("d")]);
        bench.wrong("apply_patchset", json!({ "edits": edits })).await;
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
