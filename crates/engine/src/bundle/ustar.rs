//! The one way in which a file stands in a bundle: a header of POSIX tar with nothing in it that is not needed.
//!
//! Whoever reads a bundle makes the header of the file that has to come next, and compares: a link, a longer name, a
//! device, a file twice, or one that nobody knows of is not understood, but simply something else.

/// A header, and what files are filled up to a multiple of.
pub(super) const BLOCK: usize = 512;

/// The largest file that a header can speak of.
pub(super) const MAX_SIZE: u64 = (1 << 33) - 1;

/// The longest name, and the longest directory before it.
const MAX_NAME: usize = 100;
const MAX_PREFIX: usize = 155;

/// What comes before a file; nothing, if the name is too long or the file too large. The time is in seconds.
pub(super) fn header(name: &str, size: u64, time: u64) -> Option<[u8; BLOCK]> {
    let (prefix, name) = split(name)?;
    if size > MAX_SIZE || time > MAX_SIZE {
        return None;
    }
    let mut block = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{time:011o}"));
    // The sum is made as if there were blanks in its place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    put(329, "0000000");
    put(337, "0000000");
    put(345, prefix);
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Some(block)
}

/// A name in its two fields.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= MAX_NAME {
        return Some(("", name));
    }
    let cut =
        name.match_indices('/').map(|(at, _)| at).find(|at| name.len() - at - 1 <= MAX_NAME)?;
    (cut <= MAX_PREFIX).then(|| (&name[..cut], &name[cut + 1..]))
}

/// The name, the size and the time that a header speaks of, if it is like one of ours.
pub(super) fn read(block: &[u8; BLOCK]) -> Option<(&str, u64, u64)> {
    let end = block[..MAX_NAME].iter().position(|&byte| byte == 0)?;
    let name = std::str::from_utf8(&block[..end]).ok()?;
    let number = |at: usize| {
        let digits = std::str::from_utf8(&block[at..at + 11]).ok()?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(())?;
        u64::from_str_radix(digits, 8).ok()
    };
    Some((name, number(124)?, number(136)?))
}

/// How many bytes a file is filled up with.
pub(super) fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK as u64).expect("it is less than a block");
    if over == 0 { 0 } else { BLOCK - over }
}

#[cfg(test)]
mod test {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn everybody_else_reads_the_same() {
        let long = format!("{}/{}", "d".repeat(150), "n".repeat(100));
        let exact = "n".repeat(100);
        for (name, size) in [("manifest.json", 0), (long.as_str(), 513), (exact.as_str(), 512)] {
            let mut bytes = header(name, size, 1_700_000_000).unwrap().to_vec();
            bytes.resize(BLOCK + usize::try_from(size).unwrap(), b'x');
            bytes.resize(bytes.len() + padding(size) + 2 * BLOCK, 0);
            let mut archive = tar::Archive::new(bytes.as_slice());
            let mut entries = archive.entries().unwrap();
            let mut entry = entries.next().unwrap().unwrap();
            assert_eq!(entry.path().unwrap().to_str(), Some(name));
            assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000);
            assert_eq!(entry.header().mode().unwrap(), 0o600);
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            assert_eq!(content.len() as u64, size);
            assert!(entries.next().is_none());
        }
    }

    #[test]
    fn what_does_not_fit_has_no_header() {
        assert!(header(&"n".repeat(101), 0, 0).is_none());
        assert!(header(&format!("{}/n", "d".repeat(156)), 0, 0).is_none());
        assert!(header("n", MAX_SIZE + 1, 0).is_none());
        let block = header("n", MAX_SIZE, 7).unwrap();
        assert_eq!(read(&block), Some(("n", MAX_SIZE, 7)));
        assert_eq!(read(&[0xff; BLOCK]), None);
    }
}
