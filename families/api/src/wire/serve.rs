//! A plugin's work, for any family.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{BuildAnswer, BuildRequest, Description, WireError};
use crate::Family;

/// Answers who the family is: the bytes of a [`Description`].
pub fn description(family: &dyn Family, version: &str) -> Vec<u8> {
    serde_json::to_vec(&Description::of(family, version)).unwrap_or_default()
}

/// Answers a request. What is no request, and a family that panics, is an error in the answer.
pub fn answer(family: &dyn Family, request: &[u8]) -> Vec<u8> {
    let answered = catch_unwind(AssertUnwindSafe(|| build(family, request)))
        .unwrap_or_else(|panic| Err(WireError::message(format!("the plugin panicked: {}", said(&*panic)))))
        .unwrap_or_else(BuildAnswer::Error);
    answered.to_vec().or_else(|error| cannot_be_written(&error).to_vec()).unwrap_or_default()
}

fn build(family: &dyn Family, request: &[u8]) -> Result<BuildAnswer, WireError> {
    let request = BuildRequest::from_slice(request)
        .map_err(|malformed| WireError::message(format!("the plugin does not understand the request: {malformed}")))?;
    Ok(match request {
        BuildRequest::Model { checkpoint } => BuildAnswer::Model(Box::new(family.describe(&checkpoint)?)),
        BuildRequest::Import { checkpoint } => BuildAnswer::Import(Box::new(family.import(&checkpoint)?)),
        BuildRequest::Draft { draft, target } => BuildAnswer::Draft(Box::new(family.describe_draft(&draft, &target)?)),
    })
}

fn cannot_be_written(error: &serde_json::Error) -> BuildAnswer {
    BuildAnswer::Error(WireError::message(format!("the plugin's answer cannot be written: {error}")))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "without words",
    }
}
