//! How the lists of leads and employees stand, and which employees match nobody.

use super::{Kind, Status, Todo};
use crate::people::files::{self, News};
use serde::{Deserialize, Serialize};

/// Bad rows that are shown by name; `check` names them all.
const NAMED_MAX: usize = 5;

/// A file of leads or employees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListFile {
    /// Its path.
    pub file: String,
    /// `leads` or `employees`.
    pub kind: String,
    /// Good rows in force.
    pub rows: u64,
    /// Rows that cannot be used.
    pub bad: u64,
    /// The first of them: line and reason.
    pub faults: Vec<String>,
    /// Why the file as it is now is not used; what was read before stays in force.
    pub why: Option<String>,
    /// When the rows in force were read, in epoch seconds; `null` before the first time.
    pub read_at: Option<i64>,
}

impl ListFile {
    /// What was read, or could not be, at this second.
    pub fn take(&mut self, news: &News, at: i64) {
        self.file = news.file.display().to_string();
        news.kind.word().clone_into(&mut self.kind);
        let about = news.about();
        self.bad = about.map_or(0, |about| count(about.bad));
        let named = about.map_or(&[][..], |about| &about.named[..]);
        self.faults = named
            .iter()
            .take(NAMED_MAX)
            .map(ToString::to_string)
            .collect();
        match &news.result {
            Ok(change) => {
                self.rows = count(change.about.rows);
                self.read_at = Some(at);
                self.why = None;
            }
            Err(files::Error::Useless(..)) => self.why = Some("no row can be used".to_owned()),
            Err(error) => self.why = Some(error.to_string()),
        }
    }

    /// What is wrong with it, in words.
    fn fault(&self) -> Option<String> {
        let Self {
            file, rows, bad, ..
        } = self;
        if let Some(why) = &self.why {
            let stays = match self.read_at {
                Some(_) => {
                    let rows = super::findings::counted(*rows, "row", "rows");
                    format!("what was read before stays in force ({rows})")
                }
                None => "nothing of it is in force".to_owned(),
            };
            let why = why.strip_prefix(&format!("{file}: ")).unwrap_or(why);
            return Some(format!("the list {file} cannot be used: {why}; {stays}"));
        }
        if *bad > 0 {
            let rows = super::findings::counted(*bad, "row", "rows");
            let more = match bad.saturating_sub(count(self.faults.len())) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let each = self.faults.join("; ");
            return Some(format!(
                "{rows} of the list {file} cannot be used: {each}{more}"
            ));
        }
        (*rows == 0).then(|| format!("the list {file} has no row"))
    }
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

pub(super) fn lists(status: &Status, found: &mut Vec<Todo>) {
    let faults = status.lists.iter().filter_map(ListFile::fault);
    found.extend(faults.map(|what| Todo {
        kind: Kind::Lists,
        what,
        command: status.check(),
    }));
}
