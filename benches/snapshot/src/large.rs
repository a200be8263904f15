//! One large file, of which one page of a hundred changes in place.

use std::path::Path;

use crate::figures::{Row, heading, megabytes, print};
use crate::own::Own;
use crate::rivals::{Restic, copy, size, sync};
use crate::small::steps;
use crate::trees::{self, Filling, LARGE};

pub(crate) fn measure(at: &Path, rounds: usize, has_restic: bool) {
    let kinds: [(&str, &str, Filling, &[u8]); 2] = [
        ("database", "1 GB, a database", Filling::Pages, b"SQLite format 3\0"),
        ("image", "1 GB, of no kind that is known", Filling::Source, b""),
    ];
    for (name, title, filling, begin) in kinds {
        heading(title);
        let at = at.join(name);
        one(&at, filling, begin, rounds, has_restic);
        // A handful of files: nothing becomes slower by it.
        std::fs::remove_dir_all(&at).expect("it is removed");
    }
}

fn one(at: &Path, filling: Filling, begin: &[u8], rounds: usize, has_restic: bool) {
    let tree = at.join("tree");
    std::fs::create_dir_all(&tree).expect("the directory is made");
    let file = tree.join("file");
    trees::make_large(&file, filling, begin).expect("the file is made");
    let mut own = Own::new(&at.join("store"));
    let restic = has_restic.then(|| Restic::new(at));
    let [mut ours, mut theirs, mut copied] = ["ash", "restic", "cp -a"].map(Row::named);
    let (_, took, total) = own.capture(&tree);
    ours.took.push(total);
    theirs.took.extend(restic.as_ref().map(|restic| restic.backup(&tree)));
    copied.took.push(copy(&tree, &at.join("copied")));
    print("first capture", &[&ours, &copied, &theirs]);
    steps(&took);
    let first = size(&at.join("store"));
    println!("stored {:.1} MB", megabytes(first));

    let [mut ours, mut theirs] = ["ash", "restic"].map(Row::named);
    for turn in 0..rounds as u64 {
        trees::change_large(&file, filling, turn).expect("the file is changed");
        let before = size(&at.join("store"));
        let (_, took, total) = own.capture(&tree);
        ours.took.push(total);
        theirs.took.extend(restic.as_ref().map(|restic| restic.backup(&tree)));
        if turn == 0 {
            steps(&took);
            let added = size(&at.join("store")) - before;
            let part = added as f64 / LARGE as f64 * 100.0;
            println!("stored by the change {:.1} MB, {part:.2} % of the file", megabytes(added));
        }
    }
    print("one page of a hundred changed", &[&ours, &theirs]);

    let (snapshot, _, _) = own.capture(&tree);
    let [mut ours, mut copied, mut synced, mut theirs] =
        ["ash (synced)", "cp -a", "cp -a, then sync", "restic"].map(Row::named);
    for round in 0..rounds {
        let begin = at.join(format!("back-{round}"));
        std::fs::create_dir(&begin).expect("the directory is made");
        sync(at);
        ours.took.push(own.restore(&snapshot, &begin.join("ash")));
        sync(at);
        let copying = copy(&tree, &begin.join("copy"));
        copied.took.push(copying);
        synced.took.push(copying + sync(&begin));
        theirs.took.extend(restic.as_ref().map(|restic| restic.restore(&begin.join("restic"))));
        let same = crate::rivals::run(
            std::process::Command::new("cmp").arg(&file).arg(begin.join("ash/file")),
        );
        let _compared = same;
        std::fs::remove_dir_all(&begin).expect("it is removed");
    }
    print("restore", &[&ours, &copied, &synced, &theirs]);
}
