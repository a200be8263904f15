//! Numbers and strings of bytes in binary objects, and a reader that believes nothing.

use crate::error::Malformed;

/// Adds a number in as few bytes as it needs.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest seven bits are wanted")]
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is below 128")]
    out.push(number as u8);
}

/// Adds a number that may be negative.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Adds bytes, and before them how many they are.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what was put, from the front.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("so many were taken"))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed("a number is too large"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(Malformed("a number is longer than it needs to be"));
                }
                return Ok(number);
            }
        }
        Err(Malformed("a number is too large"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    /// A number that is no more than this.
    pub(crate) fn at_most(&mut self, most: u64) -> Result<u64, Malformed> {
        let number = self.number()?;
        if number > most { Err(Malformed("a number is out of bounds")) } else { Ok(number) }
    }

    /// How many of something there are; no more than this.
    pub(crate) fn count(&mut self, most: usize) -> Result<usize, Malformed> {
        let number = self.at_most(most as u64)?;
        Ok(usize::try_from(number).expect("it is at most a usize"))
    }

    /// Bytes that were put with their number; no more than this.
    pub(crate) fn bytes(&mut self, most: usize) -> Result<&'a [u8], Malformed> {
        let count = self.count(most)?;
        self.take(count)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_read(numbers: Vec<u64>, signed: Vec<i64>, bytes: Vec<u8>) {
            let mut out = Vec::new();
            numbers.iter().for_each(|&number| put_number(&mut out, number));
            signed.iter().for_each(|&number| put_signed(&mut out, number));
            put_bytes(&mut out, &bytes);
            let mut reader = Reader::new(&out);
            for number in numbers {
                prop_assert_eq!(reader.number(), Ok(number));
            }
            for number in signed {
                prop_assert_eq!(reader.signed(), Ok(number));
            }
            prop_assert_eq!(reader.bytes(bytes.len()), Ok(&bytes[..]));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn a_number_has_one_spelling(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(number) = reader.number() {
                let mut out = Vec::new();
                put_number(&mut out, number);
                prop_assert_eq!(&bytes[..out.len()], &out[..]);
            }
        }
    }
}
