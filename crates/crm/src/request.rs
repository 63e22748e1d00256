//! Requests to the CRM, which are the four requests for calls and those about leads, and the body
//! of each.

use crate::Address;
use callbridge_call::{Direction, EpochSeconds};
use callbridge_model::{CallRecord, LeadId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

impl Endpoint {
    /// The endpoints used for calls. All others are for lead requests.
    pub const CALLS: [Self; 4] = [Self::Submit, Self::Poll, Self::TokenInfo, Self::Filter];

    /// Returns the label for metrics and logs, such as `submit`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the maximum number of bytes to read from a response's body.
    pub const fn body_max(self) -> usize {
        match self {
            Self::Submit | Self::Poll | Self::TokenInfo | Self::FieldList => 256 * 1024,
            Self::Filter | Self::Lead | Self::Leads | Self::CrmFields => 4 * 1024 * 1024,
        }
    }
}

/// Names of request fields that the document doesn't specify (§2.8), as set by `--field`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNames {
    /// Name of the talk time in seconds, which is `talkTimeSec` by default.
    pub talk: String,
    /// Name of the customer's number, or `None` to omit it.
    pub phone: Option<String>,
    /// Name of the extension that answered or rang, or `None` to omit it.
    pub extension: Option<String>,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self {
            talk: "talkTimeSec".to_owned(),
            phone: None,
            extension: None,
        }
    }
}

/// Number of records per page (§4.7: 30 to 100).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageSize(u32);

impl PageSize {
    /// The largest size in the document.
    pub const LARGEST: Self = Self(100);

    /// Returns the next smaller maximum in the document, or `None` if there's no smaller one.
    pub const fn smaller(self) -> Option<Self> {
        match self.0 {
            51.. => Some(Self(50)),
            31..=50 => Some(Self(30)),
            0..=30 => None,
        }
    }

    /// Returns the number of records per page.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A page of the journal, with the newest records first unless `since` is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterPage {
    /// The page's number, counting from 1.
    pub page: u32,
    /// Maximum number of records per page.
    pub size: PageSize,
    /// Only include records registered since this time (§4.7 `registeredTimestampFrom`).
    pub since: Option<EpochSeconds>,
}

/// A page of leads in the order of their last change, oldest first (§4.7, §6.1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadsPage {
    /// The page's number, counting from 1.
    pub page: u32,
    /// Number of leads per page, at most 50 (§4.7).
    pub size: u32,
    /// Only include leads that changed since this time.
    pub since: Option<EpochSeconds>,
}

/// One complete request, without the token.
#[derive(Clone, Debug, PartialEq, Eq, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(Endpoint),
    doc = "The endpoints that callbridge uses; a label of metrics and logs.",
    derive(PartialOrd, Ord, Hash, strum::Display),
    derive(strum::IntoStaticStr, strum::VariantArray),
    strum(serialize_all = "snake_case")
)]
pub enum Request {
    /// Adds a call to the journal, with a body created by [`submission`]: `POST
    /// /v1/open-api/call-history` (§4.5).
    Submit(Value),
    /// Returns the outcome of an accepted write: `GET /v1/open-api/request/{requestId}` (§4.6).
    Poll {
        /// The CRM's requestId, unchanged.
        request_id: String,
    },
    /// Returns the token's state, owner, and grants: `GET /v1/open-api/token/info` (§4.3).
    TokenInfo,
    /// Returns calls in the journal: `POST /v1/open-api/call-history/filter` (§4.5).
    Filter(FilterPage),
    /// Returns a lead, if it exists: `GET /v1/open-api/lead/{leadId}` (§4.7).
    Lead(LeadId),
    /// Returns a page of leads: `POST /v1/open-api/lead/filter` (§4.7).
    #[strum_discriminants(strum(serialize = "lead_filter"))]
    Leads(LeadsPage),
    /// Returns the catalog of fields: `GET /v1/open-api/crm-field` (§4.7).
    #[strum_discriminants(strum(serialize = "crm_field"))]
    CrmFields,
    /// Writes values into a lead's own fields: `POST /v1/open-api/lead/{leadId}/field/list` (§4.4).
    FieldList {
        /// The lead whose fields are written.
        lead: LeadId,
        /// The request's complete JSON body.
        body: Value,
    },
}

impl Request {
    pub fn endpoint(&self) -> Endpoint {
        self.into()
    }

    /// Returns the URL below the base URL, with all segments escaped.
    pub fn url(&self, base: &Address) -> Url {
        let v1 = "v1";
        let api = "open-api";
        match self {
            Self::Submit(_) => base.join(&[v1, api, "call-history"]),
            Self::Poll { request_id } => base.join(&[v1, api, "request", request_id]),
            Self::TokenInfo => base.join(&[v1, api, "token", "info"]),
            Self::Filter(_) => base.join(&[v1, api, "call-history", "filter"]),
            Self::Lead(lead) => base.join(&[v1, api, "lead", &lead.to_string()]),
            Self::Leads(_) => base.join(&[v1, api, "lead", "filter"]),
            Self::CrmFields => base.join(&[v1, api, "crm-field"]),
            Self::FieldList { lead, .. } => {
                base.join(&[v1, api, "lead", &lead.to_string(), "field", "list"])
            }
        }
    }

    /// Returns a POST's JSON body, or `None` for a GET.
    pub fn body(&self) -> Option<Value> {
        let (mut body, from, since) = match self {
            Self::Submit(body) | Self::FieldList { body, .. } => return Some(body.clone()),
            Self::Poll { .. } | Self::TokenInfo | Self::Lead(_) | Self::CrmFields => return None,
            // The sort key and the range use the field's name in the snapshot (§2.5). The document
            // only shows ranges for a different field.
            Self::Leads(LeadsPage { page, size, since }) => {
                let orders = json!({ "updatedTimestamp": "ASC" });
                let body = json!({ "page": page, "size": size, "orders": orders });
                (body, "updatedTimestampFrom", since)
            }
            Self::Filter(FilterPage { page, size, since }) => {
                let body = json!({ "page": page, "size": size });
                (body, "registeredTimestampFrom", since)
            }
        };
        if let Some(since) = since {
            body[from] = since.get().into();
        }
        Some(body)
    }
}

/// Creates the body of `POST call-history` (§2.6), without anything that the CRM derives itself
/// (end, hangup cause, provider, the `oapi-` prefix). Returns `None` if the call can't be sent
/// because it has no UUID, no lead, or no direction that the CRM knows.
pub fn submission(call: &CallRecord, names: &FieldNames) -> Option<Value> {
    if let Direction::Internal | Direction::Unknown = call.direction {
        return None;
    }
    let mut body = json!({
        "leadId": call.lead_id?.get(),
        "uuid": call.uuid?.to_string(),
        "startedAt": call.started_at.get(),
        "durationSec": call.duration_sec,
        "answered": call.answered,
        "direction": call.direction.word(),
    });
    if let Some(employee) = call.employee_id {
        body["employeeId"] = employee.get().into();
    }
    body[&names.talk] = call.talk_time_sec.into();
    if let (Some(name), Some(phone)) = (&names.phone, &call.client_phone) {
        body[name] = phone.as_str().into();
    }
    if let (Some(name), Some(extension)) = (&names.extension, &call.employee) {
        body[name] = extension.as_str().into();
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::{CallUuid, EmployeeId, LeadId, Phone};

    fn call() -> CallRecord {
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

    fn pretty_json(body: &Value) -> String {
        serde_json::to_string_pretty(body).expect("JSON")
    }

    #[test]
    fn body_holds_only_the_documented_fields() {
        let body = submission(&call(), &FieldNames::default()).expect("complete");
        insta::assert_snapshot!(pretty_json(&body), @r#"
        {
          "answered": true,
          "direction": "INBOUND",
          "durationSec": 5,
          "employeeId": 501,
          "leadId": 4001,
          "startedAt": 1795151317,
          "talkTimeSec": 4,
          "uuid": "00000000-0000-0000-0000-000000000000"
        }
        "#);
    }

    #[test]
    fn configured_fields_are_sent_and_unknown_employee_omitted() {
        let names = FieldNames {
            talk: "billsec".to_owned(),
            phone: Some("clientPhone".to_owned()),
            extension: Some("operatorExtension".to_owned()),
        };
        let call = CallRecord {
            employee_id: None,
            direction: Direction::Outbound,
            ..call()
        };
        let body = submission(&call, &names).expect("complete");
        insta::assert_snapshot!(pretty_json(&body), @r#"
        {
          "answered": true,
          "billsec": 4,
          "clientPhone": "+998901110001",
          "direction": "OUTBOUND",
          "durationSec": 5,
          "leadId": 4001,
          "operatorExtension": "101",
          "startedAt": 1795151317,
          "uuid": "00000000-0000-0000-0000-000000000000"
        }
        "#);
        let nobody = CallRecord {
            employee: None,
            ..call
        };
        let body = submission(&nobody, &names).expect("complete");
        assert_eq!(
            body.get("operatorExtension"),
            None,
            "nobody answered or rang"
        );
    }

    #[test]
    fn call_without_lead_or_uuid_has_no_body() {
        let names = FieldNames::default();
        assert_eq!(
            submission(
                &CallRecord {
                    lead_id: None,
                    ..call()
                },
                &names
            ),
            None
        );
        assert_eq!(
            submission(
                &CallRecord {
                    uuid: None,
                    ..call()
                },
                &names
            ),
            None
        );
        let internal = CallRecord {
            direction: Direction::Internal,
            ..call()
        };
        assert_eq!(submission(&internal, &names), None);
    }

    fn path(base: &Address, request: &Request) -> String {
        request.url(base).path().to_owned()
    }

    #[test]
    fn request_paths_match_the_crm_document() {
        let base = Address::parse("https://crm.example.uz").expect("good");
        assert_eq!(path(&base, &Request::TokenInfo), "/v1/open-api/token/info");
        assert_eq!(
            path(&base, &Request::Submit(Value::Null)),
            "/v1/open-api/call-history"
        );
        let page = FilterPage {
            page: 1,
            size: PageSize::LARGEST,
            since: None,
        };
        assert_eq!(
            path(&base, &Request::Filter(page)),
            "/v1/open-api/call-history/filter"
        );
        let poll = Request::Poll {
            request_id: "r 1".to_owned(),
        };
        assert_eq!(path(&base, &poll), "/v1/open-api/request/r%201");
    }
}
