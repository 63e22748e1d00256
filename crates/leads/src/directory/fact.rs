//! Where a fact of a lead comes from, and in which order facts of one moment count.

/// Source of a fact or of news of a lead: an event of §6.2, or an answer of the API. It is stored
/// as its number: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i64)]
#[derive(strum::EnumString, strum::FromRepr, strum::IntoStaticStr)]
pub enum ChangeKind {
    /// The lead is new.
    #[strum(serialize = "LEAD_CREATED")]
    Created = 0,
    /// Another employee is responsible for the lead.
    #[strum(serialize = "LEAD_ASSIGNED")]
    Assigned = 1,
    /// The lead moved within its pipeline.
    #[strum(serialize = "LEAD_STAGE_CHANGED")]
    StageChanged = 2,
    /// Its name, contacts or other properties changed.
    #[strum(serialize = "LEAD_PROPERTIES_UPDATED")]
    PropertiesUpdated = 3,
    /// Other leads are one with it now (`mergedLeadIds`).
    #[strum(serialize = "LEAD_MERGED")]
    Merged = 4,
    /// The lead was deleted, or a `GET lead/{id}` was answered 409 (§7.4).
    #[strum(serialize = "LEAD_DELETED")]
    Deleted = 5,
    /// A row of `lead/filter`, as the backfill reads them.
    #[strum(serialize = "lead/filter")]
    Filter = 6,
    /// The answer to `GET lead/{id}`.
    #[strum(serialize = "GET lead")]
    Read = 7,
}

impl ChangeKind {
    /// Returns the source that an event of this kind (§6.2) is; `None` where the kind is none of a
    /// lead's.
    pub fn of_event(kind: &str) -> Option<Self> {
        kind.parse().ok().filter(|kind| *kind <= Self::Deleted)
    }

    /// Returns the service's own name of it, for messages.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Rank of the source: of two facts of one second the one of the higher rank holds. A lead is
    /// created before anything else happens to it, and what was read was read after it had
    /// happened.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Created => 0,
            Self::Assigned
            | Self::StageChanged
            | Self::PropertiesUpdated
            | Self::Merged
            | Self::Deleted => 1,
            Self::Filter | Self::Read => 2,
        }
    }
}

/// Statement of one piece of news on one fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FactUpdate<T> {
    /// Nothing is said of it.
    #[default]
    Unchanged,
    /// The lead has no such fact, or none that can be used.
    None,
    /// The fact has this value.
    Is(T),
}

impl<T> FactUpdate<T> {
    /// Takes an update that says nothing for none.
    #[must_use]
    pub fn or_none(self) -> Self {
        match self {
            Self::Unchanged => Self::None,
            update @ (Self::None | Self::Is(_)) => update,
        }
    }

    /// Converts the value, where there is one.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> FactUpdate<U> {
        match self {
            Self::Unchanged => FactUpdate::Unchanged,
            Self::None => FactUpdate::None,
            Self::Is(it) => FactUpdate::Is(form(it)),
        }
    }
}

impl<T> From<Option<T>> for FactUpdate<T> {
    fn from(update: Option<T>) -> Self {
        update.map_or(Self::None, Self::Is)
    }
}
