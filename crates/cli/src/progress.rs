//! Progress bars, on standard error and only on a terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A spinner with a count of `things`, for work of unknown length.
    pub(crate) fn counting(what: &'static str, things: &str) -> Self {
        let template = format!("{{spinner}} {{msg}}: {{pos}} {things}");
        Self::new(ProgressBar::no_length(), what, &template)
    }

    /// A bar for `steps` steps.
    pub(crate) fn steps(what: &'static str, steps: u64) -> Self {
        let template = "{msg:<28} {bar:32} {percent:>3} %";
        Self::new(ProgressBar::new(steps), what, template)
    }

    fn new(bar: ProgressBar, what: &'static str, template: &str) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        bar.set_draw_target(target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    pub(crate) fn to(&self, position: u64) {
        self.0.set_position(position);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
