//! The fields of `--lead-field` against those of the CRM, which passes over wrong ones in silence.

use super::finding::CheckFinding;
use callbridge_call::EventTime;
use callbridge_crm::{ApiReply, ApiResult};
use callbridge_leads::lead_field::{Catalogue, Fields, Fit, catalogue};
use callbridge_model::exit::Code;
use callbridge_model::status::LeadFields;

const TODO: &str = "give --lead-field the id of a field of leads (infoType LED)";

/// What the answer to `crm-field` says of each.
pub(crate) fn judge(fields: &Fields, answer: &ApiResult) -> Vec<CheckFinding> {
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
        match catalogue.fit(field.id) {
            Fit::Led => CheckFinding::well(flag, Fit::Led.to_string()),
            fit @ Fit::Unsure(_) => CheckFinding::advice(flag, fit.to_string(), ""),
            fit @ (Fit::Other(_) | Fit::Unknown) => {
                CheckFinding::fault(Code::Configuration, flag, fit.to_string(), TODO)
            }
        }
    });
    each.collect()
}

/// What a running daemon says of each.
pub(crate) fn of_daemon(fields: &LeadFields) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    if let Some(why) = &fields.why {
        let todo = "grant it to the application in the CRM, or leave --lead-field out";
        found.push(CheckFinding::advice(
            "lead-field",
            format!("off: {why}"),
            todo,
        ));
    }
    let each = fields.fields.iter().map(|field| {
        let flag = format!("lead-field {}={}", field.name, field.id);
        match field.ok {
            true => CheckFinding::well(flag, field.what.clone()),
            false => CheckFinding::fault(Code::Configuration, flag, field.what.clone(), TODO),
        }
    });
    found.extend(each);
    found
}

/// The fields could not be asked for: no fault of theirs.
pub(crate) fn not_asked(finding: CheckFinding) -> CheckFinding {
    CheckFinding::advice("lead-field", finding.what, finding.todo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_crm::ApiError;
    use callbridge_leads::lead_field::parse;
    use serde_json::json;

    #[test]
    fn each_field_is_judged_by_its_id_and_none_where_they_cannot_be_read() {
        let fields = parse("last_call=11,last_missed=21,last_employee=99").expect("fields");
        let told = Ok(ApiReply::Data(json!({"data": [
            {"id": 11, "infoType": "LED"}, {"id": 21, "infoType": "CONTACT"}
        ]})));
        let ok = |found: Vec<CheckFinding>| {
            let ok = found.iter().map(|finding| finding.fault.is_none());
            ok.collect::<Vec<_>>()
        };
        assert_eq!(ok(judge(&fields, &told)), [true, false, false]);
        let barred = Err(ApiError::Forbidden {
            message: String::new(),
        });
        assert_eq!(ok(judge(&fields, &barred)), [true, true, true]);
    }
}
