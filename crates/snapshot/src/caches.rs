//! Caches of a home: what programs keep there only to be faster, and make again when it is gone.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::capture::path_of;
use crate::show::join;
use crate::snapshot::MAX_EXCLUDED;
use crate::text;

/// Where well-known programs keep caches in a home. Not here, though they look like it:
///
/// - `.m2/repository`, for `mvn install` puts there what cannot be fetched again;
/// - `__pycache__`, `node_modules` and `target`, which belong to a project and not to the home;
/// - `.gradle/wrapper`, `.rustup/toolchains`, `.local/share/uv`, `.nvm`: programs themselves, not copies of them.
const PLACES: [&str; 22] = [
    // What follows the XDG base directories: pip, uv, go-build, yarn 1, deno, Hugging Face, browsers.
    ".cache",
    // JavaScript.
    ".npm/_cacache",
    ".npm/_npx",
    ".yarn/berry/cache",
    ".local/share/pnpm/store",
    ".pnpm-store",
    ".bun/install/cache",
    // Rust.
    ".cargo/registry",
    ".cargo/git",
    ".rustup/downloads",
    ".rustup/tmp",
    // Go: modules are fetched again, and checked against `go.sum`.
    "go/pkg/mod",
    // The JVM.
    ".gradle/caches",
    ".ivy2/cache",
    ".sbt/boot",
    ".konan/cache",
    // .NET, PHP, Ruby, Dart.
    ".nuget/packages",
    ".composer/cache",
    ".bundle/cache",
    ".pub-cache/hosted",
    // Compilers.
    ".ccache",
    ".nv/ComputeCache",
];

/// A file that says of its directory that it is a cache, and how it begins: <https://bford.info/cachedir/>.
const TAG: &str = "CACHEDIR.TAG";
const SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// The caches that are in a home: paths from it, to be left out of a capture. They are those of `PLACES` that are there,
/// and directories with a valid `CACHEDIR.TAG`. Links are not followed, nor is anything that is mounted looked into. What
/// cannot be read is none. No more are named than a record can have: the others are captured.
pub fn caches(home: &Path) -> io::Result<Vec<Vec<u8>>> {
    let device = fs::metadata(home)?.dev();
    let is_directory = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.dev() == device)
    };
    let mut found = Vec::new();
    for place in PLACES {
        if is_directory(&home.join(place)) {
            found.push(place.as_bytes().to_vec());
        }
    }
    let mut tagged = Vec::new();
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let directory = home.join(path_of(&path));
        // A home is no cache, whatever is in it.
        if !path.is_empty() && is_tagged(&directory) {
            tagged.push(path);
            continue;
        }
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let below = join(&path, entry.file_name().into_vec().as_slice());
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && !found.contains(&below) && is_on(device, &entry) {
                waiting.push(below);
            }
        }
    }
    // The same ones each time, those nearest to the home first.
    tagged.sort_by_key(|path| (path.iter().filter(|&&byte| byte == b'/').count(), path.clone()));
    found.append(&mut tagged);
    let mut left = MAX_EXCLUDED / 2;
    found.retain(|path| {
        let size = text::escape(path).len() as u64 + 3;
        let fits = size <= left;
        if fits {
            left -= size;
        }
        fits
    });
    Ok(found)
}

fn is_on(device: u64, entry: &fs::DirEntry) -> bool {
    entry.metadata().is_ok_and(|found| found.dev() == device)
}

/// Whether a directory says that it is a cache.
fn is_tagged(directory: &Path) -> bool {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = fs::File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let Ok(mut tag) = options.open(directory.join(TAG)) else { return false };
    let mut begins = [0; SIGNATURE.len()];
    tag.metadata().is_ok_and(|found| found.is_file())
        && tag.read_exact(&mut begins).is_ok()
        && begins == *SIGNATURE
}

#[cfg(test)]
mod test {
    use super::*;

    fn texts(home: &Path) -> Vec<String> {
        let found = caches(home).unwrap().into_iter();
        found.map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn caches_are_found_by_their_places_and_by_their_tags() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        for path in
            [".cache/pip", ".cargo/registry/src", ".cargo/bin", "project/target", "notes", "fake"]
        {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::create_dir_all(at(".m2/repository")).unwrap();
        // A cache in a cache is left out with it, and what is only called so is none.
        for path in [".cache/pip/CACHEDIR.TAG", "project/target/CACHEDIR.TAG", "CACHEDIR.TAG"] {
            fs::write(at(path), [&SIGNATURE[..], b"\n# made by a test\n"].concat()).unwrap();
        }
        fs::write(at("notes/CACHEDIR.TAG"), "Signature: none").unwrap();
        std::os::unix::fs::symlink(at("CACHEDIR.TAG"), at("fake/CACHEDIR.TAG")).unwrap();
        std::os::unix::fs::symlink(".cache", at(".npm")).unwrap();
        assert_eq!(texts(home.path()), [".cache", ".cargo/registry", "project/target"]);
    }

    #[test]
    fn a_place_that_is_a_link_is_no_cache() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", home.path().join(".cache")).unwrap();
        assert_eq!(texts(home.path()), Vec::<String>::new());
    }

    #[test]
    fn no_more_are_named_than_a_record_has_room_for() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..300 {
            let cache = home.path().join(format!("{number:0100}"));
            fs::create_dir(&cache).unwrap();
            fs::write(cache.join(TAG), SIGNATURE).unwrap();
        }
        assert_eq!(caches(home.path()).unwrap().len(), 159);
    }
}
