//! Compares our calls in the CRM's journal with the values that were sent. If a field is sent under
//! the wrong name, the CRM drops it without an error (§2.8), so only the CRM's event for the call
//! (§6.8) reveals which fields arrived.

use callbridge_call::Direction;
use callbridge_crm::FieldNames;
use callbridge_model::status::{Echo, JournalField, SentField};
use callbridge_model::{CallRecord, EmployeeId};

/// A call's values as the CRM's journal shows them (§6.8). A field is `None` if the journal doesn't
/// show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallEcho {
    /// `INBOUND` or `OUTBOUND`.
    pub direction: Option<String>,
    pub answered: Option<bool>,
    /// Epoch seconds.
    pub started_at: Option<i64>,
    /// Length of the call in seconds.
    pub duration_sec: Option<i64>,
    pub talk_time_sec: Option<i64>,
    /// Whether the journal shows a phone number at all.
    pub has_phone: bool,
    pub extension: Option<String>,
    /// The employee's ID in the CRM.
    pub employee_id: Option<i64>,
}

/// Compares each value that was sent with what the journal shows, returning the field, its name in
/// the request, and the result.
pub(crate) fn compare(
    sent: &CallRecord,
    names: &FieldNames,
    shown: &CallEcho,
) -> Vec<(SentField, String, Echo)> {
    // For a call without talk time, a journal that drops the field looks correct, so the field
    // isn't compared.
    let talks = sent.talk_time_sec > 0 || shown.talk_time_sec.is_some_and(|shown| shown > 0);
    let sent_talk = if talks {
        Some(i64::from(sent.talk_time_sec))
    } else {
        None
    };
    let talk = echo(sent_talk, shown.talk_time_sec);
    // The CRM may show another of the contact's numbers, so only its presence is compared.
    let sent_phone = sent.client_phone.as_ref().map(|_| true);
    let shown_phone = if shown.has_phone { Some(true) } else { None };
    let phone = echo(sent_phone, shown_phone);
    let extension = echo(sent.employee.as_ref(), shown.extension.as_ref());
    let employee = echo(sent.employee_id.map(EmployeeId::get), shown.employee_id);
    let direction = match sent.direction {
        Direction::Inbound | Direction::Outbound => Some(sent.direction.word()),
        Direction::Internal | Direction::Unknown => None,
    };
    let direction = echo(direction, shown.direction.as_deref());
    let answered = echo(Some(sent.answered), shown.answered);
    let started = echo(Some(sent.started_at.get()), shown.started_at);
    let duration = echo(Some(i64::from(sent.duration_sec)), shown.duration_sec);
    let echoes = [
        (SentField::Talk, Some(names.talk.as_str()), talk),
        (SentField::Phone, names.phone.as_deref(), phone),
        (SentField::Extension, names.extension.as_deref(), extension),
        (SentField::Employee, Some("employeeId"), employee),
        (SentField::Direction, Some("direction"), direction),
        (SentField::Answered, Some("answered"), answered),
        (SentField::Start, Some("startedAt"), started),
        (SentField::Duration, Some("durationSec"), duration),
    ];
    let echoes = echoes.into_iter();
    let sent = echoes.filter_map(|(field, name, echo)| Some((field, name?.to_owned(), echo?)));
    sent.collect()
}

/// Compares a value that was sent with what the journal shows, or returns `None` if none was sent.
fn echo<T: PartialEq>(sent: Option<T>, shown: Option<T>) -> Option<Echo> {
    let sent = sent?;
    Some(match shown {
        None => Echo::Missing,
        Some(shown) if shown == sent => Echo::Right,
        Some(_) => Echo::Different,
    })
}

/// Adds a call's [`compare`] results to the counts by field, dropping the counts for any field that
/// was renamed or is no longer sent.
pub(crate) fn count(
    fields: &mut Vec<JournalField>,
    names: &FieldNames,
    compared: Vec<(SentField, String, Echo)>,
) {
    fields.retain(|counted| match counted.field {
        SentField::Talk => counted.name == names.talk,
        SentField::Phone => Some(&counted.name) == names.phone.as_ref(),
        SentField::Extension => Some(&counted.name) == names.extension.as_ref(),
        SentField::Employee
        | SentField::Direction
        | SentField::Answered
        | SentField::Start
        | SentField::Duration => true,
    });
    for (field, name, echo) in compared {
        let known = fields.binary_search_by_key(&field, |counted| counted.field);
        let place = known.unwrap_or_else(|place| {
            let new = JournalField {
                field,
                name,
                ..JournalField::default()
            };
            fields.insert(place, new);
            place
        });
        let counted = &mut fields[place];
        counted.compared += 1;
        counted.missing += u64::from(echo == Echo::Missing);
        counted.different += u64::from(echo == Echo::Different);
        counted.last = echo;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::EpochSeconds;
    use callbridge_model::{CallUuid, EmployeeId, LeadId, Phone};

    type Change = fn(&mut CallEcho);

    fn names() -> FieldNames {
        FieldNames {
            talk: "talkTimeSec".to_owned(),
            phone: Some("clientPhone".to_owned()),
            extension: Some("operatorExtension".to_owned()),
        }
    }

    fn sent_record() -> CallRecord {
        CallRecord {
            uuid: Some(CallUuid(uuid::Uuid::nil())),
            linkedid: "1795151317.146".to_owned(),
            pbx: "main".to_owned(),
            direction: Direction::Inbound,
            answered: true,
            lead_id: LeadId::new(4001),
            lead_from: None,
            trunk: Some("city".to_owned()),
            client_phone: Phone::from_e164("+998901110001"),
            employee: Some("101".to_owned()),
            employee_id: EmployeeId::new(501),
            employees_in_order: vec!["101".to_owned()],
            started_at: EpochSeconds::new(1_795_151_317),
            duration_sec: 5,
            talk_time_sec: 4,
            incomplete: false,
            estimate: false,
            by_hand: None,
            did: None,
        }
    }

    fn shown_echo() -> CallEcho {
        CallEcho {
            direction: Some("INBOUND".to_owned()),
            answered: Some(true),
            started_at: Some(1_795_151_317),
            duration_sec: Some(5),
            talk_time_sec: Some(4),
            has_phone: true,
            extension: Some("101".to_owned()),
            employee_id: Some(501),
        }
    }

    /// Returns the fields that aren't shown the way they were sent.
    fn wrong_fields(
        sent: &CallRecord,
        names: &FieldNames,
        shown: &CallEcho,
    ) -> Vec<(SentField, Echo)> {
        let all = compare(sent, names, shown).into_iter();
        let all = all.map(|(field, _, echo)| (field, echo));
        all.filter(|(_, echo)| *echo != Echo::Right).collect()
    }

    #[test]
    fn each_missing_or_wrong_field_is_reported_and_no_other() {
        use SentField as F;
        assert_eq!(wrong_fields(&sent_record(), &names(), &shown_echo()), []);
        assert_eq!(compare(&sent_record(), &names(), &shown_echo()).len(), 8);
        let none = CallEcho::default();
        let missing = compare(&sent_record(), &names(), &none).into_iter();
        assert!(
            missing
                .map(|field| field.2)
                .all(|echo| echo == Echo::Missing)
        );
        let changes: [(F, Change, Change); 7] = [
            (
                F::Talk,
                |shown| shown.talk_time_sec = None,
                |shown| shown.talk_time_sec = Some(0),
            ),
            (
                F::Extension,
                |shown| shown.extension = None,
                |shown| shown.extension = Some("102".into()),
            ),
            (
                F::Employee,
                |shown| shown.employee_id = None,
                |shown| shown.employee_id = Some(502),
            ),
            (
                F::Direction,
                |shown| shown.direction = None,
                |shown| shown.direction = Some("OUTBOUND".into()),
            ),
            (
                F::Answered,
                |shown| shown.answered = None,
                |shown| shown.answered = Some(false),
            ),
            (
                F::Start,
                |shown| shown.started_at = None,
                |shown| shown.started_at = Some(1_795_151_318),
            ),
            (
                F::Duration,
                |shown| shown.duration_sec = None,
                |shown| shown.duration_sec = Some(6),
            ),
        ];
        for (field, absent, other) in changes {
            for (change, expected) in [(absent, Echo::Missing), (other, Echo::Different)] {
                let mut echo = shown_echo();
                change(&mut echo);
                let found = wrong_fields(&sent_record(), &names(), &echo);
                assert_eq!(found, [(field, expected)]);
            }
        }
        let mut echo = shown_echo();
        echo.has_phone = false;
        assert_eq!(
            wrong_fields(&sent_record(), &names(), &echo),
            [(F::Phone, Echo::Missing)]
        );
    }

    #[test]
    fn unsent_fields_are_not_compared() {
        let bare = CallRecord {
            answered: false,
            talk_time_sec: 0,
            employee: None,
            employee_id: None,
            client_phone: None,
            ..sent_record()
        };
        let echo = CallEcho {
            answered: Some(false),
            ..shown_echo()
        };
        let talked = wrong_fields(&bare, &names(), &echo);
        assert_eq!(talked, [(SentField::Talk, Echo::Different)], "4 s of none");
        for talk in [None, Some(0)] {
            let echo = CallEcho {
                talk_time_sec: talk,
                ..echo.clone()
            };
            assert_eq!(wrong_fields(&bare, &names(), &echo), []);
            let fields: Vec<_> = compare(&bare, &names(), &echo);
            let fields: Vec<_> = fields.into_iter().map(|field| field.0).collect();
            assert!(!fields.contains(&SentField::Talk), "{fields:?}");
        }
        let none = CallEcho::default();
        let fields = compare(&sent_record(), &FieldNames::default(), &none);
        let fields: Vec<_> = fields.into_iter().map(|field| field.0).collect();
        assert!(!fields.contains(&SentField::Phone) && !fields.contains(&SentField::Extension));
    }

    /// Counts a call that the journal shows with the values `shown`, returning the counts for the
    /// talk time, which is the first field.
    fn count_call(
        fields: &mut Vec<JournalField>,
        names: &FieldNames,
        shown: &CallEcho,
    ) -> JournalField {
        count(fields, names, compare(&sent_record(), names, shown));
        fields[0].clone()
    }

    #[test]
    fn field_counts_restart_when_the_field_name_changes() {
        let mut fields = Vec::new();
        let none = CallEcho {
            talk_time_sec: None,
            ..shown_echo()
        };
        count_call(&mut fields, &names(), &none);
        let talk = count_call(&mut fields, &names(), &none);
        assert_eq!(
            (talk.compared, talk.missing, talk.last),
            (2, 2, Echo::Missing)
        );
        let talk = count_call(&mut fields, &names(), &shown_echo());
        assert_eq!(
            (talk.compared, talk.missing, talk.last),
            (3, 2, Echo::Right)
        );
        assert_eq!(fields.len(), 8);
        let other = FieldNames {
            talk: "billsec".to_owned(),
            ..FieldNames::default()
        };
        let talk = count_call(&mut fields, &other, &none);
        assert_eq!((talk.name.as_str(), talk.compared), ("billsec", 1));
        assert_eq!(fields.len(), 6, "phone and extension are not sent any more");
        assert_eq!(fields[1].compared, 4);
    }
}
