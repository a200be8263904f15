//! Files of a request: whatever is accepted comes back byte for byte, and nothing gets out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use ash_engine::agent::{AshToml, Definition, MAX_BYTES, MAX_FILES, SentFile, Source};
use proptest::prelude::*;

use super::{Place, names_in};

type Files = Vec<(String, Vec<u8>)>;

fn file(path: &str, content: &[u8]) -> (String, Vec<u8>) {
    (path.to_owned(), content.to_vec())
}

/// Names that are fine, that are not, and that are just so.
fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => prop::sample::select(vec!["a", "b", "c", "CLAUDE.md", "ash.toml", "ü", "...", " "])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["", ".", "..", "a\\b", "a\0b"]).prop_map(str::to_owned),
        1 => (250..260usize).prop_map(|length| "n".repeat(length)),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => prop::collection::vec(segment(), 1..4).prop_map(|segments| segments.join("/")),
        1 => prop::collection::vec(segment(), 60..68).prop_map(|segments| segments.join("/")),
        1 => (12..20usize).prop_map(|depth| vec!["n".repeat(240); depth].join("/")),
        1 => Just("/etc/passwd".to_owned()),
    ]
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..50),
        3 => Just(b"prewarm = 1".to_vec()),
        1 => Just(b"#!/bin/sh".to_vec()),
        1 => (0..200_000usize).prop_map(|size| vec![7; size]),
    ]
}

fn files() -> impl Strategy<Value = Files> {
    let some = prop::collection::vec((path(), content()), 0..6);
    (some, prop::bool::weighted(0.9), content(), any::<prop::sample::Index>()).prop_map(
        |(mut files, has_instructions, instructions, place)| {
            if has_instructions {
                let place = place.index(files.len() + 1);
                files.insert(place, ("CLAUDE.md".to_owned(), instructions));
            }
            files
        },
    )
}

/// The rules once more, in other words.
fn is_acceptable(files: &Files) -> bool {
    let mut known = BTreeMap::new();
    for (path, content) in files {
        let components: Vec<_> = Path::new(path).components().collect();
        let is_plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
        let rejoined: Vec<_> = components.iter().map(|c| c.as_os_str().to_str().unwrap()).collect();
        let is_good = (1..=64).contains(&components.len())
            && components.iter().all(is_plain)
            && rejoined.join("/") == *path
            && rejoined.iter().all(|name| name.len() <= 255)
            && path.len() <= 4096
            && !path.contains(['\\', '\0']);
        if !is_good || known.insert(path.as_str(), content).is_some() {
            return false;
        }
    }
    let is_directory = |path: &str| known.keys().any(|k| k.starts_with(&format!("{path}/")));
    known.contains_key("CLAUDE.md")
        && !known.keys().any(|path| is_directory(path))
        && !is_directory("ash.toml")
        && known.get("ash.toml").is_none_or(|content| AshToml::parse(content).is_ok())
}

fn sent(files: Files) -> Vec<SentFile> {
    files.into_iter().map(SentFile::from).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn what_is_accepted_comes_back_and_nothing_gets_out(files in files()) {
        let place = Place::new();
        let captured = place.library.capture_files(sent(files.clone()));
        prop_assert_eq!(captured.is_ok(), is_acceptable(&files), "{:?}", captured);
        prop_assert_eq!(names_in(place.top.path()), ["library", "secret", "source"]);
        prop_assert_eq!(names_in(&place.source()), Vec::<String>::new());
        let Ok(definition) = captured else {
            prop_assert_eq!(place.kept(), Vec::<String>::new());
            return Ok(());
        };
        prop_assert_eq!(place.kept(), [definition.digest.clone()]);

        let listed = place.library.list(&definition).unwrap();
        let listed: Vec<_> = listed.into_iter().map(|file| (file.path, file.size)).collect();
        let given: BTreeSet<_> =
            files.iter().map(|(path, content)| (path.clone(), content.len() as u64)).collect();
        prop_assert_eq!(listed, given.into_iter().collect::<Vec<_>>());
        for (path, content) in &files {
            prop_assert_eq!(&place.library.read(&definition, path).unwrap(), content);
        }
        prop_assert_eq!(definition.files, files.len() as u64);
        let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
        prop_assert_eq!(definition.bytes, bytes as u64);
        prop_assert_eq!(&definition.source, &Source::Files);

        // In another order it is the same agent.
        let other_way: Files = files.into_iter().rev().collect();
        prop_assert_eq!(place.library.capture_files(sent(other_way)).unwrap(), definition);
        prop_assert_eq!(place.kept().len(), 1);
    }
}

#[test]
fn a_path_that_plays_tricks_is_refused_with_the_reason() {
    let long = "n".repeat(256);
    for (path, reason) in [
        ("../secret", "it contains . or .."),
        ("a/../../secret", "it contains . or .."),
        ("/etc/passwd", "it is absolute"),
        ("a//b", "one of its names is empty"),
        ("a/", "one of its names is empty"),
        ("", "it is empty"),
        ("a\0", "it contains a NUL character"),
        ("..\\secret", "it contains a backslash"),
        (&long, "one of its names is longer than 255 bytes"),
        ("CLAUDE.md", "it was given twice"),
        ("CLAUDE.md/x", "one of its directories is also a file"),
        ("sub", "it is also a directory"),
    ] {
        let place = Place::new();
        let files = vec![file("CLAUDE.md", b""), file("sub/x", b""), file(path, b"")];
        let error = place.library.capture_files(sent(files)).unwrap_err();
        assert_eq!(error.code(), "invalid_agent_file");
        assert_eq!(error.to_string(), format!("the file path {path:?} cannot be used: {reason}"));
        assert_eq!(place.kept(), Vec::<String>::new());
    }
}

#[test]
fn many_files_are_kept_like_few() {
    let place = Place::new();
    let mut files = vec![file("CLAUDE.md", b"")];
    files.extend((0..99).map(|number| file(&format!("{number}/file"), b"text")));
    let definition = place.library.capture_files(sent(files)).unwrap();
    assert_eq!((definition.files, definition.bytes), (100, 396));
    assert_eq!(place.library.list(&definition).unwrap().len(), 100);
    assert_eq!(place.kept(), [definition.digest]);
}

#[test]
fn too_much_is_refused_before_any_of_it_is_written() {
    let place = Place::new();
    let flat = (0..=MAX_FILES).map(|number| file(&format!("{number}"), b""));
    let below = ["d"; 62].join("/");
    let deep = (0..160).map(|number| file(&format!("{number}/{below}/f"), b""));
    let third = vec![0; usize::try_from(MAX_BYTES / 3 + 1).unwrap()];
    let large = ["a", "b", "c"].map(|name| (name.to_owned(), third.clone()));
    for (files, limit) in [
        (flat.collect::<Files>(), "10000 files"),
        (deep.collect(), "as many directories"),
        (large.into(), "67108864 bytes"),
    ] {
        let error = place.library.capture_files(sent(files)).unwrap_err();
        assert_eq!(error.code(), "agent_too_large");
        assert!(error.to_string().contains(limit), "{error}");
        assert_eq!(place.kept(), Vec::<String>::new());
    }
}

#[test]
fn a_directory_that_is_too_large_leaves_nothing() {
    let place = Place::with_instructions();
    let large = std::fs::File::create(place.source().join("large")).unwrap();
    large.set_len(MAX_BYTES).unwrap();
    place.refuses("agent_too_large", "67108864 bytes");
}

#[test]
fn whether_a_file_can_be_run_is_said_or_seen() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let cases: [(&[u8], Option<bool>, u32); 5] = [
        (b"#!/bin/sh", None, 0o555),
        (b"#!/bin/sh", Some(false), 0o444),
        (b"\x7fELF", None, 0o444),
        (b"\x7fELF", Some(true), 0o555),
        (b"text", Some(false), 0o444),
    ];
    let mut files = sent(vec![file("CLAUDE.md", b"")]);
    for (index, (content, executable, _)) in cases.iter().enumerate() {
        let (path, executable) = (index.to_string(), *executable);
        files.push(SentFile { path, content: content.to_vec(), executable });
    }
    let definition = place.library.capture_files(files).unwrap();
    for (index, (_, _, mode)) in cases.iter().enumerate() {
        let path = place.library.directory(&definition).join(index.to_string());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, *mode, "{index}");
    }
}

#[test]
fn a_captured_directory_is_captured_again_with_some_files_changed() {
    let place = Place::with_instructions();
    place.write("notes/one.txt", "one");
    place.write("notes/two.txt", "two");
    std::os::unix::fs::symlink("notes/one.txt", place.source().join("link")).unwrap();
    let script = place.source().join("run.sh");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let base = place.capture().unwrap();
    let put = sent(vec![file("notes/one.txt", b"other"), file("node_modules/x/y", b"kept")]);
    let removed = ["notes/two.txt".to_owned()];
    let changed = place.library.capture_changed(&base, put, &removed).unwrap();
    place.holds(
        &changed,
        &[
            ("CLAUDE.md", "be kind"),
            ("link", "other"),
            ("node_modules/x/y", "kept"),
            ("notes/one.txt", "other"),
            ("run.sh", "#!/bin/sh\n"),
        ],
    );
    let mode = |path: &str| {
        let path = place.library.directory(&changed).join(path);
        std::os::unix::fs::PermissionsExt::mode(
            &std::fs::symlink_metadata(path).unwrap().permissions(),
        )
    };
    assert_eq!((mode("run.sh") & 0o777, mode("CLAUDE.md") & 0o777), (0o555, 0o444));
    assert_eq!(mode("link") & 0o170_000, 0o120_000, "it is still a link");
    // What was put by name stays, also if its name is left out elsewhere; and nothing changed is the same.
    let same = place.library.capture_changed(&changed, Vec::new(), &[]).unwrap();
    assert_eq!(same.digest, changed.digest);
    // The one before is as it was.
    assert_eq!(place.library.read(&base, "notes/two.txt").unwrap(), b"two");
    for (put, removed, code) in [
        (Files::new(), vec!["CLAUDE.md"], "missing_claude_md"),
        (vec![file("notes", b"x")], vec![], "invalid_agent_file"),
        (vec![file("run.sh/x", b"x")], vec![], "invalid_agent_file"),
        (vec![file("link/x", b"x")], vec![], "invalid_agent_file"),
        (vec![file("../x", b"x")], vec![], "invalid_agent_file"),
        (vec![file("ash.toml", b"x")], vec![], "invalid_ash_toml"),
    ] {
        let removed: Vec<String> = removed.into_iter().map(str::to_owned).collect();
        let before = place.kept();
        let error = place.library.capture_changed(&base, sent(put), &removed).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(place.kept(), before, "nothing is left of it");
    }
    // One that is gone is nobody's fault who asks.
    let gone = Definition { digest: "0".repeat(64), ..base };
    let error = place.library.capture_changed(&gone, Vec::new(), &[]).unwrap_err();
    assert_eq!((error.code(), error.is_transient()), ("agent_storage_unavailable", true));
}
