//! An event of the CRM, as one machine has proved it and others of the same login take it:
//! `{"event":"ID","installation":"9001","company":"77","proof":"…","kind":"CALL_COMPLETED",
//! "call":{"uuid":"UUID","leads":[4001]}}`, or `"lead":{…}` in place of the call. Neither a secret
//! nor a signature stands in it: `proof` is a digest of the signature, by which a repeat is known.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A message is no longer: an event has 256 KiB at most, and what is kept of it is less than twice
/// as long.
pub const BYTES_MAX: usize = 512 * 1024;
/// Leads and contacts of one event.
pub const ENTRIES_MAX: usize = 1_000;
/// Most phones of one contact, now and before each.
pub const PHONES_MAX: usize = 100;
/// Longest id of an event, a connection or a company, in characters.
pub const ID_CHARS_MAX: usize = 128;
/// Length of a proof, in hexadecimal digits.
const PROOF_DIGITS: usize = 64;

/// An event of the CRM whose proof one machine has checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookMessage {
    /// The event's id (`eventId`), in lower case.
    pub event: String,
    /// The connection it came for.
    pub installation: String,
    /// The company's id (`companyId`), in digits.
    pub company: String,
    /// A digest of what proved it, in 64 hexadecimal digits.
    pub proof: String,
    /// `CALL_COMPLETED`, `LEAD_CREATED` and so on.
    pub kind: String,
    /// The call that is in the journal, of a `CALL_COMPLETED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CompletedCall>,
    /// The lead and its change, of a `LEAD_…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<LeadMessage>,
}

/// A call that is in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedCall {
    /// The call's uuid, without a prefix.
    pub uuid: Uuid,
    /// The leads it was put down to.
    #[serde(default)]
    pub leads: Vec<i64>,
    /// Values that the journal shows of the call; left out by publishers that do not send them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<CallEcho>,
}

/// Values of a call in the CRM's journal (§6.8 of its document); nothing where it shows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallEcho {
    /// Direction of the call: `INBOUND` or `OUTBOUND`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Set to `true` when somebody talked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<bool>,
    /// Epoch seconds at which the call began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// Length of the call, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_sec: Option<i64>,
    /// Length of the talk, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub talk_time_sec: Option<i64>,
    /// Set when the journal has a number; the number itself is the contact's matter.
    pub has_phone: bool,
    /// The operator's extension, as the journal has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// The CRM's id of the employee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub employee_id: Option<i64>,
}

/// A change of a lead, with those of its facts that are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadMessage {
    /// The lead; of a merge the one that is left.
    pub id: i64,
    /// Epoch seconds at which the lead was so.
    pub at: i64,
    /// The first phone of its main contact; empty where it has none, left out where none is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// The lead's name; empty where it has none, left out where none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The employee in charge; 0 where there is none, left out where none is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responsible: Option<i64>,
    /// The CRM's name of that employee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responsible_name: Option<String>,
    /// The stage of its pipeline; empty where there is none, left out where none is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Leads that are one with it now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<i64>,
    /// Contacts of which something is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contacts: Vec<ContactMessage>,
}

/// A contact's name, and its phones now and before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactMessage {
    /// The CRM's id of the contact; left out where the CRM names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<i64>,
    /// The contact's name; empty where it has none, left out where none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Phones that the contact has now.
    #[serde(default)]
    pub now: Vec<String>,
    /// Phones that the contact had before.
    #[serde(default)]
    pub before: Vec<String>,
}

impl WebhookMessage {
    /// Reads a message from its JSON.
    ///
    /// # Errors
    /// What is wrong with it, and what it may be.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let length = bytes.len();
        if length > BYTES_MAX {
            let words = format!("webhook: the message has {length} bytes; it may have {BYTES_MAX}");
            return Err(words);
        }
        let read: Self = serde_json::from_slice(bytes).map_err(|error| {
            format!(
                "webhook: it cannot be read ({error}); a message of one may be \
                 {{\"event\":\"ID\",\"installation\":\"ID\",\"company\":\"DIGITS\",\
                 \"proof\":\"64 DIGITS\",\"kind\":\"CALL_COMPLETED\",\
                 \"call\":{{\"uuid\":\"UUID\",\"leads\":[LEAD,…]}}}}"
            )
        })?;
        read.fault().map_or(Ok(read), Err)
    }

    /// The message, as one line.
    pub fn write(&self) -> String {
        // Texts and numbers always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the first value beyond the limits, with what it may be.
    fn fault(&self) -> Option<String> {
        let ids = [
            ("event", &self.event),
            ("installation", &self.installation),
            ("company", &self.company),
        ];
        let wrong = |id: &str| id.is_empty() || id.chars().count() > ID_CHARS_MAX;
        if let Some((field, _)) = ids.into_iter().find(|(_, id)| wrong(id)) {
            let may = format!("it may have 1 to {ID_CHARS_MAX} characters");
            return Some(format!("{field}: it is empty or too long; {may}"));
        }
        let digits = self.proof.bytes().all(|it| it.is_ascii_hexdigit());
        if self.proof.len() != PROOF_DIGITS || !digits {
            let may = format!("it may be {PROOF_DIGITS} hexadecimal digits");
            return Some(format!("proof: it is not a digest; {may}"));
        }
        if self.call.is_some() == self.lead.is_some() {
            let may = "it may be one of `call` and `lead`";
            return Some(format!("call: an event is of a call or of a lead; {may}"));
        }
        let call_leads = self.call.as_ref().map_or(0, |call| call.leads.len());
        let of_lead = || self.lead.as_ref().and_then(LeadMessage::fault);
        too_many("call.leads", call_leads, ENTRIES_MAX).or_else(of_lead)
    }
}

impl LeadMessage {
    fn fault(&self) -> Option<String> {
        let phones = |it: &ContactMessage| it.now.len().max(it.before.len());
        let most = self.contacts.iter().map(phones).max().unwrap_or(0);
        too_many("lead.merged", self.merged.len(), ENTRIES_MAX)
            .or_else(|| too_many("lead.contacts", self.contacts.len(), ENTRIES_MAX))
            .or_else(|| too_many("lead.contacts.now", most, PHONES_MAX))
    }
}

fn too_many(field: &str, entries: usize, most: usize) -> Option<String> {
    let words = || format!("{field}: it has {entries} entries; it may have {most}");
    (entries > most).then(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn completed() -> WebhookMessage {
        WebhookMessage {
            event: "e-1".to_owned(),
            installation: "9001".to_owned(),
            company: "77".to_owned(),
            proof: "0a".repeat(32),
            kind: "CALL_COMPLETED".to_owned(),
            call: Some(CompletedCall {
                uuid: Uuid::from_u128(1),
                leads: vec![4001],
                shown: None,
            }),
            lead: None,
        }
    }

    fn of_lead(contacts: Vec<ContactMessage>) -> WebhookMessage {
        WebhookMessage {
            kind: "LEAD_MERGED".to_owned(),
            call: None,
            lead: Some(LeadMessage {
                id: 4001,
                at: 1_795_151_317,
                phone: Some(String::new()),
                name: None,
                responsible: None,
                responsible_name: None,
                stage: None,
                merged: vec![4002],
                contacts,
            }),
            ..completed()
        }
    }

    fn contact(phones: usize) -> ContactMessage {
        ContactMessage {
            contact: Some(7),
            name: None,
            now: vec!["+998901110001".to_owned(); phones],
            before: Vec::new(),
        }
    }

    #[test]
    fn an_event_is_read_back_and_unknown_fields_are_passed_over() {
        for told in [completed(), of_lead(vec![contact(1)])] {
            assert_eq!(WebhookMessage::read(told.write().as_bytes()), Ok(told));
        }
        let later = completed().write().replacen('{', "{\"later\":[1],", 1);
        assert_eq!(WebhookMessage::read(later.as_bytes()), Ok(completed()));
    }

    #[test]
    fn the_written_form_stays_as_it_is() {
        let proof = "0a".repeat(32);
        let call = r#"{"uuid":"00000000-0000-0000-0000-000000000001","leads":[4001]}"#;
        let expected =
            format!(r#"{{"event":"e-1","installation":"9001","company":"77","proof":"{proof}","#)
                + &format!(r#""kind":"CALL_COMPLETED","call":{call}}}"#);
        assert_eq!(completed().write(), expected);
        let mut shown = completed();
        shown.call.as_mut().expect("one").shown = Some(CallEcho {
            answered: Some(true),
            talk_time_sec: Some(4),
            ..CallEcho::default()
        });
        let call = r#""shown":{"answered":true,"talkTimeSec":4,"hasPhone":false}}}"#;
        assert!(shown.write().ends_with(call), "{}", shown.write());
        assert_eq!(WebhookMessage::read(shown.write().as_bytes()), Ok(shown));
        let lead = serde_json::to_string(&of_lead(vec![contact(1)]).lead).expect("text");
        let contact = r#"{"contact":7,"now":["+998901110001"],"before":[]}"#;
        let expected = format!(
            r#"{{"id":4001,"at":1795151317,"phone":"","merged":[4002],"contacts":[{contact}]}}"#
        );
        assert_eq!(lead, expected);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_it_may_be() {
        let changed = |change: &dyn Fn(&mut WebhookMessage)| {
            let mut told = completed();
            change(&mut told);
            WebhookMessage::read(told.write().as_bytes()).expect_err("wrong")
        };
        let wrong = [
            (changed(&|it| it.event.clear()), "event: "),
            (
                changed(&|it| it.installation = "9".repeat(129)),
                "installation: ",
            ),
            (changed(&|it| it.company.clear()), "company: "),
            (changed(&|it| it.proof = "0g".repeat(32)), "proof: "),
            (changed(&|it| it.proof.truncate(62)), "proof: "),
            (changed(&|it| it.call = None), "call: "),
            (changed(&|it| it.lead = of_lead(Vec::new()).lead), "call: "),
            (
                changed(&|it| it.call.as_mut().expect("one").leads = vec![1; 1_001]),
                "call.leads: ",
            ),
        ];
        for (words, field) in wrong {
            assert!(words.starts_with(field), "{words}");
            assert!(words.contains("; it may "), "{words}");
        }
        for contacts in [vec![contact(0); 1_001], vec![contact(101)]] {
            let words = WebhookMessage::read(of_lead(contacts).write().as_bytes());
            let words = words.expect_err("too many");
            assert!(words.starts_with("lead.contacts"), "{words}");
        }
        let long = vec![b' '; BYTES_MAX + 1];
        let words = WebhookMessage::read(&long).expect_err("too long");
        assert!(words.ends_with("it may have 524288"), "{words}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_words_without_panic(
            bytes in any::<Vec<u8>>(), at in 0_usize..300, byte in any::<u8>(),
        ) {
            let _ = WebhookMessage::read(&bytes);
            let mut broken = completed().write().into_bytes();
            if let Some(place) = broken.get_mut(at) {
                *place = byte;
            }
            if let Err(words) = WebhookMessage::read(&broken) {
                prop_assert!(words.contains("; "), "{words}");
            }
        }
    }
}
