//! `explain --call ID` without a file, which shows a stored call.

use crate::commands::control::conversation::{converse, parse_item};
use crate::config::{Asking, Explain};
use crate::{Failure, Result, print};
use callbridge_admin::{ControlRequest, KeptCall, explain::story, explain::text};
use callbridge_mapping::People;
use callbridge_model::{Code, Zone, safe};
use callbridge_spool::Action;

/// Asks the daemon or the spool for a stored call, and prints it.
///
/// # Errors
/// Fails with 64 without `--state`, with 69 if there's neither a daemon nor a state, or else with
/// the exit status in the response.
pub(crate) async fn run(explain: &Explain, paint: story::Paint) -> Result<()> {
    if explain.config.state.is_none() {
        let message =
            "--state is missing: give the folder or database URL of the state that stores the call";
        return Err(Failure::new(Code::Usage, message));
    }
    let id = explain.call.clone().unwrap_or_default();
    let at = Asking::from_config(&explain.config, explain.json);
    converse(&at, ControlRequest::Call { id }, |item, zone| {
        print(show(&parse_item(item)?, explain, zone, paint)?)
    })
    .await?;
    Ok(())
}

/// Formats a stored call as a line of JSON or as human-readable text. Also draws the picture if
/// `--picture` is given.
fn show(kept: &KeptCall, explain: &Explain, zone: &Zone, paint: story::Paint) -> Result<String> {
    let config = &explain.config;
    let judged = kept.judged();
    let of = text::Explained {
        judged: &judged,
        state: Some(kept.state),
        call: &kept.call,
        rules: &config.rules,
        // The lists aren't read, because the lead is stored with the call.
        people: &People::default(),
    };
    if let Some(file) = &explain.picture {
        super::draw(&of, zone, file)?;
    }
    let others = kept.others.as_deref().unwrap_or_default();
    let mut text = super::render(&of, explain.json, zone, paint, others);
    if explain.json {
        return Ok(text);
    }
    for Action { at, who, action } in kept.actions.iter().flatten() {
        text.push_str(&format!(
            "  by hand           {}  {}: {}\n",
            zone.moment(*at),
            safe(who),
            safe(action)
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::command::{Command, read};
    use callbridge_mapping::{Rules, judge};
    use callbridge_model::{Environment, LeadId};
    use callbridge_testkit::sample::call;
    use serde::Deserialize as _;

    /// Returns what `explain` prints about a stored call with these flags.
    fn explained(item: &serde_json::Value, flags: &[&str]) -> String {
        let kept = KeptCall::deserialize(item).expect("this version's shape");
        let utc = Zone::from_name("UTC").expect("a zone");
        let text = show(&kept, &explain(flags), &utc, story::Paint::default());
        text.expect("nothing is drawn")
    }

    #[test]
    fn kept_call_is_explained_with_the_origin_of_its_lead() {
        let call = call();
        let rules = Rules::default();
        let mut judged = judge(&call, "pbx1", &rules, &People::default(), call.ended);
        judged.record.lead_id = LeadId::new(17);
        judged.record.lead_from = Some("the number's row in leads.csv".to_owned());
        let mut item = serde_json::json!({
            "state": "journaled", "record": judged.record, "call": call,
            "reason": "failed", "message": "lead 16 is gone", "judgedAt": call.ended,
            "actions": [
                {"at": call.ended, "who": "anna", "action": "audit --take-in: it was gone"},
            ],
        });
        let line = explained(&item, &["--json"]);
        assert!(line.contains(r#""leadId":17,"#), "{line}");
        let text = explained(&item, &[]);
        let heading = "1795151317.146  journal  2026-11-20 05:08:37 UTC\n";
        assert!(text.starts_with(heading), "{text}");
        assert!(
            text.contains("leadId            17  the number's row in leads.csv"),
            "{text}"
        );
        let action = text.lines().find(|line| line.contains("by hand"));
        let action = action.unwrap_or_else(|| panic!("{text}"));
        assert!(
            action.contains("2026-11-20") && action.ends_with("anna: audit --take-in: it was gone")
        );
        assert!(!line.contains("anna"), "{line}");
        // A dead letter that was resent doesn't show an old reason, whereas a discarded one does.
        assert!(!text.contains("lead 16 is gone"), "{text}");
        item["state"] = "discarded".into();
        let heading = "1795151317.146  discarded failed  2026-11-20 05:08:37 UTC\n";
        let text = explained(&item, &[]);
        assert!(
            text.starts_with(heading) && text.contains("lead 16 is gone"),
            "{text}"
        );
        let line = explained(&item, &["--json"]);
        assert!(line.contains(r#""outcome":"dead_letter""#), "{line}");
    }

    fn explain(flags: &[&str]) -> Explain {
        let own = [
            "callbridge",
            "explain",
            "--call=1795151317.146",
            "--state=/nowhere",
        ];
        let all = own.iter().chain(flags).map(std::ffi::OsString::from);
        match read(all, &Environment::default()).expect("good flags") {
            Command::Explain(explain) => *explain,
            other => panic!("{other:?}"),
        }
    }
}
