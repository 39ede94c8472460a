//! What is remembered, and for how long.

use std::collections::HashMap;

use super::Digest;

/// Most that is remembered. A token takes four bytes.
const MAX_TOKENS: usize = 8 << 20;

/// What a name takes, as tokens.
const NAME_TOKENS: usize = 32;

/// A conversation up to the end of a generated turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Of all up to the turn's end, by what later prompts may write there.
    pub(crate) names: Vec<Digest>,
    /// All of these tokens.
    pub(crate) tokens: Vec<u32>,
    /// The remembered turn that its prompt was found to begin with.
    pub(crate) base: Option<Digest>,
}

/// A remembered beginning of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recalled {
    /// Index of the special token that it ends before.
    pub(crate) special: usize,
    /// Its tokens.
    pub(crate) tokens: Vec<u32>,
    /// Its name.
    pub(crate) digest: Digest,
}

/// The tokens of a conversation, which grows as its last turn is gone on from.
#[derive(Debug, Default)]
struct Conversation {
    tokens: Vec<u32>,
    /// The names of its turns. Some may have come to name another conversation.
    names: Vec<Digest>,
    last_used: u64,
}

impl Conversation {
    fn cost(&self) -> usize {
        self.tokens.len() + self.names.len() * NAME_TOKENS
    }
}

/// Where a turn is.
#[derive(Clone, Copy, Debug)]
struct Place {
    conversation: u64,
    /// Tokens up to its end.
    end: usize,
}

/// Remembered turns, those least recently recalled forgotten first, a conversation at a time.
#[derive(Debug)]
pub(crate) struct TurnMemory {
    most: usize,
    conversations: HashMap<u64, Conversation>,
    turns: HashMap<Digest, Place>,
    cost: usize,
    clock: u64,
}

impl Default for TurnMemory {
    fn default() -> Self {
        TurnMemory::holding(MAX_TOKENS)
    }
}

impl TurnMemory {
    fn holding(most: usize) -> Self {
        TurnMemory { most, conversations: HashMap::new(), turns: HashMap::new(), cost: 0, clock: 0 }
    }

    /// The longest remembered beginning of a prompt, of whose beginnings these are the digests.
    pub(crate) fn recall(&mut self, digests: &[Digest]) -> Option<Recalled> {
        let now = self.tick();
        digests.iter().enumerate().rev().find_map(|(special, digest)| {
            let place = self.turns.get(digest)?;
            let conversation = self.conversations.get_mut(&place.conversation)?;
            let tokens = conversation.tokens.get(..place.end)?.to_vec();
            conversation.last_used = now;
            Some(Recalled { special, tokens, digest: *digest })
        })
    }

    /// Remembers a turn. One that is remembered with other tokens is so no more.
    pub(crate) fn remember(&mut self, turn: &Turn) {
        let now = self.tick();
        let id = match self.known(turn).or_else(|| self.grow(turn)) {
            Some(id) => id,
            None => {
                self.conversations.insert(now, Conversation { last_used: now, ..Conversation::default() });
                self.append(now, turn);
                now
            }
        };
        self.conversations.entry(id).and_modify(|conversation| conversation.last_used = now);
        self.forget();
    }

    /// The conversation that has this turn with these tokens.
    fn known(&self, turn: &Turn) -> Option<u64> {
        let place = self.turns.get(turn.names.first()?)?;
        let tokens = self.conversations.get(&place.conversation)?.tokens.get(..place.end)?;
        (tokens == turn.tokens).then_some(place.conversation)
    }

    /// Appends a turn to the conversation whose last turn it goes on from.
    fn grow(&mut self, turn: &Turn) -> Option<u64> {
        let place = *self.turns.get(&turn.base?)?;
        let conversation = self.conversations.get(&place.conversation)?;
        let grows = place.end == conversation.tokens.len() && turn.tokens.starts_with(&conversation.tokens);
        grows.then(|| self.append(place.conversation, turn))
    }

    /// Lets a conversation go on with what it lacks of the turn.
    fn append(&mut self, id: u64, turn: &Turn) -> u64 {
        if let Some(conversation) = self.conversations.get_mut(&id) {
            let before = conversation.cost();
            conversation.tokens.extend(turn.tokens.iter().skip(conversation.tokens.len()));
            conversation.names.extend(&turn.names);
            self.cost += conversation.cost() - before;
            let place = Place { conversation: id, end: turn.tokens.len() };
            self.turns.extend(turn.names.iter().map(|name| (*name, place)));
        }
        id
    }

    fn forget(&mut self) {
        while self.cost > self.most {
            let oldest = self.conversations.iter().min_by_key(|(_, conversation)| conversation.last_used);
            let Some(id) = oldest.map(|(id, _)| *id) else { break };
            let Some(conversation) = self.conversations.remove(&id) else { break };
            self.cost -= conversation.cost();
            for digest in conversation.names {
                if self.turns.get(&digest).is_some_and(|place| place.conversation == id) {
                    self.turns.remove(&digest);
                }
            }
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use bantam_text::{Segment, Specials};
    use proptest::prelude::*;

    use super::super::{digests, testing::tokenizer};
    use super::*;

    /// Digests that stand for the conversations of these turns.
    fn named(turns: &[&str]) -> Vec<Digest> {
        let text: String = turns.iter().map(|turn| format!("{turn}<s>")).collect();
        digests(&tokenizer().join(&[Segment { text, specials: Specials::Parse }]).unwrap()).0
    }

    fn turn(turns: &[&str], tokens: &[u32], base: Option<Digest>) -> Turn {
        Turn { names: vec![*named(turns).last().unwrap()], tokens: tokens.to_vec(), base }
    }

    #[test]
    fn the_longest_beginning_is_recalled() {
        let mut memory = TurnMemory::default();
        memory.remember(&turn(&["a"], &[1, 2], None));
        let base = memory.recall(&named(&["a", "x"])).unwrap();
        assert_eq!((base.special, base.tokens.as_slice()), (0, [1, 2].as_slice()));
        memory.remember(&turn(&["a", "b"], &[1, 2, 3], Some(base.digest)));
        assert_eq!(memory.conversations.len(), 1, "the conversation has grown");
        assert_eq!(memory.recall(&named(&["a", "b", "b"])).unwrap().tokens, [1, 2, 3]);
        assert_eq!(memory.recall(&named(&["a", "a"])).unwrap().tokens, [1, 2]);
        assert_eq!(memory.recall(&named(&["b", "a"])), None);
    }

    #[test]
    fn a_turn_that_is_told_anew_leaves_the_other_as_it_is() {
        let mut memory = TurnMemory::default();
        memory.remember(&turn(&["a"], &[1, 2], None));
        let base = Some(named(&["a"])[0]);
        memory.remember(&turn(&["a", "b"], &[1, 2, 3], base));
        memory.remember(&turn(&["a", "t"], &[1, 2, 4, 5], base));
        assert_eq!(memory.recall(&named(&["a", "b"])).unwrap().tokens, [1, 2, 3]);
        assert_eq!(memory.recall(&named(&["a", "t"])).unwrap().tokens, [1, 2, 4, 5]);
    }

    #[test]
    fn the_same_turn_again_takes_no_more() {
        let mut memory = TurnMemory::default();
        let again = turn(&["a"], &[1, 2], None);
        memory.remember(&again);
        let cost = memory.cost;
        memory.remember(&again);
        assert_eq!(memory.cost, cost);
        memory.remember(&turn(&["a"], &[7], None));
        assert_eq!(memory.recall(&named(&["a"])).unwrap().tokens, [7], "the tokens drawn last");
    }

    #[test]
    fn what_was_not_recalled_for_longest_is_forgotten() {
        let mut memory = TurnMemory::holding(2 * (NAME_TOKENS + 2));
        memory.remember(&turn(&["a"], &[1, 1], None));
        memory.remember(&turn(&["b"], &[2, 2], None));
        memory.recall(&named(&["a"])).unwrap();
        memory.remember(&turn(&["t"], &[3, 3], None));
        assert!(memory.recall(&named(&["b"])).is_none());
        assert!(memory.recall(&named(&["a"])).is_some() && memory.recall(&named(&["t"])).is_some());
    }

    proptest! {
        #[test]
        fn what_is_recalled_is_what_was_remembered_last(
            steps in prop::collection::vec((prop::collection::vec(0usize..2, 1..4), 0u32..3), 1..60),
            most in 50usize..400,
        ) {
            let mut memory = TurnMemory::holding(most);
            let mut told: HashMap<Digest, Vec<u32>> = HashMap::new();
            for (path, draw) in steps {
                let names: Vec<&str> = path.iter().map(|turn| ["a", "b"][*turn]).collect();
                let digests = named(&names);
                let (digest, before) = digests.split_last().unwrap();
                let base = memory.recall(before);
                let mut tokens = base.as_ref().map_or(vec![9], |base| base.tokens.clone());
                tokens.extend([draw, path.len() as u32]);
                memory.remember(&Turn { names: vec![*digest], tokens: tokens.clone(), base: base.map(|base| base.digest) });
                told.insert(*digest, tokens);
                prop_assert!(memory.cost <= most);
                prop_assert_eq!(memory.cost, memory.conversations.values().map(Conversation::cost).sum::<usize>());
                for (digest, tokens) in &told {
                    if let Some(recalled) = memory.recall(std::slice::from_ref(digest)) {
                        prop_assert_eq!(&recalled.tokens, tokens);
                    }
                }
                let names: usize = memory.conversations.values().map(|conversation| conversation.names.len()).sum();
                prop_assert!(memory.turns.len() <= names);
            }
        }
    }
}
