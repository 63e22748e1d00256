//! The person at the terminal: questions, answers, what is said. Without one nothing is asked.

use super::left;
use crate::terminal::Keyboard;
use crate::terminal::StdinLines;
use crate::{Failure, print};
use callbridge_model::safe::safe_lines;
use callbridge_setup::question::SetupQuestion;
use rustix::termios::LocalModes;

/// Who answers.
pub(crate) struct Person {
    lines: Option<StdinLines>,
}

impl Person {
    pub(crate) fn new(asks: bool) -> Self {
        let lines = asks.then(StdinLines::listen);
        Self { lines }
    }

    /// Somebody can be asked.
    pub(crate) const fn asks(&self) -> bool {
        self.lines.is_some()
    }

    /// A line, or several; with whatever came from outside in them.
    pub(crate) fn tell(&self, words: &str) -> Result<(), Failure> {
        print(format!("{}\n", safe_lines(words)).as_bytes())
    }

    /// The answer to a question; its default for an empty line.
    pub(crate) async fn ask(&mut self, question: SetupQuestion) -> Result<String, Failure> {
        loop {
            let default = question.default();
            let shown = default.map_or_else(String::new, |it| format!(" [{it}]"));
            let prompt = format!("{}{shown}: ", question.words());
            let typed = match question.is_secret() {
                true => self.secret(&prompt).await?,
                false => self.line(&prompt).await?,
            };
            match (typed.as_str(), default) {
                ("", Some(default)) => return Ok(default.to_owned()),
                // No token is an answer: by consent.
                ("", None) if question != SetupQuestion::Token => {}
                _ => return Ok(typed),
            }
        }
    }

    /// Yes or no; an empty line is `default`.
    pub(crate) async fn agrees(&mut self, words: &str, default: bool) -> Result<bool, Failure> {
        let choice = if default { "[Y/n]" } else { "[y/N]" };
        loop {
            let typed = self.line(&format!("{words} {choice} ")).await?;
            match typed.to_ascii_lowercase().as_str() {
                "" => return Ok(default),
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }

    /// One line that was typed and not shown.
    pub(crate) async fn secret(&mut self, prompt: &str) -> Result<String, Failure> {
        let unseen = Keyboard::without(LocalModes::ECHO);
        let typed = self.line(prompt).await?;
        drop(unseen);
        print(b"\n")?;
        Ok(typed)
    }

    /// One line that was typed, without white space around it.
    pub(crate) async fn line(&mut self, prompt: &str) -> Result<String, Failure> {
        print(prompt.as_bytes())?;
        let Some(lines) = &mut self.lines else {
            return Err(left());
        };
        let typed = lines.line().await.ok_or_else(left)?;
        Ok(typed.trim().to_owned())
    }
}
