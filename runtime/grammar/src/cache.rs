//! What was used last.

use std::sync::Arc;

/// A digest of what a value was made from.
pub(crate) type Key = [u8; 32];

/// So many values at most; the one not used for longest goes first. They are few enough to be looked through.
pub(crate) struct Cache<T> {
    capacity: usize,
    /// Used last at the end.
    entries: Vec<(Key, Arc<T>)>,
}

impl<T> Cache<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, entries: Vec::with_capacity(capacity) }
    }

    pub(crate) fn get(&mut self, key: &Key) -> Option<Arc<T>> {
        let place = self.entries.iter().position(|(kept, _)| kept == key)?;
        let entry = self.entries.remove(place);
        let value = Arc::clone(&entry.1);
        self.entries.push(entry);
        Some(value)
    }

    pub(crate) fn put(&mut self, key: Key, value: Arc<T>) {
        self.entries.retain(|(kept, _)| *kept != key);
        if self.entries.len() >= self.capacity {
            self.entries.remove(0);
        }
        self.entries.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_not_used_for_longest_goes_first() {
        let mut cache = Cache::new(2);
        let [a, b, c] = [[1; 32], [2; 32], [3; 32]];
        cache.put(a, Arc::new('a'));
        cache.put(b, Arc::new('b'));
        assert_eq!(cache.get(&a).as_deref(), Some(&'a'));
        cache.put(c, Arc::new('c'));
        assert_eq!(cache.get(&b), None);
        assert_eq!([cache.get(&a).as_deref(), cache.get(&c).as_deref()], [Some(&'a'), Some(&'c')]);
    }
}
