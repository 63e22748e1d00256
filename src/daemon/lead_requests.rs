//! Tells what became of errands: calls that went on, letters that say why, fields that cannot be
//! written.

use super::lists::passed;
use callbridge_leads::lead_request::RequestKind;
use callbridge_model::Grant;
use callbridge_model::clock;
use callbridge_model::status::{LeadField, LeadFields, Token};
use callbridge_spool as spool;
use callbridge_spool::{Error, Handle, tables};
use std::collections::BTreeMap;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(2);

/// What was told last.
#[derive(Default)]
struct Last {
    counters: BTreeMap<String, u64>,
    rests: Vec<(RequestKind, String)>,
    fields: Vec<(String, String)>,
}

/// Works until it is dropped.
///
/// # Errors
/// When the spool is gone for good.
pub(crate) async fn tell(spool: Handle) -> anyhow::Result<()> {
    let mut look = tokio::time::interval(EVERY);
    let mut last = Last {
        counters: spool
            .read(|store| Ok(store.counters()))
            .await
            .unwrap_or_default(),
        ..Last::default()
    };
    loop {
        look.tick().await;
        passed(news(&spool, &mut last).await)?;
    }
}

async fn news(spool: &Handle, last: &mut Last) -> Result<u64, Error> {
    let now = clock::now().wall;
    let read = spool.read(move |store| {
        Ok((
            store.counters(),
            tables::lead_requests::resting(store, now)?,
            tables::shows::lead_fields(store, now)?,
        ))
    });
    let (counters, resting, fields) = read.await?;
    let grown = |name: &str| {
        let count = |all: &BTreeMap<String, u64>| all.get(name).copied().unwrap_or(0);
        let by = count(&counters).saturating_sub(count(&last.counters));
        (by > 0).then_some(by)
    };
    if let Some(calls) = grown("calls_to_survivor") {
        tracing::info!(calls, "went on to the lead that theirs was merged into");
    }
    if let Some(calls) = grown("employees_dropped") {
        tracing::warn!(
            calls,
            "went on without an employee whom the CRM does not know"
        );
    }
    if let Some(values) = grown("lead_fields_given_up") {
        tracing::warn!(
            values,
            "of lead fields were given up: the CRM did not take them"
        );
    }
    last.counters = counters;
    let rests = resting.into_iter().map(|(kind, rest)| (kind, rest.why));
    let rests: Vec<(RequestKind, String)> = rests.collect();
    for (kind, why) in rests.iter().filter(|rest| !last.rests.contains(rest)) {
        let what = match kind {
            RequestKind::LookUps => "leads of failed calls are not looked up for an hour",
            RequestKind::Fields => "fields of leads are not written for an hour",
        };
        tracing::warn!(reason = %why, "{what}");
    }
    last.rests = rests;
    let fields = fields.into_iter().flat_map(|fields| fields.fields);
    let told = fields.filter_map(|(name, id, fit)| {
        let fit = fit.filter(|fit| *fit != callbridge_leads::lead_field::Fit::Led)?;
        Some((format!("{name}={id}"), fit.to_string()))
    });
    let told: Vec<(String, String)> = told.collect();
    for (field, what) in told.iter().filter(|field| !last.fields.contains(field)) {
        tracing::warn!(field, reason = %what, "--lead-field");
    }
    last.fields = told;
    Ok(0)
}

/// As `status` shows it.
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
