//! A workbench: a workspace, and a toolbox that works on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ash_bridge::builtin::tools::{Outcome, Toolbox, Waits};
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use tokio::task::LocalSet;

use crate::trees::{Mark, processes};

pub(crate) struct Bench {
    /// Around the workspace, so that there is an outside.
    pub(crate) around: TempDir,
    pub(crate) mark: Mark,
    pub(crate) tools: Toolbox,
    pub(crate) problems: Vec<String>,
}

impl Bench {
    /// Works on a workspace with some files.
    pub(crate) async fn with(files: &[(&str, &str)]) -> Self {
        Self::marked(Mark::new(), files).await
    }

    /// The same, with processes that can be found even if it never opens.
    pub(crate) async fn marked(mark: Mark, files: &[(&str, &str)]) -> Self {
        Self::waiting(mark, files, Waits::default()).await
    }

    /// The same, with other waits for MCP servers.
    pub(crate) async fn waiting(mark: Mark, files: &[(&str, &str)], waits: Waits) -> Self {
        let around = tempfile::tempdir().unwrap();
        let workspace = around.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        for (name, content) in files {
            let path = workspace.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        // Each its own: the journal of changes lies there.
        let home = around.path().join("home").to_string_lossy().into_owned();
        let (env, _) = mark.env().with(&BTreeMap::from([("HOME".to_owned(), home)]));
        let (tools, problems) = Toolbox::open_with(workspace, None, env, processes(), waits).await;
        Self { around, mark, tools, problems }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.around.path().join("workspace").join(name)
    }

    pub(crate) async fn call(&self, name: &str, input: Value) -> Outcome {
        self.tools.call(name, &raw(&input.to_string())).await
    }

    /// Calls a tool and expects it to do what it was asked.
    pub(crate) async fn ok(&self, name: &str, input: Value) -> String {
        let outcome = self.call(name, input).await;
        assert!(!outcome.is_error, "{}", text(&outcome));
        text(&outcome)
    }

    /// Calls a tool and expects it to refuse.
    pub(crate) async fn wrong(&self, name: &str, input: Value) -> String {
        let outcome = self.call(name, input).await;
        assert!(outcome.is_error, "{}", text(&outcome));
        assert_eq!(outcome.touched, Vec::<String>::new());
        text(&outcome)
    }

    /// Every file and what is in it, sorted; what tools leave behind would be seen.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let root = self.path("");
        let mut found = Vec::new();
        collect(&root, &root, &mut found);
        found.sort();
        found
    }
}

fn collect(root: &Path, dir: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            collect(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let content = fs::read(&path).unwrap_or_default();
            found.push((name, String::from_utf8_lossy(&content).into_owned()));
        }
    }
}

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// The text of an outcome.
pub(crate) fn text(outcome: &Outcome) -> String {
    outcome.content.iter().filter_map(|block| block["text"].as_str()).collect()
}

/// Runs something as the bridge runs everything: on one thread, with local tasks.
pub(crate) fn local(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, work);
}
