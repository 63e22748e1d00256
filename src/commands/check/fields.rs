//! The fields of `--lead-field` against those of the CRM, which passes over wrong ones in silence.

use super::finding::{CheckFinding, advice, fault, well};
use callbridge_call::EventTime;
use callbridge_crm::{ApiReply, ApiResult};
use callbridge_leads::lead_field::{Catalogue, Fields, Fit, RefusedFields, catalogue};
use callbridge_model::Code;
use callbridge_model::status::LeadFields;

const TODO: &str = "give --lead-field the id of a field of leads (infoType LED), and where it \
                    takes no text its kind: ID:number, ID:boolean or ID:date";

/// Judges each field of `--lead-field` by the answer to `crm-field` and by what the CRM has refused
/// of it.
pub(crate) fn judge(
    fields: &Fields,
    answer: &ApiResult,
    refused: &RefusedFields,
) -> Vec<CheckFinding> {
    let at = EventTime::from_seconds(0);
    let read = match answer {
        Ok(ApiReply::Data(envelope)) => {
            catalogue::rows(envelope).ok_or_else(|| "no fields in the answer".to_owned())
        }
        Ok(_) => Err("no fields in the answer".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let catalogue = match read {
        Ok((rows, whole)) => Catalogue::read(rows, whole, at),
        Err(why) => Catalogue::unread(why, at),
    };
    let each = fields.iter().map(|(name, field)| {
        let flag = format!("lead-field {name}={field}");
        match refused.fit(*name, *field, catalogue.fit(field.id)) {
            Fit::Led => well(flag, Fit::Led.to_string()),
            fit @ Fit::Unsure(_) => advice(flag, fit.to_string(), ""),
            fit @ (Fit::Other(_) | Fit::Unknown | Fit::Refused(_)) => {
                fault(Code::Configuration, flag, fit.to_string(), TODO)
            }
        }
    });
    each.collect()
}

/// Turns a running daemon's judgement of the fields into findings.
pub(crate) fn of_daemon(fields: &LeadFields) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    if let Some(why) = &fields.why {
        let todo = "grant it to the application in the CRM, or leave --lead-field out";
        found.push(advice("lead-field", format!("off: {why}"), todo));
    }
    let each = fields.fields.iter().map(|field| {
        let flag = format!("lead-field {}={}", field.name, field.id);
        match field.ok {
            true => well(flag, field.what.clone()),
            false => fault(Code::Configuration, flag, field.what.clone(), TODO),
        }
    });
    found.extend(each);
    found
}

/// The fields could not be asked for: no fault of theirs.
pub(crate) fn not_asked(finding: CheckFinding) -> CheckFinding {
    advice("lead-field", finding.what, finding.todo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_crm::ApiError;
    use callbridge_leads::lead_field::{Blames, Item, Name, Refusal, parse};
    use callbridge_model::LeadId;
    use serde_json::{Value, json};

    #[test]
    fn each_field_is_judged_by_its_id_and_none_where_they_cannot_be_read() {
        let fields = parse("last_call=11,last_missed=21,last_employee=99").expect("fields");
        let told = Ok(ApiReply::Data(json!({"data": [
            {"id": 11, "infoType": "LED"}, {"id": 21, "infoType": "CONTACT"}
        ]})));
        let none = RefusedFields::default();
        let ok = |found: Vec<CheckFinding>| {
            let ok = found.iter().map(|finding| finding.fault.is_none());
            ok.collect::<Vec<_>>()
        };
        assert_eq!(ok(judge(&fields, &told, &none)), [true, false, false]);
        let barred = Err(ApiError::Forbidden {
            message: String::new(),
        });
        assert_eq!(ok(judge(&fields, &barred, &none)), [true, true, true]);
        let mut refused = RefusedFields::default();
        let name = (Name::LastCall, fields[&Name::LastCall]);
        let item = Item::text(name.1.id, "x".to_owned());
        let lead = LeadId::new(4_001).expect("a lead");
        let why = Refusal::new("400".to_owned(), &Value::Null, Blames::SomeItem);
        refused.note(name, (lead, item), &why, EventTime::from_seconds(0));
        let found = judge(&fields, &told, &refused);
        assert!(
            found[0].what.contains(r#"{"id":11,"value":"x"}"#),
            "{}",
            found[0].what
        );
        assert_eq!(ok(found), [false, false, false]);
    }
}
