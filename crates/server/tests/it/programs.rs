//! Programs that say a version and packages that have them, made for tests.

use std::io::Write as _;

/// An executable file of Linux, for this processor, that prints a text and ends.
pub(crate) fn program(text: &str) -> Vec<u8> {
    /// Where it is loaded.
    const BASE: u64 = 0x40_0000;
    /// The two headers before its code.
    const HEADERS: usize = 64 + 56;
    let length = u32::try_from(text.len()).unwrap();
    let (machine, mut code) = code(length);
    code.extend_from_slice(text.as_bytes());
    let size = (HEADERS + code.len()) as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let halves = |numbers: &[u16]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    let words = |numbers: &[u32]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    let longs = |numbers: &[u64]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    file.extend(halves(&[2, machine]));
    file.extend(words(&[1]));
    file.extend(longs(&[BASE + HEADERS as u64, 64, 0]));
    file.extend(words(&[0]));
    file.extend(halves(&[64, 56, 1, 0, 0, 0]));
    // One piece, to be read and executed.
    file.extend(words(&[1, 5]));
    file.extend(longs(&[0, BASE, BASE, size, size, 0x1000]));
    assert_eq!(file.len(), HEADERS);
    file.extend(code);
    file
}

/// `write(1, text, length); exit(0)`; the text follows.
#[cfg(target_arch = "x86_64")]
fn code(length: u32) -> (u16, Vec<u8>) {
    let mut code = vec![0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x48, 0x8d, 0x35, 16, 0, 0, 0, 0xba];
    code.extend(length.to_le_bytes());
    code.extend([0x0f, 0x05, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    (62, code)
}

#[cfg(target_arch = "aarch64")]
fn code(length: u32) -> (u16, Vec<u8>) {
    let calls: [u32; 8] = [
        0xd280_0020,
        0x1000_00e1,
        0xd280_0002 | length << 5,
        0xd280_0808,
        0xd400_0001,
        0xd280_0000,
        0xd280_0ba8,
        0xd400_0001,
    ];
    (183, calls.iter().flat_map(|call| call.to_le_bytes()).collect())
}

/// What is put into a package.
pub(crate) enum Put<'a> {
    /// A file, under a path that is taken as it is.
    File(&'a str, &'a [u8]),
    /// A link to a path.
    Link(&'a str, &'a str),
}

/// A package of files.
pub(crate) fn package(put: &[Put<'_>]) -> Vec<u8> {
    let mut plain = Vec::new();
    for put in put {
        let (name, content, kind, to) = match put {
            Put::File(name, content) => (name, *content, tar::EntryType::Regular, ""),
            Put::Link(name, to) => (name, &[][..], tar::EntryType::Symlink, *to),
        };
        let mut header = tar::Header::new_ustar();
        // As it is: a library would refuse some of it.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + to.len()].copy_from_slice(to.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        header.set_cksum();
        plain.extend_from_slice(header.as_bytes());
        plain.extend_from_slice(content);
        plain.resize(plain.len().next_multiple_of(512), 0);
    }
    plain.resize(plain.len() + 1024, 0);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).unwrap();
    packed.finish().unwrap()
}

/// A package as it is published: a program that says this version, and what comes with it.
pub(crate) fn published(version: &str) -> Vec<u8> {
    let program = program(&format!("{version} (Claude Code)\n"));
    let files = [Put::File("package/package.json", b"{}"), Put::File("package/claude", &program)];
    package(&files)
}
