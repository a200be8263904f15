//! Where bytes are cut into chunks: as `FORMAT.md` says, and as a function of the bytes alone.

use fastcdc::v2020::{FastCDC, Normalization};

/// Up to here, bytes are one chunk.
pub(crate) const ONE_CHUNK: usize = 64 * 1024;

/// Up to here, bytes are cut by what they are.
pub(crate) const MIDDLING: usize = 8 * 1024 * 1024;

/// Aligned windows of this length that hold nothing but zeros are left out of what is larger.
pub(crate) const WINDOW: usize = 1024 * 1024;

/// What segments of what is larger are cut into.
pub(crate) const BLOCK: usize = 8 * 1024;

/// The longest segment.
pub(crate) const MAX_SEGMENT: usize = 4 * 1024 * 1024;

/// The lengths of the chunks of something middling.
pub(crate) fn middling(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let chunker =
        FastCDC::with_level(bytes, 16 * 1024, 32 * 1024, 128 * 1024, Normalization::Level1);
    chunker.map(|chunk| &bytes[chunk.offset..chunk.offset + chunk.length])
}

/// How long the segment is that these bytes begin with. They must be all there are, or as many as the
/// longest segment has.
pub(crate) fn segment(bytes: &[u8]) -> usize {
    let (min, average) = (256 * 1024, 1024 * 1024);
    let chunker = FastCDC::with_level(bytes, min, average, MAX_SEGMENT, Normalization::Level1);
    let (_, end) = chunker.cut(0, bytes.len());
    end
}

/// Whether bytes are all zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|&byte| byte == 0)
}
