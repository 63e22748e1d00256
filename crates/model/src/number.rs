//! Converts telephone numbers from the form of a PBX to E.164.
//!
//! The tables of numbering plans (6 MB, 49 ms) are loaded by the first number, not at the start.

use super::Phone;
use callbridge_call::{Direction, RawNumber};
use phonenumber::metadata::{DATABASE, Metadata};
use phonenumber::{PhoneNumber, country};

/// A country whose numbering plan a trunk follows, by its ISO 3166 code in upper case: `UZ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

impl Country {
    /// Returns the country of a two-letter code in either case. `None` for a code without a
    /// numbering plan.
    pub fn parse(code: &str) -> Option<Self> {
        let code = code.to_ascii_uppercase();
        code.parse::<country::Id>().ok()?;
        code.into_bytes().try_into().ok().map(Self)
    }

    /// Returns the ISO 3166 code in upper case: `UZ`.
    pub fn code(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Normalizes a customer's number to E.164. `strip` is the prefix that extensions dial to get an
/// outside line (`9`). The prefix is only removed if the number is not valid with it, or if the
/// number is foreign with it and domestic without it. For example, an extension in Russia dials `9`
/// and `8 916 …`, which begins like Iran's `+98 916 …`. `None` for hidden numbers, short numbers,
/// feature codes, and numbers that are not valid in any country.
pub fn normalize(
    raw: &RawNumber,
    country: Option<Country>,
    strip: Option<&str>,
    direction: Direction,
) -> Option<Phone> {
    let text = bare(&raw.text);
    let prefix = strip.filter(|prefix| !prefix.is_empty());
    let rest = prefix.and_then(|prefix| text.strip_prefix(prefix));
    if let Some(rest) = rest
        && direction == Direction::Outbound
        && !raw.from_dial_string
    {
        let domestic = at_home(text, country).or_else(|| at_home(rest, country));
        if domestic.is_some() {
            return domestic;
        }
    }
    e164(text, country).or_else(|| e164(rest?, country))
}

/// Normalizes a number to E.164. `None` if the result is not a number of `country`.
fn at_home(text: &str, country: Option<Country>) -> Option<Phone> {
    let code = DATABASE.by_id(country?.code())?.country_code();
    e164(text, country).filter(|phone| phone.as_str()[1..].starts_with(&code.to_string()))
}

/// Normalizes a number as people write it (`+998 90 111-00-01`, `901110001`) to E.164. Numbers
/// without a country code belong to `country`.
pub fn e164(text: &str, country: Option<Country>) -> Option<Phone> {
    let Digits { plus, text } = Digits::parse(bare(text))?;
    if plus {
        return parse_international(&text);
    }
    let as_dialed = country
        .and_then(|country| parse_valid(country.code().parse().ok(), &text))
        .or_else(|| parse_international(text.strip_prefix("00")?))
        .or_else(|| parse_whole_national(&text, country?));
    if as_dialed.is_some() || country.is_none() || text.len() < FOREIGN_DIGITS_MIN {
        return as_dialed;
    }
    // Carriers omit the plus. This is no guess if the country is known, because the number is then
    // not domestic.
    parse_international(&text).filter(belongs_to_a_country)
}

/// Removes the scheme (`sip:`, `tel:`), everything after the number, and a feature prefix.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let mut schemes = ["sip:", "sips:", "tel:"].iter();
    let number = schemes.find_map(|scheme| text.strip_prefix(scheme));
    let mut parts = number.unwrap_or(text).split(['@', ';', ',']);
    without_feature_prefix(parts.next().unwrap_or_default())
}

/// Removes a feature prefix from a number, such as `#31#` or `*31#`, which hides the caller's
/// number.
fn without_feature_prefix(text: &str) -> &str {
    let Some((code, number)) = text
        .strip_prefix(['#', '*'])
        .and_then(|rest| rest.split_once('#'))
    else {
        return text;
    };
    let is_code = (1..=4).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_digit());
    if is_code && !number.is_empty() {
        number
    } else {
        text
    }
}

/// The digits of a number, and whether a plus came before them.
struct Digits {
    plus: bool,
    text: String,
}

/// Maximum length of a number with its dial prefix. No numbering plan has longer numbers.
const LENGTH_MAX: usize = 40;

/// A number without a plus must have at least this many digits to be read as an international
/// number.
const FOREIGN_DIGITS_MIN: usize = 10;

impl Digits {
    /// Removes the separators between digits. `None` if anything other than digits remains
    /// (`anonymous`, `*8`, `s`).
    fn parse(text: &str) -> Option<Self> {
        if text.len() > LENGTH_MAX {
            return None;
        }
        let plus = text.trim_start().starts_with('+');
        let marks = [' ', '-', '.', '(', ')', '\u{a0}'];
        let text: String = text.chars().filter(|c| !marks.contains(c)).collect();
        let digits = text.strip_prefix('+').unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let text = digits.to_owned();
        Some(Self { plus, text })
    }
}

/// Parses a number that begins with its country's code.
fn parse_international(digits: &str) -> Option<Phone> {
    let text = format!("+{digits}");
    parse_valid(None, &text).or_else(|| parse_whole(&text))
}

/// Parses every digit of a national number, with or without the country's trunk prefix.
fn parse_whole_national(text: &str, country: Country) -> Option<Phone> {
    let plan = DATABASE.by_id(country.code())?;
    let code = plan.country_code();
    parse_whole(&format!("+{code}{text}")).or_else(|| {
        let without_prefix = text.strip_prefix(plan.national_prefix()?)?;
        parse_whole(&format!("+{code}{without_prefix}"))
    })
}

/// Parses every digit after the plus. In `+7 812 234-56-78` the library removes `8`, Russia's trunk
/// prefix, and finds the remaining number invalid. With the plan of a country without such a
/// prefix, the library removes no digit.
fn parse_whole(text: &str) -> Option<Phone> {
    parse_valid(Some(country::UZ), text)
}

/// Parses a text and keeps only a number that is valid for the library. The library's parser also
/// accepts nonsense (`101` as `+998101`).
fn parse_valid(country: Option<country::Id>, text: &str) -> Option<Phone> {
    let number = phonenumber::parse(country, text).ok()?;
    if number.extension().is_some() || !is_valid(&number) {
        return None;
    }
    let code = number.country().code();
    let national = number.national();
    Phone::from_e164(&format!("+{code}{national}"))
}

/// Returns `true` if the number is valid. Checks mobile numbers first if their code belongs to only
/// one country, because most callers have a mobile number. The library tries eleven kinds of
/// numbers in turn.
fn is_valid(number: &PhoneNumber) -> bool {
    let plans = DATABASE.by_code(&number.country().code());
    if let Some([plan]) = plans.as_deref()
        && is_mobile(&number.national().to_string(), plan)
    {
        return true;
    }
    number.is_valid()
}

fn is_mobile(national: &str, plan: &Metadata) -> bool {
    let kinds = plan.descriptors();
    let mobile = kinds.mobile();
    kinds.general().is_match(national) && mobile.is_some_and(|mobile| mobile.is_match(national))
}

/// Returns `true` unless the number has a code that all countries share (+800, +808, +870, +878,
/// +881 to +883, +888, +979). Such codes look like dial prefixes, and no one calls from such
/// numbers.
fn belongs_to_a_country(phone: &Phone) -> bool {
    let mut shared = "+800 +808 +870 +878 +881 +882 +883 +888 +979".split(' ');
    !shared.any(|code| phone.as_str().starts_with(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uz(text: &str, from_dial_string: bool, strip: Option<&str>) -> Option<String> {
        let raw = RawNumber {
            text: text.to_owned(),
            from_dial_string,
        };
        let phone = normalize(&raw, Country::parse("UZ"), strip, Direction::Outbound);
        phone.map(|phone| phone.as_str().to_owned())
    }

    #[test]
    fn numbers_are_read_in_every_form_a_carrier_writes() {
        for text in [
            "998901110001",
            "+998901110001",
            "00998901110001",
            "901110001",
            "+998 (90) 111-00-01",
            "sip:998901110001@10.0.0.1",
            "998901110001@city",
            "tel:+998-90-111-00-01",
        ] {
            assert_eq!(
                uz(text, false, None).as_deref(),
                Some("+998901110001"),
                "{text}"
            );
        }
    }

    #[test]
    fn dial_prefix_is_kept_if_number_is_valid_and_else_removed() {
        for (dialed, phone) in [
            ("998901110001", "+998901110001"),
            ("9998901110001", "+998901110001"),
            ("9901110001", "+998901110001"),
            ("979161234567", "+79161234567"),
            ("9+998901110001", "+998901110001"),
        ] {
            let found = uz(dialed, true, Some("9"));
            assert_eq!(found.as_deref(), Some(phone), "{dialed}");
        }
        assert_eq!(
            uz("*9998901110001", true, Some("*9")).as_deref(),
            Some("+998901110001")
        );
    }

    /// Returns the number as a trunk in Russia with the dial prefix 9 reads it.
    fn ru(text: &str, from_dial_string: bool, direction: Direction) -> Option<String> {
        let raw = RawNumber::new(text, from_dial_string);
        let phone = normalize(&raw, Country::parse("RU"), Some("9"), direction)?;
        Some(phone.as_str().to_owned())
    }

    #[test]
    fn dialed_domestic_number_is_not_read_as_a_foreign_one() {
        let (moscow, mobile, iran) = ("+74951234567", "+79161234567", "+989161234567");
        for (dialed, phone) in [
            ("989161234567", mobile),
            ("99161234567", mobile),
            ("89161234567", mobile),
            ("9161234567", mobile),
            ("979161234567", mobile),
            ("984951234567", moscow),
            ("94951234567", moscow),
            ("9+989161234567", iran),
            ("+989161234567", iran),
            ("992901234567", "+992901234567"),
        ] {
            let found = ru(dialed, false, Direction::Outbound);
            assert_eq!(found.as_deref(), Some(phone), "{dialed}");
        }
        let caller = ru(&iran[1..], false, Direction::Inbound);
        let dial_string = ru(&iran[1..], true, Direction::Outbound);
        assert_eq!([caller.as_deref(), dial_string.as_deref()], [Some(iran); 2]);
    }

    #[test]
    fn foreign_caller_is_recognized_with_and_without_plus() {
        assert_eq!(
            uz("79161234567", false, Some("9")).as_deref(),
            Some("+79161234567")
        );
        assert_eq!(
            uz("+12015550123", false, Some("9")).as_deref(),
            Some("+12015550123")
        );
    }

    fn e164_text(text: &str, country: Option<Country>) -> Option<String> {
        e164(text, country).map(|phone| phone.as_str().to_owned())
    }

    #[test]
    fn number_that_begins_like_the_trunk_prefix_is_read_whole() {
        for (country, phone, forms) in [
            ("RU", "+78122345678", "78122345678 88122345678 8122345678"),
            ("RU", "+78005553535", "78005553535 88005553535 8005553535"),
            ("UZ", "+78122345678", "78122345678 0078122345678"),
            ("KZ", "+77123455470", "77123455470 87123455470 7123455470"),
            ("BY", "+3758011234567", "88011234567 8011234567"),
        ] {
            for text in forms.split(' ').chain([phone]) {
                let found = e164_text(text, Country::parse(country));
                assert_eq!(found.as_deref(), Some(phone), "{text}");
            }
        }
        for outside in ["98122345678", "812234567", "101"] {
            let found = e164_text(outside, Country::parse("RU"));
            assert_eq!(found, None, "{outside}");
        }
    }

    #[test]
    fn invalid_number_is_read_as_none() {
        for text in [
            "",
            "s",
            "anonymous",
            "<unknown>",
            "101",
            "7001",
            "112",
            "*8",
            "#21#",
            "unavailable",
            "998",
            "+",
            "99890111000",
            "+998101",
            "0000000000",
            "restricted",
        ] {
            assert_eq!(uz(text, false, Some("9")), None, "{text}");
        }
    }

    #[test]
    fn numbers_without_a_country_must_be_international() {
        for text in ["+998901110001", "00998901110001"] {
            let found = e164_text(text, None);
            assert_eq!(found.as_deref(), Some("+998901110001"), "{text}");
        }
        assert_eq!(e164_text("901110001", None), None);
        assert_eq!(
            e164_text("13012345678", None),
            None,
            "a Chinese mobile, or one in Maryland"
        );
    }

    #[test]
    fn leading_zero_that_belongs_to_a_number_is_kept() {
        let italy = Country::parse("it");
        for text in ["0236618300", "+39 02 3661 8300"] {
            let found = e164_text(text, italy);
            assert_eq!(found.as_deref(), Some("+390236618300"), "{text}");
        }
    }

    #[test]
    fn country_code_is_two_letters_with_a_numbering_plan() {
        assert_eq!(Country::parse("uz").as_ref().map(Country::code), Some("UZ"));
        for wrong in ["", "U", "XX", "UZB", "998", "ßß"] {
            assert_eq!(Country::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn validity_and_e164_form_agree_with_the_library() {
        let (mut valid, mut wrong) = (0, 0);
        // Only some countries, including Uzbekistan, because the patterns compile slowly.
        for plan in DATABASE.iter().filter(|plan| plan.country_code() % 12 == 2) {
            let kinds = plan.descriptors();
            let examples = [Some(kinds.general()), kinds.fixed_line(), kinds.mobile()];
            for example in examples
                .into_iter()
                .flatten()
                .filter_map(|description| description.example())
            {
                for (text, end) in [(example, ""), (&example[1..], "0"), (example, "1")] {
                    let text = format!("+{}{text}{end}", plan.country_code());
                    let Ok(number) = phonenumber::parse(None, &text) else {
                        continue;
                    };
                    assert_eq!(is_valid(&number), number.is_valid(), "{text}");
                    if number.is_valid() {
                        valid += 1;
                        let library = number.format().mode(phonenumber::Mode::E164).to_string();
                        let ours = e164(&text, None);
                        assert_eq!(ours.as_ref().map(Phone::as_str), Some(library.as_str()));
                    } else {
                        wrong += 1;
                    }
                }
            }
        }
        assert!(valid > 15 && wrong > 15, "{valid} {wrong}");
    }

    proptest! {
        #[test]
        fn normalized_number_is_not_changed_again(national in 100_000_000_u64..999_999_999) {
            let country = Country::parse("UZ");
            if let Some(phone) = e164(&national.to_string(), country) {
                let itself = Some(phone.clone());
                prop_assert_eq!(&itself, &e164(phone.as_str(), country));
                prop_assert_eq!(&itself, &e164(&phone.as_str()[1..], country));
                prop_assert_eq!(&itself, &e164(phone.as_str(), None));
            }
        }

        #[test]
        fn valid_number_never_loses_a_digit_to_strip(
            national in 100_000_000_u64..999_999_999,
            strip in "[0-9]{1,3}",
            from_dial_string: bool,
        ) {
            let country = Country::parse("UZ");
            if let Some(phone) = e164(&format!("998{national}"), country) {
                let text = phone.as_str()[1..].to_owned();
                let raw = RawNumber { text, from_dial_string };
                for direction in [Direction::Inbound, Direction::Outbound] {
                    let read = normalize(&raw, country, Some(&strip), direction);
                    prop_assert_eq!(Some(&phone), read.as_ref());
                }
            }
        }

        #[test]
        fn any_text_is_a_number_or_none_without_panic(text in ".{0,60}", strip in ".{0,3}") {
            let raw = RawNumber { text, from_dial_string: false };
            for country in [None, Country::parse("UZ")] {
                let _ = normalize(&raw, country, Some(&strip), Direction::Outbound);
            }
        }
    }
}
