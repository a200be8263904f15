//! Takes the program out of a package, and nothing else.

use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::path::{Component, Path};

use ash_engine::runtimes::PROGRAM;
use flate2::bufread::GzDecoder;
use tar::EntryType;

use super::error::{InstallError, at};
use super::package::machine_number;

/// What a package may have in it, unpacked.
const MAX_UNPACKED: u64 = 2 << 30;

/// How many files.
const MAX_ENTRIES: usize = 10_000;

/// How much is copied at once.
const PIECE: usize = 1 << 20;

/// What a file is, by how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Package,
    Program,
    Other,
}

pub(super) fn kind_of(path: &Path) -> Result<Kind, InstallError> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(at(path))?;
    file.take(4).read_to_end(&mut head).map_err(at(path))?;
    Ok(match head.as_slice() {
        [0x1f, 0x8b, ..] => Kind::Package,
        b"\x7fELF" => Kind::Program,
        _ => Kind::Other,
    })
}

/// Writes the program of a package into a file. A package that would write anywhere else, or has links in
/// it, is refused as a whole. Blocks.
pub(super) fn unpack(package: &Path, into: &Path) -> Result<(), InstallError> {
    let file = BufReader::with_capacity(PIECE, File::open(package).map_err(at(package))?);
    let mut archive = tar::Archive::new(GzDecoder::new(file).take(MAX_UNPACKED));
    let damaged =
        |error: std::io::Error| InstallError::Refused(format!("the package is damaged: {error}"));
    let mut found = false;
    for (number, entry) in archive.entries().map_err(damaged)?.enumerate() {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path().map_err(damaged)?.into_owned();
        let shown: String = path.to_string_lossy().chars().take(100).collect();
        let refused = |why: &str| {
            Err(InstallError::Refused(format!("the package is refused: {shown:?} {why}")))
        };
        if number >= MAX_ENTRIES {
            return refused("is one file too many");
        }
        let kind = entry.header().entry_type();
        if [EntryType::Directory, EntryType::XGlobalHeader].contains(&kind) {
            continue;
        }
        if ![EntryType::Regular, EntryType::Continuous].contains(&kind) {
            return refused("is a link, or something else that no package has");
        }
        let parts: Vec<Component<'_>> = path.components().collect();
        if !parts.iter().all(|part| matches!(part, Component::Normal(_))) {
            return refused("leads out of it");
        }
        // Everything lies in one directory, whose name means nothing.
        let [_, Component::Normal(name)] = parts[..] else { continue };
        if name != PROGRAM {
            continue;
        }
        if std::mem::replace(&mut found, true) {
            return refused("is in it twice");
        }
        copy(&mut entry, into)?;
    }
    if found {
        return Ok(());
    }
    Err(InstallError::Refused("the package has no program in it".to_owned()))
}

fn copy(from: &mut impl Read, into: &Path) -> Result<(), InstallError> {
    let mut file = File::create_new(into).map_err(at(into))?;
    let mut piece = vec![0; PIECE];
    loop {
        let length = from
            .read(&mut piece)
            .map_err(|error| InstallError::Refused(format!("the package is damaged: {error}")))?;
        if length == 0 {
            return Ok(());
        }
        file.write_all(&piece[..length]).map_err(at(into))?;
    }
}

/// Refuses what is no program for this processor.
pub(super) fn is_for(arch: &str, program: &Path) -> Result<(), InstallError> {
    let mut head = Vec::new();
    let file = File::open(program).map_err(at(program))?;
    file.take(20).read_to_end(&mut head).map_err(at(program))?;
    let refused = |why: &str| Err(InstallError::Refused(format!("the program is refused: {why}")));
    match head.as_slice() {
        // Of 64 bits, little end first.
        [0x7f, b'E', b'L', b'F', 2, 1, .., low, high] if head.len() == 20 => {
            let number = u16::from_le_bytes([*low, *high]);
            if machine_number(arch).is_some_and(|ours| ours != number) {
                return refused(&format!("it is for another processor than {arch}"));
            }
            Ok(())
        }
        _ => refused("it is no executable file of Linux"),
    }
}
