//! What a manual page says beside the flags: exit codes, files, variables, examples.

use ::{callbridge_oauth as oauth, callbridge_spool as spool};
use callbridge_intake::machine;
use callbridge_model::exit::Code;
use callbridge_model::secret_source::SecretKind;

/// A heading with its pairs of a term and a sentence.
pub(super) struct Section {
    pub heading: &'static str,
    pub words: &'static str,
    /// A term in bold, and what it is.
    pub pairs: Vec<(String, String)>,
}

/// All of them, in the order of a manual page.
pub(super) fn all() -> [Section; 4] {
    [exit_status(), environment(), files(), examples()]
}

const fn meaning(code: Code) -> &'static str {
    match code {
        Code::Failed => {
            "Failed in a way that has no code of its own; the books of demo do not balance; \
             status --exit-code: something waits for a person."
        }
        Code::Down => {
            "status --exit-code: nothing reaches the CRM, no source is up, or no daemon runs."
        }
        Code::Usage => "Wrong flags or variables. All faults are reported at once.",
        Code::Input => "A file cannot be read as what it should be, or a list has bad rows.",
        Code::NoInput => "A file is not there.",
        Code::Unreachable => "A PBX, broker, CRM or daemon cannot be reached.",
        Code::CannotWrite => "The state folder cannot be written.",
        Code::Locked => "Another process has the state folder.",
        Code::NoPermission => "A token, a secret or a grant is missing or refused.",
        Code::Configuration => {
            "The state or the configuration cannot be used: of another CRM or PBX, of a newer \
             version, damaged."
        }
        Code::Left => "init was left before its end (Ctrl-C): nothing was written.",
    }
}

fn exit_status() -> Section {
    let well = (
        "0".to_owned(),
        "Success; of run also: ended by SIGTERM or SIGINT.".to_owned(),
    );
    let codes = Code::ALL
        .iter()
        .map(|code| (code.number().to_string(), meaning(*code).to_owned()));
    Section {
        heading: "EXIT STATUS",
        words: "check ends with the code of the worst fault it found.",
        pairs: std::iter::once(well).chain(codes).collect(),
    }
}

const fn secret_of(kind: SecretKind) -> &'static str {
    match kind {
        SecretKind::Token => "The token of the CRM",
        SecretKind::Ami => "The secret of the PBX's manager account",
        SecretKind::Esl => "The password of FreeSWITCH's event socket",
        SecretKind::Amqp => "The password at the broker",
        SecretKind::DeadLetter => "The password at the broker of the dead letters",
        SecretKind::Webhook => "The secret that signs the CRM's events",
        SecretKind::Client => "The client secret of the application (connect)",
        SecretKind::PagePassword => "Who may log in at the page, with the passwords' hashes",
        SecretKind::Lookup => "The password of whoever asks who calls (--lookup)",
    }
}

fn environment() -> Section {
    let pair = |term: &str, words: &str| (term.to_owned(), words.to_owned());
    let secrets = SecretKind::ALL.iter().map(|&kind| {
        let credential = kind.credential();
        let words = format!(
            "{}. Files and the systemd credential {credential} are better: a process's variables \
             can be read by root and its own user.",
            secret_of(kind)
        );
        (kind.variable().to_owned(), words)
    });
    let flag = pair(
        "CALLBRIDGE_FLAG",
        "The value of a flag of run, explain and check that is not given: CALLBRIDGE_CRM_URL for \
         --crm-url. A flag that may be repeated takes one value a line.",
    );
    let others = [
        pair(
            machine::VARIABLE,
            "A file with this machine's id, in place of /etc/machine-id (containers).",
        ),
        pair(
            "STATE_DIRECTORY",
            "The state folder unless --state is given; set by systemd.",
        ),
        pair("CREDENTIALS_DIRECTORY", "Where systemd puts credentials."),
        pair(
            "NOTIFY_SOCKET, WATCHDOG_USEC",
            "Where and how often systemd is notified of readiness.",
        ),
        pair(
            "TZ",
            "The zone of times that are shown, where --pbx-timezone is not given.",
        ),
        pair("NO_COLOR", "No colours, when it is set to anything."),
    ];
    Section {
        heading: "ENVIRONMENT",
        words: "A misspelt variable that begins with CALLBRIDGE_ is a fault that names the right \
                one. The environment's proxies are not used: --crm-proxy names one.",
        pairs: std::iter::once(flag).chain(secrets).chain(others).collect(),
    }
}

fn files() -> Section {
    let pair = |term: &str, words: &str| (term.to_owned(), words.to_owned());
    let db = spool::folder::FILE;
    Section {
        heading: "FILES",
        words: "",
        pairs: vec![
            pair(
                "/etc/callbridge/NAME.flags",
                "Flags of an instance, one argument a line.",
            ),
            pair(
                "/etc/credstore/callbridge.NAME.token",
                "The token for callbridge@NAME.service; ami-secret, esl-secret, amqp-secret and \
                 dead-letter-secret likewise.",
            ),
            pair(
                "/var/lib/callbridge/NAME",
                "The state of that service; ~/.local/state/callbridge of a person's own run.",
            ),
            (
                format!("STATE/{db}, STATE/{db}-wal, STATE/{db}-shm"),
                "Every call, its state and the books (SQLite). Copy them together, or with \
                 sqlite3's .backup."
                    .to_owned(),
            ),
            (
                format!("STATE/{}", spool::folder::LOCK),
                "Locked by the process that has the state.".to_owned(),
            ),
            pair(
                "STATE/control.sock",
                "Where status, dead, lead and calls reach the daemon.",
            ),
            (
                format!("STATE/{}", oauth::store::FILE),
                "Tokens by consent (connect): keep it as you would a password.".to_owned(),
            ),
        ],
    }
}

fn examples() -> Section {
    let pair = |term: &str, words: &str| (term.to_owned(), words.to_owned());
    Section {
        heading: "EXAMPLES",
        words: "",
        pairs: vec![
            pair(
                "callbridge demo",
                "Everything on this machine, without a PBX or a CRM.",
            ),
            pair(
                "callbridge explain --format ami --trunk \
                 'city=PJSIP/city,country=UZ,lead=var:LEAD_ID' ami.raw",
                "What would be journaled of a recording; sends nothing.",
            ),
            pair(
                "callbridge init --name pbx1",
                "Sets a service up: ten questions, or their flags.",
            ),
            pair(
                "callbridge check @/etc/callbridge/pbx1.flags",
                "What is wrong, and what to do.",
            ),
            pair("callbridge run @/etc/callbridge/pbx1.flags", "Let it run."),
            pair(
                "callbridge status --exit-code --state /var/lib/callbridge/pbx1",
                "For a monitor: 0, 1 or 2.",
            ),
            pair(
                "callbridge calls --today",
                "A line a call, with what became of it.",
            ),
            pair(
                "callbridge dead retry --reason failed --lead 4001",
                "Sends every letter failed again, with another lead.",
            ),
            pair(
                "callbridge lead missing --csv",
                "Numbers that called and have no lead.",
            ),
            pair(
                "callbridge missed --since 24h",
                "Customers who wait for a call back.",
            ),
        ],
    }
}
