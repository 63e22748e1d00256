//! The places of secrets: a file, a systemd credential, or an environment variable, in that order.

use super::environment::Environment;
use super::exit::{Code, ExitCode};
use crate::secret::{ExposeSecret as _, Secret};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Maximum file size. A secret is one line, and the page's passwords are one line per person.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of secrets in a file: the current one, and previous ones.
pub const LINES_MAX: usize = 4;

/// A kind of secret, with the names of its credential, variable, and flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum SecretKind {
    /// The CRM's access token, sent as the bearer.
    Token,
    /// The password of the AMI account (Asterisk).
    #[strum(serialize = "ami-secret")]
    Ami,
    /// The password of FreeSWITCH's event socket.
    #[strum(serialize = "esl-secret")]
    Esl,
    /// The password for the broker of a queue.
    #[strum(serialize = "amqp-secret")]
    Amqp,
    /// The password for the broker that dead letters go to.
    #[strum(serialize = "dead-letter-secret")]
    DeadLetter,
    /// The application's signing secret, which verifies events.
    #[strum(serialize = "webhook-secret")]
    Webhook,
    /// The application's client secret, for `connect` and to refresh its token.
    #[strum(serialize = "client-secret")]
    Client,
    /// Hashes of the passwords for the page.
    PagePassword,
    /// The password with which a dialplan looks up callers (`--lookup`).
    #[strum(serialize = "lookup-secret")]
    Lookup,
    /// The token of a collector's branch at its hub (`--forward`).
    #[strum(serialize = "forward-token")]
    Forward,
}

impl SecretKind {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the credential's name in `$CREDENTIALS_DIRECTORY`: `token`, `ami-secret`.
    pub fn credential(self) -> &'static str {
        self.into()
    }

    /// Returns the environment variable that can hold the secret: `CALLBRIDGE_TOKEN`,
    /// `CALLBRIDGE_AMI_SECRET`.
    pub fn variable(self) -> String {
        format!(
            "CALLBRIDGE_{}",
            self.credential().replace('-', "_").to_uppercase()
        )
    }

    /// Returns the flag that names the secret's file, for messages.
    fn flag(self) -> String {
        match self {
            Self::Ami | Self::Esl | Self::Amqp | Self::DeadLetter => "secret-file=FILE".to_owned(),
            Self::Token
            | Self::Webhook
            | Self::Client
            | Self::PagePassword
            | Self::Lookup
            | Self::Forward => {
                format!("--{}-file FILE", self.credential())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub enum SecretPlace {
    /// A file. It can be replaced, so it is read again whenever the secret is needed.
    File(PathBuf),
    /// The value of an environment variable, read once at the start.
    Variable(Secret),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the secret's file {0} is not there")]
    Missing(PathBuf),
    /// The file exists but cannot be read.
    #[error("the secret's file {0} cannot be read")]
    Unreadable(PathBuf, #[source] io::Error),
    /// The first line of the file is empty.
    #[error("the secret's file {0} is empty: put the secret into its first line")]
    Empty(PathBuf),
    /// The file has more lines than there can be valid secrets.
    #[error(
        "the secret's file {0} has more than {LINES_MAX} lines: give the current and the previous \
         secret, one per line"
    )]
    TooMany(PathBuf),
    /// The file is too long for a file of secrets.
    #[error("the secret's file {0} is longer than 1 MB")]
    TooLong(PathBuf),
    /// The text cannot be a secret: it is not UTF-8, or has control characters.
    #[error("the secret's file {0} holds no secret: one line of text is expected")]
    NoText(PathBuf),
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        match self {
            Self::Missing(_) => Code::NoInput,
            Self::Unreadable(..) | Self::Empty(_) | Self::TooMany(_) => Code::Configuration,
            Self::TooLong(_) | Self::NoText(_) => Code::Configuration,
        }
    }
}

impl SecretPlace {
    /// Returns the first place that has the secret: the file that a flag names, the credential, the
    /// variable, or the stored credential of the service whose flags were read
    /// (`@/etc/callbridge/NAME.flags`). If there is none, returns a message with the possible
    /// places.
    pub fn find(
        kind: SecretKind,
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, String> {
        let flag = kind.flag();
        let name = kind.credential();
        let variable = kind.variable();
        let given = file.map(Path::to_owned);
        if let Some(file) = given.or_else(|| environment.credential(name)) {
            return Ok(Self::File(file));
        }
        if let Some(secret) = environment.text(&variable) {
            let secret = secret.trim_start_matches('\u{feff}').trim();
            return Ok(Self::Variable(Secret::from(secret)));
        }
        let stored = environment.stored_credential(name).map(Self::File);
        stored.ok_or_else(|| {
            format!("no secret: give {flag}, the systemd credential {name} or {variable}")
        })
    }

    /// Returns the file with the secret. `None` for a variable.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Variable(_) => None,
        }
    }

    /// Returns the secret of a variable, which is read once. `None` for a file.
    pub fn fixed(&self) -> Option<Secret> {
        match self {
            Self::File(_) => None,
            Self::Variable(secret) => Some(secret.clone()),
        }
    }

    /// Returns the value of the variable, or the first line of the file without surrounding white
    /// space.
    pub fn read(&self) -> Result<Secret, Error> {
        match self {
            Self::Variable(secret) => Ok(secret.clone()),
            Self::File(path) => {
                let text = self.text()?;
                secret_of(
                    path,
                    text.expose_secret().lines().next().unwrap_or_default(),
                )
            }
        }
    }

    /// Returns `true` if the secret is in quotes, in a file or in a variable that a program set
    /// literally. The quotes can be part of the secret.
    pub fn is_quoted(&self) -> bool {
        // Something other than a file can possibly be read only once, by the actual user of the
        // secret.
        if matches!(self, Self::File(path) if !path.is_file()) {
            return false;
        }
        let secrets = self.read_lines().unwrap_or_default();
        secrets
            .iter()
            .any(|secret| has_quotes(secret.expose_secret()))
    }

    /// Returns the whole text, for a file whose lines contain more than the secret.
    pub fn text(&self) -> Result<Secret, Error> {
        match self {
            Self::Variable(text) => Ok(text.clone()),
            Self::File(path) => Ok(Secret::from(text_of(path)?)),
        }
    }

    /// Reads several secrets, one per line. Skips empty lines. Fails if there is no secret, or if
    /// there are more than [`LINES_MAX`].
    pub fn read_lines(&self) -> Result<Vec<Secret>, Error> {
        self.lines_of(&self.text()?)
    }

    /// Parses the secrets of [`SecretPlace::read_lines`] from a text that was read from this place.
    pub fn lines_of(&self, text: &Secret) -> Result<Vec<Secret>, Error> {
        let path = self.file().unwrap_or(Path::new(""));
        let mut secrets = Vec::new();
        for line in text.expose_secret().lines() {
            if !line.trim().is_empty() {
                secrets.push(secret_of(path, line)?);
            }
        }
        match secrets.len() {
            0 => Err(Error::Empty(path.to_owned())),
            1..=LINES_MAX => Ok(secrets),
            _ => Err(Error::TooMany(path.to_owned())),
        }
    }
}

fn has_quotes(text: &str) -> bool {
    let mut inner = text.chars();
    let ends = (inner.next(), inner.next_back());
    matches!(ends, (Some('"'), Some('"')) | (Some('\''), Some('\'')))
}

/// Returns a file's text, without the byte order mark that editors put before it.
pub fn text_of(path: &Path) -> Result<String, Error> {
    let text = read_beginning(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Missing(path.to_owned()),
        io::ErrorKind::InvalidData => Error::NoText(path.to_owned()),
        _ => Error::Unreadable(path.to_owned(), error),
    })?;
    if text.len() > FILE_BYTES_MAX {
        return Err(Error::TooLong(path.to_owned()));
    }
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// Reads at most one byte more than [`FILE_BYTES_MAX`], which shows that the file is longer.
fn read_beginning(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(FILE_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn secret_of(path: &Path, line: &str) -> Result<Secret, Error> {
    let line = line.trim();
    if line.is_empty() {
        return Err(Error::Empty(path.to_owned()));
    }
    if line.chars().any(char::is_control) {
        return Err(Error::NoText(path.to_owned()));
    }
    Ok(Secret::from(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(place: &SecretPlace) -> String {
        place.read().expect("a secret").expose_secret().to_owned()
    }

    fn find_token(file: Option<&Path>, environment: &Environment) -> SecretPlace {
        SecretPlace::find(SecretKind::Token, file, environment).expect("found")
    }

    #[test]
    fn secret_is_read_from_file_then_credential_then_variable() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own");
        std::fs::write(&own, " from-file \nsecond line\n").expect("written");
        let directory = folder.path().to_str().expect("UTF-8");
        let environment = Environment::from_pairs([
            ("CREDENTIALS_DIRECTORY", directory),
            ("CALLBRIDGE_TOKEN", "from-variable"),
        ]);
        let from_file = find_token(Some(own.as_path()), &environment);
        assert_eq!(read(&from_file), "from-file");
        assert_eq!(read(&find_token(None, &environment)), "from-variable");
        let marked = "\u{feff}from-credential\r\n";
        std::fs::write(folder.path().join("token"), marked).expect("written");
        assert_eq!(read(&find_token(None, &environment)), "from-credential");
    }

    #[test]
    fn variable_and_flag_names_match_their_credential() {
        let names = SecretKind::ALL.iter().map(|kind| {
            let (credential, variable, flag) = (kind.credential(), kind.variable(), kind.flag());
            format!("{credential} {variable} {flag}")
        });
        insta::assert_snapshot!(names.collect::<Vec<_>>().join("\n"), @r"
        token CALLBRIDGE_TOKEN --token-file FILE
        ami-secret CALLBRIDGE_AMI_SECRET secret-file=FILE
        esl-secret CALLBRIDGE_ESL_SECRET secret-file=FILE
        amqp-secret CALLBRIDGE_AMQP_SECRET secret-file=FILE
        dead-letter-secret CALLBRIDGE_DEAD_LETTER_SECRET secret-file=FILE
        webhook-secret CALLBRIDGE_WEBHOOK_SECRET --webhook-secret-file FILE
        client-secret CALLBRIDGE_CLIENT_SECRET --client-secret-file FILE
        page-password CALLBRIDGE_PAGE_PASSWORD --page-password-file FILE
        lookup-secret CALLBRIDGE_LOOKUP_SECRET --lookup-secret-file FILE
        forward-token CALLBRIDGE_FORWARD_TOKEN --forward-token-file FILE
        ");
    }

    #[test]
    fn missing_secret_is_reported_with_its_possible_places() {
        let nowhere =
            SecretPlace::find(SecretKind::Ami, None, &Environment::default()).expect_err("nowhere");
        insta::assert_snapshot!(
            nowhere,
                @"no secret: give secret-file=FILE, the systemd credential ami-secret or \
                CALLBRIDGE_AMI_SECRET"

        );
    }

    #[test]
    fn missing_empty_and_invalid_files_are_distinguished() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let place = SecretPlace::File(file.clone());
        assert!(matches!(place.read(), Err(Error::Missing(_))));
        for (bytes, empty) in [
            (&b"\nx"[..], true),
            (b"", true),
            (b"\xef\xbb\xbf\r\n", true),
            (b"\xff\xfe", false),
            (b"a\x07b", false),
        ] {
            std::fs::write(&file, bytes).expect("written");
            let error = place.read().expect_err("no secret");
            assert_eq!(
                matches!(error, Error::Empty(_)),
                empty,
                "{bytes:?}: {error}"
            );
            assert_eq!(error.exit_code(), Code::Configuration);
        }
    }

    #[test]
    fn file_of_many_lines_is_read_whole_or_refused_as_too_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("people");
        let place = SecretPlace::File(file.clone());
        let many = "anna:view:$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA\n".repeat(500);
        std::fs::write(&file, &many).expect("written");
        assert_eq!(place.text().expect("a text").expose_secret(), many);
        std::fs::write(&file, many.repeat(50)).expect("written");
        let error = place.text().expect_err("no text");
        assert_eq!(error.exit_code(), Code::Configuration);
        assert!(
            error.to_string().ends_with("is longer than 1 MB"),
            "{error}"
        );
    }

    fn read_texts(place: &SecretPlace) -> Result<Vec<String>, Code> {
        let secrets = place.read_lines().map_err(|error| error.exit_code())?;
        let texts = secrets
            .iter()
            .map(|secret| secret.expose_secret().to_owned());
        Ok(texts.collect())
    }

    #[test]
    fn several_secrets_are_read_one_per_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secrets");
        let place = SecretPlace::File(file.clone());
        std::fs::write(&file, "\u{feff}current \r\n\n previous\n").expect("written");
        let both = vec!["current".to_owned(), "previous".to_owned()];
        assert_eq!(read_texts(&place), Ok(both));
        for wrong in ["", "\n \n", "a\nb\nc\nd\ne", "a\u{7}"] {
            std::fs::write(&file, wrong).expect("written");
            assert_eq!(read_texts(&place), Err(Code::Configuration), "{wrong:?}");
        }
    }

    #[test]
    fn quotes_around_a_secret_are_detected_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let place = SecretPlace::File(file.clone());
        for (text, quoted) in [
            ("\"abc\"\n", true),
            ("'abc'", true),
            ("\u{feff}\"abc\"\r\n", true),
            ("\"abc", false),
            ("a\"b\"c", false),
            ("\"", false),
        ] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(place.is_quoted(), quoted, "{text:?}");
        }
        let environment =
            Environment::from_pairs([("CALLBRIDGE_AMI_SECRET", "\u{feff}\"abc\"\r\n")]);
        let place = SecretPlace::find(SecretKind::Ami, None, &environment).expect("found");
        assert!(place.is_quoted());
        assert_eq!(read(&place), "\"abc\"");
    }

    #[test]
    fn secret_is_not_in_the_debug_form_of_its_place() {
        let environment = Environment::from_pairs([("CALLBRIDGE_TOKEN", "svc_pat_hidden")]);
        let place = SecretPlace::find(SecretKind::Token, None, &environment).expect("found");
        assert_eq!(read(&place), "svc_pat_hidden");
        assert!(!format!("{place:?}").contains("hidden"));
    }

    #[test]
    fn secret_is_not_in_the_error_of_an_invalid_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let place = SecretPlace::File(file.clone());
        let many_lines = "svc_pat_hidden\n".repeat(LINES_MAX + 1);
        let long = "svc_pat_hidden\n".repeat(FILE_BYTES_MAX / 10);
        for text in ["svc_pat_hidden\u{7}", &many_lines, &long] {
            std::fs::write(&file, text).expect("written");
            let error = place.read_lines().expect_err("no secret");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hidden"), "{shown}");
        }
    }
}
