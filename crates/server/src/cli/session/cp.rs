//! `ash session cp`
//!
//! On this machine, files are read and written as a server does it (`ash_engine::files`): beneath the
//! directory that was named, whole or not at all, and through no link.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ash_engine::files::{Executable, FilePath, Scope, Tree};
use ash_snapshot::Progress;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use uuid::Uuid;

use super::files::{alone, show};
use crate::api::{FileInfo, NewFile, WriteFiles};
use crate::cli::bar::Bar;
use crate::cli::connect::Context;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::output::{Screen, note, plain};
use crate::cli::{format, prefix};
use crate::client::{FileQuery, Transfer};

/// The largest file that a server takes, and that it sends.
const MAX_UP: u64 = 50 << 20;
const MAX_DOWN: u64 = 100 << 20;

/// How much is sent in one request: files, and bytes.
const BATCH_FILES: usize = 500;
const BATCH_BYTES: u64 = 16 << 20;

/// Copy files and directories into a session or out of it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to copy: ID:PATH, a path of this machine, or - for standard input
    from: String,
    /// Where to: ID:PATH, a path of this machine, or - for standard output
    to: String,
}

/// What was copied.
#[derive(Debug, Default, Serialize)]
struct Copied {
    files: u64,
    bytes: u64,
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Failed {
    path: String,
    error: String,
}

/// How far it is: what is copied, and how much of the request that goes on.
#[derive(Debug, Default)]
struct Far {
    done: Cell<Progress>,
    /// How many bytes of files the request is about. On its way it has more: it is text.
    held: Cell<u64>,
    transfer: RefCell<Transfer>,
}

impl Far {
    fn expect(&self, all_files: u64, all_bytes: u64) {
        self.done.set(Progress { all_files, all_bytes, ..self.done.get() });
    }

    /// A request about so many bytes begins.
    fn begin(&self, bytes: u64) -> Transfer {
        self.held.set(bytes);
        let transfer = Transfer::default();
        self.transfer.replace(transfer.clone());
        transfer
    }

    /// It is over, and so much is copied.
    fn end(&self, copied: &Copied) {
        self.held.set(0);
        self.done.set(Progress { files: copied.files, bytes: copied.bytes, ..self.done.get() });
    }

    fn progress(&self) -> Progress {
        let done = self.done.get();
        let (sent, all) = self.transfer.borrow().so_far();
        let part = u128::from(self.held.get()) * u128::from(sent) / u128::from(all.max(1));
        let part = u64::try_from(part).unwrap_or(u64::MAX).min(self.held.get());
        Progress { bytes: done.bytes + part, ..done }
    }
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let far = Far::default();
    let bar = || Bar::new(&ctx.screen, "copying", "file");
    let copied = match (remote(&args.from), remote(&args.to)) {
        (Some((id, path)), None) => {
            let id = prefix::session(&ctx.client, id).await?;
            if args.to == "-" {
                let work = one(ctx, id, path, &far);
                return show(&ctx.screen, &bar().during(|| far.progress(), work).await?);
            }
            let work = down(ctx, id, path, &args.to, &far);
            bar().during(|| far.progress(), work).await?
        }
        (None, Some((id, path))) => {
            let id = prefix::session(&ctx.client, id).await?;
            let work = up(ctx, id, &args.from, path, &far);
            bar().during(|| far.progress(), work).await?
        }
        (Some(_), Some(_)) | (None, None) => {
            let message = "one side has to be a session's, such as 0192aaaa:notes.txt, and one not";
            return Err(Mistake::Usage(message.to_owned()).into());
        }
    };
    if ctx.screen.json {
        Screen::document(&copied)?;
    } else {
        for Failed { path, error } in &copied.failed {
            note(&plain(&format!("{path} was not copied: {error}")));
        }
        let (files, size) = (format::things(copied.files, "file"), format::bytes(copied.bytes));
        note(&format!("copied {files}, {size}"));
    }
    Ok(if copied.failed.is_empty() { Exit::Ok } else { Exit::Refused })
}

/// A session and a path, if a text names them. A path of this machine that looks so begins with `./`.
fn remote(text: &str) -> Option<(&str, &str)> {
    let (id, path) = text.split_once(':')?;
    let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_id.then_some((id, path))
}

/// What is in one file.
async fn one(ctx: &Context, id: Uuid, path: &str, far: &Far) -> anyhow::Result<Vec<u8>> {
    let query = FileQuery { path: Some(path.to_owned()), everything: Some(true) };
    let listed = ctx.client.files(id, &query).await?;
    let Some(file) = alone(&listed, path) else {
        return Err(Mistake::Usage(format!("{path} is a directory")).into());
    };
    far.expect(1, file.size);
    Ok(ctx.client.file(id, file, &far.begin(file.size)).await?)
}

/// Out of a session.
async fn down(ctx: &Context, id: Uuid, path: &str, to: &str, far: &Far) -> anyhow::Result<Copied> {
    let query = FileQuery { path: Some(path.to_owned()), everything: Some(true) };
    let listed = ctx.client.files(id, &query).await?;
    if listed.truncated {
        let message = format!("there are more files beneath `{path}` than can be listed");
        return Err(Mistake::Usage(message).into());
    }
    let name = last_name(path);
    let mut copied = Copied::default();
    if let Some(file) = alone(&listed, path) {
        let target = Path::new(to);
        let is_into = to.ends_with('/') || target.is_dir();
        let target = if is_into { target.join(name) } else { target.to_owned() };
        let (tree, path) = local_file(&target)?;
        far.expect(1, file.size);
        copied.take(ctx, id, file, (&tree, Ok(path)), far).await?;
        return Ok(copied);
    }
    let target = if to.ends_with('/') { Path::new(to).join(name) } else { PathBuf::from(to) };
    let tree = local_directory(&target)?;
    let under = FilePath::directory(path.as_bytes())?;
    far.expect(listed.files.len() as u64, listed.files.iter().map(|file| file.size).sum());
    for file in &listed.files {
        let below = file.path.strip_prefix(&under.to_string()).unwrap_or(&file.path);
        // What a server says is a path is one, or is not written.
        let below = FilePath::file(below.trim_start_matches('/').as_bytes());
        copied.take(ctx, id, file, (&tree, below), far).await?;
    }
    Ok(copied)
}

impl Copied {
    async fn take(
        &mut self,
        ctx: &Context,
        id: Uuid,
        file: &FileInfo,
        (tree, to): (&Tree, Result<FilePath, ash_engine::files::FileError>),
        far: &Far,
    ) -> anyhow::Result<()> {
        let failed = |error: String| Failed { path: file.path.clone(), error };
        if file.size > MAX_DOWN {
            let error = format!("it has more than {}", format::bytes(MAX_DOWN));
            self.failed.push(failed(error));
            return Ok(());
        }
        let content = ctx.client.file(id, file, &far.begin(file.size)).await?;
        let executable = if file.executable { Executable::Yes } else { Executable::No };
        match to.and_then(|to| tree.write(&to, executable, &mut content.as_slice())) {
            Ok(size) => {
                self.files += 1;
                self.bytes += size;
            }
            Err(error) => self.failed.push(failed(error.to_string())),
        }
        far.end(self);
        Ok(())
    }
}

/// Into a session.
async fn up(ctx: &Context, id: Uuid, from: &str, to: &str, far: &Far) -> anyhow::Result<Copied> {
    let copied = Copied::default();
    let mut sending = Sending { ctx, id, batch: Vec::new(), held: 0, copied, far };
    if from == "-" {
        if to.is_empty() || to.ends_with('/') {
            let message = "say what standard input is to be called: <session>:<path>";
            return Err(Mistake::Usage(message.to_owned()).into());
        }
        let mut content = Vec::new();
        let read = std::io::stdin().lock().take(MAX_UP + 1).read_to_end(&mut content);
        read.context("could not read standard input")?;
        far.expect(1, content.len() as u64);
        sending.add(to.to_owned(), None, Ok(content)).await?;
        return sending.end().await;
    }
    let local = Path::new(from);
    let is_into = to.is_empty() || to.ends_with('/');
    let name = local.file_name().map(|name| name.to_string_lossy().into_owned());
    if !local.is_dir() {
        let (tree, path) = local_file(local)?;
        let to = if is_into { format!("{to}{}", name.unwrap_or_default()) } else { to.to_owned() };
        let listed = tree.list(&path, Scope::Everything).with_context(|| about(from))?;
        let can_run = listed.files.first().is_some_and(|file| file.executable);
        far.expect(1, listed.files.first().map_or(0, |file| file.size));
        sending.add(to, Some(can_run), content(&tree, &path)).await?;
        return sending.end().await;
    }
    let base = match (is_into, name) {
        (true, Some(name)) if !from.ends_with("/.") => format!("{to}{name}/"),
        (true, _) => to.to_owned(),
        (false, _) => format!("{to}/"),
    };
    let tree = Tree::open(&fs::canonicalize(local).with_context(|| about(from))?)
        .with_context(|| about(from))?;
    let listed = tree.list(&FilePath::ROOT, Scope::Everything).with_context(|| about(from))?;
    if listed.truncated {
        return Err(Mistake::Usage(format!("not all of {from} can be listed")).into());
    }
    far.expect(listed.files.len() as u64, listed.files.iter().map(|file| file.size).sum());
    for file in listed.files {
        match file.path.to_text() {
            Some(below) => {
                let content = content(&tree, &file.path);
                sending.add(format!("{base}{below}"), Some(file.executable), content).await?;
            }
            None => {
                let (path, error) = (file.path.to_string(), "its name is not UTF-8".to_owned());
                sending.copied.failed.push(Failed { path, error });
            }
        }
    }
    sending.end().await
}

/// Files on their way into a session, so many in one request.
struct Sending<'a> {
    ctx: &'a Context,
    id: Uuid,
    batch: Vec<NewFile>,
    held: u64,
    copied: Copied,
    far: &'a Far,
}

impl Sending<'_> {
    async fn add(
        &mut self,
        path: String,
        executable: Option<bool>,
        content: Result<Vec<u8>, String>,
    ) -> anyhow::Result<()> {
        let content = content.and_then(|content| match content.len() as u64 {
            0..=MAX_UP => Ok(content),
            _ => Err(format!("it has more than {}", format::bytes(MAX_UP))),
        });
        let content = match content {
            Ok(content) => content,
            Err(error) => {
                self.copied.failed.push(Failed { path, error });
                return Ok(());
            }
        };
        self.held += content.len() as u64;
        self.batch.push(NewFile { path, content: BASE64_STANDARD.encode(&content), executable });
        if self.batch.len() >= BATCH_FILES || self.held >= BATCH_BYTES {
            self.send().await?;
        }
        Ok(())
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let transfer = self.far.begin(std::mem::take(&mut self.held));
        let files = std::mem::take(&mut self.batch);
        let files = WriteFiles { files, target_path: None };
        for file in self.ctx.client.write_files(self.id, &files, &transfer).await?.files {
            match (file.size, file.error) {
                (Some(size), None) if file.written => {
                    self.copied.files += 1;
                    self.copied.bytes += size;
                }
                (_, error) => {
                    let error = error.unwrap_or_else(|| "the server does not say why".to_owned());
                    self.copied.failed.push(Failed { path: file.path, error });
                }
            }
        }
        self.far.end(&self.copied);
        Ok(())
    }

    async fn end(mut self) -> anyhow::Result<Copied> {
        self.send().await?;
        Ok(self.copied)
    }
}

fn content(tree: &Tree, path: &FilePath) -> Result<Vec<u8>, String> {
    let opened = tree.read(path, MAX_UP).map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    let read = opened.file.take(MAX_UP + 1).read_to_end(&mut content);
    read.map(|_| content).map_err(|error| error.to_string())
}

/// The directory of a file of this machine, and the file's name in it.
fn local_file(path: &Path) -> anyhow::Result<(Tree, FilePath)> {
    let shown = path.display().to_string();
    let Some(name) = path.file_name() else {
        return Err(Mistake::Usage(format!("{shown} is no name of a file")).into());
    };
    let name = FilePath::file(std::os::unix::ffi::OsStrExt::as_bytes(name))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent =
        fs::canonicalize(parent.unwrap_or(Path::new("."))).with_context(|| about(&shown))?;
    Ok((Tree::open(&parent).with_context(|| about(&shown))?, name))
}

/// A directory of this machine, made if it is not there.
fn local_directory(path: &Path) -> anyhow::Result<Tree> {
    let shown = path.display().to_string();
    fs::create_dir_all(path).with_context(|| about(&shown))?;
    let real = fs::canonicalize(path).with_context(|| about(&shown))?;
    Tree::open(&real).with_context(|| about(&shown))
}

fn about(path: &str) -> String {
    format!("could not open {path}")
}

/// The name at the end of a path; that of the whole workspace, if there is none.
fn last_name(path: &str) -> &str {
    let mut names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    names.next_back().unwrap_or("workspace")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn it_moves_with_the_bytes_of_a_request_and_not_only_with_its_end() {
        let far = Far::default();
        far.expect(2, 3_000);
        let bytes = || (far.progress().files, far.progress().bytes);
        // As text it is longer on its way.
        let transfer = far.begin(1_000);
        assert_eq!(bytes(), (0, 0), "nothing is said of it yet");
        transfer.begin(1_400);
        transfer.add(700);
        assert_eq!(bytes(), (0, 500));
        transfer.add(700);
        assert_eq!(bytes(), (0, 1_000));
        // Once more, from the beginning.
        transfer.begin(1_400);
        assert_eq!(bytes(), (0, 0));
        far.end(&Copied { files: 1, bytes: 1_000, ..Copied::default() });
        assert_eq!(bytes(), (1, 1_000));
        far.begin(2_000).begin(0);
        assert_eq!(bytes(), (1, 1_000), "the one before is not counted for it");
        assert_eq!((far.progress().all_files, far.progress().all_bytes), (2, 3_000));
    }

    #[test]
    fn a_side_is_a_session_s_or_this_machine_s() {
        assert_eq!(remote("0192aaaa-0:src/a:b"), Some(("0192aaaa-0", "src/a:b")));
        assert_eq!(remote("0192:"), Some(("0192", "")));
        for local in ["-", "a", "./0192:a", "/0192:a", "notes:a", ":a", "C:\\x"] {
            // One letter that is a digit too is a session, as `scp` takes it for a host.
            assert_eq!(remote(local).is_some(), local.starts_with('C'), "{local}");
        }
        assert_eq!(
            (last_name("a/b/"), last_name(""), last_name(".")),
            ("b", "workspace", "workspace")
        );
    }
}
