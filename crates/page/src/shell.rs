//! What every page has around its own content: language, zone, who is logged in, where one is.
//! Templates know it as `c` and ask it for texts, times and whatever comes from outside.

use crate::language::Language;
use crate::markup::{Markup, cut, escaped, masked};
use callbridge_admin::PageRole;
use callbridge_call::Direction;
use callbridge_leads::{directory::LeadProfile, lead_request::Finding};
use callbridge_model::status::verdict::Detail;
use callbridge_model::status::{Problem, SourceState};
use callbridge_model::{CallRecord, LeadId, Zone, clock};
use callbridge_spool::{Letter, Listed};
use std::{borrow::Borrow, fmt::Display, sync::Arc};

/// Of a value inside a sentence.
const VALUE_CHARS: usize = 120;
/// Of a sentence from outside: the CRM's words, a finding.
const SENTENCE_CHARS: usize = 1500;

/// The user who is logged in.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    pub(crate) who: String,
    pub(crate) role: PageRole,
    /// The token that each form of this session carries.
    pub(crate) form_token: String,
}

/// A finding or the reason of a letter, and the language that it is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalText {
    pub(crate) lang: &'static str,
    pub(crate) text: String,
}

/// Counts beside the names of the views.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Badges {
    pub(crate) letters: u64,
    pub(crate) waiting: u64,
    /// Customers who wait for a call back.
    pub(crate) missed: u64,
    /// Silent branches. `None` if this is not a hub.
    pub(crate) silent: Option<u64>,
}

/// The surroundings of a page's content, and the texts, times and values that templates ask for.
#[derive(Clone, Debug)]
pub(crate) struct PageShell {
    pub(crate) language: Language,
    pub(crate) zone: Zone,
    /// Epoch seconds at which the request came; times on the page are relative to it.
    pub(crate) now: i64,
    pub(crate) viewer: Option<Viewer>,
    /// The path and query, to come back to.
    pub(crate) target: String,
    pub(crate) badges: Badges,
    /// The name of the PBX.
    pub(crate) pbx: String,
    /// The address of a lead in the CRM, with `{id}` in its place.
    pub(crate) lead_url: Option<Arc<str>>,
    /// A message that is shown once, at the head of the page.
    pub(crate) notice: Option<String>,
}

/// The view of a hub.
const BRANCHES: &str = "/branches";

/// The views, in the order of the navigation: path and key of the name.
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

/// An entry of the navigation.
pub(crate) struct NavEntry {
    pub(crate) path: &'static str,
    pub(crate) name: String,
    pub(crate) icon: &'static str,
    pub(crate) here: bool,
    pub(crate) badge: Option<String>,
}

impl PageShell {
    /// A text by its key.
    pub(crate) fn t<'a>(&self, key: &'a str) -> &'a str {
        self.language.text(key)
    }

    /// A text by the name of a family and a word from outside: `state.` `journaled`. A word that
    /// has no text stands for itself.
    pub(crate) fn word(&self, family: &str, word: &str) -> String {
        let key = format!("{family}.{word}");
        match self.language.has(&key) {
            true => self.language.text(&key).to_owned(),
            false => cut(word, VALUE_CHARS),
        }
    }

    /// Is there a text for this word?
    pub(crate) fn knows(&self, family: &str, word: &str) -> bool {
        self.language.has(&format!("{family}.{word}"))
    }

    /// A text for so many.
    pub(crate) fn n(&self, key: &str, count: impl Borrow<u64>) -> String {
        self.language.counted(key, *count.borrow())
    }

    /// Returns a count as the language writes it: `12,345`.
    pub(crate) fn count(&self, count: impl Borrow<u64>) -> String {
        self.language.number(*count.borrow())
    }

    /// A text with a value in it.
    pub(crate) fn with(&self, key: &str, a: impl Display) -> String {
        self.filled(key, &[a.to_string()])
    }

    /// A text with two values in it.
    pub(crate) fn with2(&self, key: &str, a: impl Display, b: impl Display) -> String {
        self.filled(key, &[a.to_string(), b.to_string()])
    }

    /// A text with values in the place of `{a}`, `{b}` and so on.
    fn filled(&self, key: &str, values: &[String]) -> String {
        let text = self.language.text(key);
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        // In one pass: a value that holds `{b}` stays what it is.
        while let Some(at) = rest.find('{') {
            let mark = rest.as_bytes().get(at + 1);
            let value = mark.and_then(|it| values.get(usize::from(it.wrapping_sub(b'a'))));
            filled.push_str(&rest[..at]);
            filled.push_str(&value.map_or_else(|| "{".to_owned(), |it| cut(it, VALUE_CHARS)));
            rest = &rest[at + value.map_or(1, |_| 3)..];
        }
        filled.push_str(rest);
        filled
    }

    /// Returns the reason for which a call is a letter.
    pub(crate) fn why(&self, letter: &Letter) -> LocalText {
        let phone = letter.phone().unwrap_or(self.t("number.hidden")).to_owned();
        let extension = letter.extension().unwrap_or_default();
        let key = format!("why.{}", letter.reason.word());
        let values = [phone, extension, letter.message.clone()];
        self.local_text(&key, &values, &letter.message)
    }

    /// Returns the remedy for a letter, by the buttons of the page.
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

    /// Returns the text of a finding that waits for a person.
    pub(crate) fn found(&self, problem: &Problem) -> LocalText {
        let Detail { code, values } = &problem.detail;
        self.local_text(&format!("detail.{code}"), values, &problem.message)
    }

    /// The row of the table with these values; in English, and without such a row, the words that
    /// came with them, which say more.
    fn local_text(&self, key: &str, values: &[String], words: &str) -> LocalText {
        let foreign = self.language != Language::English && self.language.has(key);
        LocalText {
            lang: if foreign { self.language.code() } else { "en" },
            text: match foreign || words.is_empty() {
                true => self.filled(key, values),
                false => words.to_owned(),
            },
        }
    }

    /// A value from outside, in a line.
    pub(crate) fn x(&self, text: &str) -> Markup {
        Markup::value(text)
    }

    /// The same where no markup may stand: in a choice.
    pub(crate) fn plain(&self, text: &str) -> String {
        cut(text, VALUE_CHARS)
    }

    /// The same, or a dash.
    pub(crate) fn some(&self, text: &Option<String>) -> Markup {
        match text.as_deref() {
            Some(text) if !text.is_empty() => Markup::value(text),
            _ => self.none(),
        }
    }

    /// A lead's id, linked to its page in the CRM where the way there is known; or a dash.
    pub(crate) fn lead(&self, id: &Option<LeadId>) -> Markup {
        match (id, &self.lead_url) {
            (Some(id), Some(url)) => {
                let url = escaped(&url.replace("{id}", &id.to_string()));
                let link =
                    format!("<a class=\"number\" rel=\"noreferrer\" href=\"{url}\">{id}</a>");
                Markup::made(link)
            }
            _ => self.id(id),
        }
    }

    /// Returns the employee responsible for a lead: the name in the CRM, else the number there.
    pub(crate) fn responsible(&self, profile: &LeadProfile) -> Option<String> {
        let number = || profile.responsible.map(|id| id.to_string());
        profile.responsible_name.clone().or_else(number)
    }

    /// A number of the CRM, or a dash.
    pub(crate) fn id(&self, id: &Option<impl Display>) -> Markup {
        match id {
            Some(id) => Markup::made(format!("<span class=\"number\">{id}</span>")),
            None => self.none(),
        }
    }

    /// For what is not there.
    pub(crate) fn none(&self) -> Markup {
        let said = escaped(self.t("none"));
        Markup::made(format!(
            "<span class=\"none\" aria-hidden=\"true\">–</span><span class=\"hear\">{said}</span>"
        ))
    }

    /// Escapes a sentence from outside, cut at 1,500 characters.
    pub(crate) fn said(&self, text: &str) -> Markup {
        let shown = escaped(&cut(text, SENTENCE_CHARS));
        Markup::made(format!("<bdi>{shown}</bdi>"))
    }

    /// Escapes lines from outside, which are shown whole.
    pub(crate) fn lines(&self, text: &str) -> Markup {
        Markup::lines(text)
    }

    /// Returns a telephone number, whole; `None` reads as hidden.
    pub(crate) fn phone(&self, phone: Option<&str>) -> Markup {
        let hidden = || {
            let said = escaped(self.t("number.hidden"));
            Markup::made(format!("<span class=\"none\">{said}</span>"))
        };
        phone.map_or_else(hidden, Markup::number)
    }

    /// A telephone number in a list: whole for whoever acts on it.
    pub(crate) fn listed_phone(&self, phone: Option<&str>) -> Markup {
        match phone {
            Some(phone) if !self.may_act() => Markup::number(&masked(phone)),
            phone => self.phone(phone),
        }
    }

    /// A moment as short as it can be understood: `14:05`, `20 Nov 14:05`, `20 Nov 2025 14:05`.
    pub(crate) fn time(&self, at: &i64) -> Markup {
        let iso = escaped(&self.part(*at, "%Y-%m-%dT%H:%M:%S%:z"));
        let (whole, words) = (escaped(&self.zone.second(*at)), escaped(&self.moment(*at)));
        let time = format!("<time datetime=\"{iso}\" title=\"{whole}\">{words}</time>");
        Markup::made(time)
    }

    /// A moment as this text has it: `since 10:22`, `10:22 dan beri`.
    pub(crate) fn since(&self, key: &str, at: &i64) -> Markup {
        let words = escaped(self.language.text(key));
        Markup::made(words.replace("{a}", &self.time(at).to_string()))
    }

    /// The same, or a dash.
    pub(crate) fn time_or(&self, at: &Option<i64>) -> Markup {
        at.as_ref().map_or_else(|| self.none(), |at| self.time(at))
    }

    /// A moment in words alone.
    pub(crate) fn moment(&self, at: impl Borrow<i64>) -> String {
        let at = *at.borrow();
        let clock = self.clock(&at);
        match self.part(at, "%Y-%m-%d") == self.part(self.now, "%Y-%m-%d") {
            true => clock,
            false => format!("{} {clock}", self.date(at)),
        }
    }

    /// `20 Nov`, with its year where that is another.
    pub(crate) fn date(&self, at: impl Borrow<i64>) -> String {
        let at = *at.borrow();
        let month = self.word("month", &self.part(at, "%-m"));
        let day = self.with2("date", self.part(at, "%-d"), month);
        match self.part(at, "%Y") {
            year if year == self.part(self.now, "%Y") => day,
            year => format!("{day} {year}"),
        }
    }

    /// The weekday of a moment: `Mon`.
    pub(crate) fn weekday(&self, at: &i64) -> String {
        self.word("weekday", &self.part(*at, "%u"))
    }

    /// The day of a moment, above its calls: `Mon, 23 Nov`.
    pub(crate) fn day(&self, at: &i64) -> String {
        format!("{}, {}", self.weekday(at), self.date(at))
    }

    /// The minute of a moment: `14:05`.
    pub(crate) fn clock(&self, at: &i64) -> String {
        self.part(*at, "%H:%M")
    }

    /// The hour of a moment: `14`.
    pub(crate) fn hour(&self, at: &i64) -> String {
        self.part(*at, "%H")
    }

    /// Returns the zone's abbreviation, which stands behind times: `+05`.
    pub(crate) fn zone_name(&self) -> String {
        self.part(self.now, "%Z")
    }

    fn part(&self, at: i64, form: &str) -> String {
        let at = jiff::Timestamp::from_second(at).unwrap_or(jiff::Timestamp::MIN);
        let at = at.to_zoned(self.zone.as_time_zone().clone());
        at.strftime(form).to_string()
    }

    /// Returns a length of time in two units: `2 h 05 min`, `3 min 20 s`, `12 s`, `4 d 3 h`.
    pub(crate) fn span(&self, seconds: impl Borrow<u64>) -> String {
        let seconds = *seconds.borrow();
        let (m, s) = (seconds / 60, seconds % 60);
        let (h, d) = (m / 60, m / 60 / 24);
        match (d, h, m) {
            (0, 0, 0) => self.with("span.s", s),
            (0, 0, m) if s == 0 => self.with("span.m", m),
            (0, 0, m) => self.with2("span.ms", m, format!("{s:02}")),
            (0, h, m) => self.with2("span.hm", h, format!("{:02}", m % 60)),
            (d, h, _) => self.with2("span.dh", d, h % 24),
        }
    }

    /// The same of a measured time, with a tenth below ten seconds; a dash of none.
    pub(crate) fn measured(&self, seconds: &Option<f64>) -> Markup {
        let Some(seconds) = seconds.filter(|it| it.is_finite() && *it >= 0.0) else {
            return self.none();
        };
        let words = match seconds < 10.0 {
            true => self.with("span.s", self.language.tenths(seconds)),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // finite, positive
            false => self.span(seconds.round() as u64),
        };
        Markup::made(escaped(&words))
    }

    /// Returns the time since `at`, beyond ten minutes without seconds; 0 for a time to come.
    pub(crate) fn ago(&self, at: &i64) -> String {
        match u64::try_from(self.now.saturating_sub(*at)).unwrap_or(0) {
            short @ ..600 => self.span(short),
            long => self.span(long - long % 60),
        }
    }

    /// Returns `true` when the user's role may change something.
    pub(crate) fn may_act(&self) -> bool {
        self.viewer.as_ref().is_some_and(|it| it.role.may_act())
    }

    /// The hidden field that every form carries.
    pub(crate) fn csrf(&self) -> Markup {
        let token = escaped(self.viewer.as_ref().map_or("", |it| &it.form_token));
        Markup::made(format!(
            "<input type=\"hidden\" name=\"token\" value=\"{token}\">"
        ))
    }

    /// Returns the entries of the navigation. Branches are left out if this is not a hub.
    pub(crate) fn nav(&self) -> Vec<NavEntry> {
        let path = self.target.split('?').next().unwrap_or("/");
        let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let here = |view: &str| match view {
            "/" => path == "/",
            view => path.strip_prefix(view).is_some_and(below),
        };
        let badge = |view: &str| match view {
            "/letters" => self.badges.letters,
            "/numbers" => self.badges.waiting,
            "/missed" => self.badges.missed,
            BRANCHES => self.badges.silent.unwrap_or(0),
            _ => 0,
        };
        let entry = |(view, key): (&'static str, &'static str)| NavEntry {
            path: view,
            name: self.t(key).to_owned(),
            icon: key.strip_prefix("nav.").unwrap_or_default(),
            here: here(view),
            badge: (badge(view) > 0).then(|| self.count(badge(view))),
        };
        let mut entries = Vec::new();
        for view in VIEWS {
            if view.0 != BRANCHES || self.badges.silent.is_some() || here(BRANCHES) {
                entries.push(entry(view));
            }
        }
        entries
    }

    /// The languages: code, name, whether it is this one, and where the switch leads.
    pub(crate) fn languages(&self) -> Vec<(&'static str, &'static str, bool, String)> {
        let link = |it: Language| {
            let path = format!("/language/{}", it.code());
            crate::request::link(&path, &[("back", Some(&self.target))])
        };
        let one = |it: Language| (it.code(), it.name(), it == self.language, link(it));
        Language::ALL.into_iter().map(one).collect()
    }

    /// The paths of style, script and sign, which change with them.
    pub(crate) fn assets(&self) -> [&'static str; 3] {
        crate::assets::paths()
    }

    /// A drawing that stands beside a word.
    pub(crate) fn icon(&self, name: &str) -> Markup {
        Markup::icon(name)
    }

    /// Calls under their days, in their order.
    pub(crate) fn by_day<'a>(&self, calls: &'a [Listed]) -> Vec<(String, &'a [Listed])> {
        let day = |call: &Listed| self.day(&call.record.started_at.get());
        let days = calls.chunk_by(|a, b| day(a) == day(b));
        days.map(|calls| (day(&calls[0]), calls)).collect()
    }

    /// Returns a drawing of the call's direction, and of whether it was answered.
    pub(crate) fn direction(&self, call: &CallRecord) -> Markup {
        let (icon, look) = match (call.direction, call.answered) {
            (Direction::Outbound, _) => ("outbound", "out"),
            (Direction::Unknown, _) => ("unknown", "out"),
            (_, true) => ("inbound", "in"),
            (_, false) => ("missed", "lost-call"),
        };
        let said = escaped(&self.word("direction", call.direction.word()));
        let drawing = Markup::icon(icon);
        Markup::made(format!(
            "<span class=\"direction {look}\">{drawing}<span class=\"hear\">{said} </span></span>"
        ))
    }

    /// Returns the text for the state of a source.
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

    /// The look of a call's state.
    pub(crate) fn state_class(&self, state: &str) -> &'static str {
        match state {
            "journaled" => "well",
            "dead" => "down",
            "waiting" => "attention",
            _ => "plain",
        }
    }
}

/// Returns the epoch second of the wall clock.
pub(crate) fn now_seconds() -> i64 {
    clock::now().wall.micros() / 1_000_000
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
