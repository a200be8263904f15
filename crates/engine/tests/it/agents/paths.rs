//! Directories of this machine.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ash_engine::agent::{DeployError, Library, PermissionMode, ReadError, Source};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};

use super::Place;

#[test]
fn a_directory_is_copied_and_does_not_change_any_more() {
    let place = Place::with_instructions();
    place.write(".claude/settings.json", "{}");
    place.write("docs/deep/er.md", "text");
    place.write("ash.toml", "permission_mode = 'default'");
    let definition = place.capture().unwrap();
    place.write("CLAUDE.md", "be cruel");
    fs::remove_file(place.source().join("ash.toml")).unwrap();

    place.holds(
        &definition,
        &[
            (".claude/settings.json", "{}"),
            ("CLAUDE.md", "be kind"),
            ("ash.toml", "permission_mode = 'default'"),
            ("docs/deep/er.md", "text"),
        ],
    );
    assert_eq!((definition.files, definition.bytes), (4, 2 + 7 + 27 + 4));
    assert_eq!(definition.manifest.permission_mode, Some(PermissionMode::Default));
    assert_eq!(definition.source, Source::Path(place.source().display().to_string()));
    assert_eq!(place.kept(), [definition.digest.as_str()]);
    assert_eq!(
        place.library.directory(&definition),
        place.top.path().join("library").join(&definition.digest)
    );
    let stored = serde_json::to_string(&definition).unwrap();
    assert_eq!(serde_json::from_str::<ash_engine::agent::Definition>(&stored).unwrap(), definition);
}

#[test]
fn the_same_content_is_kept_once_and_other_content_apart() {
    let place = Place::with_instructions();
    place.write("run.sh", "#!/bin/sh");
    let script = place.source().join("run.sh");
    fs::set_permissions(&script, Permissions::from_mode(0o700)).unwrap();
    let first = place.capture().unwrap();
    assert_eq!(place.capture().unwrap(), first);
    let same = vec![
        ("run.sh".to_owned(), b"#!/bin/sh".to_vec()).into(),
        ("CLAUDE.md".to_owned(), b"be kind".to_vec()).into(),
    ];
    assert_eq!(place.library.capture_files(same).unwrap().digest, first.digest);
    assert_eq!(place.kept().len(), 1);

    // The mode, the name, the content, and what is a link: each makes a difference.
    fs::set_permissions(&script, Permissions::from_mode(0o600)).unwrap();
    let plain = place.capture().unwrap();
    fs::rename(&script, place.source().join("run")).unwrap();
    let renamed = place.capture().unwrap();
    place.write("run", "#!/bin/bash");
    let rewritten = place.capture().unwrap();
    symlink("run", &script).unwrap();
    let linked = place.capture().unwrap();
    let mut digests = [&first, &plain, &renamed, &rewritten, &linked].map(|found| &found.digest);
    digests.sort();
    assert_eq!(place.kept().iter().collect::<Vec<_>>(), digests);
}

#[test]
fn files_cannot_be_written_and_scripts_can_be_run() {
    let place = Place::with_instructions();
    place.write("bin/tool", "#!/bin/sh");
    let tool = place.source().join("bin/tool");
    fs::set_permissions(tool, Permissions::from_mode(0o4711)).unwrap();
    let captured = place.library.directory(&place.capture().unwrap());
    let mode = |path| fs::metadata(captured.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode("CLAUDE.md"), mode("bin/tool"), mode("bin")], [0o444, 0o555, 0o755]);
}

#[test]
fn history_and_what_others_built_are_left_out() {
    let place = Place::with_instructions();
    for left_out in [".git/config", "node_modules/x/y.js", "sub/node_modules/z", "sub/.git"] {
        place.write(left_out, "not this");
    }
    place.write("sub/.gitignore", "this");
    let definition = place.capture().unwrap();
    place.holds(&definition, &[("CLAUDE.md", "be kind"), ("sub/.gitignore", "this")]);
}

#[test]
fn links_that_stay_inside_are_kept() {
    let place = Place::new();
    place.write("AGENTS.md", "be kind");
    place.write("docs/text", "text");
    symlink("AGENTS.md", place.source().join("CLAUDE.md")).unwrap();
    symlink("docs", place.source().join("manual")).unwrap();
    symlink("../AGENTS.md", place.source().join("docs/up")).unwrap();
    symlink("not/there", place.source().join("dangling")).unwrap();
    let definition = place.capture().unwrap();
    place.holds(
        &definition,
        &[
            ("AGENTS.md", "be kind"),
            ("CLAUDE.md", "be kind"),
            ("docs/text", "text"),
            ("docs/up", "be kind"),
        ],
    );
    assert_eq!(definition.files, 6);
    let captured = place.library.directory(&definition);
    assert_eq!(fs::read_link(captured.join("CLAUDE.md")).unwrap().to_str(), Some("AGENTS.md"));
    assert_eq!(place.library.read(&definition, "manual/text").unwrap(), b"text");
}

#[test]
fn links_that_leave_are_refused() {
    for (link, target) in [
        ("out", "../secret"),
        ("out", ".."),
        ("out", "/etc/passwd"),
        ("sub/out", "../../secret"),
        ("out", "sub/../../secret"),
        ("out", "not-there/../../secret"),
        // Its letters stay inside. What they mean does not: `elsewhere` is a link.
        ("out", "sub/elsewhere/../../secret"),
    ] {
        let place = Place::with_instructions();
        place.write("sub/file", "");
        place.write("other/file", "");
        symlink("../other", place.source().join("sub/elsewhere")).unwrap();
        symlink(target, place.source().join(link)).unwrap();
        place.refuses("agent_link_outside", "leads out of the agent's directory");
    }
    let place = Place::with_instructions();
    symlink("round", place.source().join("about")).unwrap();
    symlink("about", place.source().join("round")).unwrap();
    place.refuses("agent_link_outside", "leads in a circle");
}

#[test]
fn what_is_neither_file_nor_directory_is_refused_and_not_waited_for() {
    let place = Place::with_instructions();
    let fifo = place.source().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    place.refuses("invalid_agent_file", "\"fifo\" is neither a file nor a directory");

    let place = Place::with_instructions();
    fs::create_dir(place.source().join("sub")).unwrap();
    let _listener = UnixListener::bind(place.source().join("sub/s")).unwrap();
    place.refuses("invalid_agent_file", "\"sub/s\" is neither");
}

#[test]
fn names_that_cannot_be_told_are_refused() {
    let place = Place::with_instructions();
    fs::create_dir(place.source().join("sub")).unwrap();
    fs::write(place.source().join("sub").join(OsStr::from_bytes(b"\xff")), "").unwrap();
    place.refuses("invalid_agent_file", "it is not UTF-8");
    let place = Place::with_instructions();
    place.write("a\\b", "");
    place.refuses("invalid_agent_file", "it contains a backslash");
    let place = Place::with_instructions();
    place.write(&["d"; 65].join("/"), "");
    place.refuses("invalid_agent_file", "more than 64 levels deep");
}

#[test]
fn a_directory_without_instructions_is_no_agent() {
    let place = Place::new();
    place.write("README.md", "hello");
    place.refuses("missing_claude_md", "Agent directory must contain CLAUDE.md");
    // A directory of that name has none in it, nor has a link that leads nowhere.
    place.write("CLAUDE.md/text", "hello");
    place.refuses("missing_claude_md", "");
    fs::remove_dir_all(place.source().join("CLAUDE.md")).unwrap();
    symlink("not-there", place.source().join("CLAUDE.md")).unwrap();
    place.refuses("missing_claude_md", "");
}

#[test]
fn what_is_no_directory_is_refused_by_name() {
    let place = Place::new();
    let (secret, missing) = (place.top.path().join("secret"), place.top.path().join("missing"));
    let error = place.library.capture_path(&secret).unwrap_err();
    assert_eq!(error.code(), "agent_directory_unreadable");
    assert_eq!(error.to_string(), format!("{} is not a directory", secret.display()));
    let error = place.library.capture_path(&missing).unwrap_err();
    assert_eq!(error.code(), "agent_directory_unreadable");
    assert_eq!(error.to_string(), format!("{} cannot be read", missing.display()));
    assert_eq!(place.kept(), Vec::<String>::new());
}

#[test]
fn a_manifest_that_is_wrong_is_refused_with_its_line() {
    let place = Place::with_instructions();
    place.write("ash.toml", "runtime = 'builtin'\n\n[limits]\nmemory = 5\n");
    let error = place.capture().unwrap_err();
    assert!(matches!(error, DeployError::Manifest { line: 4, .. }), "{error:?}");
    place.refuses("invalid_ash_toml", "ash.toml, line 4: unknown field `memory`");
    fs::remove_file(place.source().join("ash.toml")).unwrap();
    symlink("not-there", place.source().join("ash.toml")).unwrap();
    place.refuses("invalid_ash_toml", "ash.toml, line 1: it is not a file");
}

#[test]
fn a_directory_that_changes_meanwhile_does_not_widen() {
    let place = Place::with_instructions();
    let (source, outside) = (place.source(), place.top.path().join("outside"));
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "a secret").unwrap();
    let changing = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (sub, file) = (source.join("sub"), source.join("sub/file"));
            while changing.load(Ordering::Relaxed) {
                fs::create_dir(&sub).unwrap();
                fs::write(&file, "inside").unwrap();
                fs::remove_file(&file).unwrap();
                symlink("../../secret", &file).unwrap();
                fs::remove_dir_all(&sub).unwrap();
                symlink("../outside", &sub).unwrap();
                fs::remove_file(&sub).unwrap();
            }
        });
        let captures: Vec<_> = (0..400).map(|_| place.capture()).collect();
        changing.store(false, Ordering::Relaxed);
        for definition in captures.into_iter().flatten() {
            for file in place.library.list(&definition).unwrap() {
                let content = place.library.read(&definition, &file.path).unwrap();
                assert_ne!(content, b"a secret", "{}", file.path);
            }
        }
    });
}

#[test]
fn only_files_that_are_there_are_read() {
    let place = Place::with_instructions();
    place.write("docs/text", "text");
    let definition = place.capture().unwrap();
    let read = |path: &str| place.library.read(&definition, path);
    for path in ["../secret", "/etc/passwd", "", "docs/../CLAUDE.md", "./CLAUDE.md", "docs/"] {
        assert!(matches!(read(path), Err(ReadError::BadPath { .. })), "{path}");
    }
    for path in ["docs/not", "CLAUDE.md/x", "not/there"] {
        assert!(matches!(read(path), Err(ReadError::NotFound { .. })), "{path}");
    }
    assert!(matches!(read("docs"), Err(ReadError::NotAFile { .. })));
    let gone = ash_engine::agent::Definition { digest: "0".repeat(64), ..definition.clone() };
    let read = place.library.read(&gone, "CLAUDE.md");
    assert!(matches!(read, Err(ReadError::Unavailable { .. })), "{read:?}");
    assert!(place.library.list(&gone).is_err());
}

#[test]
fn opening_removes_what_a_crash_left_and_nothing_else() {
    let place = Place::with_instructions();
    let definition = place.capture().unwrap();
    let library = place.top.path().join("library");
    for name in [".new-dead", ".new-alive"] {
        fs::create_dir_all(library.join(name).join("sub")).unwrap();
        fs::write(library.join(name).join("sub/CLAUDE.md"), "half").unwrap();
    }
    // Whoever captures at this moment holds a lock.
    let alive = File::open(library.join(".new-alive")).unwrap();
    flock(&alive, FlockOperation::LockExclusive).unwrap();
    Library::open(&library).unwrap();
    assert_eq!(place.kept(), [".new-alive".to_owned(), definition.digest.clone()]);
    drop(alive);
    Library::open(&library).unwrap();
    assert_eq!(place.kept(), [definition.digest.as_str()]);
    place.holds(&definition, &[("CLAUDE.md", "be kind")]);
}
