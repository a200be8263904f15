//! The program's own transcript: whether it is what it should be, and how it is made anew.
//!
//! The program reads it without complaint whatever it holds, and forgets in silence what comes before a line that is
//! damaged, and what the last message does not follow. So nothing is resumed before the file was held against the record:
//! every line that was mirrored has to be there, once and word for word, every line has to be one, every message has to
//! follow one that is there, and the last one the last prompt. Where that is not so, the file is set aside and written
//! anew from the record; what it has beyond that and makes sense is kept.

mod hold;
mod room;

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{
    self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _,
};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use self::hold::Held;
use super::record::Record;
use crate::questions::new_id;

/// The longest line that is understood.
const MAX_LINE_BYTES: u64 = 48 * 1024 * 1024;

/// How much of its end is looked at to see whether a message has arrived.
const TAIL_BYTES: u64 = 512 * 1024;

/// How many lines beyond the record are looked at.
const MAX_BEYOND: usize = 10_000;

/// What a line says of where it belongs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    r#type: Option<String>,
    uuid: Option<String>,
    parent_uuid: Option<String>,
    message: Option<Message>,
    #[serde(default)]
    is_api_error_message: bool,
    /// Whether it is of an agent's agent.
    #[serde(default)]
    is_sidechain: bool,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: serde_json::Value,
}

/// What was found in place of the transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// What should be there.
    Whole,
    /// Something else, which is why.
    Lacking(String),
}

/// Where the program keeps a conversation.
pub(super) struct Transcript {
    path: PathBuf,
}

impl Transcript {
    /// The transcript of a conversation that is held in a directory.
    pub(super) fn new(config: &Path, workspace: &Path, conversation: &str) -> Self {
        let project = encoded(workspace);
        Self { path: config.join("projects").join(project).join(format!("{conversation}.jsonl")) }
    }

    /// Whether any of the conversation is there.
    pub(super) fn has_messages(&self) -> bool {
        let mut has = false;
        // What cannot be read is not there.
        let _unread = lines(&self.path, |_, head| has |= head.is_some_and(|head| head.is_said()));
        has
    }

    /// Whether a message is there.
    pub(super) fn holds(&self, uuid: &str) -> bool {
        let mut holds = false;
        let _unread = lines(&self.path, |_, head| {
            holds |= head.is_some_and(|head| head.uuid.as_deref() == Some(uuid));
        });
        holds
    }

    /// Whether a message is among the last ones. Quick: only the end of the file is looked at.
    pub(super) fn ends_with(&self, uuid: &str) -> io::Result<bool> {
        let mut file = open(&self.path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
        let name = format!("\"uuid\":\"{uuid}\"");
        Ok(tail.windows(name.len()).any(|window| window == name.as_bytes()))
    }

    /// Holds the file against the record.
    pub(super) fn check(&self, record: &Record) -> io::Result<Found> {
        let mut held = Held::against(record)?;
        let read = lines(&self.path, |line, head| held.take(line, head));
        let why = match read {
            Err(error) if is_unreadable(&error) => Some(told(&error)),
            Err(error) => return Err(error),
            Ok(()) => held.lacks(),
        };
        Ok(why.map_or(Found::Whole, Found::Lacking))
    }

    /// Writes the file anew from the record, and what was beyond that. What was there is set aside.
    pub(super) fn rebuild(&self, record: &Record) -> io::Result<()> {
        let held = Held::against(record)?;
        let (mut kept, mut beyond): (HashSet<String>, Vec<Vec<u8>>) = Default::default();
        let read = lines(&self.path, |line, head| {
            let Some(Head { uuid: Some(uuid), parent_uuid: Some(parent), .. }) = head else {
                return;
            };
            let is_open = held.is_of_the_last_turn(&parent) && held.is_at_the_end(&parent);
            let goes_on = kept.contains(&parent) || is_open;
            if goes_on && !held.has(&uuid) && beyond.len() < MAX_BEYOND && kept.insert(uuid) {
                beyond.push(line.to_vec());
            }
        });
        match read {
            Err(error) if !is_unreadable(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.set_aside()?;
        self.replace(|out| {
            record.write_mirrored(out)?;
            beyond.iter().try_for_each(|line| out.write_all(line))
        })
    }

    /// What the file has beyond the record: the program was killed before it could repeat that.
    pub(super) fn beyond(&self, record: &Record) -> io::Result<Vec<Box<RawValue>>> {
        let held = Held::against(record)?;
        let mut beyond = Vec::new();
        let read = lines(&self.path, |line, head| {
            let Some(Head { uuid: Some(uuid), is_sidechain: false, .. }) = head else { return };
            let raw = std::str::from_utf8(line).ok().map(|line| line.trim().to_owned());
            if let Some(raw) = raw.and_then(|raw| RawValue::from_string(raw).ok())
                && !held.has(&uuid)
                && beyond.len() < MAX_BEYOND
            {
                beyond.push(raw);
            }
        });
        match read {
            Err(error) if !is_unreadable(&error) => Err(error),
            Ok(()) | Err(_) => Ok(beyond),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves out everything from the first call that was never answered on: what a model's provider does
    /// not take. Says with which message that begins, if there is any.
    pub(super) fn cut_before_unanswered(&self) -> io::Result<Option<String>> {
        let mut calls: Vec<(usize, String, String)> = Vec::new();
        let mut count = 0;
        lines(&self.path, |_, head| {
            let blocks = head.as_ref().and_then(|head| head.message.as_ref());
            for block in blocks.and_then(|message| message.content.as_array()).into_iter().flatten()
            {
                match block["type"].as_str() {
                    Some("tool_use") => {
                        let id = block["id"].as_str().unwrap_or_default().to_owned();
                        let of = head.as_ref().and_then(|head| head.uuid.clone());
                        calls.push((count, id, of.unwrap_or_default()));
                    }
                    Some("tool_result") => {
                        let answered = block["tool_use_id"].as_str().unwrap_or_default();
                        calls.retain(|(_, id, _)| id != answered);
                    }
                    _ => {}
                }
            }
            count += 1;
        })?;
        // In the order of the file.
        let Some((first, _, uuid)) = calls.into_iter().next() else { return Ok(None) };
        self.keep_lines(first)?;
        Ok(Some(uuid))
    }

    /// Leaves out a message and everything behind it. Says whether it was there.
    pub(super) fn cut_before(&self, uuid: &str) -> io::Result<bool> {
        let (mut count, mut first) = (0, None);
        lines(&self.path, |_, head| {
            if head.is_some_and(|head| head.uuid.as_deref() == Some(uuid)) {
                first.get_or_insert(count);
            }
            count += 1;
        })?;
        let Some(first) = first else { return Ok(false) };
        self.keep_lines(first)?;
        Ok(true)
    }

    /// Puts what is there out of the way: it is of no use, and its name is taken.
    pub(super) fn set_aside(&self) -> io::Result<()> {
        let mut aside = self.path.as_os_str().to_owned();
        aside.push(".aside");
        fs::rename(&self.path, &aside).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Ok(());
            }
            // Something lies there that cannot be replaced.
            aside.push(format!("-{}", new_id()?));
            fs::rename(&self.path, &aside)
        })
    }

    fn keep_lines(&self, first: usize) -> io::Result<()> {
        let mut kept: Vec<u8> = Vec::new();
        let mut count = 0;
        lines(&self.path, |line, _| {
            if count < first {
                kept.extend_from_slice(line);
            }
            count += 1;
        })?;
        self.replace(|out| out.write_all(&kept))
    }

    /// Writes the file anew: beside it, synced, and renamed over it.
    fn replace(
        &self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(directory) = self.path.parent() else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let new = self.path.with_extension("new");
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(directory)?.sync_all()
    }
}

impl Head {
    /// Whether somebody said something.
    fn is_said(&self) -> bool {
        matches!(self.r#type.as_deref(), Some("user" | "assistant")) && !self.is_api_error_message
    }

    /// Whether that was the agent.
    fn is_of_the_agent(&self) -> bool {
        self.r#type.as_deref() == Some("assistant")
    }
}

/// Hands every line to `take`, with what it says of itself; nothing, if it is no line of a transcript. A last line
/// that has no end counts as damaged: what would be appended to it would be lost with it.
fn lines(path: &Path, mut take: impl FnMut(&[u8], Option<Head>)) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 * 1024, open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let is_whole = line.ends_with(b"\n");
        take(&line, is_whole.then(|| serde_json::from_slice(&line).ok()).flatten());
    }
}

/// Opens what should be a file, and waits for nobody if it is something else.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Whether there is nothing that could be read, which is as if there were nothing.
fn is_unreadable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

fn told(error: &io::Error) -> String {
    let is_there = error.kind() == io::ErrorKind::PermissionDenied;
    if is_there { "it cannot be read" } else { "it is not there" }.to_owned()
}

/// How the program names the directory of a workspace.
fn encoded(workspace: &Path) -> String {
    let letters = workspace.to_string_lossy();
    letters.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

#[cfg(test)]
mod test {
    use serde_json::json;

    use super::*;

    struct World {
        home: tempfile::TempDir,
        record: Record,
        transcript: Transcript,
    }

    fn message(uuid: &str, parent: Option<&str>, content: &str) -> String {
        let role = if content.contains("tool_result") || content.contains("ask") {
            "user"
        } else {
            "assistant"
        };
        let content: serde_json::Value = serde_json::from_str(content).unwrap();
        json!({ "type": role, "uuid": uuid, "parentUuid": parent,
                "message": { "role": role, "content": content } })
        .to_string()
    }

    fn world() -> (World, Vec<String>) {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        let said = vec![
            message("a", None, r#""ask""#),
            json!({ "type": "attachment", "uuid": "b", "parentUuid": "a" }).to_string(),
            json!({ "type": "last-prompt" }).to_string(),
            message("c", Some("b"), r#"[{"type":"text","text":"answer"}]"#),
        ];
        let raw = |line: &String| RawValue::from_string(line.clone()).unwrap();
        let entries: Vec<Box<RawValue>> = said.iter().map(raw).collect();
        record.begin("r", &RawValue::from_string("\"ask\"".to_owned()).unwrap()).unwrap();
        record.mirror("r", "conv", &entries).unwrap();
        let transcript =
            Transcript::new(&home.path().join(".claude"), Path::new("/workspace"), "conv");
        fs::create_dir_all(transcript.path.parent().unwrap()).unwrap();
        (World { home, record, transcript }, said)
    }

    fn content(lines: &[String]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_directory_of_a_workspace_has_the_name_that_the_program_gives_it() {
        assert_eq!(encoded(Path::new("/srv/moved/w.s_R")), "-srv-moved-w-s-R");
        assert_eq!(encoded(Path::new("/workspace")), "-workspace");
    }

    #[test]
    fn what_is_not_as_it_was_is_noticed_and_made_anew() {
        let (world, said) = world();
        let World { home: _home, record, transcript } = &world;
        let whole = content(&said);
        let beyond = message("d", Some("c"), r#""ask more""#);
        let mut glued = said.clone();
        let last = glued.pop().unwrap();
        let first = glued.remove(0);
        let cases = [
            (String::new(), "nothing"),
            (content(&said[..3]), "missing"),
            (whole.replacen("ask", "ask\n", 1), "damaged"),
            (whole.trim_end().to_owned(), "damaged"),
            (format!("{whole}{{\"type\":\"us"), "damaged"),
            (format!("{whole}\0\0\0\0\0"), "damaged"),
            (format!("{first}{}\n{last}\n", content(&glued)), "damaged"),
            (format!("{whole}{}\n", message("z", Some("y"), r#""ask""#)), "follow none"),
            (whole.replace("answer", "another"), "not as they were"),
            (whole.replace(r#""parentUuid":"b""#, r#""parentUuid":null"#), "not as they were"),
            (whole.replace(r#""parentUuid":"b""#, r#""parentUuid":"a""#), "not as they were"),
            (format!("{whole}{}\n", said[0]), "more than once"),
            (format!("{whole}{}", content(&said[..2])), "more than once"),
        ];
        assert_eq!(transcript.check(record).unwrap(), Found::Lacking("it is not there".to_owned()));
        for (damaged, why) in cases {
            fs::write(&transcript.path, &damaged).unwrap();
            let found = transcript.check(record).unwrap();
            assert!(
                matches!(&found, Found::Lacking(said) if said.contains(why)),
                "{found:?} {damaged}"
            );
            transcript.rebuild(record).unwrap();
            assert_eq!(fs::read_to_string(&transcript.path).unwrap(), whole, "{why}");
            assert_eq!(transcript.check(record).unwrap(), Found::Whole);
        }
        // What came after the last mirror is kept, through damage elsewhere, too.
        let more = format!("{whole}{beyond}\n");
        fs::write(&transcript.path, &more).unwrap();
        assert_eq!(transcript.check(record).unwrap(), Found::Whole);
        fs::write(&transcript.path, format!("garbage\n{more}{{\"half")).unwrap();
        transcript.rebuild(record).unwrap();
        assert_eq!(fs::read_to_string(&transcript.path).unwrap(), more);
        assert!(transcript.holds("d") && !transcript.holds("e") && transcript.has_messages());
    }

    #[test]
    fn what_goes_on_from_before_the_last_prompt_is_not_gone_on_with() {
        let (mut world, mut said) = world();
        let raw = |line: &String| RawValue::from_string(line.clone()).unwrap();
        let second = [
            message("r2", Some("c"), r#""ask again""#),
            message("e", Some("r2"), r#"[{"type":"text","text":"second answer"}]"#),
        ];
        world
            .record
            .begin("r2", &RawValue::from_string("\"ask again\"".to_owned()).unwrap())
            .unwrap();
        let entries: Vec<_> = second.iter().map(raw).collect();
        world.record.mirror("r2", "conv", &entries).unwrap();
        said.extend(second);
        let World { record, transcript, .. } = &world;
        let whole = content(&said);
        // Another program went on from the first answer.
        let stray = message("x", Some("c"), r#""ask elsewhere""#);
        fs::write(&transcript.path, format!("{whole}{stray}\n")).unwrap();
        let found = transcript.check(record).unwrap();
        assert!(matches!(&found, Found::Lacking(why) if why.contains("last prompt")), "{found:?}");
        transcript.rebuild(record).unwrap();
        assert_eq!(fs::read_to_string(&transcript.path).unwrap(), whole);
        let aside = transcript.path.with_extension("jsonl.aside");
        assert!(fs::read_to_string(aside).unwrap().contains("ask elsewhere"), "nothing is lost");
        // What agents of the agent say goes on from where they began.
        let mut of_another: serde_json::Value = serde_json::from_str(&stray).unwrap();
        of_another["isSidechain"] = true.into();
        fs::write(&transcript.path, format!("{whole}{of_another}\n")).unwrap();
        assert_eq!(transcript.check(record).unwrap(), Found::Whole);
    }

    #[test]
    fn what_is_no_file_is_set_aside_and_made_anew() {
        let (world, said) = world();
        let World { record, transcript, .. } = &world;
        let make: [&dyn Fn(); 3] = [
            &|| fs::create_dir(&transcript.path).unwrap(),
            &|| fs::create_dir_all(transcript.path.join("x")).unwrap(),
            &|| {
                let node = rustix::fs::FileType::Fifo;
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &transcript.path, node, mode, 0).unwrap();
            },
        ];
        for make in make {
            make();
            let found = transcript.check(record).unwrap();
            assert_eq!(found, Found::Lacking("it is not there".to_owned()));
            transcript.rebuild(record).unwrap();
            assert_eq!(fs::read_to_string(&transcript.path).unwrap(), content(&said));
            fs::remove_file(&transcript.path).unwrap();
        }
    }

    #[test]
    fn a_call_that_was_never_answered_is_cut_off_with_what_follows() {
        let (world, said) = world();
        let transcript = &world.transcript;
        let call = message(
            "d",
            Some("c"),
            r#"[{"type":"tool_use","id":"t1"},{"type":"tool_use","id":"t2"}]"#,
        );
        let half = message("e", Some("d"), r#"[{"type":"tool_result","tool_use_id":"t1"}]"#);
        let next = message("f", Some("e"), r#""ask""#);
        let rest = message("g", Some("e"), r#"[{"type":"tool_result","tool_use_id":"t2"}]"#);
        fs::write(
            &transcript.path,
            content(&[&said[..], &[call.clone(), half.clone(), next]].concat()),
        )
        .unwrap();
        assert_eq!(transcript.cut_before_unanswered().unwrap().as_deref(), Some("d"));
        assert_eq!(fs::read_to_string(&transcript.path).unwrap(), content(&said));
        let answered = content(&[&said[..], &[call, half, rest]].concat());
        fs::write(&transcript.path, &answered).unwrap();
        assert_eq!(transcript.cut_before_unanswered().unwrap(), None);
        assert_eq!(fs::read_to_string(&transcript.path).unwrap(), answered);
        assert!(!transcript.cut_before("nobody").unwrap());
        assert_eq!(fs::read_to_string(&transcript.path).unwrap(), answered);
        assert!(transcript.cut_before("d").unwrap());
        assert_eq!(fs::read_to_string(&transcript.path).unwrap(), content(&said));
    }
}
