//! The page's languages, and the choice of a language for a browser. Each language's messages are
//! in one file (`texts/en.json`). A message is either a string or one string per plural form. `{a}`
//! and `{b}` are placeholders for values, and `{n}` for the count.

use serde::Deserialize;
use std::{collections::BTreeMap, sync::LazyLock};

/// The cookie with the language chosen in the browser.
pub(crate) const LANGUAGE_COOKIE: &str = "callbridge-language";

/// A language of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Language {
    #[default]
    English,
    Russian,
    /// Uzbek in Latin script.
    Uzbek,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TextEntry {
    One(String),
    Forms(Forms),
}

/// A message that depends on a count, with `few` and `many` if the language has them.
#[derive(Debug, Deserialize)]
struct Forms {
    one: String,
    few: Option<String>,
    many: Option<String>,
    other: Option<String>,
}

type TextTable = BTreeMap<String, TextEntry>;

static ENGLISH: LazyLock<TextTable> = LazyLock::new(|| read(include_str!("../texts/en.json")));
static RUSSIAN: LazyLock<TextTable> = LazyLock::new(|| read(include_str!("../texts/ru.json")));
static UZBEK: LazyLock<TextTable> = LazyLock::new(|| read(include_str!("../texts/uz.json")));

fn read(json: &str) -> TextTable {
    serde_json::from_str(json).expect("the texts are built in, and a test reads each file")
}

impl Language {
    pub(crate) const ALL: [Self; 3] = [Self::English, Self::Russian, Self::Uzbek];

    /// Returns the ISO 639 code for messages and cookies, such as `en`.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Russian => "ru",
            Self::Uzbek => "uz",
        }
    }

    /// Returns the language's own name for itself.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Russian => "Русский",
            Self::Uzbek => "Oʻzbekcha",
        }
    }

    pub(crate) fn from_code(code: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|language| language.code() == code)
    }

    /// Returns the available language with the highest weight in `Accept-Language`, or English if
    /// there is none.
    pub(crate) fn preferred(accept: &str) -> Self {
        let mut best = (0.0, Self::default());
        for wish in accept.split(',').take(20) {
            let mut parts = wish.split(';').map(str::trim);
            let tag = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = match parts.find_map(|part| part.strip_prefix("q=")) {
                Some(weight) => weight.parse::<f32>().unwrap_or(0.0),
                None => 1.0,
            };
            let code = tag.split('-').next().unwrap_or_default();
            if let Some(language) = Self::from_code(code)
                && weight > best.0
            {
                best = (weight, language);
            }
        }
        best.1
    }

    fn texts(self) -> &'static TextTable {
        match self {
            Self::English => &ENGLISH,
            Self::Russian => &RUSSIAN,
            Self::Uzbek => &UZBEK,
        }
    }

    /// Returns the message with this key, or the key itself if the language doesn't have it. A test
    /// checks that none are missing.
    pub(crate) fn text(self, key: &str) -> &str {
        match self.texts().get(key) {
            Some(TextEntry::One(text)) => text,
            Some(TextEntry::Forms(forms)) => &forms.one,
            None => key,
        }
    }

    pub(crate) fn has(self, key: &str) -> bool {
        self.texts().contains_key(key)
    }

    /// Returns the message with this key in the right form for this count, and with the count
    /// inserted.
    pub(crate) fn text_for_count(self, key: &str, count: u64) -> String {
        let text = match self.texts().get(key) {
            Some(TextEntry::Forms(forms)) => self.form(forms, count),
            Some(TextEntry::One(text)) => text,
            None => key,
        };
        text.replace("{n}", &self.number(count))
    }

    /// Formats a count, using thousands separators from five digits on, as in `12,345`.
    pub(crate) fn number(self, count: u64) -> String {
        let separator = match self {
            Self::English => ',',
            Self::Russian | Self::Uzbek => '\u{a0}',
        };
        let digits = count.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (at, digit) in digits.chars().enumerate() {
            // Four digits don't need a separator.
            if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
                text.push(separator);
            }
            text.push(digit);
        }
        text
    }

    /// Formats the number with one decimal, as in `2.4`, using a comma in some languages.
    pub(crate) fn tenths(self, number: f64) -> String {
        let text = format!("{number:.1}");
        match self {
            Self::English => text,
            Self::Russian | Self::Uzbek => text.replace('.', ","),
        }
    }

    fn form(self, forms: &Forms, count: u64) -> &str {
        let form = match (self, count % 10, count % 100) {
            (Self::English | Self::Uzbek, ..) if count == 1 => None,
            (Self::English | Self::Uzbek, ..) => forms.other.as_ref(),
            (Self::Russian, _, 11..=14) => forms.many.as_ref(),
            (Self::Russian, 1, _) => None,
            (Self::Russian, 2..=4, _) => forms.few.as_ref(),
            (Self::Russian, ..) => forms.many.as_ref(),
        };
        form.unwrap_or(&forms.one)
    }
}

#[cfg(test)]
#[path = "language_tests.rs"]
mod tests;
#[cfg(test)]
#[path = "wording_tests.rs"]
mod wording;
