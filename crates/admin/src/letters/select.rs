//! Which letters a command means.

use crate::refusal::Refusal;
use callbridge_model::Reason;
use callbridge_spool::{Error, Handle, Letter, LetterFilter, RowId, tables};
use serde::{Deserialize, Serialize};

/// The dead letters that a command is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// By id; empty for all that the other rules let through.
    pub ids: Vec<String>,
    /// Letters of this reason alone.
    pub reason: Option<Reason>,
    /// Without any other rule: all of them. A change to letters asks for one of the three.
    pub all: bool,
}

impl Selection {
    /// Returns the selection of all letters.
    pub fn everything() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// Nothing was chosen at all.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.reason.is_none() && !self.all
    }
}

/// The source of letter ids, for errors of a wrong one.
const IDS: &str = "ids are numbers, see `callbridge dead list`";

/// Letters read from the spool at a time.
const PAGE: usize = 200;

/// Walks over the letters of a selection, oldest first, a page at a time, so that however many
/// there are, few are in memory.
pub struct Letters {
    filter: LetterFilter,
    over: bool,
}

impl Letters {
    /// The letters of a selection; an empty one means all of them.
    ///
    /// # Errors
    /// When an id is no number.
    pub fn of(which: &Selection) -> Result<Self, Refusal> {
        let ids = which.ids.iter().map(|id| {
            let wrong = |_| format!("`{id}` is not the id of a letter: {IDS}");
            id.trim().parse().map(RowId).map_err(wrong)
        });
        let ids = ids.collect::<Result<Vec<_>, _>>().map_err(Refusal::usage)?;
        Ok(Self::new((!ids.is_empty()).then_some(ids), which.reason))
    }

    /// The letters of these ids.
    pub fn by_id(ids: Vec<RowId>) -> Self {
        Self::new(Some(ids), None)
    }

    fn new(ids: Option<Vec<RowId>>, reason: Option<Reason>) -> Self {
        let filter = LetterFilter {
            ids,
            reason,
            limit: PAGE,
            ..LetterFilter::default()
        };
        Self {
            filter,
            over: false,
        }
    }

    /// As [`Letters::of`], for commands that change letters: they mean none unless told.
    ///
    /// # Errors
    /// When an id is no number, or nothing was chosen.
    pub fn to_change(which: &Selection) -> Result<Self, Refusal> {
        if which.is_empty() {
            let words = "say which letters: ids, --reason REASON or --all";
            return Err(Refusal::usage(words));
        }
        Self::of(which)
    }

    /// The next page; an empty one at the end.
    ///
    /// # Errors
    /// When the spool cannot be read.
    pub async fn next(&mut self, spool: &Handle) -> Result<Vec<Letter>, Error> {
        if self.over {
            return Ok(Vec::new());
        }
        let filter = self.filter.clone();
        let page = spool
            .read(move |store| tables::letters::letters(store, &filter))
            .await?;
        self.filter.after = page.last().map(|letter| letter.id);
        self.over = page.len() < PAGE;
        Ok(page)
    }
}
