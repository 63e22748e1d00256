//! Asks where to send notices of problems and of customers who wait for a callback: a chat or a
//! mailbox.

use super::{Answers, say};
use crate::Result;
use callbridge_model::{Secret, credstore, status::findings::quoted};
use callbridge_ops::{notify, notify::history::Notification, notify::history::Turn};
use std::path::{Path, PathBuf};

const OFFER: &str = "Where to send notices of problems, and of customers who wait longer than 30 \
                     min for a call back: telegram, mail, or empty for none: ";
const WAITS: &str = "30m";

/// A file with what curl needs, and the command that reads it.
pub(crate) struct Messenger {
    /// The configuration of curl, with the token or password.
    pub curl: Secret,
    /// The path of the file once it is written.
    pub path: PathBuf,
    /// The script of `deploy/notify` that the command runs.
    script: PathBuf,
}

/// Returns one line of a configuration for curl.
fn setting(name: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', r#"\""#);
    format!("{name} = \"{value}\"\n")
}

/// Offers notices, if no flag has a command and the scripts are on this machine.
pub(crate) async fn find(answers: &mut Answers) -> Result<()> {
    let Some(scripts) = scripts() else {
        return Ok(());
    };
    while answers.init.asks && answers.init.flags.operation.notify_command.is_none() {
        let (name, curl) = match &*answers.line(OFFER).await? {
            "" => return Ok(()),
            "telegram" => ("telegram", telegram(answers).await?),
            "mail" => ("mail", mail(answers).await?),
            _ => continue,
        };
        // The error has been reported.
        let Some(curl) = curl else { continue };
        let (etc, instance) = (Path::new(&answers.init.etc), &answers.init.name);
        let messenger = Messenger {
            curl: Secret::from(curl),
            path: credstore(etc).join(format!("callbridge.{instance}.notify")),
            script: scripts.join(name),
        };
        // systemd passes it to the service's user there.
        let handed = format!("/run/credentials/callbridge@{instance}.service/notify");
        let given = match answers.is_of_service() {
            true => Path::new(&handed),
            false => &messenger.path,
        };
        let command = messenger.command(given);
        let flags = &mut answers.init.flags.operation;
        flags.notify_command = Some(command);
        flags.notify_missed = Some(WAITS.to_owned());
        answers.messenger = Some(messenger);
    }
    Ok(())
}

/// Returns the folder with the scripts, in the installed package or in the source tree.
fn scripts() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let of_package = program.ancestors().nth(2)?.join("share/callbridge/notify");
    let of_tree = program.ancestors().nth(3)?.join("deploy/notify");
    [of_package, of_tree].into_iter().find(|it| it.is_dir())
}

async fn telegram(answers: &mut Answers) -> Result<Option<String>> {
    let token = answers.secret("Token of the bot, from @BotFather (not shown): ");
    let token = token.await?;
    let chat = answers.line("Number of the chat, as -1001234567890, or @name of a channel: ");
    let chat = chat.await?;
    let plain = |text: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        !text.is_empty() && text.chars().all(good)
    };
    let wrong = |message| say(message).map(|()| None);
    let right = token.split_once(':');
    if !right.is_some_and(|(id, key)| plain(id) && plain(key)) {
        return wrong("that is not the token of a bot: a token looks like 123456789:AAF…");
    }
    if !plain(chat.strip_prefix('@').unwrap_or(&chat)) {
        return wrong("that is not a chat: give its number or its @name");
    }
    let url = format!("https://api.telegram.org/bot{token}/sendMessage");
    let chat = setting("data", &format!("chat_id={chat}"));
    Ok(Some(setting("url", &url) + &chat))
}

async fn mail(answers: &mut Answers) -> Result<Option<String>> {
    let url = answers.line("SMTP server, such as smtps://smtp.example.com or smtp://localhost: ");
    let url = url.await?;
    let user = answers.line("User at that server; empty if it needs none: ");
    let user = user.await?;
    let password = match user.is_empty() {
        true => String::new(),
        false => answers.secret("Its password (not shown): ").await?,
    };
    let from = answers.line("Address of the sender: ").await?;
    let to = answers.line("Address of the recipient: ").await?;
    let known = url::Url::parse(&url).is_ok_and(|url| {
        ["smtp", "smtps"].contains(&url.scheme()) && url.has_host() && url.username().is_empty()
    });
    let address = |text: &str| {
        text.contains('@') && !text.contains(|c: char| c.is_whitespace() || "<>,\"".contains(c))
    };
    let wrong = |message| say(message).map(|()| None);
    if !known {
        return wrong("that is not an SMTP server: give smtps://HOST or smtp://HOST");
    }
    if !address(&from) || !address(&to) {
        return wrong("that is not the address of a mailbox: give NAME@HOST");
    }
    let typed = [&url, &user, &password, &from, &to];
    if typed.iter().any(|text| text.contains(char::is_control)) {
        return wrong("a control character is not allowed there");
    }
    let mut curl = setting("url", &url);
    if !user.is_empty() {
        curl += &setting("user", &format!("{user}:{password}"));
        // The password is sent only over TLS.
        curl += "ssl-reqd\n";
    }
    curl += &setting("mail-from", &from);
    Ok(Some(curl + &setting("mail-rcpt", &to)))
}

impl Messenger {
    /// Returns the command with this path of its file.
    fn command(&self, file: &Path) -> String {
        let words = [&*self.script, file].map(|it| quoted(&it.to_string_lossy()));
        words.join(" ")
    }

    /// Sends a test message, if the person agrees.
    pub(crate) async fn offer_trial(&self, answers: &mut Answers) -> Result<()> {
        if !answers.init.asks || !answers.agrees("Send a test message?", true).await? {
            return Ok(());
        }
        let trial = Notification {
            kind: "trial",
            state: Turn::Begins,
            since: callbridge_model::clock::now().wall.floor_seconds().get(),
            message: "this is a test: callbridge's notices arrive here".to_owned(),
            command: "nothing".to_owned(),
        };
        match notify::run(&self.command(&self.path), &[trial], notify::WITHIN).await {
            Ok(()) => say("sent"),
            Err(error) => say(&format!(
                "not sent: {error}\n  fix: correct {} (configuration of curl; needs curl and jq)",
                self.path.display()
            )),
        }
    }
}
