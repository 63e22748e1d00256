//! The frame around each page's content, which includes the language, time zone, user, and
//! navigation. Templates call it `c`, and use it to format messages, times, and values from the CRM
//! or the PBX.

use crate::language::Language;
use crate::markup::{Markup, cut, escape, mask};
use callbridge_admin::PageRole;
use callbridge_call::Direction;
use callbridge_leads::{directory::LeadProfile, lead_request::Finding};
use callbridge_model::status::verdict::Detail;
use callbridge_model::status::{Problem, SourceState};
use callbridge_model::{CallRecord, LeadId, Zone, clock};
use callbridge_spool::{Letter, Listed};
use std::{borrow::Borrow, fmt::Display, sync::Arc};

/// Maximum length in characters of a value inside a sentence.
const VALUE_CHARS: usize = 120;
/// Maximum length in characters of a sentence that isn't the page's own, such as the CRM's message
/// or a finding.
const SENTENCE_CHARS: usize = 1500;

/// The logged-in user.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    pub(crate) who: String,
    pub(crate) role: PageRole,
    /// The token that every form in this session contains.
    pub(crate) form_token: String,
}

/// A text along with its language, such as a finding or a dead letter's reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalText {
    pub(crate) lang: &'static str,
    pub(crate) text: String,
}

/// Counts shown next to the views' names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Badges {
    pub(crate) letters: u64,
    pub(crate) waiting: u64,
    /// Number of customers waiting for a callback.
    pub(crate) missed: u64,
    /// Number of silent branches, or `None` if this isn't a hub.
    pub(crate) silent: Option<u64>,
}

/// The frame around a page's content, which provides templates with messages, times, and values.
#[derive(Clone, Debug)]
pub(crate) struct PageShell {
    pub(crate) language: Language,
    pub(crate) zone: Zone,
    /// When the request arrived, in epoch seconds. Relative times on the page are counted from this
    /// time.
    pub(crate) now: i64,
    pub(crate) viewer: Option<Viewer>,
    /// The request's path and query, for links that return to it.
    pub(crate) target: String,
    pub(crate) badges: Badges,
    /// The PBX's name.
    pub(crate) pbx: String,
    /// The URL of a lead in the CRM, where `{id}` is the placeholder for its ID.
    pub(crate) lead_url: Option<Arc<str>>,
    /// A message that's shown once, at the top of the page.
    pub(crate) notice: Option<String>,
}

/// The path of the view that only a hub has.
const BRANCHES: &str = "/branches";

/// The views in the order of the navigation, each with its path and the key of its name.
const VIEWS: [(&str, &str); 9] = [
    ("/", "nav.today"),
    ("/calls", "nav.calls"),
    ("/letters", "nav.dead_letters"),
    ("/numbers", "nav.numbers"),
    ("/missed", "nav.missed"),
    ("/employees", "nav.employees"),
    (BRANCHES, "nav.branches"),
    ("/pbx", "nav.pbx"),
    ("/check", "nav.check"),
];

/// An entry in the navigation.
pub(crate) struct NavEntry {
    pub(crate) path: &'static str,
    pub(crate) name: String,
    pub(crate) icon: &'static str,
    pub(crate) here: bool,
    pub(crate) badge: Option<String>,
}

impl PageShell {
    /// Returns the message with this key.
    pub(crate) fn t<'a>(&self, key: &'a str) -> &'a str {
        self.language.text(key)
    }

    /// Returns the localized form of a word in a family, such as `journaled` in the `state` family.
    /// If there's none, the word is returned unchanged.
    pub(crate) fn word(&self, family: &str, word: &str) -> String {
        let key = format!("{family}.{word}");
        if self.language.has(&key) {
            self.language.text(&key).to_owned()
        } else {
            cut(word, VALUE_CHARS)
        }
    }

    /// Returns `true` if there's a localized form of this word.
    pub(crate) fn has_word(&self, family: &str, word: &str) -> bool {
        self.language.has(&format!("{family}.{word}"))
    }

    /// Returns the message with this key in the plural form for this count, with the count
    /// inserted.
    pub(crate) fn n(&self, key: &str, count: impl Borrow<u64>) -> String {
        self.language.text_for_count(key, *count.borrow())
    }

    /// Formats a count the way the language does, as in `12,345`.
    pub(crate) fn count(&self, count: impl Borrow<u64>) -> String {
        self.language.number(*count.borrow())
    }

    /// Returns the message with this key, with one value inserted.
    pub(crate) fn text_with(&self, key: &str, a: impl Display) -> String {
        self.fill(key, &[a.to_string()])
    }

    /// Returns the message with this key, with two values inserted.
    pub(crate) fn text_with_two(&self, key: &str, a: impl Display, b: impl Display) -> String {
        self.fill(key, &[a.to_string(), b.to_string()])
    }

    /// Replaces `{a}`, `{b}`, and so on in a message with these values.
    fn fill(&self, key: &str, values: &[String]) -> String {
        let text = self.language.text(key);
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        // This is a single pass, so that `{b}` inside a value isn't replaced.
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            let letter = rest.as_bytes().get(at + 1);
            let index = letter.map(|letter| usize::from(letter.wrapping_sub(b'a')));
            if let Some(value) = index.and_then(|index| values.get(index)) {
                filled.push_str(&cut(value, VALUE_CHARS));
                rest = &rest[at + 3..];
            } else {
                filled.push('{');
                rest = &rest[at + 1..];
            }
        }
        filled.push_str(rest);
        filled
    }

    /// Returns why a call became a dead letter.
    pub(crate) fn reason_text(&self, letter: &Letter) -> LocalText {
        let phone = letter.phone().unwrap_or(self.t("number.hidden")).to_owned();
        let extension = letter.extension().unwrap_or_default();
        let key = format!("why.{}", letter.reason.word());
        let values = [phone, extension, letter.message.clone()];
        self.local_text(&key, &values, &letter.message)
    }

    /// Returns the fix for a dead letter, in the form in which it can be applied on the page.
    pub(crate) fn remedy(&self, letter: &Letter) -> String {
        self.word(
            "remedy",
            match (letter.finding, letter.employee()) {
                (Some(Finding::LeadMissing), _) => "lead_missing",
                (Some(Finding::LeadExists), Some(_)) => "employee_missing",
                _ => letter.reason.word(),
            },
        )
    }

    /// Returns the message for a problem that needs attention.
    pub(crate) fn problem_text(&self, problem: &Problem) -> LocalText {
        let Detail { code, values } = &problem.detail;
        self.local_text(&format!("detail.{code}"), values, &problem.message)
    }

    /// Returns the message with this key and these values, if it has been translated. In English,
    /// `message`, which came with the values, is more precise and used instead, if there is one.
    fn local_text(&self, key: &str, values: &[String], message: &str) -> LocalText {
        let is_translated = self.language != Language::English && self.language.has(key);
        let lang = if is_translated {
            self.language.code()
        } else {
            "en"
        };
        let text = if is_translated || message.is_empty() {
            self.fill(key, values)
        } else {
            message.to_owned()
        };
        LocalText { lang, text }
    }

    /// Renders a value from the CRM or the PBX for use in a line, escaped and truncated.
    pub(crate) fn x(&self, text: &str) -> Markup {
        Markup::value(text)
    }

    /// Renders a value from the CRM or the PBX as plain text, for places without markup, such as an
    /// option.
    pub(crate) fn plain(&self, text: &str) -> String {
        cut(text, VALUE_CHARS)
    }

    /// Renders a value from the PBX or the CRM, or a dash if it's empty or missing.
    pub(crate) fn value_or_dash(&self, text: &Option<String>) -> Markup {
        match text.as_deref() {
            Some(text) if !text.is_empty() => Markup::value(text),
            _ => self.none(),
        }
    }

    /// Returns a lead's ID, linked to the lead if the CRM's URL is known, or a dash if there's no
    /// ID.
    pub(crate) fn lead(&self, id: &Option<LeadId>) -> Markup {
        match (id, &self.lead_url) {
            (Some(id), Some(url)) => {
                let url = escape(&url.replace("{id}", &id.to_string()));
                let link =
                    format!("<a class=\"number\" rel=\"noreferrer\" href=\"{url}\">{id}</a>");
                Markup::from_html(link)
            }
            _ => self.id(id),
        }
    }

    /// Returns the employee responsible for a lead, by name as in the CRM or, failing that, by ID.
    pub(crate) fn responsible(&self, profile: &LeadProfile) -> Option<String> {
        let name = profile.responsible_name.clone();
        name.or_else(|| profile.responsible.map(|id| id.to_string()))
    }

    /// Returns an ID from the CRM, or a dash if there is none.
    pub(crate) fn id(&self, id: &Option<impl Display>) -> Markup {
        match id {
            Some(id) => Markup::from_html(format!("<span class=\"number\">{id}</span>")),
            None => self.none(),
        }
    }

    /// Returns the dash that stands for a missing value.
    pub(crate) fn none(&self) -> Markup {
        let said = escape(self.t("none"));
        Markup::from_html(format!(
            "<span class=\"none\" aria-hidden=\"true\">–</span><span class=\"hear\">{said}</span>"
        ))
    }

    /// Renders a sentence from the CRM or the PBX, escaped and truncated to 1,500 characters.
    pub(crate) fn sentence(&self, text: &str) -> Markup {
        let shown = escape(&cut(text, SENTENCE_CHARS));
        Markup::from_html(format!("<bdi>{shown}</bdi>"))
    }

    /// Renders multiline text from the CRM or the PBX, escaped but not truncated.
    pub(crate) fn lines(&self, text: &str) -> Markup {
        Markup::lines(text)
    }

    /// Returns a complete phone number. `None` is shown as hidden.
    pub(crate) fn phone(&self, phone: Option<&str>) -> Markup {
        let Some(phone) = phone else {
            let hidden = escape(self.t("number.hidden"));
            return Markup::from_html(format!("<span class=\"none\">{hidden}</span>"));
        };
        Markup::number(phone)
    }

    /// Returns a phone number for a list, masked if the user's role isn't allowed to change
    /// anything.
    pub(crate) fn listed_phone(&self, phone: Option<&str>) -> Markup {
        match phone {
            Some(phone) if !self.may_act() => Markup::number(&mask(phone)),
            phone => self.phone(phone),
        }
    }

    /// Returns a time in its shortest unambiguous form, such as `14:05`, `20 Nov 14:05`, or `20 Nov
    /// 2025 14:05`.
    pub(crate) fn time(&self, at: &i64) -> Markup {
        let iso = escape(&self.part(*at, "%Y-%m-%dT%H:%M:%S%:z"));
        let whole = escape(&self.zone.second(*at));
        let short = escape(&self.moment(*at));
        Markup::from_html(format!(
            "<time datetime=\"{iso}\" title=\"{whole}\">{short}</time>"
        ))
    }

    /// Returns the message with this key, with a time inserted, as in `since 10:22` or `10:22 dan
    /// beri`.
    pub(crate) fn text_with_time(&self, key: &str, at: &i64) -> Markup {
        let message = escape(self.language.text(key));
        Markup::from_html(message.replace("{a}", &self.time(at).to_string()))
    }

    /// Returns a time, or a dash if there is none.
    pub(crate) fn time_or(&self, at: &Option<i64>) -> Markup {
        at.as_ref().map_or_else(|| self.none(), |at| self.time(at))
    }

    /// Returns a time as plain text, without markup.
    pub(crate) fn moment(&self, at: impl Borrow<i64>) -> String {
        let at = *at.borrow();
        let clock = self.clock(&at);
        if self.part(at, "%Y-%m-%d") == self.part(self.now, "%Y-%m-%d") {
            clock
        } else {
            format!("{} {clock}", self.date(at))
        }
    }

    /// Returns a date such as `20 Nov`, including the year if it isn't the current one.
    pub(crate) fn date(&self, at: impl Borrow<i64>) -> String {
        let at = *at.borrow();
        let month = self.word("month", &self.part(at, "%-m"));
        let day = self.text_with_two("date", self.part(at, "%-d"), month);
        match self.part(at, "%Y") {
            year if year == self.part(self.now, "%Y") => day,
            year => format!("{day} {year}"),
        }
    }

    /// Returns a time's weekday, such as `Mon`.
    pub(crate) fn weekday(&self, at: &i64) -> String {
        self.word("weekday", &self.part(*at, "%u"))
    }

    /// Returns a time's day as a heading for its calls, such as `Mon, 23 Nov`.
    pub(crate) fn day(&self, at: &i64) -> String {
        format!("{}, {}", self.weekday(at), self.date(at))
    }

    /// Returns a time's hour and minute, as in `14:05`.
    pub(crate) fn clock(&self, at: &i64) -> String {
        self.part(*at, "%H:%M")
    }

    /// Returns a time's hour, as in `14`.
    pub(crate) fn hour(&self, at: &i64) -> String {
        self.part(*at, "%H")
    }

    /// Returns the time zone's abbreviation, such as `+05`, which is shown with times.
    pub(crate) fn zone_name(&self) -> String {
        self.part(self.now, "%Z")
    }

    fn part(&self, at: i64, form: &str) -> String {
        let instant = jiff::Timestamp::from_second(at).unwrap_or(jiff::Timestamp::MIN);
        let local = instant.to_zoned(self.zone.as_time_zone().clone());
        local.strftime(form).to_string()
    }

    /// Returns a duration in its two largest units, such as `2 h 05 min`, `3 min 20 s`, `12 s`, or
    /// `4 d 3 h`.
    pub(crate) fn span(&self, seconds: impl Borrow<u64>) -> String {
        let seconds = *seconds.borrow();
        let minutes = seconds / 60;
        let hours = minutes / 60;
        let days = hours / 24;
        if days > 0 {
            return self.text_with_two("span.dh", days, hours % 24);
        }
        if hours > 0 {
            return self.text_with_two("span.hm", hours, format!("{:02}", minutes % 60));
        }
        match (minutes, seconds % 60) {
            (0, rest) => self.text_with("span.s", rest),
            (_, 0) => self.text_with("span.m", minutes),
            (_, rest) => self.text_with_two("span.ms", minutes, format!("{rest:02}")),
        }
    }

    /// Returns a measured duration, with one decimal below ten seconds, or a dash if there is none.
    pub(crate) fn measured_span(&self, seconds: &Option<f64>) -> Markup {
        let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0) else {
            return self.none();
        };
        let message = if seconds < 10.0 {
            self.text_with("span.s", self.language.tenths(seconds))
        } else {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // finite, positive
            let whole = seconds.round() as u64;
            self.span(whole)
        };
        Markup::from_html(escape(&message))
    }

    /// Returns the time elapsed since `at`, without seconds from ten minutes on, or 0 for a time in
    /// the future.
    pub(crate) fn time_since(&self, at: &i64) -> String {
        match u64::try_from(self.now.saturating_sub(*at)).unwrap_or(0) {
            short @ ..600 => self.span(short),
            long => self.span(long - long % 60),
        }
    }

    /// Returns `true` if the user's role is allowed to change anything.
    pub(crate) fn may_act(&self) -> bool {
        let viewer = self.viewer.as_ref();
        viewer.is_some_and(|viewer| viewer.role.may_act())
    }

    /// Returns the hidden field with the token, which every form contains.
    pub(crate) fn csrf(&self) -> Markup {
        let viewer = self.viewer.as_ref();
        let token = escape(viewer.map_or("", |viewer| &viewer.form_token));
        Markup::from_html(format!(
            "<input type=\"hidden\" name=\"token\" value=\"{token}\">"
        ))
    }

    /// Returns the entries in the navigation. Branches are only included if this is a hub.
    pub(crate) fn nav(&self) -> Vec<NavEntry> {
        let mut entries = Vec::new();
        for (path, key) in VIEWS {
            let here = self.is_below(path);
            if path == BRANCHES && self.badges.silent.is_none() && !here {
                continue;
            }
            let count = self.badge_count(path);
            entries.push(NavEntry {
                path,
                name: self.t(key).to_owned(),
                icon: key.strip_prefix("nav.").unwrap_or_default(),
                here,
                badge: (count > 0).then(|| self.count(count)),
            });
        }
        entries
    }

    /// Returns `true` if the requested path is this view's path or below it.
    fn is_below(&self, view: &str) -> bool {
        let path = self.target.split('?').next().unwrap_or("/");
        if view == "/" {
            return path == "/";
        }
        let rest = path.strip_prefix(view);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn badge_count(&self, view: &str) -> u64 {
        match view {
            "/letters" => self.badges.letters,
            "/numbers" => self.badges.waiting,
            "/missed" => self.badges.missed,
            BRANCHES => self.badges.silent.unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns each language's code, name, whether it's the current one, and the link that switches
    /// to it.
    pub(crate) fn languages(&self) -> Vec<(&'static str, &'static str, bool, String)> {
        let mut languages = Vec::new();
        for language in Language::ALL {
            let path = format!("/language/{}", language.code());
            let link = crate::request::link(&path, &[("back", Some(&self.target))]);
            let is_current = language == self.language;
            languages.push((language.code(), language.name(), is_current, link));
        }
        languages
    }

    /// Returns the paths of the style, the script, and the icon, which change with their content.
    pub(crate) fn assets(&self) -> [&'static str; 3] {
        crate::assets::paths()
    }

    /// Returns an icon to be shown next to a word.
    pub(crate) fn icon(&self, name: &str) -> Markup {
        Markup::icon(name)
    }

    /// Groups calls by day, keeping the given order.
    pub(crate) fn by_day<'a>(&self, calls: &'a [Listed]) -> Vec<(String, &'a [Listed])> {
        let days = calls.chunk_by(|call, next| self.day_of(call) == self.day_of(next));
        days.map(|calls| (self.day_of(&calls[0]), calls)).collect()
    }

    fn day_of(&self, call: &Listed) -> String {
        self.day(&call.record.started_at.get())
    }

    /// Returns an icon for the call's direction and whether it was answered.
    pub(crate) fn direction(&self, call: &CallRecord) -> Markup {
        let (icon, look) = match (call.direction, call.answered) {
            (Direction::Outbound, _) => ("outbound", "out"),
            (Direction::Unknown, _) => ("unknown", "out"),
            (_, true) => ("inbound", "in"),
            (_, false) => ("missed", "lost-call"),
        };
        let said = escape(&self.word("direction", call.direction.word()));
        let drawing = Markup::icon(icon);
        Markup::from_html(format!(
            "<span class=\"direction {look}\">{drawing}<span class=\"hear\">{said} </span></span>"
        ))
    }

    /// Returns the message for a source's state.
    pub(crate) fn source_state(&self, state: &SourceState) -> &'static str {
        let key = match state {
            SourceState::Up => "source.up",
            SourceState::Connected => "source.connected",
            SourceState::Down => "source.down",
            SourceState::Reading => "source.reading",
            SourceState::Done => "source.done",
        };
        self.t(key)
    }

    /// Returns the style class for a call's state.
    pub(crate) fn state_class(&self, state: &str) -> &'static str {
        match state {
            "journaled" => "well",
            "dead" => "down",
            "waiting" => "attention",
            _ => "plain",
        }
    }
}

/// Returns the wall clock's time in epoch seconds.
pub(crate) fn now_seconds() -> i64 {
    clock::now().wall.micros() / 1_000_000
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
