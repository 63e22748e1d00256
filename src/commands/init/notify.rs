//! Asks where to send notifications about problems and about customers waiting for a callback,
//! which may be a chat or a mailbox.

use super::{Answers, say};
use crate::Result;
use callbridge_model::{Secret, credstore, status::findings::quoted};
use callbridge_ops::{notify, notify::history::Notification, notify::history::Turn};
use std::path::{Path, PathBuf};

const OFFER: &str = "Where to send notices of problems, and of customers who wait longer than 30 \
                     min for a call back: telegram, mail, or empty for none: ";
const WAITS: &str = "30m";

/// A configuration file for curl, along with the script that uses it to send a notification.
pub(crate) struct Messenger {
    /// The curl configuration, which contains the token or password.
    pub curl: Secret,
    /// The file's path once it has been written.
    pub path: PathBuf,
    /// The script from `deploy/notify` that the command runs.
    script: PathBuf,
}

/// Returns one line of a curl configuration.
fn setting(name: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', r#"\""#);
    format!("{name} = \"{value}\"\n")
}

/// Asks where to send notifications, provided that no flag specifies a command and the scripts are
/// on this machine.
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
        // The error has been printed, so ask again.
        let Some(curl) = curl else { continue };
        let instance = &answers.init.name;
        let messenger = Messenger {
            curl: Secret::from(curl),
            path: credstore(Path::new(&answers.init.etc))
                .join(format!("callbridge.{instance}.notify")),
            script: scripts.join(name),
        };
        let command = if answers.is_of_service() {
            // This is where systemd passes the file to the service's user.
            let file = format!("/run/credentials/callbridge@{instance}.service/notify");
            messenger.command(Path::new(&file))
        } else {
            messenger.command(&messenger.path)
        };
        let flags = &mut answers.init.flags.operation;
        flags.notify_command = Some(command);
        flags.notify_missed = Some(WAITS.to_owned());
        answers.messenger = Some(messenger);
    }
    Ok(())
}

/// Returns the directory that contains the scripts, either in the installed package or in the
/// source tree.
fn scripts() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let of_package = program.ancestors().nth(2)?.join("share/callbridge/notify");
    let of_tree = program.ancestors().nth(3)?.join("deploy/notify");
    [of_package, of_tree]
        .into_iter()
        .find(|folder| folder.is_dir())
}

async fn telegram(answers: &mut Answers) -> Result<Option<String>> {
    let token = answers
        .secret("Token of the bot, from @BotFather (not shown): ")
        .await?;
    let chat = answers
        .line("Number of the chat, as -1001234567890, or @name of a channel: ")
        .await?;
    let is_token = token
        .split_once(':')
        .is_some_and(|(id, key)| is_plain(id) && is_plain(key));
    if !is_token {
        return refuse("that is not the token of a bot: a token looks like 123456789:AAF…");
    }
    if !is_plain(chat.strip_prefix('@').unwrap_or(&chat)) {
        return refuse("that is not a chat: give its number or its @name");
    }
    let url = format!("https://api.telegram.org/bot{token}/sendMessage");
    let mut curl = setting("url", &url);
    curl += &setting("data", &format!("chat_id={chat}"));
    Ok(Some(curl))
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Prints what's wrong with the typed data, and doesn't return a configuration.
fn refuse(message: &str) -> Result<Option<String>> {
    say(message)?;
    Ok(None)
}

async fn mail(answers: &mut Answers) -> Result<Option<String>> {
    let url = answers
        .line("SMTP server, such as smtps://smtp.example.com or smtp://localhost: ")
        .await?;
    let user = answers
        .line("User at that server; empty if it needs none: ")
        .await?;
    let password = if user.is_empty() {
        String::new()
    } else {
        answers.secret("Its password (not shown): ").await?
    };
    let from = answers.line("Address of the sender: ").await?;
    let to = answers.line("Address of the recipient: ").await?;
    let is_smtp = url::Url::parse(&url).is_ok_and(|url| {
        ["smtp", "smtps"].contains(&url.scheme()) && url.has_host() && url.username().is_empty()
    });
    if !is_smtp {
        return refuse("that is not an SMTP server: give smtps://HOST or smtp://HOST");
    }
    if !is_mailbox(&from) || !is_mailbox(&to) {
        return refuse("that is not the address of a mailbox: give NAME@HOST");
    }
    let typed = [&url, &user, &password, &from, &to];
    if typed.iter().any(|text| text.contains(char::is_control)) {
        return refuse("a control character is not allowed there");
    }
    let mut curl = setting("url", &url);
    if !user.is_empty() {
        curl += &setting("user", &format!("{user}:{password}"));
        // The password is only sent over TLS.
        curl += "ssl-reqd\n";
    }
    curl += &setting("mail-from", &from);
    Ok(Some(curl + &setting("mail-rcpt", &to)))
}

fn is_mailbox(text: &str) -> bool {
    text.contains('@') && !text.contains(|c: char| c.is_whitespace() || "<>,\"".contains(c))
}

impl Messenger {
    /// Returns the command that runs the script with the configuration in `file`.
    fn command(&self, file: &Path) -> String {
        let script = quoted(&self.script.to_string_lossy());
        let file = quoted(&file.to_string_lossy());
        format!("{script} {file}")
    }

    /// Sends a test message if the user agrees.
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
