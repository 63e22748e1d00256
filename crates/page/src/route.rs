//! The paths of the page.

use callbridge_spool::RowId;
use hyper::Method;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Login,
    Logout,
    /// A link of `callbridge page`.
    Open(String),
    Language(String),
    Today,
    Calls,
    CallsCsv,
    Call(String),
    Picture(String),
    Letters,
    Letter(RowId),
    LettersAct,
    LettersExport,
    Job(u64),
    Numbers,
    NumbersCsv,
    LeadGive,
    LeadTake,
    Missed,
    MissedCsv,
    Employees,
    EmployeesCsv,
    Pbx,
    Fleet,
    Check,
    /// Says when something changes.
    Live,
}

impl Route {
    /// By its path.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        match (first, second, parts.next(), parts.next()) {
            ("calls", Some(uuid), Some("picture.svg"), None) => {
                return Some(Self::Picture(uuid.to_owned()));
            }
            (_, _, None, _) => {}
            _ => return None,
        }
        Some(match (first, second) {
            ("", None) => Self::Today,
            ("login", None) => Self::Login,
            ("logout", None) => Self::Logout,
            ("open", Some(token)) => Self::Open(token.to_owned()),
            ("language", Some(code)) => Self::Language(code.to_owned()),
            ("calls", None) => Self::Calls,
            ("calls.csv", None) => Self::CallsCsv,
            ("calls", Some(uuid)) => Self::Call(uuid.to_owned()),
            ("letters", None) => Self::Letters,
            ("letters", Some("act")) => Self::LettersAct,
            ("letters", Some("export")) => Self::LettersExport,
            ("letters", Some(id)) => Self::Letter(RowId(id.parse().ok()?)),
            ("jobs", Some(id)) => Self::Job(id.parse().ok()?),
            ("numbers", None) => Self::Numbers,
            ("numbers.csv", None) => Self::NumbersCsv,
            ("numbers", Some("give")) => Self::LeadGive,
            ("numbers", Some("take")) => Self::LeadTake,
            ("missed", None) => Self::Missed,
            ("missed.csv", None) => Self::MissedCsv,
            ("employees", None) => Self::Employees,
            ("employees.csv", None) => Self::EmployeesCsv,
            ("pbx", None) => Self::Pbx,
            ("fleet", None) => Self::Fleet,
            ("check", None) => Self::Check,
            ("live", None) => Self::Live,
            _ => return None,
        })
    }

    /// The methods that it knows.
    pub(crate) const fn methods(&self) -> &'static str {
        match self {
            Self::Login | Self::Open(_) | Self::Check | Self::LettersExport => "GET,HEAD,POST",
            Self::Logout | Self::LettersAct | Self::LeadGive | Self::LeadTake => "POST",
            Self::Language(_)
            | Self::Today
            | Self::Calls
            | Self::CallsCsv
            | Self::Call(_)
            | Self::Picture(_)
            | Self::Letters
            | Self::Letter(_)
            | Self::Job(_)
            | Self::Numbers
            | Self::NumbersCsv
            | Self::Missed
            | Self::MissedCsv
            | Self::Employees
            | Self::EmployeesCsv
            | Self::Pbx
            | Self::Fleet
            | Self::Live => "GET,HEAD",
        }
    }

    pub(crate) fn allows(&self, method: &Method) -> bool {
        self.methods().split(',').any(|it| it == method.as_str())
    }

    /// Is a POST to it one that changes something, and not for everybody?
    pub(crate) const fn is_action(&self) -> bool {
        !matches!(self, Self::Logout | Self::Login | Self::Open(_))
    }
}
