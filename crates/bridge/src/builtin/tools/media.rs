//! Pictures and documents, as far as a model can be shown them.
//!
//! A model's interface refuses a request for one picture that it cannot decode, and the picture
//! stays in the conversation: every later request would be refused as well. So what is obviously
//! damaged, or larger than is allowed, is told to the model and not shown. The limits are on what is
//! sent, the base64, for that is what the interface and our own bounds count.

use serde_json::{Value, json};

use super::base64;

/// How long an encoded picture may be: the limit of the interface.
pub(crate) const MAX_IMAGE_BASE64: usize = 5 * 1024 * 1024;
/// How long an encoded document may be. One result holds 8 MB, and there may be text beside it.
pub(crate) const MAX_DOCUMENT_BASE64: usize = 6 * 1024 * 1024;
/// How wide and high a picture may be: the limit of the interface.
const MAX_PIXELS: u32 = 8_000;

/// What a model can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Png,
    Jpeg,
    Gif,
    Webp,
    Pdf,
}

impl Media {
    /// What something is by its beginning, whatever it is called.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        if start.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if start.starts_with(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
            Some(Self::Gif)
        } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
            Some(Self::Webp)
        } else if start.starts_with(b"%PDF-") {
            Some(Self::Pdf)
        } else {
            None
        }
    }

    /// How long it may be, encoded.
    pub(crate) fn max_base64(self) -> usize {
        match self {
            Self::Png | Self::Jpeg | Self::Gif | Self::Webp => MAX_IMAGE_BASE64,
            Self::Pdf => MAX_DOCUMENT_BASE64,
        }
    }

    /// How long it may be before it is encoded.
    pub(crate) fn max_bytes(self) -> usize {
        self.max_base64() / 4 * 3
    }

    /// The limit, in words.
    pub(crate) fn limit(self) -> &'static str {
        match self {
            Self::Png | Self::Jpeg | Self::Gif | Self::Webp => {
                "a picture may have 5 MB in base64, which is 3.75 MB as a file"
            }
            Self::Pdf => "a document may have 6 MB in base64, which is 4.5 MB as a file",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Gif => "GIF",
            Self::Webp => "WebP",
            Self::Pdf => "PDF",
        }
    }

    /// Whether a whole picture or document looks sound; if not, what it is instead.
    pub(crate) fn check(self, data: &[u8]) -> Result<(), String> {
        let found = match self {
            Self::Png => png(data),
            Self::Jpeg => jpeg(data),
            Self::Gif => gif(data),
            Self::Webp => webp(data),
            // No program writes a document without this, and what was cut has lost it.
            Self::Pdf => contains(data, b"%%EOF").then_some((1, 1)),
        };
        match found {
            None | Some((0, _) | (_, 0)) => Err(format!("a damaged {}", self.name())),
            Some((width, height)) if width.max(height) > MAX_PIXELS => Err(format!(
                "a {} of {width} times {height} pixels, and at most {MAX_PIXELS} can be shown",
                self.name()
            )),
            Some(_) => Ok(()),
        }
    }

    /// The content block.
    pub(crate) fn block(self, base64: &str) -> Value {
        let (kind, media_type) = match self {
            Self::Png => ("image", "image/png"),
            Self::Jpeg => ("image", "image/jpeg"),
            Self::Gif => ("image", "image/gif"),
            Self::Webp => ("image", "image/webp"),
            Self::Pdf => ("document", "application/pdf"),
        };
        let source = json!({ "type": "base64", "media_type": media_type, "data": base64 });
        json!({ "type": kind, "source": source })
    }
}

/// A picture or document that somebody else encoded, as a block; or why it cannot be shown.
pub(crate) fn from_base64(text: &str) -> Result<Value, String> {
    if text.len() > MAX_DOCUMENT_BASE64 {
        let (image, document) = (Media::Png.limit(), Media::Pdf.limit());
        return Err(format!("{} bytes: {image}; {document}", text.len() / 4 * 3));
    }
    let Some(data) = base64::decode(text) else { return Err("no base64".to_owned()) };
    let Some(media) = Media::of(&data) else {
        return Err(format!("{} bytes of no known kind", data.len()));
    };
    if data.len() > media.max_bytes() {
        return Err(format!("{} bytes: {}", data.len(), media.limit()));
    }
    media.check(&data)?;
    // Encoded anew: some wrap their lines or leave the end out, which is not taken.
    Ok(media.block(&base64::encode(&data)))
}

fn contains(data: &[u8], what: &[u8]) -> bool {
    data.windows(what.len()).any(|window| window == what)
}

fn be16(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?)))
}

fn le16(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?)))
}

fn le24(data: &[u8], at: usize) -> Option<u32> {
    Some(le16(data, at)? | u32::from(*data.get(at + 2)?) << 16)
}

/// The size of a picture whose header is whole and that has an end.
fn png(data: &[u8]) -> Option<(u32, u32)> {
    let be32 = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let is_whole = data.get(8..16) == Some(b"\0\0\0\x0dIHDR")
        && contains(data, b"IDAT")
        && contains(data, b"IEND");
    if is_whole { Some((be32(16)?, be32(20)?)) } else { None }
}

fn gif(data: &[u8]) -> Option<(u32, u32)> {
    // A picture begins with a comma somewhere after the header and its colors.
    if data.get(13..)?.contains(&b',') { Some((le16(data, 6)?, le16(data, 8)?)) } else { None }
}

/// Goes from segment to segment until the one that has the size, and wants a scan after it.
fn jpeg(data: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        while data.get(at..at + 2)? == b"\xff\xff" {
            at += 1;
        }
        if data.get(at)? != &0xff {
            return None;
        }
        let marker = *data.get(at + 1)?;
        match marker {
            // Frames; the three among them that are none are tables.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let size = (be16(data, at + 7)?, be16(data, at + 5)?);
                return contains(data.get(at..)?, b"\xff\xda").then_some(size);
            }
            0x01 | 0xd0..=0xd7 => at += 2,
            0xda | 0xd9 | 0x00 => return None,
            _ => at += 2 + usize::try_from(be16(data, at + 2)?).ok()?.max(2),
        }
    }
}

fn webp(data: &[u8]) -> Option<(u32, u32)> {
    let announced = u32::from_le_bytes(data.get(4..8)?.try_into().ok()?);
    // It says how long it is, so that one that was cut is known.
    if u64::from(announced) + 8 > data.len() as u64 + 1 {
        return None;
    }
    match data.get(12..16)? {
        b"VP8X" => Some((le24(data, 24)? + 1, le24(data, 27)? + 1)),
        b"VP8L" => {
            let bits = u32::from_le_bytes(data.get(21..25)?.try_into().ok()?);
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => Some((le16(data, 26)? & 0x3fff, le16(data, 28)? & 0x3fff)),
        _ => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Pictures of one pixel, as programs write them.
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
    const WEBP: &str = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==";

    fn jpeg_bytes(width: u16) -> Vec<u8> {
        let mut data = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08\0\x01".to_vec();
        data.extend_from_slice(&width.to_be_bytes());
        data.extend_from_slice(b"\x01\x01\x11\0\xff\xda\0\x02data\xff\xd9");
        data
    }

    #[test]
    fn sound_pictures_are_shown_as_what_they_are() {
        let jpeg = base64::encode(&jpeg_bytes(1));
        for (data, kind) in [(PNG, "png"), (GIF, "gif"), (WEBP, "webp"), (&jpeg, "jpeg")] {
            let block = from_base64(data).unwrap_or_else(|why| panic!("{kind}: {why}"));
            assert_eq!(block["source"]["media_type"], format!("image/{kind}"));
            assert_eq!(block["source"]["data"], data);
        }
        let wrapped = format!("{}\n{}", &PNG[..40], PNG[40..].trim_end_matches('='));
        assert_eq!(from_base64(&wrapped).unwrap()["source"]["data"], PNG);
        let pdf = base64::encode(b"%PDF-1.7\n%%EOF\n");
        assert_eq!(from_base64(&pdf).unwrap()["type"], "document");
    }

    #[test]
    fn what_was_cut_is_damaged() {
        let jpeg = base64::encode(&jpeg_bytes(1));
        let pdf = base64::encode(b"%PDF-1.7\n1 0 obj");
        for data in [PNG, GIF, WEBP, &jpeg] {
            let whole = base64::decode(data).unwrap();
            let media = Media::of(&whole).unwrap();
            for length in 0..whole.len() / 2 {
                assert!(media.check(&whole[..length]).is_err(), "{media:?} of {length} bytes");
            }
        }
        assert_eq!(from_base64(&pdf).unwrap_err(), "a damaged PDF");
        assert_eq!(from_base64("AAAA").unwrap_err(), "3 bytes of no known kind");
        assert_eq!(from_base64("é").unwrap_err(), "no base64");
    }

    #[test]
    fn what_is_too_large_is_said_with_the_limit() {
        let wide = base64::encode(&jpeg_bytes(8_001));
        let said = from_base64(&wide).unwrap_err();
        assert_eq!(said, "a JPEG of 8001 times 1 pixels, and at most 8000 can be shown");
        let mut large = base64::decode(PNG).unwrap();
        large.resize(MAX_IMAGE_BASE64 / 4 * 3 + 1, 0);
        assert!(from_base64(&base64::encode(&large)).unwrap_err().contains("5 MB in base64"));
        large.truncate(MAX_IMAGE_BASE64 / 4 * 3);
        let shown = from_base64(&base64::encode(&large)).unwrap();
        assert_eq!(shown["source"]["data"].as_str().unwrap().len(), MAX_IMAGE_BASE64);
    }
}
