//! Times and durations in texts, for our own crates.

use std::time::Duration;

use crate::Timestamp;

/// RFC 3339 in UTC, to the second: `2026-11-15T05:00:00Z`. That form ends with the year 9999.
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    let seconds = at.as_micros() / 1_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    // Every replay has such a time, and `format!` costs ten times as much as two digits at a time.
    let mut text = *b"0000-00-00T00:00:00Z";
    let pairs = [
        (0, year / 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, hour),
        (14, minute),
        (17, second),
    ];
    for (at, number) in pairs {
        text[at] = digit(number / 10);
        text[at + 1] = digit(number);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// RFC 3339 in UTC, with milliseconds.
#[must_use]
pub fn rfc3339_millis(at: Timestamp) -> String {
    let whole = rfc3339(at);
    let millis = at.as_micros() / 1000 % 1000;
    format!("{}.{millis:03}Z", whole.trim_end_matches('Z'))
}

/// A duration in whole milliseconds.
#[must_use]
pub fn to_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as ISO 8601 has it: `PT24H`, `PT1H30M`, `PT0.25S`. Less than a millisecond is left
/// out.
#[must_use]
pub fn iso8601(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    let mut text = "PT".to_owned();
    for (number, unit) in [(seconds / 3600, 'H'), (seconds / 60 % 60, 'M')] {
        if number > 0 {
            text += &format!("{number}{unit}");
        }
    }
    let rest = seconds % 60;
    if millis > 0 {
        let digits = format!("{millis:03}");
        text += &format!("{rest}.{}S", digits.trim_end_matches('0'));
    } else if rest > 0 || seconds == 0 {
        text += &format!("{rest}S");
    }
    text
}

/// The last decimal digit of a number, in ASCII.
const fn digit(number: u64) -> u8 {
    b"0123456789"[(number % 10) as usize]
}

/// The date of a day number since 1970-01-01. Years start in March, so that leap days come last.
const fn civil(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let january_or_later = month <= 2;
    (era * 400 + year + january_or_later as u64, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_706_529_600, "2024-01-29T12:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_micros(seconds * 1_000_000)), text);
        }
    }

    #[test]
    fn durations_are_written_as_iso_8601_has_them() {
        for (millis, text) in [
            (0, "PT0S"),
            (250, "PT0.25S"),
            (1_500, "PT1.5S"),
            (30_000, "PT30S"),
            (1_800_000, "PT30M"),
            (5_400_000, "PT1H30M"),
            (86_400_000, "PT24H"),
            (90_061_001, "PT25H1M1.001S"),
        ] {
            assert_eq!(iso8601(Duration::from_millis(millis)), text);
        }
    }
}
