//! A line of its own that asks what the account may do and hear, and which endpoints there are.

use super::{Ami, LoggedInLine, Purpose, READ_BYTES};
use crate::error::Error;
use crate::source::Access;
use callbridge_asterisk::survey::{Account, Survey};
use callbridge_formats::Frame;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
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
        let mut open = self.open(access, Purpose::Survey).await?;
        let mut survey = Survey::new(open.login.banner());
        let within = access.settings.connect_within;
        let first = survey.begin(&mut open.login);
        open.send(&first, within).await?;
        let answered = Survey::is_answered;
        open.survey(&mut survey, ANSWERS_WITHIN, answered).await?;
        for question in survey.ask(&mut open.login) {
            open.send(&question, within).await?;
        }
        open.survey(&mut survey, ANSWERS_WITHIN, answered).await?;
        let echoed = Survey::is_echoed;
        open.survey(&mut survey, ECHO_WITHIN, echoed).await?;
        if survey.may_hear_more() {
            let settled = Survey::is_settled;
            open.survey(&mut survey, EVENT_WITHIN, settled).await?;
            if let Some(again) = survey.list(&mut open.login) {
                open.send(&again, within).await?;
                open.survey(&mut survey, ANSWERS_WITHIN, answered).await?;
            }
        }
        let logoff = open.login.logoff();
        open.send(&logoff, within).await?;
        Ok(survey.account())
    }
}

impl LoggedInLine {
    /// Reads until that is so, or for this long.
    async fn survey(
        &mut self,
        survey: &mut Survey,
        within: Duration,
        enough: fn(&Survey) -> bool,
    ) -> Result<(), Error> {
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
            let reading = self.stream.read(self.framer.space(READ_BYTES));
            let Ok(read) = timeout_at(until, reading).await else {
                return Ok(());
            };
            let read = self.target.arrived(read)?;
            self.framer.filled(read);
        }
    }
}
