//! A delivery as the message that other machines of the same login take, and back.

use crate::op::{Delivery, WebhookEvent};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_formats::message::WebhookMessage;
use callbridge_formats::message::webhook::{CompletedCall, ContactMessage, LeadMessage};
use callbridge_leads::directory::news::Slot;
use callbridge_leads::directory::profile::{Name, ProfileNews, Responsible};
use callbridge_leads::directory::{ChangeKind, ContactPhones, FactUpdate, LeadNews};
use callbridge_model::{CallUuid, EmployeeId, LeadId, Phone};
use ring::digest;

/// The kind of an event about a call.
const COMPLETED: &str = "CALL_COMPLETED";
/// Id that stands for no employee in a message.
const NOBODY: i64 = 0;

impl WebhookEvent {
    /// Returns the event's kind, as the service calls it (§6.2).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Completed { .. } => COMPLETED,
            Self::Learn(news) => news.what.word(),
        }
    }
}

impl Delivery {
    /// Puts a digest in the place of the signature, for others to read: whoever reads the signature
    /// could send it again under another installation.
    #[must_use]
    pub fn without_signature(mut self) -> Self {
        let digest = digest::digest(&digest::SHA256, &self.signature);
        self.signature.copy_from_slice(digest.as_ref());
        self
    }

    /// The message of this delivery; its `signature` is the digest of
    /// [`without_signature`](Self::without_signature) here.
    pub fn message(&self) -> WebhookMessage {
        let mut message = WebhookMessage {
            event: self.event.clone(),
            installation: self.installation.clone(),
            company: self.company.clone(),
            proof: self.signature.map(|byte| format!("{byte:02x}")).concat(),
            kind: self.news.kind().to_owned(),
            call: None,
            lead: None,
        };
        match &self.news {
            WebhookEvent::Completed { uuid, leads, shown } => {
                message.call = Some(CompletedCall {
                    uuid: uuid.0,
                    leads: leads.iter().map(|lead| lead.get()).collect(),
                    shown: shown.as_deref().cloned(),
                });
            }
            WebhookEvent::Learn(news) => message.lead = Some(lead_message(news)),
        }
        message
    }

    /// The delivery of a message that came at this moment. The service does not send it again.
    ///
    /// # Errors
    /// What is wrong with the message, and what it may be.
    pub fn of_message(message: &WebhookMessage, at: EventTime) -> Result<Self, String> {
        let event = match (&message.call, &message.lead) {
            (Some(call), _) if message.kind == COMPLETED => WebhookEvent::Completed {
                uuid: CallUuid(call.uuid),
                leads: leads(&call.leads, "call.leads")?,
                shown: call.shown.clone().map(Box::new),
            },
            (None, Some(lead)) => WebhookEvent::Learn(Box::new(news(&message.kind, lead)?)),
            (Some(_) | None, _) => return Err(other_kind(&message.kind)),
        };
        Ok(Self {
            installation: message.installation.clone(),
            event: message.event.clone(),
            signature: unhex(&message.proof).ok_or_else(|| {
                "proof: it is not a digest; it may be 64 hexadecimal digits".to_owned()
            })?,
            company: message.company.clone(),
            at,
            service_retries: false,
            news: event,
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

fn lead_message(news: &LeadNews) -> LeadMessage {
    let texts = |all: &[Phone]| all.iter().map(|it| it.as_str().to_owned()).collect();
    let contact = |it: &ContactPhones| ContactMessage {
        contact: Some(it.slot.0).filter(|_| it.slot.is_contact()),
        name: text(&it.name, Name::as_str),
        now: texts(&it.now),
        before: texts(&it.before),
    };
    let (responsible, responsible_name) = match &news.profile.responsible {
        FactUpdate::Unchanged => (None, None),
        FactUpdate::None => (Some(NOBODY), None),
        FactUpdate::Is(it) => (Some(it.id.get()), it.name.clone().map(String::from)),
    };
    LeadMessage {
        id: news.lead.get(),
        at: news.at.get(),
        phone: text(&news.phone, Phone::as_str),
        name: text(&news.profile.name, Name::as_str),
        responsible,
        responsible_name,
        stage: text(&news.profile.stage, Name::as_str),
        merged: news.merged.iter().map(|lead| lead.get()).collect(),
        contacts: news.contacts.iter().map(contact).collect(),
    }
}

/// Writes an update as a message has it: empty where there is none, `None` where nothing is said.
fn text<T>(update: &FactUpdate<T>, text: impl FnOnce(&T) -> &str) -> Option<String> {
    match update {
        FactUpdate::Unchanged => None,
        FactUpdate::None => Some(String::new()),
        FactUpdate::Is(it) => Some(text(it).to_owned()),
    }
}

fn name(text: Option<&String>) -> FactUpdate<Name> {
    text.map_or(FactUpdate::Unchanged, |text| Name::new(text).into())
}

fn news(kind: &str, message: &LeadMessage) -> Result<LeadNews, String> {
    let mut merged = leads(&message.merged, "lead.merged")?;
    let what = ChangeKind::of_event(kind).ok_or_else(|| other_kind(kind))?;
    merged.retain(|_| what == ChangeKind::Merged);
    let lead = LeadId::new(message.id).ok_or_else(|| no_lead("lead.id", message.id))?;
    let first = match message.phone.as_deref() {
        None => FactUpdate::Unchanged,
        Some("") => FactUpdate::None,
        Some(text) => FactUpdate::Is(phone(text, "lead.phone")?),
    };
    let contacts = message.contacts.iter().map(|it| {
        let of = |all: &[String]| {
            let phones = all.iter().map(|it| phone(it, "lead.contacts"));
            phones.collect::<Result<Vec<_>, _>>()
        };
        Ok(ContactPhones {
            slot: Slot::of_contact(it.contact),
            name: name(it.name.as_ref()),
            now: of(&it.now)?,
            before: of(&it.before)?,
        })
    });
    let responsible = message.responsible.map(|id| {
        let name = message.responsible_name.as_deref().and_then(Name::new);
        FactUpdate::from(EmployeeId::new(id)).map(|id| Responsible { id, name })
    });
    Ok(LeadNews {
        merged,
        contacts: contacts.collect::<Result<_, String>>()?,
        profile: ProfileNews {
            name: name(message.name.as_ref()),
            responsible: responsible.unwrap_or_default(),
            stage: name(message.stage.as_ref()),
        },
        ..LeadNews::new(lead, EpochSeconds::new(message.at), what, first)
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

fn unhex(text: &str) -> Option<[u8; 32]> {
    let pairs = text.as_bytes().chunks_exact(2);
    let whole = pairs.remainder().is_empty();
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = pairs.map(byte).collect::<Option<Vec<u8>>>()?;
    bytes.try_into().ok().filter(|_| whole)
}
