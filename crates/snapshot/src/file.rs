//! Reading one file as it was at one moment.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, fgetxattr, flistxattr, seek, statx};
use rustix::io::Errno;

use crate::cut::{self, MAX_SEGMENT, MIDDLING, WINDOW};
use crate::scan::{is_gone, open_below};
use crate::state::{ASKED, Stamp};
use crate::tree::{MAX_ATTRIBUTE, MAX_ATTRIBUTES, is_attribute};

/// How often a file is read that changes while it is read.
pub(crate) const ATTEMPTS: usize = 3;

/// Extended attributes, by name.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What came of reading a file.
#[derive(Debug)]
pub(crate) enum Read {
    /// Its bytes, as they were at one moment if it is stable.
    Bytes { bytes: Vec<u8>, stamp: Stamp, attributes: Found, stable: bool },
    /// It is larger than what is read at once, or there was no time for it.
    Large,
    /// It is not there any more, or is no file any more.
    Gone,
    /// It may not be read.
    Unreadable,
}

/// Reads a file that is not large, into memory that is given.
pub(crate) fn read(root: BorrowedFd<'_>, path: &[u8], spare: Vec<u8>) -> io::Result<Read> {
    read_up_to(root, path, spare, MIDDLING, &|| true)
}

/// Reads a file of at most so many bytes, for as long as `go_on` says so: it is asked between one step and the next.
pub(crate) fn read_up_to(
    root: BorrowedFd<'_>,
    path: &[u8],
    mut spare: Vec<u8>,
    most: usize,
    go_on: &dyn Fn() -> bool,
) -> io::Result<Read> {
    let mut last = Read::Gone;
    for _ in 0..ATTEMPTS {
        let (file, before) = match open(root, path)? {
            Opened::File(file, stamp) => (file, stamp),
            Opened::Gone => return Ok(Read::Gone),
            Opened::Unreadable => return Ok(Read::Unreadable),
        };
        if before.size > most as u64 {
            return Ok(Read::Large);
        }
        let attributes = all_attributes(file.as_fd())?;
        let mut bytes = std::mem::take(&mut spare);
        bytes.clear();
        let size = usize::try_from(before.size).unwrap_or(0);
        if !read_whole(&file, &mut bytes, size, most, go_on)? {
            return Ok(Read::Large);
        }
        let stamp = stamp_of(file.as_fd())?;
        let stable = stamp == before && stamp.size == bytes.len() as u64;
        last = Read::Bytes { bytes, stamp, attributes, stable };
        if stable {
            break;
        }
    }
    Ok(last)
}

/// Reads a file of this size, if it has not changed; it is not asked where it ends, if it was read that
/// far: whether it became longer is seen from its stamp. Returns whether all was read: one that becomes too large,
/// or that there is no time for, is given up.
fn read_whole(
    file: &File,
    bytes: &mut Vec<u8>,
    size: usize,
    most: usize,
    go_on: &dyn Fn() -> bool,
) -> io::Result<bool> {
    // A step is as long as there is room.
    bytes.reserve((size + 1).min(MIDDLING + 1));
    loop {
        match rustix::io::read(file, rustix::buffer::spare_capacity(bytes)) {
            Ok(0) => return Ok(true),
            Ok(_) if bytes.len() > most => return Ok(false),
            Ok(_) if bytes.len() == size => return Ok(true),
            Ok(_) if !go_on() => return Ok(false),
            Ok(_) => {
                let left = (size + 1).saturating_sub(bytes.len());
                bytes.reserve_exact(left.clamp(32 * 1024, MIDDLING));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A file that was opened.
pub(crate) enum Opened {
    File(File, Stamp),
    Gone,
    Unreadable,
}

/// Opens a file to be read, if there is one.
pub(crate) fn open(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<Opened> {
    let file = match open_below(root, path, OFlags::NOATIME) {
        // Only for its owner and for root.
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            open_below(root, path, OFlags::empty())
        }
        opened => opened,
    };
    let file = match file {
        Ok(file) => file,
        Err(error) if is_gone(&error) || is_no_file(&error) => return Ok(Opened::Gone),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Opened::Unreadable);
        }
        Err(error) => return Err(error),
    };
    let stamp = stamp_of(file.as_fd())?;
    if stamp.file_type() != FileType::RegularFile {
        return Ok(Opened::Gone);
    }
    Ok(Opened::File(file.into(), stamp))
}

/// A socket or a device has no other end.
fn is_no_file(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::NXIO | Errno::NODEV))
}

/// How a file that is open looks.
pub(crate) fn stamp_of(file: BorrowedFd<'_>) -> io::Result<Stamp> {
    Ok(Stamp::of(&statx(file, c"", AtFlags::EMPTY_PATH, ASKED)?))
}

/// Extended attributes that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Those that are kept.
    pub(crate) kept: Attributes,
    /// How many are not, of those that somebody may miss.
    pub(crate) lost: u64,
}

/// Attributes that are no user's and that somebody may miss: who may do what, and what a program may.
const MISSED: [&[u8]; 3] =
    [b"system.posix_acl_access", b"system.posix_acl_default", b"security.capability"];

/// The extended attributes of something that is open, as far as they are kept.
pub(crate) fn attributes(file: BorrowedFd<'_>) -> io::Result<Attributes> {
    all_attributes(file).map(|found| found.kept)
}

/// The same, and how many others there are.
pub(crate) fn all_attributes(file: BorrowedFd<'_>) -> io::Result<Found> {
    // Most files have none or few.
    let mut names = [0_u8; 256];
    let mut more = Vec::new();
    let names = match flistxattr(file, &mut names[..]) {
        Ok(length) => &names[..length],
        Err(Errno::RANGE) => {
            more.resize(MAX_ATTRIBUTE, 0);
            match flistxattr(file, &mut more[..]) {
                Ok(length) => &more[..length],
                // Far more than anybody means to keep.
                Err(Errno::RANGE | Errno::TOOBIG) => {
                    return Ok(Found { lost: 1, ..Found::default() });
                }
                Err(error) => return Err(error.into()),
            }
        }
        // There are none here.
        Err(Errno::NOTSUP) => return Ok(Found::default()),
        Err(error) => return Err(error.into()),
    };
    let (mut kept, mut lost) = (Vec::new(), 0);
    for name in names.split(|&byte| byte == 0) {
        if !is_attribute(name) {
            lost += u64::from(MISSED.contains(&name));
            continue;
        }
        let mut value = vec![0; MAX_ATTRIBUTE];
        match fgetxattr(file, name, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                kept.push((name.to_owned(), value));
            }
            Err(Errno::NODATA) => {}
            // It is longer than what is kept.
            Err(Errno::RANGE | Errno::TOOBIG) => lost += 1,
            Err(error) => return Err(error.into()),
        }
    }
    kept.sort();
    lost += kept.len().saturating_sub(MAX_ATTRIBUTES) as u64;
    kept.truncate(MAX_ATTRIBUTES);
    Ok(Found { kept, lost })
}

/// A piece of a large file.
#[derive(Debug)]
pub(crate) enum Piece {
    /// So many zero bytes.
    Zeros(u64),
    /// A segment.
    Segment(Vec<u8>),
}

/// Reads a large file piece by piece: windows of zeros are left out, and what is between is cut into
/// segments. Holes are not read.
pub(crate) struct Pieces<'a> {
    from: Source<'a>,
    size: u64,
    /// Up to where the file was read.
    at: u64,
    /// Read, and not given out: the beginning of the next segment.
    held: Vec<u8>,
    /// Zeros that come after what is held.
    ahead: Option<u64>,
}

/// Where the bytes of a file are. What is cut is the same.
#[derive(Clone, Copy)]
enum Source<'a> {
    File(&'a File),
    /// All of them were read before.
    Memory(&'a [u8]),
}

/// An aligned window of a file, or several that hold nothing.
enum Window {
    Zeros(u64),
    /// What it holds was added to what is held.
    Held,
}

impl<'a> Pieces<'a> {
    pub(crate) fn of(file: &'a File, size: u64) -> Self {
        Self { from: Source::File(file), size, at: 0, held: Vec::new(), ahead: None }
    }

    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Self {
        let (from, size) = (Source::Memory(bytes), bytes.len() as u64);
        Self { from, size, at: 0, held: Vec::new(), ahead: None }
    }

    /// The next piece; nothing, at the end. A file that became shorter is read as if zeros were at its
    /// end; whoever reads it sees from its stamp that it changed.
    pub(crate) fn next(&mut self) -> io::Result<Option<Piece>> {
        if let Some(zeros) = self.ahead.take_if(|_| self.held.is_empty()) {
            return self.zeros(zeros).map(Some);
        }
        while self.held.len() < MAX_SEGMENT && self.ahead.is_none() {
            match self.window()? {
                Some(Window::Held) => {}
                Some(Window::Zeros(zeros)) if self.held.is_empty() => {
                    return self.zeros(zeros).map(Some);
                }
                Some(Window::Zeros(zeros)) => self.ahead = Some(zeros),
                None => break,
            }
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        let end = cut::segment(&self.held[..self.held.len().min(MAX_SEGMENT)]);
        let mut rest = Vec::with_capacity(MAX_SEGMENT + WINDOW);
        rest.extend_from_slice(&self.held[end..]);
        self.held.truncate(end);
        Ok(Some(Piece::Segment(std::mem::replace(&mut self.held, rest))))
    }

    /// All zeros from here on, of which there are some already.
    fn zeros(&mut self, mut zeros: u64) -> io::Result<Piece> {
        while let Some(Window::Zeros(more)) = self.window()? {
            zeros += more;
        }
        Ok(Piece::Zeros(zeros))
    }

    /// Reads the next window.
    fn window(&mut self) -> io::Result<Option<Window>> {
        if self.at >= self.size {
            return Ok(None);
        }
        let data = match self.from {
            Source::Memory(_) => self.at,
            Source::File(file) => match seek(file, SeekFrom::Data(self.at)) {
                Ok(data) => data,
                // There is no data any more.
                Err(Errno::NXIO) => self.size,
                // This file system does not know.
                Err(Errno::INVAL) => self.at,
                Err(error) => return Err(error.into()),
            },
        };
        let window = WINDOW as u64;
        let hole = data.min(self.size).saturating_sub(self.at) / window * window;
        if hole > 0 {
            self.at += hole;
            return Ok(Some(Window::Zeros(hole)));
        }
        let length = window.min(self.size - self.at);
        let begin = self.held.len();
        let end = begin + usize::try_from(length).expect("a window is small");
        match self.from {
            Source::Memory(bytes) => {
                let at = usize::try_from(self.at).expect("all of it is in memory");
                self.held.extend_from_slice(&bytes[at..][..end - begin]);
            }
            Source::File(file) => {
                self.held.resize(end, 0);
                read_at(file, &mut self.held[begin..], self.at)?;
            }
        }
        self.at += length;
        if length == window && cut::is_zero(&self.held[begin..]) {
            self.held.truncate(begin);
            return Ok(Some(Window::Zeros(length)));
        }
        Ok(Some(Window::Held))
    }
}

/// Fills a buffer from a file; what is beyond its end stays as it is.
fn read_at(file: &File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    while !buffer.is_empty() {
        match file.read_at(buffer, at) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
