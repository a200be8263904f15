//! Times as text: RFC 3339 in UTC, with milliseconds.

use crate::time::Timestamp;

const MILLIS_PER_DAY: i64 = 86_400_000;

/// The years that four digits can say.
const FIRST: i64 = -62_167_219_200_000;
const LAST: i64 = 253_402_300_799_999;

/// A time as text, such as `2026-11-16T08:15:30.250Z`.
pub fn rfc3339(at: Timestamp) -> String {
    let millis = at.as_millis().clamp(FIRST, LAST);
    let (year, month, day) = date(millis.div_euclid(MILLIS_PER_DAY));
    let of_day = millis.rem_euclid(MILLIS_PER_DAY);
    let (seconds, millis) = (of_day / 1_000, of_day % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    // By hand: every answer has several of them.
    let mut put = |at: std::ops::Range<usize>, mut number: i64| {
        for digit in text[at].iter_mut().rev() {
            *digit = b"0123456789"[usize::try_from(number % 10).unwrap_or_default()];
            number /= 10;
        }
    };
    put(0..4, year);
    put(5..7, month);
    put(8..10, day);
    put(11..13, hour);
    put(14..16, minute);
    put(17..19, second);
    put(20..23, millis);
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads a time as [`rfc3339`] writes it, with or without a fraction, or with another offset than
/// UTC; or a plain number of milliseconds since 1970.
pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
    if let Ok(millis) = text.parse::<i64>() {
        return Some(Timestamp::from_millis(millis));
    }
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, wanted: &[u8]| text.as_bytes().get(at).is_some_and(|b| wanted.contains(b));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let days = days_before(year, month, day)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = text.get(19..)?;
    let digits = rest
        .strip_prefix('.')
        .map_or(0, |fraction| fraction.bytes().take_while(u8::is_ascii_digit).count());
    let (fraction, offset) = if digits > 0 { rest.split_at(digits + 1) } else { ("", rest) };
    let millis =
        format!("{:0<3}", fraction.trim_start_matches('.')).get(..3)?.parse::<i64>().ok()?;
    let offset = match offset {
        "Z" | "z" => 0,
        _ => {
            let sign = if offset.starts_with('-') { -1 } else { 1 };
            let (hours, minutes) = offset.strip_prefix(['+', '-'])?.split_once(':')?;
            sign * (hours.parse::<u8>().ok()? as i64 * 60 + minutes.parse::<u8>().ok()? as i64)
        }
    };
    let seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second;
    Some(Timestamp::from_millis(seconds * 1_000 + millis))
}

/// The date of a day that is counted from 1970-01-01. Years are counted from March, so that the
/// day that is not always there is the last one.
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_month)
}

/// The inverse of [`date`]; nothing, if there is no such day.
fn days_before(year: i64, month: i64, day: i64) -> Option<i64> {
    let from_march = if month > 2 { year } else { year - 1 };
    let era = from_march.div_euclid(400);
    let of_era = from_march.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod test {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_written_as_everybody_writes_them() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_816_930_250, "2026-11-16T08:15:30.250Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_millis(millis)), text);
        }
    }

    #[test]
    fn what_is_no_time_is_not_read_as_one() {
        for bad in [
            "",
            "x",
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+1",
            "äöü-äö-äöTää:ää:ääZ",
        ] {
            assert_eq!(from_rfc3339(bad), None, "{bad}");
        }
        let same = Timestamp::from_millis(1_794_816_930_250);
        assert_eq!(from_rfc3339("2026-11-16T09:15:30.250+01:00"), Some(same));
        assert_eq!(from_rfc3339("1794816930250"), Some(same));
    }

    proptest! {
        #[test]
        fn a_time_survives_being_written(millis in FIRST..=LAST) {
            let at = Timestamp::from_millis(millis);
            prop_assert_eq!(from_rfc3339(&rfc3339(at)), Some(at));
        }
    }
}
