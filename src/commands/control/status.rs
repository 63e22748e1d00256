//! `status`: once, as an exit code, as a check of health, or drawn again and again.

use super::conversation::{converse, json_line, typed};
use super::screen::Screen;
use crate::config::{Asking, StatusMode};
use crate::{Failure, nobody_reads, print};
use callbridge_admin::{ControlRequest, state_access};
use callbridge_model::status::OverallState;
use callbridge_model::status::text::Look;
use callbridge_model::{Code, Status, Zone};
use serde_json::Value;
use std::io::IsTerminal as _;
use std::time::Duration;

/// Between two looks of `--watch`.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A daemon that takes longer to say how it is does not work.
const HEALTHY_WITHIN: Duration = Duration::from_secs(10);

/// `status`. `shutdown` ends `--watch`.
///
/// # Errors
/// 69 without daemon and state; with `--exit-code` 1 and 2, by the verdict; 64 for `--watch` where
/// nothing can be drawn anew.
pub(crate) async fn run(
    at: &Asking,
    mode: StatusMode,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Failure> {
    match mode {
        StatusMode::Once => once(at).await.map(|_| ()),
        StatusMode::ExitCode => match once(at).await? {
            OverallState::Well => Ok(()),
            OverallState::Attention => Err(Failure::silent(Code::Failed)),
            OverallState::Down => Err(Failure::silent(Code::Down)),
        },
        StatusMode::Healthy => healthy(at).await,
        StatusMode::Watch if at.json => tokio::select! {
            ended = lines(at) => ended,
            () = shutdown => Ok(()),
            () = nobody_reads() => Ok(()),
        },
        StatusMode::Watch => watch(at, shutdown).await,
    }
}

/// The daemon's answer, or the spool's, and what it comes to.
struct Told {
    item: Value,
    text: String,
    verdict: OverallState,
}

async fn ask(at: &Asking) -> Result<Told, Failure> {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut told = None;
    let keep = |item: &Value, zone: &Zone| {
        let mut status: Status = typed(item)?;
        if status.version.is_empty() {
            // A daemon that is older than verdicts.
            status = status.judged();
        }
        let zone = zone.clone();
        told = Some(Told {
            item: item.clone(),
            text: status.to_text(&Look { colour, zone }),
            verdict: status.verdict,
        });
        Ok(())
    };
    converse(at, ControlRequest::Status, keep).await?;
    told.ok_or_else(|| Failure::new(Code::Unreachable, "the daemon gave no status; ask again"))
}

async fn once(at: &Asking) -> Result<OverallState, Failure> {
    let told = ask(at).await?;
    match at.json {
        true => json_line(&told.item)?,
        false => print(told.text.as_bytes())?,
    }
    Ok(told.verdict)
}

/// Says nothing where a daemon answers for its books. Whether something waits for a person is not
/// asked: a supervisor that restarts it would mend nothing of that.
async fn healthy(at: &Asking) -> Result<(), Failure> {
    let dir = at.state.display();
    let asked = tokio::time::timeout(HEALTHY_WITHIN, state_access::status(&at.state)).await;
    let words = match asked {
        Ok(Ok(Some(_))) => return Ok(()),
        Ok(Ok(None)) => {
            format!("no daemon runs on {dir}: start `callbridge run`, or name it with --state")
        }
        Ok(Err(error)) => format!("the daemon of {dir} does not answer: {error}"),
        Err(_) => {
            let seconds = HEALTHY_WITHIN.as_secs();
            format!("the daemon of {dir} does not answer within {seconds} s")
        }
    };
    Err(Failure::new(Code::Unreachable, words))
}

/// A JSON line each time, for whoever reads a pipe.
async fn lines(at: &Asking) -> Result<(), Failure> {
    loop {
        json_line(&ask(at).await?.item)?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Draws until `q`, Ctrl-C or SIGTERM; what was seen last stays on the terminal.
async fn watch(at: &Asking, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        let words = "--watch draws on a terminal, and stdout is none: give --json for a line a \
                     second, or leave --watch out";
        return Err(Failure::new(Code::Usage, words));
    }
    let mut shutdown = std::pin::pin!(shutdown);
    let mut last = tokio::select! {
        told = ask(at) => told?.text,
        () = &mut shutdown => return Ok(()),
    };
    let mut screen = Screen::open()?;
    loop {
        screen.draw(&last)?;
        let over = tokio::select! {
            () = &mut shutdown => true,
            () = screen.left() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        if over {
            break;
        }
        last = match ask(at).await {
            Ok(told) => told.text,
            // It may come back: a daemon restarts, a folder is moved.
            Err(failure) => format!("{failure}\n"),
        };
    }
    drop(screen);
    print(last.as_bytes())
}
