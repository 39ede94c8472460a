//! Responses that are kept: `GET` and `DELETE /v1/responses/{id}`, `/v1/responses/{id}/input_items` and `/cancel`.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::events::Events;
use super::progress::again;
use super::store::Cancel;
use crate::answer::{respond_with, told_at_once};
use crate::app::App;
use crate::error::ApiError;

/// Items on a page, unless the client says otherwise, and at most.
const PAGE: usize = 20;
const LONGEST_PAGE: usize = 100;

type Id = Result<Path<String>, PathRejection>;
type Options = Result<Query<HashMap<String, String>>, QueryRejection>;

/// The response, or its events: those that have come, behind number `starting_after` if that is given, and those to come.
pub(crate) async fn retrieve(State(app): State<App>, id: Id, options: Options) -> Result<Response, ApiError> {
    let id = name(id)?;
    let options = query(options)?;
    let stream = option(&options, "stream", "true or false")?.unwrap_or(false);
    let after: Option<u64> = option(&options, "starting_after", "the number of an event")?;
    let (object, events) = app.responses.told(&id).ok_or_else(|| unknown(&id))?;
    if !stream {
        return Ok(Json(Arc::unwrap_or_clone(object)).into_response());
    }
    match (events, after) {
        (Some(events), after) => {
            let next = after.map_or(0, |after| usize::try_from(after).unwrap_or(usize::MAX).saturating_add(1));
            Ok(respond_with(Events::follow(events, next, app.sse_keepalive)))
        }
        // Of one that was not streamed, or is kept since an earlier run, the events are not there; what they told is.
        (None, None) => Ok(told_at_once(again(&object))),
        (None, Some(_)) => {
            let message = "The events of this response are not kept: leave out `starting_after` to be told all of it";
            Err(ApiError::bad_request(message).param("starting_after"))
        }
    }
}

/// An option of the query, which must be `what`.
fn option<T: FromStr>(
    options: &HashMap<String, String>,
    name: &'static str,
    what: &str,
) -> Result<Option<T>, ApiError> {
    let Some(given) = options.get(name).filter(|given| !given.is_empty()) else { return Ok(None) };
    let refused = |_| ApiError::bad_request(format!("`{name}` must be {what}")).param(name);
    given.to_ascii_lowercase().parse().map(Some).map_err(refused)
}

pub(crate) async fn delete(State(app): State<App>, id: Id) -> Result<Json<Value>, ApiError> {
    let id = name(id)?;
    match app.responses.remove(&id) {
        true => Ok(Json(json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(unknown(&id)),
    }
}

pub(crate) async fn cancel(State(app): State<App>, id: Id) -> Result<Json<Value>, ApiError> {
    let id = name(id)?;
    match app.responses.cancel(&id) {
        Cancel::Done(object) => Ok(Json(Arc::unwrap_or_clone(object))),
        Cancel::Ended(status) => Err(ApiError::bad_request(format!("The response has ended: it is {status}"))),
        Cancel::Unknown => Err(unknown(&id)),
    }
}

pub(crate) async fn input_items(State(app): State<App>, id: Id, options: Options) -> Result<Json<Value>, ApiError> {
    let id = name(id)?;
    let items = app.responses.input(&id).ok_or_else(|| unknown(&id))?;
    page(items, &query(options)?).map(Json)
}

fn name(id: Id) -> Result<String, ApiError> {
    id.map(|Path(id)| id).map_err(|_| ApiError::bad_request("The response's name in the path is not UTF-8"))
}

fn query(options: Options) -> Result<HashMap<String, String>, ApiError> {
    options.map(|Query(options)| options).map_err(|error| ApiError::bad_request(error.body_text()))
}

fn unknown(id: &str) -> ApiError {
    let message = format!("Response with id '{id}' not found: the most recent ones are kept, unless `store` is false");
    ApiError::new(StatusCode::NOT_FOUND, message)
}

/// A page of these items: the newest first, unless `order` is `asc`.
fn page(mut items: Vec<Arc<Value>>, options: &HashMap<String, String>) -> Result<Value, ApiError> {
    match options.get("order").map(String::as_str) {
        Some("asc") => {}
        None | Some("desc") => items.reverse(),
        Some(_) => return Err(ApiError::bad_request("`order` must be asc or desc").param("order")),
    }
    if let Some(after) = options.get("after") {
        let at = items.iter().position(|item| item["id"] == after.as_str());
        let at = at.ok_or_else(|| ApiError::bad_request("`after` must name an item of the response").param("after"))?;
        items.drain(..=at);
    }
    let limit = match options.get("limit") {
        None => PAGE,
        Some(given) => given.parse().ok().filter(|limit| (1..=LONGEST_PAGE).contains(limit)).ok_or_else(|| {
            ApiError::bad_request(format!("`limit` must be between 1 and {LONGEST_PAGE}")).param("limit")
        })?,
    };
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&Arc<Value>>| item.map(|item| item["id"].clone()).unwrap_or_default();
    Ok(json!({
        "object": "list", "data": items.iter().map(Arc::as_ref).collect::<Vec<_>>(),
        "first_id": id(items.first()), "last_id": id(items.last()), "has_more": has_more,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(options: &[(&str, &str)]) -> Result<(Vec<String>, bool), String> {
        let items = (0..5).map(|i| Arc::new(json!({"id": i.to_string()}))).collect();
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let page = page(items, &options).map_err(|error| error.message)?;
        let ids: Vec<String> =
            page["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(page["last_id"].as_str(), ids.last().map(String::as_str));
        Ok((ids, page["has_more"].as_bool().unwrap()))
    }

    #[test]
    fn items_come_in_pages() {
        let ids = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        assert_eq!(told(&[]).unwrap(), (ids("43210"), false));
        assert_eq!(told(&[("limit", "2")]).unwrap(), (ids("43"), true));
        assert_eq!(told(&[("limit", "3"), ("after", "3")]).unwrap(), (ids("210"), false));
        assert_eq!(told(&[("order", "asc"), ("after", "0"), ("limit", "2")]).unwrap(), (ids("12"), true));
        assert_eq!(told(&[("order", "asc"), ("after", "4")]).unwrap(), (Vec::new(), false));
        for wrong in [("order", "up"), ("after", "9"), ("limit", "0"), ("limit", "x")] {
            assert!(told(&[wrong]).unwrap_err().contains(wrong.0));
        }
    }
}
