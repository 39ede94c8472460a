//! Pools of page ids, one per state group, under one byte budget; a page is a value that gives itself back.

use bantam_backend::StateGroup;
use bantam_graph::StateKind;

use super::ids::{Id, Ids};

/// A reference to a page. Clones share it; when the last one is dropped, on whatever thread, its id returns to the pool.
#[derive(Clone, Debug)]
pub struct Page(Id);

impl Page {
    /// Its id in the pool of its group.
    pub fn id(&self) -> u32 {
        self.0.get()
    }

    /// References to it, this one included.
    pub fn references(&self) -> usize {
        self.0.references()
    }

    /// The reference by itself.
    pub(super) fn as_id(&self) -> &Id {
        &self.0
    }

    /// The same page, of which those who watched it lose sight.
    pub(super) fn renewed(self) -> Self {
        Page(self.0.renewed())
    }
}

/// Why pools cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// A page must hold something.
    #[error("state group {group}: a page of 0 tokens; it must hold at least 1")]
    EmptyPage {
        /// The group.
        group: usize,
    },
    /// Not one value for each group.
    #[error("minimum pages given for {found} state groups, expected {expected}")]
    Groups {
        /// Groups there are.
        expected: usize,
        /// Values there are.
        found: usize,
    },
    /// The minimum does not fit.
    #[error(
        "the state of one sequence needs {needed} bytes, the budget is {budget}; lower --context or raise the budget"
    )]
    Budget {
        /// Bytes of the minimum pages of all groups.
        needed: u64,
        /// Bytes there are.
        budget: u64,
    },
    /// Not one slot fits.
    #[error("a slot of recurrent state needs {needed} bytes, the budget for slots is {budget}; raise it")]
    SlotBudget {
        /// Bytes of a slot.
        needed: u64,
        /// Bytes there are.
        budget: u64,
    },
}

/// All memory for state is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// All pages of a group.
    #[error("state group {group}: {missing} pages too few are unused; end or displace another sequence first")]
    Pages {
        /// The group.
        group: usize,
        /// Pages missing.
        missing: usize,
    },
    /// All slots of recurrent state.
    #[error("no slot of recurrent state is unused; end or displace another sequence first")]
    Slots,
}

/// Pages of each group that one sequence of `context` tokens needs, in steps of at most `rows` rows: enough for it to
/// finish when it is alone. That is its own, and those of the place where it was last published, which it cannot do
/// without: the source of a copy, or a window that it has moved out of.
pub fn one_sequence(groups: &[StateGroup], context: usize, rows: usize) -> Vec<usize> {
    groups
        .iter()
        .map(|group| {
            let all = group.pages(context);
            // A window that does not begin with a page touches one more.
            let windowed = |tokens: usize| all.min(group.pages(tokens.min(context)) + 1);
            match group.kind {
                StateKind::PerToken | StateKind::Strided { .. } => all + 1,
                StateKind::Window { len } => windowed(len.saturating_add(rows)) + windowed(len),
            }
        })
        .collect()
}

#[derive(Debug)]
struct Pool {
    page_bytes: u64,
    minimum: usize,
    ids: Ids,
    /// Per id, whether the page has been given out since it was last released: only then it takes memory.
    touched: Vec<bool>,
}

impl Pool {
    /// Bytes that this pool takes of the budget with `more` pages added.
    fn committed(&self, more: usize) -> u64 {
        let pages = self.ids.capacity().saturating_add(more).max(self.minimum);
        self.page_bytes.saturating_mul(pages as u64)
    }
}

/// The pools of a model's state groups.
///
/// A pool's capacity grows page by page and never shrinks, because a page once written stays resident in the backend;
/// the capacities together (at least the minimum of each group) stay within the budget.
#[derive(Debug)]
pub struct Pools {
    pools: Vec<Pool>,
    budget: u64,
}

impl Pools {
    /// Empty pools. `minimum` pages of each group are set aside from the budget, so that no group can starve another.
    ///
    /// # Errors
    /// A page of no tokens, or minimum pages that exceed the budget.
    pub fn new(groups: &[StateGroup], budget: u64, minimum: &[usize]) -> Result<Self, PoolError> {
        if minimum.len() != groups.len() {
            return Err(PoolError::Groups { expected: groups.len(), found: minimum.len() });
        }
        if let Some(group) = groups.iter().position(|g| g.page_tokens == 0) {
            return Err(PoolError::EmptyPage { group });
        }
        let pools: Vec<Pool> = groups
            .iter()
            .zip(minimum)
            .map(|(group, &minimum)| Pool {
                page_bytes: group.page_bytes as u64,
                minimum,
                ids: Ids::new(),
                touched: Vec::new(),
            })
            .collect();
        let pools = Pools { pools, budget };
        let needed = pools.committed();
        if needed > budget { Err(PoolError::Budget { needed, budget }) } else { Ok(pools) }
    }

    /// Bytes spoken for: each group's capacity or minimum, whichever is more.
    pub fn committed(&self) -> u64 {
        self.pools.iter().fold(0, |sum, pool| sum.saturating_add(pool.committed(0)))
    }

    /// Bytes the pools may take together.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Page ids of a group are below this; [`bantam_backend::Program::reserve_pages`] must have been told before a
    /// step uses them.
    pub fn capacity(&self, group: usize) -> usize {
        self.pools.get(group).map_or(0, |pool| pool.ids.capacity())
    }

    /// Pages of a group that are set aside for it.
    pub fn minimum(&self, group: usize) -> usize {
        self.pools.get(group).map_or(0, |pool| pool.minimum)
    }

    /// Pages of the capacity that nobody references.
    pub fn free(&mut self, group: usize) -> usize {
        self.pools.get_mut(group).map_or(0, |pool| pool.ids.free())
    }

    /// Takes a page, growing the pool if the budget allows.
    pub fn allocate(&mut self, group: usize) -> Option<Page> {
        let unclaimed = self.budget.saturating_sub(self.committed());
        let pool = self.pools.get_mut(group)?;
        if pool.ids.free() == 0 {
            let cost = pool.committed(1) - pool.committed(0);
            if cost > unclaimed || !pool.ids.grow() {
                return None;
            }
        }
        let page = pool.ids.take()?;
        pool.touched.resize(pool.ids.capacity(), false);
        if let Some(touched) = pool.touched.get_mut(page.get() as usize) {
            *touched = true;
        }
        Some(Page(page))
    }

    /// Takes pages that nobody has and that take memory, of at most about `bytes`. The program is to release their memory
    /// before they are dropped.
    pub fn take_unused(&mut self, bytes: u64) -> Vec<(usize, Page)> {
        let (mut taken, mut left) = (Vec::new(), bytes);
        for (group, Pool { page_bytes, ids, touched, .. }) in self.pools.iter_mut().enumerate() {
            let pages = ids.take_if(|id| {
                let wanted = left > 0 && touched.get(id as usize).is_some_and(|touched| *touched);
                if wanted {
                    touched[id as usize] = false;
                    left = left.saturating_sub(*page_bytes);
                }
                wanted
            });
            taken.extend(pages.into_iter().map(|id| (group, Page(id))));
        }
        taken
    }

    /// How many of `wanted` pages of each group could not be had now, at all zero if [`Pools::allocate`] can give
    /// them all.
    pub fn missing(&mut self, wanted: &[usize]) -> Vec<usize> {
        let mut unclaimed = self.budget.saturating_sub(self.committed());
        let mut missing = Vec::with_capacity(self.pools.len());
        for (pool, &wanted) in self.pools.iter_mut().zip(wanted) {
            let grow = wanted.saturating_sub(pool.ids.free());
            let set_aside = pool.minimum.saturating_sub(pool.ids.capacity()).min(grow);
            let affordable = unclaimed.checked_div(pool.page_bytes).map_or(usize::MAX, |pages| pages as usize);
            let claimed = affordable.min(grow - set_aside);
            unclaimed = unclaimed.saturating_sub(pool.page_bytes.saturating_mul(claimed as u64));
            missing.push(grow - set_aside - claimed);
        }
        missing
    }
}
