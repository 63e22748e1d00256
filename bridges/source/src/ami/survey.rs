//! A line of its own that asks what the account may do and hear, and which endpoints there are.

use super::{Ami, AmiLine, Purpose};
use crate::error::Error;
use crate::live::LiveLine as _;
use crate::session::Access;
use callbridge_asterisk::survey::{Account, Survey};
use callbridge_formats::Frame;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// For the answers to what is asked together.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// For our own event, after all answers.
const ECHO_WITHIN: Duration = Duration::from_secs(1);
/// Where channels live: for an event of one.
const EVENT_WITHIN: Duration = Duration::from_secs(3);

impl Ami {
    /// Logs in, asks, and leaves.
    pub(crate) async fn survey(&self, access: &Access) -> Result<Account, Error> {
        let mut line = self.open(access, Purpose::Survey).await?;
        let mut survey = Survey::new(line.login.banner());
        let answered = Survey::is_answered;
        line.outgoing.extend(survey.begin(&mut line.login));
        line.survey(&mut survey, ANSWERS_WITHIN, answered).await?;
        for question in survey.ask(&mut line.login) {
            line.outgoing.extend(question);
        }
        line.survey(&mut survey, ANSWERS_WITHIN, answered).await?;
        let echoed = Survey::is_echoed;
        line.survey(&mut survey, ECHO_WITHIN, echoed).await?;
        if survey.may_hear_more() {
            let settled = Survey::is_settled;
            line.survey(&mut survey, EVENT_WITHIN, settled).await?;
            if let Some(again) = survey.list(&mut line.login) {
                line.outgoing.extend(again);
                line.survey(&mut survey, ANSWERS_WITHIN, answered).await?;
            }
        }
        line.outgoing.extend(line.login.logoff());
        line.send(line.tcp.target.within).await?;
        Ok(survey.account())
    }
}

impl AmiLine {
    /// Sends what is asked, and reads until that is so, or for this long.
    async fn survey(
        &mut self,
        survey: &mut Survey,
        within: Duration,
        enough: fn(&Survey) -> bool,
    ) -> Result<(), Error> {
        self.send(self.tcp.target.within).await?;
        let until = Instant::now() + within;
        loop {
            while let Some(frame) = self.framer.next() {
                if let Frame::Message(frame) = frame {
                    survey.hear(frame);
                }
            }
            if enough(survey) {
                return Ok(());
            }
            match timeout_at(until, self.receive()).await {
                Ok(received) => received?,
                Err(_) => return Ok(()),
            }
        }
    }
}
