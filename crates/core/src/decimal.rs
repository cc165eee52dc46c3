//! Checks by its decimal digits whether a number of a JSON text survives as a double.

/// A decimal number: sign, digits without zeros at either end, and the power of ten of the last
/// digit.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    power: i64,
}

/// The number of digits that always survive as a double, within [`SAFE_POWER`].
const SAFE_DIGITS: usize = 15;
/// The largest power of ten that is far from both ends of a double's range.
const SAFE_POWER: u64 = 250;

/// Finds the first number in a well-formed JSON text that doesn't survive as a double. Skips
/// strings.
pub(crate) fn find_inexact(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => at = after_string(text, at),
            b'-' | b'0'..=b'9' => {
                let end = after_number(text, at);
                if !is_exact(&text[at..end]) {
                    return Some(at);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    None
}

fn after_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn after_number(text: &[u8], start: usize) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let length = text[start..]
        .iter()
        .take_while(|byte| is_part(byte))
        .count();
    start + length
}

/// Whether a number survives being read as a double and written in its shortest form.
fn is_exact(number: &[u8]) -> bool {
    let has_power = number.iter().any(|byte| matches!(byte, b'e' | b'E'));
    if !has_power && number.len() <= SAFE_DIGITS {
        return true;
    }
    let Some(given) = Decimal::parse(number) else {
        return false;
    };
    if given.digits.len() <= SAFE_DIGITS && given.power.unsigned_abs() <= SAFE_POWER {
        return true;
    }
    let text = std::str::from_utf8(number).ok();
    let value = text.and_then(|text| text.parse::<f64>().ok());
    let value = value.filter(|value| value.is_finite());
    value.is_some_and(|value| {
        let written = ryu_js::Buffer::new().format_finite(value).to_owned();
        Decimal::parse(written.as_bytes()) == Some(given)
    })
}

impl Decimal {
    /// `None` if the power is outside the range of a double.
    fn parse(number: &[u8]) -> Option<Self> {
        let is_negative = number.first() == Some(&b'-');
        let end = number.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, power) = match end {
            Some(at) => (&number[..at], std::str::from_utf8(&number[at + 1..]).ok()?),
            None => (number, "0"),
        };
        let point = mantissa.iter().position(|byte| *byte == b'.');
        let fraction = point.map_or(0, |at| mantissa.len() - at - 1);
        let digits = mantissa.iter().copied().filter(u8::is_ascii_digit);
        let mut digits: Vec<u8> = digits.skip_while(|digit| *digit == b'0').collect();
        let all = digits.len();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        if digits.is_empty() {
            return Some(Self {
                is_negative: false,
                digits,
                power: 0,
            });
        }
        let zeros = i64::try_from(all - digits.len()).ok()?;
        let power = power.parse::<i64>().ok()?.checked_add(zeros)?;
        let power = power.checked_sub(i64::try_from(fraction).ok()?)?;
        Some(Self {
            is_negative,
            digits,
            power,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p03_numbers_that_a_double_holds_are_exact() {
        for text in [
            "0",
            "-0",
            "0.0",
            "0e400",
            "1",
            "1.0",
            "1.50",
            "100",
            "1e2",
            "1E+2",
            "0.1",
            "-2.50e1",
            "9007199254740991",
            "0.30000000000000004",
            "1.7976931348623157e308",
            "5e-324",
            "1e-7",
            "123456789.12345679",
            "0.000001",
            "1e300",
        ] {
            assert!(is_exact(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn p03_numbers_that_a_double_rounds_are_not() {
        for text in [
            "0.100000000000000001",
            "0.10000000000000001",
            "1e-400",
            "1e400",
            "9007199254740990.6",
            "9007199254740993",
            "1.0000000000000000000001",
            "5e-325",
            "3e-324",
            "1e99999999999999999999",
        ] {
            assert!(!is_exact(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn p03_digits_in_strings_are_skipped() {
        assert_eq!(
            find_inexact(br#"{"a 1e-400 \" 1e-400":["1e-400","\\"]}"#),
            None
        );
        assert_eq!(find_inexact(br#"{"a":["\\",1e-400]}"#), Some(11));
    }
}
