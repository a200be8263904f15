//! A bridge program of the original Ash, which `ASH_BRIDGE_ENTRY` names, and the Node that runs it.
//!
//! Sandboxes see little of the machine. What lies where they do not see it is shown to all of them, read-only: of the
//! program the *tree* that Node loads modules from, of Node its installation.
//!
//! The tree is, given where the program really is:
//!
//! 1. the outermost directory `node_modules` that it lies in, if it was installed as a package;
//! 2. else the nearest directory above it that has a `node_modules`, or a `package.json`, or else its own; and as far
//!    above that as the links in that `node_modules` lead, or to where a workspace of several packages begins
//!    (`pnpm-workspace.yaml`, or `workspaces` in its `package.json`).
//!
//! Everything is looked up at each start of a sandbox, so that a program that is put there later is found.
//! `docs/legacy.md` is the manual.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use ash_protocol::LegacyProgram;

use super::View;

/// What the parts are called below [`ash_sandbox::SHARED`].
const TREE: &str = "legacy/tree";
const MODULES: &str = "legacy/node_modules";
const NODE: &str = "node";

/// How many links of a `node_modules` are followed.
const MAX_LINKS: usize = 10_000;

/// How deep a tree lies at the least: nobody shows a home directory by mistake.
const LEAST_DEPTH: usize = 2;

/// The variable that names a program, which has to be there for whoever reads it.
const EXECUTABLE: &str = "CLAUDE_CODE_EXECUTABLE";

/// What to look for, and where.
#[derive(Clone, Debug)]
pub struct LegacyOptions {
    /// The program, if there is one.
    pub entry: Option<PathBuf>,
    /// The data directory, which sandboxes must not see.
    pub data: PathBuf,
    /// The `PATH` of the server, where Node is looked for.
    pub path: Option<String>,
    /// What the program is told in its environment, beside what every bridge tells it.
    pub env: BTreeMap<String, String>,
    /// For whom.
    pub view: View,
}

/// Finds the program. Cheap enough to be asked at each start.
#[derive(Clone, Debug)]
pub struct Legacy {
    options: LegacyOptions,
}

/// A directory of the machine that sandboxes are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDirectory {
    /// Where it really is.
    pub origin: PathBuf,
    /// What it is called inside, below [`ash_sandbox::SHARED`].
    pub name: &'static str,
}

/// The program and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLegacy {
    /// How it is started, as seen by whoever runs it.
    pub command: Vec<String>,
    /// The program on this machine.
    pub entry: PathBuf,
    /// Node on this machine.
    pub node: PathBuf,
    /// What sandboxes have to be shown.
    pub shared: Vec<SharedDirectory>,
}

/// Why there is no such program to run an agent with. Each sentence says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLegacy {
    /// Nobody named one.
    #[error(
        "no bridge program is set for the runtime legacy: set ASH_BRIDGE_ENTRY to one and start the server again, or \
         give the agent a `command` in ash.toml"
    )]
    NotSet,
    /// It is not there, or cannot be used.
    #[error("the bridge program that ASH_BRIDGE_ENTRY names cannot be used: {path}: {why}", path = path.display())]
    Unusable {
        /// What was named.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is nothing to run it with.
    #[error(
        "Node, which runs the bridge program of ASH_BRIDGE_ENTRY, is not in the PATH of the server: install it there"
    )]
    NoNode,
}

impl Legacy {
    /// Looks there from now on.
    pub fn new(options: LegacyOptions) -> Self {
        Self { options }
    }

    /// Whether somebody named a program.
    pub fn is_set(&self) -> bool {
        self.options.entry.is_some()
    }

    /// The program to use now.
    ///
    /// # Errors
    /// There is none, or it cannot be run.
    pub fn find(&self) -> Result<FoundLegacy, NoLegacy> {
        let named = self.options.entry.as_deref().ok_or(NoLegacy::NotSet)?;
        let unusable = |why: String| NoLegacy::Unusable { path: named.to_owned(), why };
        let entry = named.canonicalize().map_err(|error| unusable(error.to_string()))?;
        if !entry.is_file() {
            return Err(unusable("it is no file".to_owned()));
        }
        let node = self.node().ok_or(NoLegacy::NoNode)?;
        if self.options.view == View::Machine {
            let command = [&node, &entry].map(|path| path.display().to_string()).into();
            return Ok(FoundLegacy { command, entry, node, shared: Vec::new() });
        }
        let data = self.data();
        if entry.starts_with(&data) {
            return Err(unusable(
                "it lies in the data directory, which sandboxes do not see".to_owned(),
            ));
        }
        let mut shared = Vec::new();
        let entry_inside = if is_seen(&entry, &data) {
            entry.clone()
        } else {
            let (tree, name) = tree_of(&entry).map_err(|error| unusable(error.to_string()))?;
            if depth(&tree) < LEAST_DEPTH {
                let tree = tree.display();
                return Err(unusable(format!(
                    "all of {tree} would be shown to sandboxes; put the program and its node_modules into a directory of \
                     their own"
                )));
            }
            let may_be_read = may_all_read(&tree, 0o005).and_then(|()| may_all_read(&entry, 0o004));
            may_be_read.map_err(unusable)?;
            let inside = inside(name, entry.strip_prefix(&tree).unwrap_or(&entry));
            shared.push(SharedDirectory { origin: tree, name });
            inside
        };
        let node_inside = if is_seen(&node, &data) {
            node.clone()
        } else {
            let home = installation_of(&node);
            let inside = inside(NODE, node.strip_prefix(&home).unwrap_or(&node));
            shared.push(SharedDirectory { origin: home, name: NODE });
            inside
        };
        let command = [&node_inside, &entry_inside].map(|path| path.display().to_string()).into();
        Ok(FoundLegacy { command, entry, node, shared })
    }

    /// What sandboxes have to be shown now: nothing, if there is no program that could be used.
    pub fn shared(&self) -> Vec<SharedDirectory> {
        self.find().map(|found| found.shared).unwrap_or_default()
    }

    /// What a bridge is told. An agent's own command goes before the server's program.
    ///
    /// # Errors
    /// As [`find`](Self::find), if the agent has no command.
    pub fn program(&self, command: Option<&[String]>) -> Result<LegacyProgram, NoLegacy> {
        let command = match command {
            Some(command) => command.to_vec(),
            None => self.find()?.command,
        };
        let mut env = self.options.env.clone();
        env.retain(|name, value| name != EXECUTABLE || self.is_for_all(Path::new(value)));
        Ok(LegacyProgram { command, env })
    }

    /// Whether whoever runs agents sees a file where the machine has it.
    fn is_for_all(&self, path: &Path) -> bool {
        match self.options.view {
            View::Machine => true,
            View::Sandboxes => path.canonicalize().is_ok_and(|real| is_seen(&real, &self.data())),
        }
    }

    fn data(&self) -> PathBuf {
        let data = &self.options.data;
        data.canonicalize().unwrap_or_else(|_| data.clone())
    }

    /// The first Node in the server's `PATH`, without links.
    fn node(&self) -> Option<PathBuf> {
        std::env::split_paths(self.options.path.as_ref()?).find_map(|directory| {
            let real = directory.join("node").canonicalize().ok()?;
            let found = fs::metadata(&real).ok()?;
            (found.is_file() && found.permissions().mode() & 0o111 != 0).then_some(real)
        })
    }
}

fn is_seen(real: &Path, data: &Path) -> bool {
    ash_sandbox::is_shown(real) && !real.starts_with(data)
}

fn inside(name: &str, relative: &Path) -> PathBuf {
    Path::new(ash_sandbox::SHARED).join(name).join(relative)
}

fn depth(path: &Path) -> usize {
    path.components().filter(|part| matches!(part, Component::Normal(_))).count()
}

fn may_all_read(path: &Path, needed: u32) -> Result<(), String> {
    let mode = fs::metadata(path).map_err(|error| error.to_string())?.permissions().mode();
    if mode & needed == needed {
        return Ok(());
    }
    let path = path.display();
    Err(format!(
        "{path} may not be read by everybody, and the users of sandboxes are strangers: chmod -R o+rX"
    ))
}

/// Where Node was installed: what has its `bin`, or else where it lies.
fn installation_of(node: &Path) -> PathBuf {
    let directory = node.parent().unwrap_or(node);
    match (directory.file_name(), directory.parent()) {
        (Some(name), Some(home)) if name == "bin" && depth(home) >= LEAST_DEPTH => home.to_owned(),
        _ => directory.to_owned(),
    }
}

/// What Node loads modules of a program from, and what that is called inside.
fn tree_of(entry: &Path) -> io::Result<(PathBuf, &'static str)> {
    let mut so_far = PathBuf::new();
    for part in entry.components() {
        so_far.push(part);
        if part.as_os_str() == "node_modules" {
            return Ok((so_far, MODULES));
        }
    }
    let own = entry.parent().unwrap_or(entry);
    let with = |name: &str| own.ancestors().find(|above| above.join(name).exists());
    let root = with("node_modules").or_else(|| with("package.json")).unwrap_or(own);
    let mut tree = root.to_owned();
    // In a workspace of packages what one needs can lie with any other, and links lead to links.
    if let Some(workspace) = own.ancestors().find(|above| is_workspace(above))
        && depth(workspace) >= LEAST_DEPTH
        && tree.starts_with(workspace)
    {
        tree = workspace.to_owned();
    }
    for target in links_of(&root.join("node_modules"))? {
        while !target.starts_with(&tree) && tree.pop() {}
    }
    Ok((tree, TREE))
}

/// Whether a directory says of itself that it is one of several packages, as npm, yarn and pnpm know it.
fn is_workspace(directory: &Path) -> bool {
    #[derive(serde::Deserialize)]
    struct Package {
        workspaces: Option<serde_json::Value>,
    }
    let package = || fs::read(directory.join("package.json")).ok();
    let read = || serde_json::from_slice::<Package>(&package()?).ok();
    directory.join("pnpm-workspace.yaml").exists()
        || read().is_some_and(|package| package.workspaces.is_some())
}

/// Where the links in a `node_modules` lead, also those of scopes.
fn links_of(modules: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut to_read = vec![modules.to_owned()];
    while let Some(directory) = to_read.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            let is_scope = entry.file_name().to_string_lossy().starts_with('@');
            if kind.is_dir() && is_scope && directory == modules {
                to_read.push(entry.path());
            }
            // One that leads nowhere leads Node nowhere, too.
            if kind.is_symlink()
                && found.len() < MAX_LINKS
                && let Ok(target) = entry.path().canonicalize()
            {
                found.push(target);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory that sandboxes do not see, and a Node in it.
    fn machine() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        file(&root.join("versions/v20/bin/node"), 0o755);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        (dir, root)
    }

    fn file(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn legacy(root: &Path, entry: &str, view: View) -> Legacy {
        let path = root.join("versions/v20/bin").display().to_string();
        let pairs = [("ASH_REAL_SDK", "1"), (EXECUTABLE, "/root/claude")];
        Legacy::new(LegacyOptions {
            entry: Some(root.join(entry)),
            data: root.join("data"),
            path: Some(path),
            env: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            view,
        })
    }

    #[test]
    fn a_program_is_shown_with_what_it_loads() {
        let (_dir, root) = machine();
        let alone = root.join("alone/dist/index.js");
        file(&alone, 0o644);
        let package = root.join("one/dist/index.js");
        file(&package, 0o644);
        fs::create_dir_all(root.join("one/node_modules")).unwrap();
        let installed = root.join("app/node_modules/@ash-ai/bridge/dist/index.js");
        file(&installed, 0o644);
        fs::create_dir_all(root.join("app/node_modules/@ash-ai/bridge/node_modules/x")).unwrap();
        let of_many = root.join("repo/packages/bridge/dist/index.js");
        file(&of_many, 0o644);
        fs::create_dir_all(root.join("repo/packages/shared")).unwrap();
        fs::create_dir_all(root.join("repo/packages/bridge/node_modules/@ash-ai")).unwrap();
        let link = root.join("repo/packages/bridge/node_modules/@ash-ai/shared");
        symlink("../../../shared", link).unwrap();
        // What one package needs can lie with any other, and nowhere near.
        let of_npm = root.join("npm/packages/bridge/dist/index.js");
        file(&of_npm, 0o644);
        fs::create_dir_all(root.join("npm/packages/bridge/node_modules/other")).unwrap();
        fs::create_dir_all(root.join("npm/node_modules/hoisted")).unwrap();
        fs::write(root.join("npm/package.json"), r#"{"workspaces":["packages/*"]}"#).unwrap();
        let of_pnpm = root.join("pnpm/packages/bridge/dist/index.js");
        file(&of_pnpm, 0o644);
        fs::create_dir_all(root.join("pnpm/packages/bridge/node_modules")).unwrap();
        fs::write(root.join("pnpm/pnpm-workspace.yaml"), "packages: ['packages/*']\n").unwrap();
        for (entry, tree, inside) in [
            (&of_npm, "npm", "legacy/tree/packages/bridge/dist/index.js"),
            (&of_pnpm, "pnpm", "legacy/tree/packages/bridge/dist/index.js"),
            (&alone, "alone/dist", "legacy/tree/index.js"),
            (&package, "one", "legacy/tree/dist/index.js"),
            (&installed, "app/node_modules", "legacy/node_modules/@ash-ai/bridge/dist/index.js"),
            (&of_many, "repo/packages", "legacy/tree/bridge/dist/index.js"),
        ] {
            let of = entry.strip_prefix(&root).unwrap().to_str().unwrap();
            let found = legacy(&root, of, View::Sandboxes).find().unwrap();
            let origins: Vec<PathBuf> = found.shared.into_iter().map(|of| of.origin).collect();
            assert_eq!(origins, [root.join(tree), root.join("versions/v20")], "{entry:?}");
            let node = "/run/ash/shared/node/bin/node".to_owned();
            assert_eq!(found.command, [node, format!("/run/ash/shared/{inside}")]);
            // Where nothing is around agents, it is where it is.
            let found = legacy(&root, of, View::Machine).find().unwrap();
            assert_eq!(found.command[1], entry.display().to_string());
            assert_eq!(found.shared, []);
        }
        let told = legacy(&root, "alone/dist/index.js", View::Sandboxes).program(None).unwrap();
        assert_eq!(told.env, BTreeMap::from([("ASH_REAL_SDK".to_owned(), "1".to_owned())]));
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let (_dir, root) = machine();
        file(&root.join("data/bridge.js"), 0o644);
        file(&root.join("private/bridge.js"), 0o600);
        fs::create_dir_all(root.join("directory")).unwrap();
        for (entry, why) in [
            ("nowhere.js", "No such file"),
            ("directory", "it is no file"),
            ("data/bridge.js", "it lies in the data directory"),
            ("private/bridge.js", "may not be read by everybody"),
        ] {
            let refused = legacy(&root, entry, View::Sandboxes).find().unwrap_err().to_string();
            assert!(refused.contains(why) && refused.contains("ASH_BRIDGE_ENTRY"), "{refused}");
        }
        // Nobody shows the whole machine because a link leads there.
        file(&root.join("wide/bridge.js"), 0o644);
        fs::create_dir_all(root.join("wide/node_modules")).unwrap();
        symlink("/etc", root.join("wide/node_modules/far")).unwrap();
        let refused = legacy(&root, "wide/bridge.js", View::Sandboxes).find().unwrap_err();
        assert!(refused.to_string().contains("all of / would be shown"), "{refused}");
        file(&root.join("a/bridge.js"), 0o644);
        // What cannot be run is no Node.
        file(&root.join("broken/node"), 0o644);
        let mut second = legacy(&root, "a/bridge.js", View::Sandboxes);
        let broken = root.join("broken").display().to_string();
        second.options.path = Some(format!("{broken}:{}", second.options.path.unwrap()));
        assert_eq!(second.find().unwrap().node, root.join("versions/v20/bin/node"));
        second.options.path = Some(broken);
        assert_eq!(second.find(), Err(NoLegacy::NoNode));
        let mut without = legacy(&root, "a/bridge.js", View::Sandboxes);
        without.options.path = None;
        assert_eq!(without.find(), Err(NoLegacy::NoNode));
        without.options.entry = None;
        assert_eq!(without.find(), Err(NoLegacy::NotSet));
        assert_eq!(without.shared(), []);
        // An agent that brings its own needs neither.
        let command = ["python3".to_owned(), "bridge.py".to_owned()];
        assert_eq!(without.program(Some(&command)).unwrap().command, command);
    }
}
