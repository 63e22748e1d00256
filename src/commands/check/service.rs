//! Checks the CRM's URL, the token, the grant, the company, the fields in `--lead-field`, and what
//! the journal shows of sent calls. Sends at most two requests, whose slots are stored if there's a
//! state. If a daemon is running, it's asked instead of the CRM.

use super::place::State;
use super::{CheckFinding, advice, fault, token, well};
use crate::RELEASE;
use crate::config::{Config, Crm};
use crate::daemon::outward;
use callbridge_admin::state_access::close;
use callbridge_call::EventTime;
use callbridge_crm::{Address, ApiError, ApiReply, ApiResult, TokenInfo};
use callbridge_leads::lead_field::{Catalog, Fields, Fit as FieldFit, RefusedFields, catalog};
use callbridge_leads::lead_request::due::{DueRequest, LeadRequest, Urgency};
use callbridge_model::status::{FindingKind, LeadFields};
use callbridge_model::{Code, ExitCode as _, Grant, Status, clock};
use callbridge_sender::status::TokenPlace;
use callbridge_sender::token_probe::{TokenProbe, Unasked};
use callbridge_spool::{Binding, Fit, Handle, StatePlace, WorkQueue, tables};

/// Without this grant, no call can be journaled.
const SAVE: Grant = Grant::CallSave;
/// Name of the finding about the grant for `--lead-directory`.
const LEAD_GRANT: &str = "grant for leads";

/// Returns the findings about the CRM, or none if there's no CRM.
pub(crate) async fn check(config: &Config, state: State) -> Vec<CheckFinding> {
    let Some(crm) = &config.crm else {
        return Vec::new();
    };
    match state {
        State::Daemon(status) => judge_daemon(&status),
        State::Ours(handle, guard, trial) => {
            let place = config.state_place();
            let mut found = ask(crm, config.lead_directory, &place, &handle).await;
            found.extend(judge_stored(&handle, &place).await);
            close(handle, guard).await;
            drop(trial);
            found
        }
        State::Standby { leader, .. } => {
            let what = format!("not asked: {leader} leads. Run check there to test the CRM");
            vec![advice("crm", what, "")]
        }
        State::Unusable => {
            let what = "not asked: without the state the request could not be counted";
            let todo = "repair the state folder first";
            vec![fault(Code::Unreachable, "crm", what, todo)]
        }
    }
}

/// Judges the CRM's journal by the facts in the state. A temporary state doesn't have any.
async fn judge_stored(spool: &Handle, place: &StatePlace) -> Vec<CheckFinding> {
    let at = clock::now().wall.floor_seconds().get();
    let state = place.to_string();
    let kept = spool
        .read(move |store| callbridge_ops::kept::stored_status(store, at, &state, RELEASE))
        .await;
    match kept {
        Ok(status) => judge_journal(&status.judged()),
        // If the state can't be read, that's reported by the check of the state.
        Err(_) => Vec::new(),
    }
}

fn judge_daemon(status: &Status) -> Vec<CheckFinding> {
    let token = &status.token;
    if let Some(pause) = &status.pause {
        let code = match pause.reason.as_str() {
            "token_missing" | "token_refused" | "reconnect" | "client_refused" | "no_grant"
            | "wrong_company" => Code::NoPermission,
            "wrong_address" => Code::Configuration,
            "disk" => Code::CannotWrite,
            _ => Code::Unreachable,
        };
        let what = format!("the daemon is paused: {}", pause.reason.replace('_', " "));
        return vec![fault(code, "crm", what, &pause.fix)];
    }
    let company = token.company.as_deref().unwrap_or("not known yet");
    let what = format!(
        "the daemon is sending; token {}, company {company}",
        token.state
    );
    let mut found = vec![well("crm", what)];
    let backfill = status
        .directory
        .as_ref()
        .and_then(|directory| directory.backfill.as_deref());
    if backfill == Some("no_grant") {
        found.push(no_grant_for_leads());
    }
    found.extend(status.lead_fields.iter().flat_map(fields_of_daemon));
    found.extend(judge_journal(status));
    found
}

async fn ask(
    crm: &Crm,
    reads_leads: bool,
    place: &StatePlace,
    spool: &Handle,
) -> Vec<CheckFinding> {
    let (mut found, token) = token::check(crm, place).await;
    if let Some(token) = token {
        let probe = TokenProbe::open(crm.setup.clone(), Some(crm.rate), spool, &token).await;
        let asked = match probe {
            Ok(probe) => ask_all(crm, reads_leads, spool, probe).await,
            Err(why) => Err(why),
        };
        found.extend(asked.unwrap_or_else(|why| vec![unasked_finding(&why)]));
    }
    found
}

/// Requests `token/info` and, with `--lead-field`, the list of the CRM's fields, and judges the
/// responses.
async fn ask_all(
    crm: &Crm,
    reads_leads: bool,
    spool: &Handle,
    mut probe: TokenProbe<'_>,
) -> Result<Vec<CheckFinding>, Unasked> {
    let answer = probe.ask(&WorkQueue::default()).await?;
    let mut good = false;
    let mut grant_for_leads = None;
    if let Ok(ApiReply::TokenInfo(info)) = &answer {
        good = true;
        grant_for_leads = lead_grant(info, reads_leads);
    }
    let place = outward::token_place(crm.token.as_ref(), outward::directory_of);
    let mut found = judge(&crm.setup.address, answer, &probe.binding, &place);
    found.extend(grant_for_leads);
    if good && !crm.lead_fields.is_empty() {
        let mut head = WorkQueue::default();
        head.lead_requests.due.push(DueRequest {
            urgency: Urgency::Soon,
            lead_request: LeadRequest::Catalog,
        });
        match probe.ask(&head).await {
            Ok(answer) => {
                let refused = spool
                    .read(|store| tables::shows::refused_fields(store))
                    .await
                    .map_err(Unasked::Spool)?;
                found.extend(judge_fields(&crm.lead_fields, &answer, &refused));
            }
            // The fields couldn't be requested, so they aren't reported as wrong.
            Err(why) => {
                let finding = unasked_finding(&why);
                found.push(advice("lead-field", finding.message, finding.fix));
            }
        }
    }
    Ok(found)
}

/// Returns the finding about a request that couldn't be made.
fn unasked_finding(why: &Unasked) -> CheckFinding {
    let code = Code::Unreachable;
    let what = "crm";
    match why {
        Unasked::Spool(error) => {
            let todo = "repair the state folder first";
            fault(error.exit_code(), "state", error, todo)
        }
        Unasked::Silent => {
            let todo = "start `callbridge run` on the state (it waits until they no longer \
                        count), then check again";
            fault(code, what, format!("not asked: {why}"), todo)
        }
        Unasked::Full(wait) => {
            let todo = format!("try again in {} s", wait.as_secs() + 1);
            let used = "not asked: the limit of --rate is used up for now";
            fault(code, what, used, todo)
        }
        Unasked::Not => fault(code, what, "not asked", "try again in a minute"),
    }
}

/// Judges the response to `token/info`, i.e., the URL, the token, the company, and the grant that
/// every call needs.
pub(crate) fn judge(
    address: &Address,
    answer: ApiResult,
    binding: &Binding,
    place: &TokenPlace,
) -> Vec<CheckFinding> {
    let address = address.as_str();
    let error = match answer {
        Ok(ApiReply::TokenInfo(info)) => {
            let mut found = vec![well("crm", address)];
            found.extend(judge_token(&info, binding));
            return found;
        }
        Ok(_) => {
            return vec![not_working(
                address,
                "the answer does not describe the token",
            )];
        }
        Err(error) => error,
    };
    vec![match error {
        ApiError::TokenRefused { status, message } => {
            let what = if message.is_empty() && status == 401 {
                "the CRM refuses it (401)".to_owned()
            } else {
                format!("the CRM refuses it ({status}): {message}")
            };
            let todo = format!(
                "issue a new token in the CRM and put it into {place}; or check whether the \
                 company is blocked"
            );
            let refused = fault(Code::NoPermission, "token", what, todo);
            return vec![well("crm", address), refused];
        }
        ApiError::TooMany(false) => answered_by_proxy(address, "429"),
        ApiError::TooMany(true) => {
            let what = "its request limit is used up (429): another program uses the same token";
            let todo = "share the limit with --rate, or give the other program its own application \
                        in the CRM";
            fault(Code::Unreachable, "token", what, todo)
        }
        ApiError::NotFound { .. } | ApiError::WrongAddress { .. } => {
            let what = format!("{address} answers, but is not the Open API");
            let todo = "give --crm-url the host's address, without a path";
            fault(Code::Configuration, "crm", what, todo)
        }
        ApiError::NotConnected(why) => unreachable_finding(why),
        ApiError::TooLate => unreachable_finding(error.to_string()),
        ApiError::Lost(why) => unreachable_finding(format!("{address}: {why}")),
        ApiError::TlsRefused(why) => {
            let parts = why.split_once("; ");
            let (why, todo) = parts.unwrap_or((&why, "check the CRM's TLS settings"));
            fault(Code::Unreachable, "crm", format!("{address}: {why}"), todo)
        }
        ApiError::Server {
            status: 200..=299,
            message,
            ..
        } => not_working(address, &format!("accept: false {message}")),
        ApiError::Server {
            own: false,
            status: status @ 400..=499,
            message,
        } => answered_by_proxy(address, &format!("{status} {message}")),
        ApiError::Server {
            status, message, ..
        }
        | ApiError::Rejected {
            status, message, ..
        } => not_working(address, &format!("{status} {message}")),
        ApiError::Forbidden(message) => not_working(address, &format!("403 {message}")),
        ApiError::Unreadable(..) => {
            let todo = "check that --crm-url is the address of the API and not of a web page; if \
                        it is right, try again later, then ask the CRM's support";
            let what = format!("{address} does not work: {error}");
            fault(Code::Unreachable, "crm", what, todo)
        }
        ApiError::TimedOut => not_working(address, &error.to_string()),
    }]
}

fn not_working(address: &str, message: &str) -> CheckFinding {
    let todo = "try again later; if the problem remains, ask the CRM's support";
    let what = format!("{address} does not work: {}", message.trim());
    fault(Code::Unreachable, "crm", what, todo)
}

/// Returns the finding about a 4xx without the API's envelope (§2.1), which the CRM wouldn't send.
fn answered_by_proxy(address: &str, answer: &str) -> CheckFinding {
    let what = format!(
        "a proxy or firewall in front of {address} answered {}, not the CRM",
        answer.trim()
    );
    let todo = "allow this machine's requests there, or correct --crm-url or --crm-proxy";
    fault(Code::Unreachable, "crm", what, todo)
}

fn unreachable_finding(why: String) -> CheckFinding {
    if why.starts_with("--crm-ca-file") {
        let todo = "give --crm-ca-file the certificates of the CRM's authority, as PEM";
        return fault(Code::Configuration, "crm", why, todo);
    }
    let todo = "check the address, network, proxy and firewall";
    fault(Code::Unreachable, "crm", why, todo)
}

fn judge_token(info: &TokenInfo, binding: &Binding) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    let expiry = info
        .expires_at
        .and_then(|at| jiff::Timestamp::from_second(at.get()).ok())
        .map_or("does not expire".to_owned(), |at| format!("expires {at}"));
    // An access token is valid for an hour, and is renewed automatically.
    let needs_renewal = info.kind != "ACCESS" && info.expires_at.is_some();
    let todo = match info.expires_in_days {
        Some(..=7) if needs_renewal => "issue a new one in the CRM soon",
        Some(_) | None => "",
    };
    found.push(advice("token", format!("{}, {expiry}", info.kind), todo));
    let company = info.company.to_string();
    let application = info
        .application
        .map(|id| id.to_string())
        .unwrap_or_default();
    let name = &info.company_name;
    let what = format!("{name} ({company}), application {application}");
    found.push(match binding.fits_company(&company, &application) {
        Fit::Unbound | Fit::Same => well("company", what),
        Fit::Other => {
            let what = format!(
                "the token belongs to company {what}, but the state is bound to company {}, \
                 application {}",
                binding.company.as_deref().unwrap_or("none"),
                binding.application.as_deref().unwrap_or("none")
            );
            let todo = "give the token of the bound company, another --state, or --rebind";
            fault(Code::NoPermission, "company", what, todo)
        }
    });
    found.push(if info.may(SAVE) {
        well("grant", SAVE.word())
    } else {
        let what = format!("{SAVE} is missing");
        let todo = format!("grant {SAVE} to the application in the CRM");
        fault(Code::NoPermission, "grant", what, todo)
    });
    found
}

/// Checks the grant that `--lead-directory` needs in order to read leads.
fn lead_grant(info: &TokenInfo, reads_leads: bool) -> Option<CheckFinding> {
    if !reads_leads {
        return None;
    }
    if info.may(Grant::LeadRead) {
        return Some(well(LEAD_GRANT, Grant::LeadRead.word()));
    }
    Some(no_grant_for_leads())
}

fn no_grant_for_leads() -> CheckFinding {
    let grant = Grant::LeadRead;
    let what = format!("--lead-directory reads leads from the CRM, but {grant} is missing");
    let todo = format!("grant {grant} to the application in the CRM, or remove --lead-directory");
    fault(Code::NoPermission, LEAD_GRANT, what, todo)
}

/// Returns the problems in the status that are about the CRM's journal or, if there are none, the
/// number of calls that were compared.
pub(crate) fn judge_journal(status: &Status) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    for problem in &status.problems {
        let fix = match problem.kind {
            FindingKind::FieldNotShown => {
                "ask the CRM's support for the name of this field, and give it with --field"
            }
            FindingKind::ForeignCalls => {
                "turn off the other telephony's call journal in the CRM, or give the trunk \
                 journal=no"
            }
            _ => continue,
        };
        found.push(advice("journal", &problem.message, fix));
    }
    let compared = status.journal_fields.iter().map(|field| field.compared);
    if found.is_empty()
        && let Some(compared) = compared.max()
    {
        let what = format!("it shows the calls as they were sent (calls compared: {compared})");
        found.push(well("journal", what));
    }
    found
}

/// The fix for a field in `--lead-field`. The CRM silently ignores wrong fields.
const FIELD_TODO: &str = "give --lead-field the id of a field of leads (infoType LED); if the \
                          field does not take text, add its kind: ID:number, ID:boolean or ID:date";

/// Judges each field in `--lead-field` by the response to `crm-field` and by the values that the
/// CRM has rejected.
fn judge_fields(fields: &Fields, answer: &ApiResult, refused: &RefusedFields) -> Vec<CheckFinding> {
    let at = EventTime::from_seconds(0);
    let rows = match answer {
        Ok(ApiReply::Data(envelope)) => catalog::rows(envelope),
        Ok(_) | Err(_) => None,
    };
    let catalog = match (rows, answer) {
        (Some((rows, whole)), _) => Catalog::read(rows, whole, at),
        (None, Ok(_)) => Catalog::unread("no fields in the answer".to_owned(), at),
        (None, Err(error)) => Catalog::unread(error.to_string(), at),
    };
    let mut found = Vec::new();
    for (name, field) in fields {
        let flag = format!("lead-field {name}={field}");
        found.push(match refused.fit(*name, *field, catalog.fit(field.id)) {
            FieldFit::Led => well(flag, FieldFit::Led.to_string()),
            fit @ FieldFit::Unsure(_) => advice(flag, fit.to_string(), ""),
            fit @ (FieldFit::Other(_) | FieldFit::Unknown | FieldFit::Refused(_)) => {
                fault(Code::Configuration, flag, fit.to_string(), FIELD_TODO)
            }
        });
    }
    found
}

/// Turns a running daemon's judgment of the fields into findings.
fn fields_of_daemon(fields: &LeadFields) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    if let Some(reason) = &fields.reason {
        let todo = "grant it to the application in the CRM, or remove --lead-field";
        found.push(advice("lead-field", format!("off: {reason}"), todo));
    }
    for field in &fields.fields {
        let flag = format!("lead-field {}={}", field.name, field.id);
        found.push(if field.ok {
            well(flag, &field.message)
        } else {
            fault(Code::Configuration, flag, &field.message, FIELD_TODO)
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_crm::ApiError;
    use callbridge_leads::lead_field::{Item, Name, Refusal, RefusedPart, parse};
    use callbridge_model::LeadId;
    use serde_json::{Value, json};

    /// Returns one value per finding, which is `true` if the check passed.
    fn passed(found: &[CheckFinding]) -> Vec<bool> {
        found
            .iter()
            .map(|finding| finding.fault.is_none())
            .collect()
    }

    #[test]
    fn lead_field_is_judged_by_id_if_catalog_can_be_read() {
        let fields = parse("last_call=11,last_missed=21,last_employee=99").expect("fields");
        let catalog = Ok(ApiReply::Data(json!({"data": [
            {"id": 11, "infoType": "LED"}, {"id": 21, "infoType": "CONTACT"}
        ]})));
        let none = RefusedFields::default();
        assert_eq!(
            passed(&judge_fields(&fields, &catalog, &none)),
            [true, false, false]
        );
        let forbidden = Err(ApiError::Forbidden(String::new()));
        assert_eq!(
            passed(&judge_fields(&fields, &forbidden, &none)),
            [true, true, true]
        );
        let mut refused = RefusedFields::default();
        let name = (Name::LastCall, fields[&Name::LastCall]);
        let item = Item::text(name.1.id, "x".to_owned());
        let lead = LeadId::new(4_001).expect("a lead");
        let refusal = Refusal::new("400".to_owned(), &Value::Null, RefusedPart::SomeItem);
        refused.note(name, (lead, item), &refusal, EventTime::from_seconds(0));
        let found = judge_fields(&fields, &catalog, &refused);
        assert!(
            found[0].message.contains(r#"{"id":11,"value":"x"}"#),
            "{}",
            found[0].message
        );
        assert_eq!(passed(&found), [false, false, false]);
    }
}
