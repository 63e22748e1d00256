//! How the fields of `--lead-field` stand, as `status` shows it.

use callbridge_model::Grant;
use callbridge_model::status::{LeadField, LeadFields, Token};
use callbridge_spool as spool;

pub(crate) fn shown(fields: &spool::LeadFields, token: &Token) -> LeadFields {
    let listed = fields.fields.iter().map(|(name, id, fit)| LeadField {
        name: name.word().to_owned(),
        id: id.get(),
        ok: fit
            .as_ref()
            .is_none_or(callbridge_leads::lead_field::Fit::is_writable),
        what: match fit {
            Some(fit) => fit.to_string(),
            None => "not checked yet".to_owned(),
        },
    });
    let unchecked = fields.fields.iter().any(|(_, _, fit)| fit.is_none());
    // a record without grants says nothing of them
    let barred = !token.grants.is_empty() && !Grant::LeadSave.is_among(&token.grants);
    let (state, why) = match &fields.rests {
        _ if barred => ("off", Some(format!("the token lacks {}", Grant::LeadSave))),
        Some(rest) => ("off", Some(rest.why.clone())),
        None if unchecked => ("unchecked", None),
        None => ("ok", None),
    };
    let until = fields.rests.as_ref().filter(|_| !barred);
    LeadFields {
        state: state.to_owned(),
        why,
        until: until.map(|rest| rest.until.floor_seconds().get()),
        waiting: fields.waiting,
        fields: listed.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_leads::lead_field::{FieldId, Fit, Name};

    #[test]
    fn a_field_that_cannot_be_written_is_said_and_so_is_a_missing_grant() {
        let id = |id| FieldId::new(id).expect("an id");
        let fields = spool::LeadFields {
            fields: vec![
                (Name::LastCall, id(11), Some(Fit::Led)),
                (Name::LastMissed, id(99), Some(Fit::Unknown)),
            ],
            waiting: 2,
            rests: None,
        };
        let all = shown(&fields, &Token::default());
        assert_eq!((all.state.as_str(), all.waiting), ("ok", 2));
        let ok: Vec<bool> = all.fields.iter().map(|field| field.ok).collect();
        assert_eq!(ok, [true, false]);
        let token = Token {
            grants: vec![Grant::CallSave.to_string()],
            ..Token::default()
        };
        let barred = shown(&fields, &token);
        assert_eq!(barred.state, "off");
        assert!(barred.why.is_some_and(|why| why.contains("LEAD:SAVE")));
    }
}
