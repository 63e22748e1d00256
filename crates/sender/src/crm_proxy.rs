//! The channel through which commands send requests to the CRM within the one budget.

use callbridge_crm::ApiResult;
use callbridge_leads::lead_request::due::CommandRequest;
use callbridge_model::{TokenFingerprint, status::Pause};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of questions that wait for the sender.
const WAITING_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub enum ProxyReply {
    /// The CRM's answer, and the token of the request.
    Answer(ApiResult, TokenFingerprint),
    /// The question was not sent because the sender is paused, as `status` shows.
    Paused(Pause),
    /// The question was not sent because too many wait, or the program ends.
    Busy,
}

/// A command's request to the CRM (a question), and the channel for the answer.
#[derive(Debug)]
pub struct Question {
    pub(super) asked: CommandRequest,
    pub(super) reply: oneshot::Sender<ProxyReply>,
}

/// Asks the CRM. Dropping the future cancels the question.
#[derive(Clone, Debug)]
pub struct CrmProxy(mpsc::Sender<Question>);

/// The sender's end of the channel, from which it takes the questions.
#[derive(Debug)]
pub struct Questions(pub(super) mpsc::Receiver<Question>);

/// Makes both ends of the channel, with room for 16 questions.
pub fn question_channel() -> (CrmProxy, Questions) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (CrmProxy(sender), Questions(receiver))
}

impl CrmProxy {
    /// Sends a request to the CRM and returns the answer. Live calls go first.
    pub async fn ask(&self, asked: CommandRequest) -> ProxyReply {
        let (reply, answer) = oneshot::channel();
        if self.0.try_send(Question { asked, reply }).is_err() {
            return ProxyReply::Busy;
        }
        answer.await.unwrap_or(ProxyReply::Busy)
    }
}
