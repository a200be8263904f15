//! The files of an agent's directory, ready to be sent.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ash_engine::agent::{LEFT_OUT, MAX_DEPTH, MAX_FILES};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::io::Errno;

use super::Hint;
use super::exit::Mistake;
use crate::api::AgentFile;

/// The most bytes they may have together.
const MAX_BYTES: u64 = 32 << 20;

/// Files that were read.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) files: Vec<AgentFile>,
    pub(super) bytes: u64,
}

/// Reads an agent's directory: every file but those of git and node. Links are followed to files
/// inside, and refused if they lead anywhere else.
pub(super) fn collect(root: &Path) -> anyhow::Result<Collected> {
    let real =
        fs::canonicalize(root).with_context(|| format!("could not open {}", root.display()))?;
    if !real.is_dir() {
        return Err(usage(format!("{} is not a directory", root.display())));
    }
    if !real.join("CLAUDE.md").is_file() {
        return Err(usage(format!("{} has no CLAUDE.md", root.display())))
            .context(Hint("CLAUDE.md holds the agent's instructions; an agent cannot do without"));
    }
    let mut collected = Collected::default();
    let mut waiting = vec![(real.clone(), String::new(), 0)];
    while let Some((dir, name, depth)) = waiting.pop() {
        // A file in it has a name more than the directory.
        if depth >= MAX_DEPTH {
            return Err(usage(format!("{} lies too deep", dir.display())));
        }
        let listed = fs::read_dir(&dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = listed.with_context(|| format!("could not list {}", dir.display()))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Ok(entry_name) = entry.file_name().into_string() else {
                return Err(usage(format!("the name of {} is not UTF-8", path.display())));
            };
            let kind = entry.file_type();
            let kind = kind.with_context(|| format!("could not look at {}", path.display()))?;
            let relative = format!("{name}{entry_name}");
            if LEFT_OUT.contains(&entry_name.as_str()) {
                continue;
            }
            if kind.is_dir() {
                waiting.push((path, format!("{relative}/"), depth + 1));
                continue;
            }
            let target = if kind.is_symlink() { inside(&real, &path)? } else { path };
            collected.add(relative, &target)?;
        }
    }
    collected.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(collected)
}

impl Collected {
    fn add(&mut self, relative: String, path: &Path) -> anyhow::Result<()> {
        let about = || format!("could not read {}", path.display());
        let special = || usage(format!("{} is neither a file nor a directory", path.display()));
        // What is looked at is what is read. Not blocking, a pipe opens at once.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        let flags = flags.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            // A socket, or a device without a driver.
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                return Err(special());
            }
            opened => opened.with_context(about)?,
        };
        let meta = file.metadata().with_context(about)?;
        if !meta.is_file() {
            return Err(special());
        }
        // A file that grows while it is read is read no further than there is room.
        let room = MAX_BYTES - self.bytes;
        let mut content = Vec::new();
        if meta.len() <= room {
            file.take(room + 1).read_to_end(&mut content).with_context(about)?;
        }
        let size = meta.len().max(content.len() as u64);
        if size > room || self.files.len() as u64 >= MAX_FILES {
            let (files, size) = (super::format::count(MAX_FILES), super::format::bytes(MAX_BYTES));
            return Err(usage(format!("the directory has more than {files} files or {size}")))
                .context(Hint("an agent is instructions and small files; let it fetch the rest"));
        }
        self.bytes += content.len() as u64;
        let executable = Some(meta.permissions().mode() & 0o111 != 0);
        let content = STANDARD.encode(content);
        self.files.push(AgentFile { path: relative, content, executable });
        Ok(())
    }
}

/// Where a link leads, if that is inside.
fn inside(root: &Path, link: &Path) -> anyhow::Result<PathBuf> {
    let target = match fs::canonicalize(link) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(usage(format!("the link {} leads nowhere", link.display())))
                .context(Hint("remove it, or deploy the directory by its path"));
        }
        target => target.with_context(|| format!("could not follow {}", link.display()))?,
    };
    if !target.starts_with(root) {
        return Err(usage(format!("the link {} leads out of the directory", link.display())));
    }
    if target.is_dir() {
        return Err(usage(format!("{} is a link to a directory", link.display())));
    }
    Ok(target)
}

fn usage(message: String) -> anyhow::Error {
    Mistake::Usage(message).into()
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::symlink;

    use super::*;

    fn agent() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("CLAUDE.md", "be kind"),
            (".claude/settings.json", "{}"),
            (".git/HEAD", "x"),
            ("sub/node_modules/y", "z"),
            ("sub/a.txt", "a"),
        ];
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn a_directory_is_sent_without_what_belongs_to_tools() {
        let dir = agent();
        symlink("sub/a.txt", dir.path().join("link.txt")).unwrap();
        let collected = collect(dir.path()).unwrap();
        let paths: Vec<&str> = collected.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [".claude/settings.json", "CLAUDE.md", "link.txt", "sub/a.txt"]);
        assert_eq!(collected.files[1].content, "YmUga2luZA==");
        assert_eq!(collected.bytes, 11);
    }

    #[test]
    fn what_can_be_run_is_sent_as_such() {
        let dir = agent();
        let run = dir.path().join("sub/a.txt");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        let files = collect(dir.path()).unwrap().files;
        let can_run = files.iter().filter(|file| file.executable == Some(true));
        assert_eq!(can_run.map(|file| file.path.as_str()).collect::<Vec<_>>(), ["sub/a.txt"]);
        assert!(files.iter().all(|file| file.executable.is_some()));
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        let refusal = |dir: &Path| collect(dir).unwrap_err().root_cause().to_string();
        let dir = agent();
        symlink("/etc/passwd", dir.path().join("out")).unwrap();
        assert!(refusal(dir.path()).ends_with("out leads out of the directory"));
        let dir = agent();
        symlink(".", dir.path().join("loop")).unwrap();
        assert!(refusal(dir.path()).ends_with("loop is a link to a directory"));
        let dir = agent();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        let error = collect(dir.path()).unwrap_err();
        assert!(error.root_cause().to_string().ends_with("dangling leads nowhere"));
        assert_eq!(crate::cli::exit::of(&error), crate::cli::exit::Exit::Usage);
        let dir = agent();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        assert!(refusal(dir.path()).ends_with("socket is neither a file nor a directory"));
        let dir = agent();
        let big = fs::File::create(dir.path().join("big")).unwrap();
        big.set_len(MAX_BYTES).unwrap();
        assert_eq!(refusal(dir.path()), "the directory has more than 10,000 files or 32 MB");
        let empty = tempfile::tempdir().unwrap();
        assert!(refusal(empty.path()).ends_with("has no CLAUDE.md"));
        assert!(refusal(&empty.path().join("x")).contains("No such file"));
    }
}
