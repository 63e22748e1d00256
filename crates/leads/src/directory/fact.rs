//! Where a fact about a lead comes from, and which of several facts reported for the same second
//! takes precedence.

/// Where a fact or news about a lead comes from, which is either an event (§6.2) or an API
/// response. It's stored as its number, so never change a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i64)]
#[derive(strum::EnumString, strum::FromRepr, strum::IntoStaticStr)]
pub enum ChangeKind {
    /// The lead was created.
    #[strum(serialize = "LEAD_CREATED")]
    Created = 0,
    /// A different employee is now responsible for the lead.
    #[strum(serialize = "LEAD_ASSIGNED")]
    Assigned = 1,
    #[strum(serialize = "LEAD_STAGE_CHANGED")]
    StageChanged = 2,
    /// The lead's name, contacts, or other properties changed.
    #[strum(serialize = "LEAD_PROPERTIES_UPDATED")]
    PropertiesUpdated = 3,
    /// Other leads were merged into this one (`mergedLeadIds`).
    #[strum(serialize = "LEAD_MERGED")]
    Merged = 4,
    /// The lead was deleted, or the response to `GET lead/{id}` was 409 (§7.4).
    #[strum(serialize = "LEAD_DELETED")]
    Deleted = 5,
    /// A row of `lead/filter`, as read by the backfill.
    #[strum(serialize = "lead/filter")]
    Filter = 6,
    /// The response to `GET lead/{id}`.
    #[strum(serialize = "GET lead")]
    Read = 7,
}

impl ChangeKind {
    /// Returns the source for an event of this kind (§6.2), or `None` if the kind isn't about
    /// leads.
    pub fn from_event(kind: &str) -> Option<Self> {
        kind.parse().ok().filter(|kind| *kind <= Self::Deleted)
    }

    /// Returns the name of the event or endpoint for messages.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the source's rank. If two facts are from the same second, the one with the higher
    /// rank is valid. A lead is created before its other events, and a response is read after any
    /// events from the same second.
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

/// What a piece of news does to a fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FactUpdate<T> {
    /// The news doesn't mention the fact.
    #[default]
    Unchanged,
    /// The news shows that the lead has no such fact, or no usable one.
    None,
    Is(T),
}

impl<T> FactUpdate<T> {
    /// Turns [`Self::Unchanged`] into [`Self::None`].
    #[must_use]
    pub fn or_none(self) -> Self {
        match self {
            Self::Unchanged => Self::None,
            update @ (Self::None | Self::Is(_)) => update,
        }
    }

    /// Converts the value of [`Self::Is`] with `form`.
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
