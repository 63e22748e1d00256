//! What a fault makes of an answer.

use super::envelope::{Delivery, Refusal, Response, reduced};
use super::faults::Action;

/// The answer of a fault that keeps the request from the endpoint.
pub(super) fn instead(action: Action) -> Option<Response> {
    let empty = |status| Response {
        body: Vec::new(),
        ..Refusal::Status(status).respond()
    };
    let moved = |status| Response {
        location: Some("/v1/open-api/moved".to_owned()),
        ..empty(status)
    };
    Some(match action {
        Action::Status(429) => reduced(429),
        Action::Status(status @ 300..=399) | Action::Gateway(status @ 300..=399) => moved(status),
        Action::Status(403) => Refusal::Denied.respond(),
        Action::Status(status) => Refusal::Status(status).respond(),
        Action::Gateway(status) => gateway(status),
        Action::Redirect => moved(302),
        Action::Cut => Response {
            delivery: Delivery::Lost,
            ..empty(500)
        },
        Action::AcceptFalse => {
            let body = serde_json::json!({
                "data": null, "message": "Qabul qilinmadi", "error": null,
                "accept": false, "errors": [], "requestId": null,
            });
            Response::json(200, &body)
        }
        _ => return None,
    })
}

fn gateway(status: u16) -> Response {
    let page = format!("<html><body><h1>{status}</h1><hr>nginx</body></html>\n");
    Response::new(status, "text/html", page)
}

/// What a fault makes of an answer whose effect is done.
pub(super) fn after_effect(response: &mut Response, action: Action) {
    match action {
        Action::StatusAfter(status) => *response = Refusal::Status(status).respond(),
        Action::Lost => response.delivery = Delivery::Lost,
        Action::Delay(time) => response.delivery = Delivery::After(time),
        Action::Slow(time) => response.delivery = Delivery::Slow(time),
        Action::Broken => response.body.truncate(response.body.len() / 2),
        _ => {}
    }
}

impl Action {
    /// The client can tell from the answer, at once, that its write was accepted.
    pub(super) const fn leaves_answer_whole(self) -> bool {
        matches!(self, Self::Failed | Self::Hold(_))
    }
}
