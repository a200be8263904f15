use std::fs;
use std::path::Path;
use std::sync::Arc;

use ash_core::number::Seq;
use ash_core::time::Timestamp;
use tar::{Builder, EntryType, Header};

use super::super::manifest::Manifest;
use super::super::{Room, pack};
use super::*;

const AT: i64 = 1_700_000_000_000;

fn room() -> Room {
    Room { free: Arc::new(|| Some(0)), least: 0 }
}

/// The files of a bundle: one that is empty, one that fills blocks, and one that does not.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("tenants/default/agents/none.json", Vec::new()),
        ("tenants/default/repository/packs/aa/noise", vec![7; 1024]),
        ("tenants/default/sessions/log/one.zst", b"once upon a time".to_vec()),
    ]
}

fn describe(objects: Vec<Object>) -> Manifest {
    Manifest {
        version: Manifest::VERSION,
        session: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        agent_name: "coder".parse().unwrap(),
        title: Some("A title".to_owned()),
        turns: 3,
        seq: Seq::new(40),
        snapshots: 1,
        at: Timestamp::from_millis(AT),
        objects,
    }
}

fn bundle() -> (Manifest, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files() {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    // Nothing that was never finished is in it.
    fs::create_dir_all(dir.path().join("tenants/default/tmp")).unwrap();
    fs::write(dir.path().join("tenants/default/tmp/half"), "half").unwrap();
    let manifest = describe(pack::objects(dir.path()).unwrap());
    let (mut file, size) = pack::pack(dir.path(), &manifest, &room()).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, size);
    assert!(!dir.path().join(files()[0].0).exists(), "what is in it is not there twice");
    (manifest, bytes)
}

fn into(dir: &Path, bytes: &[u8]) -> Result<(Manifest, [u8; 32]), BundleError> {
    unpack(bytes, dir, &room())
}

#[track_caller]
fn refused(bytes: &[u8], why: &str) {
    let dir = tempfile::tempdir().unwrap();
    match into(dir.path(), bytes) {
        Err(BundleError::Damaged(_)) => {}
        other => panic!("{why}: {other:?}"),
    }
}

#[test]
fn what_was_packed_comes_out_byte_for_byte() {
    let (manifest, bytes) = bundle();
    let dir = tempfile::tempdir().unwrap();
    let (read, digest) = into(dir.path(), &bytes).unwrap();
    assert_eq!(read, manifest);
    assert_eq!(digest, *blake3::hash(&bytes).as_bytes());
    for (name, content) in files() {
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), content, "{name}");
    }
}

#[test]
fn everybody_can_read_it() {
    let (_, bytes) = bundle();
    let mut archive = tar::Archive::new(bytes.as_slice());
    let names = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        assert_eq!(entry.header().entry_type(), EntryType::Regular);
        entry.path().unwrap().to_str().unwrap().to_owned()
    });
    let mut expected = vec![MANIFEST, DIGEST];
    expected.extend(files().iter().map(|(name, _)| *name));
    assert_eq!(names.collect::<Vec<_>>(), expected);
}

#[test]
fn no_byte_of_it_can_be_another_one() {
    let (_, bytes) = bundle();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let dir = tempfile::tempdir().unwrap();
        match into(dir.path(), &damaged) {
            Err(BundleError::Damaged(_) | BundleError::TooNew(_) | BundleError::TooLarge(_)) => {}
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn it_ends_where_it_ends() {
    let (_, bytes) = bundle();
    for end in (0..bytes.len()).step_by(37) {
        refused(&bytes[..end], &format!("{end} bytes"));
    }
    let more = [bytes.as_slice(), b"\0"].concat();
    refused(&more, "one more");
    let twice = [bytes.as_slice(), bytes.as_slice()].concat();
    refused(&twice, "two of them");
    refused(&[0; 4 * BLOCK], "nothing");
    refused(&[0x1f; 4 * BLOCK], "something else");
}

/// A bundle of other files than its manifest says, as somebody else would make it.
fn by_hand(change: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let (manifest, _) = bundle();
    let described = manifest.encode().unwrap();
    let mut made = Builder::new(Vec::new());
    add(&mut made, MANIFEST, EntryType::Regular, &described);
    add(&mut made, DIGEST, EntryType::Regular, digest_line(&described).as_bytes());
    change(&mut made);
    made.into_inner().unwrap()
}

fn add(made: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, content: &[u8]) {
    let mut header = Header::new_ustar();
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(AT.cast_unsigned() / 1000);
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_device_major(0).unwrap();
    header.set_device_minor(0).unwrap();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    // As most write it: six digits, and no more.
    let sum = format!("{:06o}\0 ", header.cksum().unwrap());
    header.as_mut_bytes()[148..156].copy_from_slice(sum.as_bytes());
    made.append(&header, content).unwrap();
}

#[test]
fn nothing_comes_out_that_the_manifest_does_not_name() {
    let all = files();
    let named = |made: &mut Builder<Vec<u8>>, some: &[(&'static str, Vec<u8>)]| {
        some.iter().for_each(|(name, content)| add(made, name, EntryType::Regular, content));
    };
    let good = by_hand(|made| named(made, &all));
    let dir = tempfile::tempdir().unwrap();
    into(dir.path(), &good).expect("what is right is right, whoever has made it");

    let others = [
        ("../out", EntryType::Regular),
        ("/out", EntryType::Regular),
        ("tenants/default/../../out", EntryType::Regular),
        ("tenants/default/more", EntryType::Regular),
        ("tenants/default/link", EntryType::Symlink),
        ("tenants/default/link", EntryType::Link),
        ("tenants/default/pipe", EntryType::Fifo),
        ("tenants/default/null", EntryType::Char),
        ("tenants/default/sda", EntryType::Block),
        ("tenants/default/directory", EntryType::Directory),
        ("././@LongLink", EntryType::GNULongName),
        ("pax", EntryType::XHeader),
        ("pax", EntryType::XGlobalHeader),
        ("sparse", EntryType::GNUSparse),
    ];
    for (name, kind) in others {
        for place in 0..=all.len() {
            let bytes = by_hand(|made| {
                named(made, &all[..place]);
                add(made, name, kind, b"");
                named(made, &all[place..]);
            });
            refused(&bytes, &format!("{name} as {kind:?} at {place}"));
        }
    }
    for (index, (name, content)) in all.iter().enumerate() {
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Directory] {
            let bytes = by_hand(|made| {
                named(made, &all[..index]);
                add(made, name, kind, content);
                named(made, &all[index + 1..]);
            });
            refused(&bytes, &format!("{name} as {kind:?}"));
        }
        refused(&by_hand(|made| named(made, &all[..index])), "some are missing");
        let twice = by_hand(|made| {
            named(made, &all[..=index]);
            named(made, &all[index..]);
        });
        refused(&twice, "one comes twice");
    }
    let reordered =
        by_hand(|made| all.iter().rev().for_each(|one| named(made, std::slice::from_ref(one))));
    refused(&reordered, "another order");
}

#[test]
fn a_name_that_is_a_file_and_a_directory_is_neither() {
    let object = |name: &str| Object {
        name: format!("tenants/default/{name}"),
        bytes: 0,
        blake3: blake3::hash(b"").to_hex().to_string(),
    };
    let manifest = describe(vec![object("a"), object("a/b")]);
    let described = manifest.encode().unwrap();
    let mut made = Builder::new(Vec::new());
    add(&mut made, MANIFEST, EntryType::Regular, &described);
    add(&mut made, DIGEST, EntryType::Regular, digest_line(&described).as_bytes());
    for object in &manifest.objects {
        add(&mut made, &object.name, EntryType::Regular, b"");
    }
    refused(&made.into_inner().unwrap(), "both");
}

#[test]
fn a_disk_that_is_full_takes_nothing() {
    let (_, bytes) = bundle();
    // As much as has to stay, and some.
    let full = Room { free: Arc::new(|| Some(1_500)), least: 1_000 };
    assert!(full.has(500) && !full.has(501));
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(unpack(bytes.as_slice(), dir.path(), &full), Err(BundleError::NoRoom)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
