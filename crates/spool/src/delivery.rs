//! A delivery as the message that other machines of the same login take, and back.

use crate::op::{Delivery, WebhookEvent};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_formats::message::WebhookMessage;
use callbridge_formats::message::webhook::{CompletedCall, ContactTold, LeadTold};
use callbridge_leads::directory::news::ContactId;
use callbridge_leads::directory::profile::{Name, ProfileNews, Responsible};
use callbridge_leads::directory::{ContactPhones, LeadNews, Told, What};
use callbridge_model::{CallUuid, EmployeeId, LeadId, Phone};
use ring::digest;

/// The kind of an event about a call.
const COMPLETED: &str = "CALL_COMPLETED";
/// Stands for no employee.
const NOBODY: i64 = 0;

impl WebhookEvent {
    /// Its kind, as the service calls it (§6.2).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Completed { .. } => COMPLETED,
            Self::Learn(news) => news.what.told().word(),
        }
    }
}

impl Delivery {
    /// The same, for others to read: a digest stands for the signature, which whoever reads it
    /// could send again under another installation.
    #[must_use]
    pub fn without_signature(mut self) -> Self {
        let digest = digest::digest(&digest::SHA256, &self.signature);
        if let Ok(digest) = digest.as_ref().try_into() {
            self.signature = digest;
        }
        self
    }

    /// The message of this delivery; its `signature` is the digest of
    /// [`without_signature`](Self::without_signature) here.
    pub fn message(&self) -> WebhookMessage {
        let (call, lead) = match &self.told {
            WebhookEvent::Completed { uuid, leads, shown } => {
                let leads = leads.iter().map(|lead| lead.get()).collect();
                let call = CompletedCall {
                    uuid: uuid.0,
                    leads,
                    shown: shown.as_deref().cloned(),
                };
                (Some(call), None)
            }
            WebhookEvent::Learn(news) => (None, Some(lead_told(news))),
        };
        WebhookMessage {
            event: self.event.clone(),
            installation: self.installation.clone(),
            company: self.company.clone(),
            proof: hex(&self.signature),
            kind: self.told.kind().to_owned(),
            call,
            lead,
        }
    }

    /// The delivery of a message that came at this moment. The service does not send it again.
    ///
    /// # Errors
    /// What is wrong with the message, and what it may be.
    pub fn of_message(told: &WebhookMessage, at: EventTime) -> Result<Self, String> {
        let event = match (&told.call, &told.lead) {
            (Some(call), _) if told.kind == COMPLETED => WebhookEvent::Completed {
                uuid: CallUuid(call.uuid),
                leads: leads(&call.leads, "call.leads")?,
                shown: call.shown.clone().map(Box::new),
            },
            (None, Some(lead)) => WebhookEvent::Learn(Box::new(news(&told.kind, lead)?)),
            (Some(_) | None, _) => return Err(other_kind(&told.kind)),
        };
        Ok(Self {
            installation: told.installation.clone(),
            event: told.event.clone(),
            signature: unhex(&told.proof).ok_or_else(|| {
                "proof: it is not a digest; it may be 64 hexadecimal digits".to_owned()
            })?,
            company: told.company.clone(),
            at,
            comes_again: false,
            told: event,
        })
    }
}

fn other_kind(kind: &str) -> String {
    let shown: String = kind.chars().take(40).collect();
    format!(
        "kind: it is {shown:?}; it may be {COMPLETED} with a call, or one of LEAD_CREATED, \
         LEAD_ASSIGNED, LEAD_STAGE_CHANGED, LEAD_PROPERTIES_UPDATED, LEAD_MERGED and LEAD_DELETED \
         with a lead"
    )
}

fn lead_told(news: &LeadNews) -> LeadTold {
    let texts = |all: &[Phone]| all.iter().map(|it| it.as_str().to_owned()).collect();
    let contact = |it: &ContactPhones| ContactTold {
        contact: it.contact.map(ContactId::get),
        name: text(&it.name, Name::as_str),
        now: texts(&it.now),
        before: texts(&it.before),
    };
    let responsible = match &news.profile.responsible {
        Told::Is(it) => Some(it),
        Told::Untold | Told::None => None,
    };
    LeadTold {
        id: news.lead.get(),
        at: news.at.get(),
        phone: text(&news.phone, Phone::as_str),
        name: text(&news.profile.name, Name::as_str),
        responsible: match &news.profile.responsible {
            Told::Untold => None,
            Told::None => Some(NOBODY),
            Told::Is(it) => Some(it.id.get()),
        },
        responsible_name: responsible.and_then(|it| it.name.clone()).map(String::from),
        stage: text(&news.profile.stage, Name::as_str),
        merged: match &news.what {
            What::Merged { from } => from.iter().map(|lead| lead.get()).collect(),
            What::Created
            | What::Assigned
            | What::StageChanged
            | What::PropertiesUpdated
            | What::Deleted
            | What::Filter
            | What::Read => Vec::new(),
        },
        contacts: news.contacts.iter().map(contact).collect(),
    }
}

/// Empty where there is none, `None` where nothing is told.
fn text<T>(told: &Told<T>, text: impl FnOnce(&T) -> &str) -> Option<String> {
    match told {
        Told::Untold => None,
        Told::None => Some(String::new()),
        Told::Is(it) => Some(text(it).to_owned()),
    }
}

fn name(text: Option<&str>) -> Told<Name> {
    text.map_or(Told::Untold, |text| Told::from(Name::new(text)))
}

fn profile(told: &LeadTold) -> ProfileNews {
    let responsible = told.responsible.map(|id| {
        let name = told.responsible_name.as_deref().and_then(Name::new);
        Told::from(EmployeeId::new(id)).map(|id| Responsible { id, name })
    });
    ProfileNews {
        name: name(told.name.as_deref()),
        responsible: responsible.unwrap_or_default(),
        stage: name(told.stage.as_deref()),
    }
}

fn news(kind: &str, told: &LeadTold) -> Result<LeadNews, String> {
    let merged = leads(&told.merged, "lead.merged")?;
    let what = What::of_event(kind, merged).ok_or_else(|| other_kind(kind))?;
    let lead = LeadId::new(told.id).ok_or_else(|| no_lead("lead.id", told.id))?;
    let first = match told.phone.as_deref() {
        None => Told::Untold,
        Some("") => Told::None,
        Some(text) => Told::Is(phone(text, "lead.phone")?),
    };
    let contacts = told.contacts.iter().map(|it| {
        let of = |all: &[String]| {
            let phones = all.iter().map(|it| phone(it, "lead.contacts"));
            phones.collect::<Result<Vec<_>, _>>()
        };
        Ok(ContactPhones {
            contact: it.contact.and_then(ContactId::new),
            name: name(it.name.as_deref()),
            now: of(&it.now)?,
            before: of(&it.before)?,
        })
    });
    Ok(LeadNews {
        contacts: contacts.collect::<Result<_, String>>()?,
        profile: profile(told),
        ..LeadNews::new(lead, EpochSeconds::new(told.at), what, first)
    })
}

fn leads(all: &[i64], field: &str) -> Result<Vec<LeadId>, String> {
    let lead = |id: &i64| LeadId::new(*id).ok_or_else(|| no_lead(field, *id));
    all.iter().map(lead).collect()
}

fn no_lead(field: &str, id: i64) -> String {
    format!("{field}: {id} is not a lead's id; it may be a positive whole number")
}

fn phone(text: &str, field: &str) -> Result<Phone, String> {
    Phone::from_e164(text)
        .ok_or_else(|| format!("{field}: a phone is not valid; it may be + and its digits (E.164)"))
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let pairs = text.as_bytes().chunks_exact(2);
    let whole = pairs.remainder().is_empty();
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = pairs.map(byte).collect::<Option<Vec<u8>>>()?;
    bytes.try_into().ok().filter(|_| whole)
}
