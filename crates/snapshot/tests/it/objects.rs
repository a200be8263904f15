use super::*;

/// What every implementation must do.
fn keeps_what_it_is_given(objects: &dyn Objects) {
    assert_eq!(objects.put("packs/aa/one", b"one").unwrap(), Put::Created);
    assert_eq!(objects.put("packs/aa/one", b"other").unwrap(), Put::Existed);
    assert_eq!(objects.get("packs/aa/one", 3).unwrap(), b"one");
    assert!(objects.get("packs/aa/one", 2).is_err(), "it is longer than allowed");
    assert_eq!(objects.get_range("packs/aa/one", 1, 1).unwrap(), b"n");
    assert_eq!(objects.get_range("packs/aa/one", 1, 99).unwrap(), b"ne");
    assert_eq!(objects.get_range("packs/aa/one", 99, 1).unwrap(), b"");
    assert_eq!(objects.get_end("packs/aa/one", 2).unwrap(), (b"ne".to_vec(), 3));
    assert_eq!(objects.get_end("packs/aa/one", 99).unwrap(), (b"one".to_vec(), 3));

    let mut new = objects.begin().unwrap();
    new.write(b"t").unwrap();
    new.write(b"wo").unwrap();
    assert_eq!(objects.list("packs/").unwrap().len(), 1, "what is begun is not there");
    assert_eq!(new.finish("packs/bb/two").unwrap(), Put::Created);
    let mut never = objects.begin().unwrap();
    never.write(b"three").unwrap();
    drop(never);

    let names = |prefix| {
        let listed = objects.list(prefix).unwrap();
        listed.into_iter().map(|one| (one.name, one.size)).collect::<Vec<_>>()
    };
    let both = [("packs/aa/one".to_owned(), 3), ("packs/bb/two".to_owned(), 3)];
    assert_eq!(names("packs/"), both);
    assert_eq!(names("packs/aa/"), both[..1]);
    assert_eq!(names("snapshots/"), []);

    objects.delete("packs/aa/one").unwrap();
    objects.delete("packs/aa/one").unwrap();
    objects.delete("gone/one").unwrap();
    let gone = objects.get("packs/aa/one", 9).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(objects.get_range("packs/aa/one", 0, 9).unwrap_err().kind(), gone.kind());
    assert_eq!(objects.put("packs/aa/one", b"again").unwrap(), Put::Created);
}

#[test]
fn memory_keeps_what_it_is_given() {
    keeps_what_it_is_given(&MemoryObjects::default());
}

#[test]
fn a_directory_keeps_what_it_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let objects = LocalObjects::open(&directory.path().join("deep/store")).unwrap();
    keeps_what_it_is_given(&objects);
    let aside = directory.path().join("deep/store/tmp");
    assert_eq!(std::fs::read_dir(&aside).unwrap().count(), 0, "nothing is left aside");
    for name in ["../out", "a/../b", "/etc/passwd", "", "a//b", ".hidden", "a b"] {
        assert!(objects.put(name, b"").is_err(), "{name}");
    }
    std::fs::write(aside.join("1-1"), "of one that died").unwrap();
    objects.clear(std::time::Duration::ZERO).unwrap();
    assert_eq!(std::fs::read_dir(&aside).unwrap().count(), 0);
}
