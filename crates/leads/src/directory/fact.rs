//! Where a fact of a lead comes from, and in which order facts of one moment count.

use callbridge_model::LeadId;

/// Source of news of a lead: an event of §6.2, or an answer of the API.
#[derive(Clone, Debug, PartialEq, Eq, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(FactSource),
    doc = "The source of a fact, stored as its number: never change one.",
    derive(PartialOrd, Ord, strum::FromRepr)
)]
#[repr(i64)]
pub enum ChangeKind {
    /// `LEAD_CREATED`: the lead is new.
    Created = 0,
    /// `LEAD_ASSIGNED`: another employee is responsible for it.
    Assigned = 1,
    /// `LEAD_STAGE_CHANGED`: the lead moved within its pipeline.
    StageChanged = 2,
    /// `LEAD_PROPERTIES_UPDATED`: its name, contacts or other properties changed.
    PropertiesUpdated = 3,
    /// `LEAD_MERGED`: these leads are one with it now (`mergedLeadIds`).
    Merged {
        /// The leads that are no more.
        from: Vec<LeadId>,
    } = 4,
    /// `LEAD_DELETED`, or a `GET lead/{id}` that was answered 409 (§7.4).
    Deleted = 5,
    /// A row of `lead/filter`, as the backfill reads them.
    Filter = 6,
    /// The answer to `GET lead/{id}`.
    Read = 7,
}

impl ChangeKind {
    /// Returns the source that an event of this kind (§6.2) is, with the leads that were merged
    /// into its lead; `None` where the kind is none of a lead's.
    pub fn of_event(kind: &str, merged: Vec<LeadId>) -> Option<Self> {
        Some(match kind {
            "LEAD_CREATED" => Self::Created,
            "LEAD_ASSIGNED" => Self::Assigned,
            "LEAD_STAGE_CHANGED" => Self::StageChanged,
            "LEAD_PROPERTIES_UPDATED" => Self::PropertiesUpdated,
            "LEAD_MERGED" => Self::Merged { from: merged },
            "LEAD_DELETED" => Self::Deleted,
            _ => return None,
        })
    }

    /// Returns the kind alone, without the merged leads.
    pub fn source(&self) -> FactSource {
        self.into()
    }
}

impl FactSource {
    /// The number under which the source is stored.
    pub const fn number(self) -> i64 {
        self as i64
    }

    /// Returns the service's own name of it, for messages.
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
