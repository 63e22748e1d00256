//! `lead set`: sets values of a lead's fields by hand, within the daemon's budget. The fields are
//! first compared with the CRM's fields, because the CRM ignores wrong fields without an error
//! (§4.4.2). The command waits for the outcome of the write.

use super::{Answered, CommandHandler, ReplySender};
use crate::refusal::Refusal;
use callbridge_crm::{ApiError, ApiReply, ApiResult, Request, WriteStatus};
use callbridge_leads::lead_field::{Catalog, Item, catalog, item};
use callbridge_leads::lead_request::due::CommandRequest;
use callbridge_leads::lead_request::{LeadChange, LeadOutcome};
use callbridge_model::{Grant, LeadId, TokenFingerprint, clock, status::Pause};
use callbridge_sender::crm_proxy::ProxyReply;
use callbridge_spool::{Op, tables};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Age from which the stored catalog of the CRM's fields is read again.
const CATALOG_OLD: Duration = Duration::from_secs(24 * 3600);
/// Age from which a stored catalog is read again if it lacks a field that is to be set.
const CATALOG_NEW: Duration = Duration::from_secs(60);
/// The longest wait for the outcome of a write.
const WITHIN: Duration = Duration::from_secs(120);

/// The progress of a write: `{lead, requestId, result, notes}`. The result is `accepted` or
/// `written`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeadWrite {
    lead: LeadId,
    request_id: String,
    #[serde(skip)]
    token: TokenFingerprint,
    result: &'static str,
    /// Fields that could not be checked, with reasons.
    notes: Vec<String>,
}

impl CommandHandler {
    /// Sends the values if all fields are lead fields, and reports when the CRM has written them.
    pub(super) async fn lead_set(
        &self,
        lead: LeadId,
        items: &[Item],
        line: &mut ReplySender,
    ) -> Answered {
        let accepted = self.send_values(lead, items).await?;
        line.item(&accepted).await?;
        line.item(self.settle(accepted).await?).await
    }

    /// Sends the values to the CRM. Fails with exit code 65 if the fields or values are wrong, 69
    /// if the CRM cannot be asked, and 77 if the token is refused or lacks the grant.
    async fn send_values(&self, lead: LeadId, items: &[Item]) -> Result<LeadWrite, Refusal> {
        if self.asking.is_none() {
            let message = "no daemon runs here, or it has no CRM: values are sent only through the \
                         daemon's budget; start `callbridge run`";
            return Err(Refusal::new(69, message));
        }
        let (wrong, notes) = check_fields(&self.catalog(items).await?, items);
        if !wrong.is_empty() {
            let message = format!("nothing was sent: {}", wrong.join("; "));
            return Err(Refusal::new(65, message));
        }
        let body = item::body(items, self.field_list_wrapper.as_deref());
        let request = Request::FieldList { lead, body };
        let (answer, token) = self.ask_crm(request.into()).await?;
        match answer {
            Ok(ApiReply::Accepted(request_id)) => Ok(LeadWrite {
                lead,
                request_id,
                token,
                result: "accepted",
                notes,
            }),
            Err(error @ ApiError::Rejected { status: 400, .. }) => {
                let error = message_with_errors(&error);
                let message = format!(
                    "the CRM refuses the values ({error}); if it wants the list under a key, give \
                     the daemon --field-list-wrapper"
                );
                Err(Refusal::new(65, message))
            }
            Err(
                error @ (ApiError::Rejected { status: 409, .. }
                | ApiError::NotFound { own: true, .. }),
            ) => {
                let error = message_with_errors(&error);
                let message =
                    format!("the CRM refuses it ({error}): check whether lead {lead} exists");
                Err(Refusal::new(65, message))
            }
            Ok(_) => Err(wrong_reply()),
            Err(error) => Err(crm_refusal(&error, Grant::LeadSave.word())),
        }
    }

    /// Waits until the CRM has written the values. Fails with exit code 65 if the CRM could not
    /// write them, 69 if the outcome is not known in time, and 77 if the token has no right to ask
    /// for the outcome.
    async fn settle(&self, write: LeadWrite) -> Result<LeadWrite, Refusal> {
        let until = Instant::now() + WITHIN;
        let mut last = "the status was not requested yet".to_owned();
        for seconds in [1, 2, 3].into_iter().chain(std::iter::repeat(5)) {
            sleep(Duration::from_secs(seconds)).await;
            if Instant::now() >= until {
                break;
            }
            let request_id = write.request_id.clone();
            let poll = CommandRequest {
                request: Request::Poll { request_id },
                token: Some(write.token.clone()),
            };
            match self.ask_crm(poll).await {
                Ok((Ok(ApiReply::Status(WriteStatus::Success)), _)) => {
                    let result = "written";
                    return Ok(LeadWrite { result, ..write });
                }
                Ok((Ok(ApiReply::Status(WriteStatus::Failed(_, text, errors))), _)) => {
                    let said = match (text.as_str(), errors.is_null()) {
                        ("", true) => String::new(),
                        (text, true) => format!(" ({text})"),
                        (text, false) => format!(" ({})", format!("{text} {errors}").trim()),
                    };
                    let message = format!(
                        "the CRM accepted the values but could not write them{said}: check whether \
                         lead {} exists",
                        write.lead
                    );
                    return Err(Refusal::new(65, message));
                }
                Ok((Err(ApiError::Forbidden(answer)), _)) => {
                    let message = format!(
                        "the CRM accepted the values as request {}, but the token has no right to \
                         ask whether they were written (403 {answer}): look in the CRM; setting \
                         them again does no harm",
                        write.request_id
                    );
                    return Err(Refusal::new(77, message));
                }
                Ok((Ok(ApiReply::Status(WriteStatus::Pending(word))), _)) => last = word,
                Ok((Ok(_), _)) => last = String::new(),
                Ok((Err(error), _)) => last = error.to_string(),
                Err(refusal) => last = refusal.message,
            }
        }
        let message = format!(
            "the CRM accepted the values as request {}, but did not confirm within {} s that they \
             were written; the last answer: {last}; setting them again does no harm",
            write.request_id,
            WITHIN.as_secs()
        );
        Err(Refusal::new(69, message))
    }

    /// Returns the catalog of the CRM's fields: a recent stored catalog, or a new one from the CRM.
    async fn catalog(&self, items: &[Item]) -> Result<Catalog, Refusal> {
        let read = self.spool.read(|store| tables::shows::catalog(store));
        if let Some(known) = read.await? {
            let age = clock::now().wall.since(known.at);
            let good =
                known.unread.is_none() && items.iter().all(|item| known.fit(item.id).is_writable());
            if age < CATALOG_NEW || (age < CATALOG_OLD && good) {
                return Ok(known);
            }
        }
        let (answer, _) = self.ask_crm(Request::CrmFields.into()).await?;
        let now = clock::now().wall;
        let read = match &answer {
            Ok(ApiReply::Data(envelope)) => match catalog::rows(envelope) {
                Some((fields, whole)) => Catalog::read(fields, whole, now),
                None => Catalog::unread("no fields in the answer".to_owned(), now),
            },
            Err(
                error @ (ApiError::Forbidden(..)
                | ApiError::NotFound { .. }
                | ApiError::WrongAddress { .. }
                | ApiError::Rejected { .. }),
            ) => Catalog::unread(error.to_string(), now),
            Ok(_) => return Err(wrong_reply()),
            Err(error) => return Err(crm_refusal(error, "the CRM's fields (crm-field)")),
        };
        let outcome = Box::new(LeadOutcome::Catalog(read.clone()));
        let change = LeadChange::Request { outcome, at: now };
        self.spool.write(vec![Op::Lead(change)]).await?;
        Ok(read)
    }

    async fn ask_crm(
        &self,
        asked: CommandRequest,
    ) -> Result<(ApiResult, TokenFingerprint), Refusal> {
        let Some(asking) = &self.asking else {
            return Err(Refusal::new(69, "no daemon runs here"));
        };
        match asking.ask(asked).await {
            ProxyReply::Answer(answer, token) => Ok((answer, token)),
            ProxyReply::Paused(Pause { reason, fix }) => {
                let code = match reason.as_str() {
                    "token_missing" | "token_refused" | "reconnect" | "client_refused"
                    | "wrong_company" | "no_grant" => 77,
                    _ => 69,
                };
                let message = format!("the daemon is paused: {}: {fix}", reason.replace('_', " "));
                Err(Refusal::new(code, message))
            }
            ProxyReply::Busy => {
                let message = "too many requests are waiting, or the daemon is stopping: try again";
                Err(Refusal::new(69, message))
            }
        }
    }
}

/// Returns messages about fields that the CRM would ignore, and about fields that could not be
/// checked.
fn check_fields(catalog: &Catalog, items: &[Item]) -> (Vec<String>, Vec<String>) {
    let mut wrong = Vec::new();
    let mut notes = Vec::new();
    for item in items {
        let fit = catalog.fit(item.id);
        let field = catalog.field(item.id);
        let name = match field.and_then(|field| field.name.as_ref()) {
            Some(name) => format!(" ({name})"),
            None => String::new(),
        };
        let message = format!("field {}{name} is {fit}", item.id);
        match fit {
            catalog::Fit::Led => {}
            catalog::Fit::Unsure(_) => notes.push(message),
            catalog::Fit::Other(_) | catalog::Fit::Unknown | catalog::Fit::Refused(_) => {
                wrong.push(message);
            }
        }
    }
    (wrong, notes)
}

/// Returns the error's message, with the wrong fields and reasons that the CRM reported (§7.5).
fn message_with_errors(error: &ApiError) -> String {
    match error {
        ApiError::Rejected { errors, .. } if !errors.is_null() => format!("{error}: {errors}"),
        error => error.to_string(),
    }
}

/// Makes the refusal for an error that is not about the lead or its values. `needs` is the right
/// that the token needs.
fn crm_refusal(error: &ApiError, needs: &str) -> Refusal {
    match error {
        ApiError::Forbidden(..) => Refusal::new(77, format!("the token lacks {needs} ({error})")),
        ApiError::TokenRefused { .. } => {
            Refusal::new(77, format!("the CRM refuses the token ({error})"))
        }
        error => {
            let error = message_with_errors(error);
            let message = format!("the CRM cannot do it now: {error}; try again");
            Refusal::new(69, message)
        }
    }
}

/// Makes the error for a reply that belongs to another request.
fn wrong_reply() -> Refusal {
    Refusal::new(69, "the CRM cannot do it now; try again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::EventTime;
    use callbridge_leads::lead_field::{CrmField, FieldId};
    use serde_json::{Value, json};

    fn crm_field(id: i64, kind: &str, name: &str) -> CrmField {
        CrmField {
            id: FieldId::new(id).expect("an id"),
            info_type: Some(kind.to_owned()),
            name: Some(name.to_owned()),
        }
    }

    #[test]
    fn fields_that_the_crm_would_ignore_are_reported() {
        let fields = vec![
            crm_field(11, "LED", "Izoh"),
            crm_field(21, "CONTACT", "kun"),
        ];
        let catalog = Catalog::read(fields, true, EventTime::from_seconds(1));
        let items: Vec<Item> = ["11=a", "21=b", "99=c"]
            .iter()
            .map(|text| Item::parse(text).expect("an item"))
            .collect();
        let (wrong, notes) = check_fields(&catalog, &items);
        assert!(notes.is_empty());
        insta::assert_snapshot!(wrong.join("\n"), @r"
        field 21 (kun) is a field of contacts (CONTACT): the CRM would silently ignore it
        field 99 is not a field of this CRM: the CRM would silently ignore it
        ");
    }

    fn rejection(errors: Value) -> ApiError {
        ApiError::Rejected {
            status: 400,
            message: "xato".to_owned(),
            errors,
        }
    }

    #[test]
    fn field_errors_of_the_crm_are_shown() {
        let errors = json!([{"field": "value", "reason": "LENGTH"}]);
        let said = r#"400: xato: [{"field":"value","reason":"LENGTH"}]"#;
        assert_eq!(message_with_errors(&rejection(errors)), said);
        assert_eq!(message_with_errors(&rejection(Value::Null)), "400: xato");
    }

    fn exit_code(error: &ApiError) -> u8 {
        crm_refusal(error, "x").code
    }

    #[test]
    fn exit_code_distinguishes_denied_from_unavailable() {
        let message = String::new;
        assert_eq!(exit_code(&ApiError::Forbidden(message())), 77);
        assert_eq!(exit_code(&ApiError::UNAUTHORIZED), 77);
        assert_eq!(exit_code(&ApiError::TimedOut), 69);
        let server = ApiError::Server {
            status: 500,
            own: true,
            message: message(),
        };
        assert_eq!(exit_code(&server), 69);
    }
}
