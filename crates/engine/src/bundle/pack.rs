//! A directory as a bundle.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::Room;
use super::error::BundleError;
use super::manifest::{DIGEST, MANIFEST, Manifest, Object, digest_line};
use super::ustar::{self, BLOCK};

/// Where objects lie before they have their names: nothing in it is one.
const ASIDE: &str = "tmp";

/// How much is copied between two looks at the disk.
const STRETCH: u64 = 64 << 20;

/// Every file below a directory, in order of their names. Blocks.
pub(super) fn objects(root: &Path) -> Result<Vec<Object>, BundleError> {
    let mut found = Vec::new();
    let mut waiting = vec![(root.to_owned(), String::new())];
    while let Some((directory, prefix)) = waiting.pop() {
        for entry in fs::read_dir(&directory).map_err(BundleError::disk)? {
            let entry = entry.map_err(BundleError::disk)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{prefix}{name}");
            if entry.file_type().map_err(BundleError::disk)?.is_dir() {
                if name != ASIDE {
                    waiting.push((entry.path(), format!("{path}/")));
                }
                continue;
            }
            let mut digest = blake3::Hasher::new();
            let file = File::open(entry.path()).map_err(BundleError::disk)?;
            digest.update_reader(&file).map_err(BundleError::disk)?;
            let (bytes, blake3) = (digest.count(), digest.finalize().to_hex().to_string());
            found.push(Object { name: path, bytes, blake3 });
        }
    }
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Packs the files that a manifest names, and removes each when it is in. Returns the bundle, to be read from its
/// beginning, and its length. Blocks.
pub(super) fn pack(
    root: &Path,
    manifest: &Manifest,
    room: &Room,
) -> Result<(File, u64), BundleError> {
    let path = root.join("bundle.tar");
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(BundleError::disk)?;
    let described = manifest.encode()?;
    let length = manifest.length(described.len() as u64);
    let mut bundle = Packing { file: BufWriter::new(file), time: manifest.seconds(), room };
    bundle.add(MANIFEST, described.len() as u64, described.as_slice())?;
    let line = digest_line(&described);
    bundle.add(DIGEST, line.len() as u64, line.as_bytes())?;
    for Object { name, bytes, .. } in &manifest.objects {
        let path = root.join(name);
        let object = File::open(&path).map_err(BundleError::disk)?;
        bundle.add(name, *bytes, object)?;
        // It is not needed twice, and may be large.
        fs::remove_file(&path).map_err(BundleError::disk)?;
    }
    let finished = bundle.file.write_all(&[0; 2 * BLOCK]);
    let file = finished.and_then(|()| bundle.file.into_inner().map_err(io::Error::from));
    let mut file = file.map_err(BundleError::disk)?;
    file.rewind().map_err(BundleError::disk)?;
    let found = file.metadata().map_err(BundleError::disk)?.len();
    if found != length {
        return Err(BundleError::here(format!("a bundle of {length} bytes has {found}")));
    }
    Ok((file, length))
}

struct Packing<'a> {
    file: BufWriter<File>,
    time: u64,
    room: &'a Room,
}

impl Packing<'_> {
    fn add(&mut self, name: &str, bytes: u64, mut from: impl Read) -> Result<(), BundleError> {
        let header = ustar::header(name, bytes, self.time)
            .ok_or_else(|| BundleError::here(format!("{name} does not fit into a bundle")))?;
        self.file.write_all(&header).map_err(BundleError::disk)?;
        let mut left = bytes;
        while left > 0 {
            let stretch = left.min(STRETCH);
            if !self.room.has(stretch) {
                return Err(BundleError::NoRoom);
            }
            let copied = io::copy(&mut (&mut from).take(stretch), &mut self.file);
            if copied.map_err(BundleError::disk)? < stretch {
                return Err(BundleError::here(format!("{name} has become shorter")));
            }
            left -= stretch;
        }
        let padding = &[0; BLOCK][..ustar::padding(bytes)];
        self.file.write_all(padding).map_err(BundleError::disk)
    }
}
