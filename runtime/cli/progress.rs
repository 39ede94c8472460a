//! Progress on standard error. Bars show nothing unless that is a terminal.

use std::time::Duration;

use bantam_runtime::engine::{Engine, Readiness};
use indicatif::{ProgressBar, ProgressStyle};

/// Steps of a bar that shows a share.
const STEPS: u64 = 1000;

/// A bar over bytes.
pub(crate) fn bytes(what: &str, total: u64) -> ProgressBar {
    let bar = bar(what, total, "{msg} {wide_bar} {bytes}/{total_bytes} {eta}");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A bar over a share that [`set_share`] moves; it shows nothing before that.
pub(crate) fn share(what: &str) -> ProgressBar {
    bar(what, STEPS, "{msg} {wide_bar} {percent}%")
}

/// Moves a bar to a share from 0 to 1.
pub(crate) fn set_share(bar: &ProgressBar, share: f32) {
    bar.set_position((share.clamp(0.0, 1.0) * STEPS as f32) as u64);
}

/// Moves a bar until the model is loaded or cannot be, then takes it away.
pub(crate) async fn follow_loading(engine: Engine, bar: ProgressBar) {
    while let Readiness::Loading(part) = engine.readiness() {
        set_share(&bar, part);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bar.finish_and_clear();
}

fn bar(what: &str, total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
