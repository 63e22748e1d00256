//! A telephone number as a person types it to find calls: in full, as it is dialed in the country,
//! or only its last digits.

use super::Phone;
use super::number::{self, Country};
use super::safe::safe;

/// Minimum digits to search for a number.
const DIGITS_MIN: usize = 4;
/// Minimum digits of a whole number. With fewer, only the end of a number is compared.
const WHOLE_DIGITS_MIN: usize = 7;
/// Characters allowed between digits. A full stop is not allowed, because a linkedid has one.
const BETWEEN: &str = " -()/+";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedNumber {
    /// The whole numbers that the text can mean, by country.
    whole: Vec<Phone>,
    /// The digits at the end of the number. If `exact`, all digits of the number.
    end: String,
    exact: bool,
}

impl TypedNumber {
    /// Reads `+998 90 111-00-01`, `00998901110001`, `0 90 111 00 01` or `0001`. Numbers without a
    /// country code belong to one of `countries`. `None` if the text is not a number.
    pub fn read(text: &str, countries: impl IntoIterator<Item = Country>) -> Option<Self> {
        let text = text.trim();
        if text
            .chars()
            .any(|c| !c.is_ascii_digit() && !BETWEEN.contains(c))
        {
            return None;
        }
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        let exact = text.starts_with('+');
        let end = if exact || digits.len() < WHOLE_DIGITS_MIN {
            digits.as_str()
        } else {
            // 00 is for international calls, and 0 for national calls in many countries. Neither is
            // part of the number.
            digits.trim_start_matches('0')
        };
        if end.len() < DIGITS_MIN {
            return None;
        }
        let last_four = &end[end.len() - DIGITS_MIN..];
        let mut whole = Vec::new();
        if !exact {
            let phones = countries
                .into_iter()
                .filter_map(|country| number::e164(text, Some(country)));
            whole.extend(phones.filter(|phone| phone.as_str().ends_with(last_four)));
        }
        Some(Self {
            whole,
            end: end.to_owned(),
            exact,
        })
    }

    /// Returns the only number that a text can mean. Numbers without a country code belong to one
    /// of `countries`.
    ///
    /// # Errors
    /// A message, if the text is not a whole number, or means different numbers in different
    /// countries.
    pub fn parse_full(
        text: &str,
        countries: impl IntoIterator<Item = Country>,
    ) -> Result<Phone, String> {
        let mut found: Vec<Phone> = countries
            .into_iter()
            .map(Some)
            .chain([None])
            .filter_map(|country| number::e164(text, country))
            .collect();
        found.sort();
        found.dedup();
        let shown = safe(text);
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(format!(
                "`{shown}` is not a full telephone number: give it with + and its country code, as \
                 in +998901110001"
            )),
            [one, other, ..] => Err(format!(
                "`{shown}` may be {} or {}: give it with + and its country code",
                one.as_str(),
                other.as_str()
            )),
        }
    }

    /// Returns `true` for text that can only be a number: a plus, or seven digits and more. Shorter
    /// text can be the beginning of a call's id.
    pub fn is_plain(&self) -> bool {
        self.exact || self.end.len() >= WHOLE_DIGITS_MIN
    }

    /// Returns the last four digits, which are the same in every spelling.
    pub fn last_four(&self) -> &str {
        &self.end[self.end.len() - DIGITS_MIN..]
    }

    /// Returns `true` if the typed text matches this number.
    pub fn matches(&self, phone: &Phone) -> bool {
        self.matches_e164(phone.as_str())
    }

    /// Returns `true` if the typed text matches this number.
    pub fn matches_e164(&self, e164: &str) -> bool {
        let digits = e164.trim_start_matches('+');
        let typed = if self.exact {
            digits == self.end
        } else {
            digits.ends_with(&self.end)
        };
        typed || self.whole.iter().any(|whole| whole.as_str() == e164)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn match_typed(typed: &str, country: &str, e164: &str) -> Option<bool> {
        let phone = Phone::from_e164(e164).expect("a number");
        let read = TypedNumber::read(typed, Country::parse(country));
        read.map(|typed| typed.matches(&phone))
    }

    #[test]
    fn typed_number_matches_in_every_common_format() {
        for typed in [
            "+998901110001",
            "+998 90 111-00-01",
            "998901110001",
            "00998 (90) 111 00 01",
            "090 111 00 01",
            "1110001",
            "0001",
        ] {
            assert_eq!(
                match_typed(typed, "UZ", "+998901110001"),
                Some(true),
                "{typed}"
            );
            assert_eq!(
                match_typed(typed, "UZ", "+998901110002"),
                Some(false),
                "{typed}"
            );
        }
        // In Russia an 8 is dialed first, in Germany a 0.
        assert_eq!(
            match_typed("8 901 111-00-01", "RU", "+79011110001"),
            Some(true)
        );
        assert_eq!(match_typed("030 901820", "DE", "+4930901820"), Some(true));
    }

    #[test]
    fn plus_marks_a_complete_number() {
        assert_eq!(match_typed("+1110001", "UZ", "+998901110001"), Some(false));
    }

    fn parse_full(typed: &str, codes: &[&str]) -> Result<String, String> {
        let countries = codes.iter().filter_map(|code| Country::parse(code));
        TypedNumber::parse_full(typed, countries).map(|phone| phone.as_str().to_owned())
    }

    #[test]
    fn full_number_is_parsed_or_refused_with_a_message() {
        for typed in ["+998 90 111-00-01", "90 111 00 01", "00998901110001"] {
            assert_eq!(
                parse_full(typed, &["UZ", "UZ"]).as_deref(),
                Ok("+998901110001"),
                "{typed}"
            );
        }
        for typed in ["0001", "", "PJSIP/101", "+1"] {
            let message = parse_full(typed, &["UZ"]).expect_err("no number");
            assert!(message.contains("with + and its country"), "{message}");
        }
        let message = parse_full("901110001", &[]).expect_err("of no country");
        assert!(message.contains("`901110001`"), "{message}");
        let message = parse_full("911234567", &["UZ", "RU", "DE"]).expect_err("of two countries");
        assert!(message.contains("may be +"), "{message}");
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for typed in ["", "001", "000", "1795151317.146", "PJSIP/101", "90 111 ab"] {
            assert_eq!(TypedNumber::read(typed, []), None, "{typed}");
        }
    }

    proptest! {
        #[test]
        fn typed_number_never_panics_and_keeps_last_four_digits(
            typed in "[ +0-9()-]{0,20}",
        ) {
            if let Some(read) = TypedNumber::read(&typed, Country::parse("UZ")) {
                prop_assert_eq!(read.last_four().len(), 4);
                for whole in &read.whole {
                    prop_assert!(whole.as_str().ends_with(read.last_four()));
                }
            }
        }
    }
}
