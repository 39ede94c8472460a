//! `GET /experts`: how the work of a mixture-of-experts model falls on its experts.

use axum::Json;
use axum::extract::State;
use bantam_runtime::engine::MixtureStatus;
use serde::Serialize;

use crate::app::App;
use crate::error::ApiError;

/// One mixture; mixtures are listed in the order in which rows pass them, and models without any have an empty list.
#[derive(Serialize)]
pub(crate) struct Mixture {
    /// Rows that experts have computed since the start, a row counting once for each expert that it used.
    rows: u64,
    /// The least number of experts that half of them fell on: the lower, the more is gained by keeping few at hand.
    experts_for_half: usize,
    /// The rows of each expert, by its number.
    rows_per_expert: Vec<u64>,
}

impl From<MixtureStatus> for Mixture {
    fn from(status: MixtureStatus) -> Self {
        let total = status.rows.iter().fold(0_u64, |sum, rows| sum.saturating_add(*rows));
        let mut sorted = status.rows.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut missing = total.div_ceil(2);
        let hot = sorted.iter().take_while(|rows| {
            let is_needed = missing > 0;
            missing = missing.saturating_sub(**rows);
            is_needed
        });
        Mixture { rows: total, experts_for_half: hot.count(), rows_per_expert: status.rows }
    }
}

pub(crate) async fn experts(State(app): State<App>) -> Result<Json<Vec<Mixture>>, ApiError> {
    app.model()?;
    Ok(Json(app.engine.mixtures().await.into_iter().map(Mixture::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_experts_make_up_a_half() {
        let half = |rows: &[u64]| Mixture::from(MixtureStatus { rows: rows.to_vec() }).experts_for_half;
        assert_eq!(half(&[1, 1, 1, 1]), 2);
        assert_eq!(half(&[0, 5, 1, 2]), 1);
        assert_eq!(half(&[3, 2, 2, 2]), 2);
        assert_eq!(half(&[0, 0]), 0);
    }
}
