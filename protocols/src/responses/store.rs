//! Responses that are kept, to be asked for again and gone on from: the most recent ones, as far as they fit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::oneshot;

use super::events::Events;

/// Most responses kept.
const MOST: usize = 128;
/// Most bytes of JSON that they may have together.
const MOST_BYTES: usize = 64 << 20;

/// The responses, each under its own name. Touched when one begins, ends, or is asked for; never while it is generated.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<Shelf>);

/// Oldest first.
#[derive(Debug, Default)]
struct Shelf {
    kept: VecDeque<Kept>,
    bytes: usize,
    /// How often what is kept has changed.
    changes: u64,
}

/// A response that has ended, as it is saved.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) object: Arc<Value>,
    pub(super) history: Vec<Arc<Value>>,
    pub(super) input: Vec<Arc<Value>>,
}

#[derive(Debug, Default)]
struct Kept {
    id: String,
    object: Arc<Value>,
    /// Items of the conversation before the request's, shared with the responses that it went on from.
    history: Vec<Arc<Value>>,
    input: Vec<Arc<Value>>,
    output: Vec<Arc<Value>>,
    /// What was told of it, if anybody may have lost that.
    events: Option<Arc<Events>>,
    /// Bytes of that, once it has ended.
    event_bytes: usize,
    /// Of its own parts, once it has ended.
    bytes: usize,
    /// Ends it while it is under way.
    stop: Option<oneshot::Sender<()>>,
}

impl Kept {
    /// All items, the answer's included.
    fn conversation(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.history.iter().chain(&self.input).chain(&self.output)
    }
}

impl Kept {
    /// The same with its end.
    fn ended(mut self, object: Arc<Value>) -> Self {
        let output = object["output"].as_array();
        self.output = output.into_iter().flatten().cloned().map(Arc::new).collect();
        let items = self.input.iter().chain(&self.output).map(|item| size(item));
        // The last event has all of the object.
        self.event_bytes = self.events.as_ref().map_or(0, |events| events.bytes() + size(&object));
        self.bytes = items.sum::<usize>() + size(&object) + self.event_bytes;
        Kept { object, stop: None, ..self }
    }
}

/// What comes of asking to cancel a response.
#[derive(Debug, PartialEq)]
pub(super) enum Cancel {
    /// It is cancelled.
    Done(Arc<Value>),
    /// It has ended otherwise, with this status.
    Ended(String),
    Unknown,
}

impl Store {
    /// Takes a response that begins, with its events where others may `follow` it, and says what ends it early.
    pub(super) fn open(
        store: &Arc<Store>,
        object: &Value,
        history: Vec<Arc<Value>>,
        input: Vec<Arc<Value>>,
        follow: bool,
    ) -> (Place, oneshot::Receiver<()>) {
        let (stop, stopped) = oneshot::channel();
        let id = object["id"].as_str().unwrap_or_default().to_owned();
        let (object, output) = (Arc::new(object.clone()), Vec::new());
        let events: Option<Arc<Events>> = follow.then(Arc::default);
        let place = Place { store: Arc::clone(store), id: id.clone(), events: events.clone(), closed: false };
        let kept = Kept { id, object, history, input, output, events, event_bytes: 0, bytes: 0, stop: Some(stop) };
        store.lock().kept.push_back(kept);
        (place, stopped)
    }

    /// One with these responses.
    pub(super) fn restored(images: Vec<Image>) -> Self {
        let store = Store::default();
        store.restore(images);
        store
    }

    /// Adds these responses, but those that are none.
    pub(super) fn restore(&self, images: Vec<Image>) {
        let mut shelf = self.lock();
        for Image { object, history, input } in images {
            let Some(id) = object["id"].as_str().map(str::to_owned) else { continue };
            let kept = Kept { id, history, input, ..Kept::default() };
            shelf.add(kept.ended(object));
        }
    }

    /// The responses that have ended, oldest first.
    pub(super) fn images(&self) -> Vec<Image> {
        let shelf = self.lock();
        let ended = shelf.kept.iter().filter(|kept| kept.stop.is_none());
        let image = |kept: &Kept| Image {
            object: Arc::clone(&kept.object),
            history: kept.history.clone(),
            input: kept.input.clone(),
        };
        ended.map(image).collect()
    }

    /// Bytes of what is kept, as JSON.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A number that is another one when what is kept has changed.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    #[cfg(test)]
    pub(super) fn object(&self, id: &str) -> Option<Arc<Value>> {
        self.lock().find(id).map(|kept| Arc::clone(&kept.object))
    }

    /// The response, and its events if these are kept.
    pub(super) fn told(&self, id: &str) -> Option<(Arc<Value>, Option<Arc<Events>>)> {
        self.lock().find(id).map(|kept| (Arc::clone(&kept.object), kept.events.clone()))
    }

    /// The items that the request came with.
    pub(super) fn input(&self, id: &str) -> Option<Vec<Arc<Value>>> {
        self.lock().find(id).map(|kept| kept.input.clone())
    }

    /// All items up to the answer's, to go on from.
    pub(super) fn conversation(&self, id: &str) -> Option<Vec<Arc<Value>>> {
        self.lock().find(id).map(|kept| kept.conversation().cloned().collect())
    }

    /// An item of any of the responses by its name.
    pub(super) fn item(&self, id: &str) -> Option<Arc<Value>> {
        let shelf = self.lock();
        let own = |kept: &'_ Kept| kept.output.iter().chain(&kept.input).find(|item| item["id"] == id).cloned();
        shelf.kept.iter().rev().find_map(own)
    }

    /// Forgets a response, and ends it if it is under way. False if it is not kept.
    pub(super) fn remove(&self, id: &str) -> bool {
        let Some(removed) = self.lock().remove(id) else { return false };
        if let Some(stop) = removed.stop {
            // Nobody listens only if it has just ended.
            let _ = stop.send(());
        }
        true
    }

    /// Ends a response that is under way.
    pub(super) fn cancel(&self, id: &str) -> Cancel {
        let mut shelf = self.lock();
        let Some(kept) = shelf.kept.iter_mut().find(|kept| kept.id == id) else { return Cancel::Unknown };
        if let Some(stop) = kept.stop.take() {
            // Nobody listens only if it has just ended.
            let _ = stop.send(());
            Arc::make_mut(&mut kept.object)["status"] = "cancelled".into();
        }
        match kept.object["status"].as_str() {
            Some("cancelled") => Cancel::Done(Arc::clone(&kept.object)),
            status => Cancel::Ended(status.unwrap_or_default().to_owned()),
        }
    }

    fn close(&self, id: &str, object: Value) {
        let mut shelf = self.lock();
        let Some(begun) = shelf.remove(id) else { return };
        shelf.add(begun.ended(Arc::new(object)));
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn find(&self, id: &str) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.id == id)
    }

    fn remove(&mut self, id: &str) -> Option<Kept> {
        let at = self.kept.iter().position(|kept| kept.id == id)?;
        let removed = self.kept.remove(at)?;
        self.bytes -= removed.bytes;
        self.changes += 1;
        Some(removed)
    }

    /// Adds a response that has ended, as the most recent one.
    fn add(&mut self, ended: Kept) {
        self.bytes += ended.bytes;
        self.changes += 1;
        self.kept.push_back(ended);
        self.shrink();
    }

    /// Forgets the oldest that have ended until the rest fits. Events go first: what they told is in the response.
    fn shrink(&mut self) {
        let ended = self.kept.iter_mut().filter(|kept| kept.stop.is_none());
        for kept in ended {
            if self.bytes <= MOST_BYTES {
                break;
            }
            let freed = std::mem::take(&mut kept.event_bytes);
            kept.events = None;
            kept.bytes -= freed;
            self.bytes -= freed;
        }
        while self.kept.len() > MOST || self.bytes > MOST_BYTES {
            let Some(oldest) = self.kept.iter().find(|kept| kept.stop.is_none()) else { return };
            let id = oldest.id.clone();
            self.remove(&id);
        }
    }
}

fn size(value: &Value) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

/// A response's place in the store while it is under way. One that is dropped before its end leaves nothing behind.
#[derive(Debug)]
pub(super) struct Place {
    store: Arc<Store>,
    id: String,
    events: Option<Arc<Events>>,
    closed: bool,
}

impl Place {
    /// Where its events are kept, if they are.
    pub(super) fn events(&self) -> Option<Arc<Events>> {
        self.events.clone()
    }

    /// Keeps the response as it ended.
    pub(super) fn close(mut self, object: Value) {
        self.closed = true;
        self.store.close(&self.id, object);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.closed {
            self.store.lock().remove(&self.id);
            if let Some(events) = &self.events {
                events.break_off();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(id: &str, output: &Value) -> Value {
        json!({"id": id, "status": "completed", "output": output})
    }

    fn item(id: &str) -> Arc<Value> {
        Arc::new(json!({"id": id, "type": "message"}))
    }

    fn keep(store: &Arc<Store>, id: &str, history: Vec<Arc<Value>>, text: &str) {
        let (place, _stopped) =
            Store::open(store, &object(id, &json!([])), history, vec![item(&format!("in_{id}"))], true);
        place.close(object(id, &json!([{"id": format!("out_{id}"), "text": text}])));
    }

    fn ids(items: &[Arc<Value>]) -> Vec<&str> {
        items.iter().map(|item| item["id"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_conversation_is_all_items_up_to_the_answer() {
        let store = Arc::default();
        keep(&store, "a", Vec::new(), "");
        keep(&store, "b", store.conversation("a").unwrap(), "");
        let told = store.conversation("b").unwrap();
        assert_eq!(ids(&told), ["in_a", "out_a", "in_b", "out_b"]);
        assert_eq!(ids(&store.input("b").unwrap()), ["in_b"]);
        assert!(store.item("out_a").is_some() && store.item("nothing").is_none());
        assert!(store.remove("a") && !store.remove("a"));
        assert_eq!(store.conversation("b").unwrap().len(), 4, "what went on from it keeps its items");
        assert!(store.object("a").is_none());
    }

    #[test]
    fn the_most_recent_are_kept_as_far_as_they_fit() {
        let store = Arc::default();
        let (running, _stopped) = Store::open(&store, &object("running", &json!([])), Vec::new(), Vec::new(), false);
        for i in 0..MOST + 10 {
            keep(&store, &i.to_string(), Vec::new(), "");
        }
        assert!(store.object("10").is_none() && store.object("11").is_some());
        assert!(store.object("running").is_some());
        let large = "x".repeat(MOST_BYTES / 3);
        for id in ["l1", "l2"] {
            keep(&store, id, Vec::new(), &large);
        }
        assert!(
            store.object("l1").is_none() && store.object("l2").is_some(),
            "each is there twice: in the object and as an item"
        );
        drop(running);
        assert!(store.object("running").is_none(), "one that was left has nothing to be asked for");
        let told = |store: &Store| {
            let shelf = store.lock();
            (shelf.bytes, shelf.kept.iter().map(|kept| kept.bytes).sum::<usize>())
        };
        assert!(told(&store).0 <= MOST_BYTES);
        assert!(store.remove("l2"));
        let (counted, really) = told(&store);
        assert_eq!(counted, really);
    }

    #[test]
    fn what_is_under_way_can_be_ended() {
        let store = Arc::default();
        let begun = json!({"id": "a", "status": "in_progress", "output": []});
        let (place, mut stopped) = Store::open(&store, &begun, Vec::new(), Vec::new(), false);
        assert!(stopped.try_recv().is_err());
        let cancelled = json!({"id": "a", "status": "cancelled", "output": []});
        assert_eq!(store.cancel("a"), Cancel::Done(Arc::new(cancelled.clone())));
        assert!(stopped.try_recv().is_ok());
        place.close(cancelled.clone());
        assert_eq!(store.cancel("a"), Cancel::Done(Arc::new(cancelled)));
        keep(&store, "b", Vec::new(), "");
        assert_eq!(store.cancel("b"), Cancel::Ended("completed".into()));
        assert_eq!(store.cancel("c"), Cancel::Unknown);
    }
}
