//! Patch sets take effect or do not.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::bench::{Bench, local};

#[test]
fn edits_of_many_files_are_one_change() {
    local(async {
        let bench = Bench::with(&[("a", "one two"), ("gone", "x"), ("same", "s")]).await;
        let edits = json!([
            { "path": "a", "old": "one", "new": "1" },
            { "path": "a", "old": "1 two", "new": "1 2" },
            { "path": "dir/new", "content": "fresh" },
            { "path": "dir/new", "old": "fresh", "new": "fresher" },
            { "path": "gone", "delete": true },
            { "path": "never", "content": "was" },
            { "path": "never", "delete": true },
        ]);
        let outcome = bench.call("apply_patchset", json!({ "edits": edits })).await;
        assert_eq!(outcome.touched, ["a", "dir/new", "gone"]);
        let expected = [("a", "1 2"), ("dir/new", "fresher"), ("same", "s")];
        assert_eq!(bench.files(), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        // As text, as some models send it.
        let edits = r#"[{"path": "a", "content": "text"}]"#;
        bench.ok("apply_patchset", json!({ "edits": edits })).await;
    });
}

#[test]
fn a_wrong_edit_is_named_and_nothing_changes() {
    local(async {
        let bench = Bench::with(&[("a", "one"), ("d/file", "x")]).await;
        let before = bench.files();
        let good = json!({ "path": "a", "content": "changed" });
        for bad in [
            json!({ "path": "a", "old": "absent", "new": "x" }),
            json!({ "path": "absent", "delete": true }),
            json!({ "path": "../out", "content": "x" }),
            json!({ "path": "d", "content": "x" }),
            json!({ "path": "a" }),
            json!({ "path": "a", "content": "x", "delete": true }),
            json!("text"),
        ] {
            let said = bench.wrong("apply_patchset", json!({ "edits": [good, bad] })).await;
            assert!(said.starts_with("nothing was changed: edits[1]: "), "{bad}: {said}");
            assert_eq!(bench.files(), before);
        }
        // Possible one by one, and not together.
        let nested =
            json!([good, { "path": "new", "content": "" }, { "path": "new/x", "content": "" }]);
        bench.wrong("apply_patchset", json!({ "edits": nested })).await;
        bench.wrong("apply_patchset", json!({ "edits": [] })).await;
        assert_eq!(bench.files(), before);
    });
}

#[test]
fn a_name_that_cannot_be_changes_nothing() {
    local(async {
        let bench = Bench::with(&[("a", "one"), ("b", "two")]).await;
        let before = bench.files();
        let edits = json!([
            { "path": "a", "content": "changed" },
            { "path": "b", "delete": true },
            { "path": "c/d/e", "content": "new" },
            { "path": format!("z/{}", "z".repeat(300)), "content": "x" },
        ]);
        let said = bench.wrong("apply_patchset", json!({ "edits": edits })).await;
        assert!(said.starts_with("nothing was changed: "), "{said}");
        assert_eq!(bench.files(), before);
        assert!(!bench.path("c").exists() && !bench.path("z").exists());
    });
}

fn edit() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec!["a", "b", "d/c", "d"]);
    let text = "[xy]{0,3}";
    prop_oneof![
        (path.clone(), text, text)
            .prop_map(|(path, old, new)| json!({ "path": path, "old": old, "new": new })),
        (path.clone(), text)
            .prop_map(|(path, content)| json!({ "path": path, "content": content })),
        path.prop_map(|path| json!({ "path": path, "delete": true })),
    ]
}

/// What the edits would make of the files, or nothing if one of them is wrong.
fn model(files: &BTreeMap<String, String>, edits: &[Value]) -> Option<BTreeMap<String, String>> {
    let mut files = files.clone();
    for edit in edits {
        let path = edit["path"].as_str()?.to_owned();
        if path == "d" {
            return None; // A directory.
        }
        if let Some(content) = edit["content"].as_str() {
            files.insert(path, content.to_owned());
        } else if edit["delete"] == true {
            files.remove(&path)?;
        } else {
            let (old, new) = (edit["old"].as_str()?, edit["new"].as_str()?);
            match files.get(&path) {
                None if old.is_empty() => files.insert(path, new.to_owned()),
                None => return None,
                Some(text) => {
                    let places = (0..text.len()).filter(|&at| text[at..].starts_with(old)).count();
                    if old.is_empty() || old == new || places != 1 {
                        return None;
                    }
                    let text = text.replacen(old, new, 1);
                    files.insert(path, text)
                }
            };
        }
    }
    Some(files)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_or_nothing(edits in prop::collection::vec(edit(), 1..5)) {
        local(async {
            let bench = Bench::with(&[("a", "xy"), ("d/c", "yx"), ("d/keep", "")]).await;
            let before: BTreeMap<String, String> = bench.files().into_iter().collect();
            let outcome = bench.call("apply_patchset", json!({ "edits": edits })).await;
            let after: BTreeMap<String, String> = bench.files().into_iter().collect();
            match model(&before, &edits) {
                Some(expected) => assert_eq!((after, outcome.is_error), (expected, false)),
                None => assert_eq!((after, outcome.is_error), (before, true)),
            }
            assert!(fs::metadata(bench.path("d")).unwrap().is_dir());
        });
    }
}
