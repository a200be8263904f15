//! Rules that clippy cannot hold: who may touch whom, where SQL may stand, that documents speak
//! of what exists. It stands in the uppermost crate, because it looks at all of them.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which of our crates each of our crates may name. Arrows point down only.
const ARROWS: [(&str, &[&str]); 10] = [
    ("ash-core", &[]),
    ("ash-protocol", &[]),
    ("ash-sandbox", &[]),
    ("ash-snapshot", &[]),
    ("ash-bridge", &["ash-protocol", "ash-sandbox"]),
    ("ash-store", &["ash-core"]),
    ("ash-engine", &["ash-core", "ash-protocol", "ash-store", "ash-sandbox", "ash-snapshot"]),
    (
        "ash-server",
        &["ash-core", "ash-protocol", "ash-store", "ash-sandbox", "ash-snapshot", "ash-engine"],
    ),
    (
        "ash-bench",
        &[
            "ash-core",
            "ash-protocol",
            "ash-store",
            "ash-sandbox",
            "ash-snapshot",
            "ash-engine",
            "ash-server",
            "ash-bench-snapshot",
        ],
    ),
    ("ash-bench-snapshot", &["ash-snapshot"]),
];

/// Everything that `core` may be built on: no runtime, no I/O, no randomness.
const PURE: [&str; 4] = ["serde", "serde_json", "thiserror", "uuid"];

/// Crates that belong to one of ours alone.
const PRIVATE: [(&str, &str); 2] = [("rusqlite", "ash-store"), ("axum", "ash-server")];

/// The one crate that may be unsafe: it makes system calls that nobody wraps.
const UNSAFE: &str = "crates/sandbox";

/// What a file may have at most.
const MAX_LINES: usize = 500;

/// Files that are one thing and yet longer, with the reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// What `ARCHITECTURE.md` may have at most: about four pages.
const MAX_ARCHITECTURE_LINES: usize = 220;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two levels below the root").to_owned()
}

/// Every file that git knows or would know, relative to the root.
fn files(extension: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules"
            {
                walk(&path, found);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root, &mut found);
    let mut found: Vec<PathBuf> = found
        .into_iter()
        .filter(|path| path.extension().is_some_and(|of| of == extension))
        .map(|path| path.strip_prefix(&root).unwrap().to_owned())
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files: the rule would hold of nothing");
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// The dependencies of our crates, from cargo itself: (crate, dependency, is it for tests only).
fn dependencies() -> Vec<(String, String, bool)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs: it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            found.push((
                package["name"].as_str().unwrap().to_owned(),
                dependency["name"].as_str().unwrap().to_owned(),
                dependency["kind"] == "dev",
            ));
        }
    }
    found
}

#[test]
fn dependency_arrows_point_down() {
    let arrows: BTreeMap<_, _> = ARROWS.into_iter().collect();
    for (package, dependency, for_tests) in dependencies() {
        let allowed = arrows
            .get(package.as_str())
            .unwrap_or_else(|| panic!("{package} is new: say in ARROWS what it may depend on"));
        if dependency.starts_with("ash-") && !(for_tests && dependency == package) {
            assert!(allowed.contains(&dependency.as_str()), "{package} must not know {dependency}");
        }
        if package == "ash-core" && !for_tests {
            assert!(PURE.contains(&dependency.as_str()), "core is pure, and takes no {dependency}");
        }
        for (private, owner) in PRIVATE {
            // What is measured is measured against the bare thing.
            let is_ours = package == owner || package == "ash-bench";
            assert!(dependency != private || is_ours, "{private} belongs to {owner}");
        }
    }
}

#[test]
fn core_asks_nobody_for_the_time_or_anything_else() {
    let forbidden =
        ["std::fs", "std::net", "std::env", "std::thread", "std::process", "SystemTime", "Instant"];
    for path in files("rs").into_iter().filter(|path| path.starts_with("crates/core/src")) {
        for word in forbidden {
            assert!(!read(&path).contains(word), "{} has {word}", path.display());
        }
    }
}

#[test]
fn sql_stands_in_the_store_and_there_in_one_place() {
    let sql = ["SELECT ", "INSERT INTO", "DELETE FROM", "CREATE TABLE", "PRAGMA ", "UPDATE "];
    let this_file = Path::new("crates/engine/tests/tidy.rs");
    let mut seen = false;
    for path in files("rs").into_iter().filter(|path| path != this_file) {
        let has_sql = sql.iter().any(|word| read(&path).contains(word));
        seen |= has_sql;
        let tests = path.starts_with("crates/store/tests");
        let home = path.starts_with("crates/store/src/sqlite");
        assert!(!has_sql || tests || home, "{} has SQL", path.display());
    }
    assert!(seen, "there is no SQL at all: the rule would hold of nothing");
}

#[test]
fn every_crate_keeps_the_workspace_lints() {
    let workspace = read(Path::new("Cargo.toml"));
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    for path in files("toml").into_iter().filter(|path| path.ends_with("Cargo.toml")) {
        let manifest = read(&path);
        // A fuzz target stands apart from the workspace, and inherits nothing from it.
        if !manifest.contains("[package]") || manifest.contains("cargo-fuzz = true") {
            continue;
        }
        if path.starts_with(UNSAFE) {
            // Its own list says the same, but for one line.
            let lints = workspace.lines().skip_while(|line| *line != "[workspace.lints.rust]");
            for line in lints.take_while(|line| !line.starts_with("# ")) {
                let line = line.replace("[workspace.", "[").replace("\"forbid\"", "\"deny\"");
                assert!(manifest.contains(&line), "{}: {line}", path.display());
            }
        } else {
            assert!(manifest.contains("[lints]\nworkspace = true"), "{}", path.display());
        }
    }
}

#[test]
fn unsafe_code_stands_in_one_crate_with_its_reasons() {
    let mark = concat!("unsafe", " {");
    for path in files("rs") {
        let text = read(&path);
        let (blocks, reasons) = (text.matches(mark).count(), text.matches("// SAFETY: ").count());
        assert!(blocks == 0 || path.starts_with(UNSAFE), "{} is unsafe", path.display());
        assert!(blocks <= reasons, "{}: {blocks} blocks, {reasons} reasons", path.display());
    }
}

#[test]
fn no_file_does_too_much() {
    for path in files("rs") {
        let lines = read(&path).lines().count();
        let excused = LONG_FILES.iter().any(|(long, _reason)| path == Path::new(long));
        assert!(lines <= MAX_LINES || excused, "{} has {lines} lines", path.display());
    }
}

#[test]
fn paths_quoted_in_documents_exist() {
    let mut quoted = 0;
    for document in files("md") {
        for span in read(&document).split('`').skip(1).step_by(2) {
            let path = span.split(['#', ':']).next().unwrap_or_default();
            let looks_like_a_path = path.contains('/')
                && !path.contains(|c: char| c.is_whitespace() || "<>*{}$()=,".contains(c))
                && ["crates/", "docs/", "benches/", "examples/", ".ci/"]
                    .iter()
                    .any(|top| path.starts_with(top));
            if looks_like_a_path {
                quoted += 1;
                assert!(root().join(path).exists(), "{} quotes {path}", document.display());
            }
        }
    }
    assert!(quoted > 20, "only {quoted} paths were found: the rule would hold of little");
}

#[test]
fn links_in_documents_lead_somewhere() {
    for document in files("md") {
        let text = read(&document);
        let folder = document.parent().unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = root().join(folder).join(target);
            assert!(path.exists(), "{} links to {target}", document.display());
        }
    }
}

/// Words that begin like a metric's name.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let word = |character: char| character.is_ascii_lowercase() || character == '_';
    let words = text.split(|character| !word(character));
    words.filter(|word| word.len() > 5 && word.starts_with("ash_")).collect()
}

#[test]
fn every_metric_is_on_the_page_and_no_other() {
    let mut counted = BTreeSet::new();
    for path in files("rs") {
        if path.components().any(|part| part.as_os_str() == "src") {
            let source = read(&path);
            let quoted = source.split('"').filter(|text| metrics_in(text).contains(text));
            counted.extend(quoted.filter(|name| is_metric(name)).map(str::to_owned));
        }
    }
    let page = read(Path::new("docs/monitoring.md"));
    let told: BTreeSet<String> = metrics_in(&page).into_iter().map(str::to_owned).collect();
    assert_eq!(told, counted, "docs/monitoring.md and the code");
    let alerts = read(Path::new("deploy/alerts.yml"));
    for name in metrics_in(&alerts) {
        assert!(counted.contains(name), "deploy/alerts.yml speaks of {name}, which nobody counts");
    }
}

/// Crates of ours are named alike.
fn is_metric(name: &str) -> bool {
    let ends = ["_total", "_seconds", "_bytes", "_sessions", "_sandboxes", "_capacity"];
    let more = ["ash_up", "ash_pool_prewarmed", "ash_cloud_lag_snapshots"];
    ends.iter().any(|end| name.ends_with(end)) || more.contains(&name)
}

#[test]
fn the_architecture_is_told_on_four_pages() {
    let lines = read(Path::new("ARCHITECTURE.md")).lines().count();
    assert!(lines <= MAX_ARCHITECTURE_LINES, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn nothing_is_left_undone_in_silence() {
    // Written apart, so that this file does not find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let ignored = concat!("#[", "ignore");
    for path in files("rs") {
        for (number, line) in read(&path).lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            let marked = marks.iter().any(|mark| line.contains(mark));
            assert!(!marked || line.contains("issue "), "{place}: name the issue");
            assert!(!line.contains(ignored), "{place}: a test that does not run is not a test");
        }
    }
}
