//! The channel through which commands send requests to the CRM, sharing its one request budget.

use callbridge_crm::ApiResult;
use callbridge_leads::lead_request::due::CommandRequest;
use callbridge_model::{TokenFingerprint, status::Pause};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of questions waiting for the sender.
const WAITING_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub enum ProxyReply {
    /// The CRM's response, and the token that the request was sent with.
    Answer(ApiResult, TokenFingerprint),
    /// The question wasn't sent because the sender is paused, as `status` shows.
    Paused(Pause),
    /// The question wasn't sent because too many are waiting or the program is shutting down.
    Busy,
}

/// A command's request to the CRM (a question), and the channel for the response.
#[derive(Debug)]
pub struct Question {
    pub(super) asked: CommandRequest,
    pub(super) reply: oneshot::Sender<ProxyReply>,
}

/// Sends questions to the CRM. Dropping the future cancels the question.
#[derive(Clone, Debug)]
pub struct CrmProxy(mpsc::Sender<Question>);

/// The sender's end of the channel, from which it receives the questions.
#[derive(Debug)]
pub struct Questions(pub(super) mpsc::Receiver<Question>);

/// Creates both ends of the channel, with room for 16 questions.
pub fn question_channel() -> (CrmProxy, Questions) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (CrmProxy(sender), Questions(receiver))
}

impl CrmProxy {
    /// Sends a request to the CRM, after any live calls, and returns the response.
    pub async fn ask(&self, asked: CommandRequest) -> ProxyReply {
        let (reply, answer) = oneshot::channel();
        if self.0.try_send(Question { asked, reply }).is_err() {
            return ProxyReply::Busy;
        }
        answer.await.unwrap_or(ProxyReply::Busy)
    }
}
