//! The terminal: how wide it is, and what it shows of what is typed.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;

/// The width of stdout's terminal; `None` without one.
pub(crate) fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
}

/// Stdin's terminal without some of its modes, until this is dropped.
pub(crate) struct Keyboard(Termios);

impl Keyboard {
    /// `None` where stdin is no terminal.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn without(modes: LocalModes) -> io::Result<Option<Self>> {
        let Ok(before) = tcgetattr(io::stdin()) else {
            return Ok(None);
        };
        let mut now = before.clone();
        now.local_modes.remove(modes);
        tcsetattr(io::stdin(), OptionalActions::Now, &now)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // Whoever closed the terminal does not need it.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
