//! Where a fact of a lead comes from, and in which order facts of one moment count.

/// The kind of fact, as it is stored: never change a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::FromRepr)]
#[repr(i64)]
pub enum FactSource {
    /// `LEAD_CREATED`
    Created = 0,
    /// `LEAD_ASSIGNED`
    Assigned = 1,
    /// `LEAD_STAGE_CHANGED`
    StageChanged = 2,
    /// `LEAD_PROPERTIES_UPDATED`
    PropertiesUpdated = 3,
    /// `LEAD_MERGED`
    Merged = 4,
    /// `LEAD_DELETED`
    Deleted = 5,
    /// `lead/filter`
    Filter = 6,
    /// `GET lead/{id}`
    Read = 7,
}

impl FactSource {
    /// The number stored.
    pub const fn number(self) -> i64 {
        self as i64
    }

    /// As the service calls it, for messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "LEAD_CREATED",
            Self::Assigned => "LEAD_ASSIGNED",
            Self::StageChanged => "LEAD_STAGE_CHANGED",
            Self::PropertiesUpdated => "LEAD_PROPERTIES_UPDATED",
            Self::Merged => "LEAD_MERGED",
            Self::Deleted => "LEAD_DELETED",
            Self::Filter => "lead/filter",
            Self::Read => "GET lead",
        }
    }

    /// Of two facts of one second the one of the higher rank holds: a lead is created before
    /// anything else happens to it, and what was read was read after it had happened.
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

/// What is said of a fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Told<T> {
    /// Nothing is said of it.
    #[default]
    Untold,
    /// There is none, or none that can be used.
    None,
    /// This one.
    Is(T),
}

impl<T> Told<T> {
    /// Nothing said means that there is none.
    #[must_use]
    pub fn or_none(self) -> Self {
        match self {
            Self::Untold => Self::None,
            told @ (Self::None | Self::Is(_)) => told,
        }
    }

    /// Another form of the same.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> Told<U> {
        match self {
            Self::Untold => Told::Untold,
            Self::None => Told::None,
            Self::Is(it) => Told::Is(form(it)),
        }
    }
}

impl<T> From<Option<T>> for Told<T> {
    fn from(told: Option<T>) -> Self {
        told.map_or(Self::None, Self::Is)
    }
}
