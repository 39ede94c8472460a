//! One member's turn at one node.

use std::ops::Range;

use super::frame::{Claims, Frame, Layout, MemberScratch, Shared};
use crate::{
    compile::ir::{Op, ValueId},
    step::RowMap,
    team::Member,
};

/// A member at a node. Whoever makes one promises that the rules of [`super::frame`] hold; in return the node's code reads
/// its operands and writes its share of the results without further ado. That code must read nothing but the node's
/// operands, and must take the shares that [`Member::share`] or a claim gives it, each once.
pub(super) struct Turn<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) member: &'a Member<'a>,
    index: usize,
}

impl<'a> Turn<'a> {
    /// # Safety
    /// As [`super::run`].
    pub(super) unsafe fn new(frame: &'a Frame<'a>, member: &'a Member<'a>, index: usize) -> Self {
        Turn { frame, member, index }
    }

    pub(super) fn op(&self) -> &'a Op {
        &self.frame.plan.schedule.nodes[self.index].op
    }

    fn result(&self, number: usize) -> ValueId {
        self.frame.plan.schedule.nodes[self.index].results[number]
    }

    /// Rows of the first result.
    pub(super) fn rows(&self) -> usize {
        self.frame.rows(self.result(0))
    }

    /// Entries of a row of the first result.
    pub(super) fn width(&self) -> usize {
        self.frame.width(self.result(0))
    }

    /// Whether each member computes the first result for itself.
    pub(super) fn is_private(&self) -> bool {
        self.frame.private(self.result(0)).is_some()
    }

    /// This member's share of `items`, or all of them where each member computes the first result for itself.
    pub(super) fn share(&self, items: usize, grain: usize) -> Range<usize> {
        if self.is_private() { 0..items } else { self.member.share(items, grain) }
    }

    /// What the rows of the first result stand for.
    pub(super) fn row_map(&self) -> &'a RowMap {
        self.frame.row_map(self.result(0))
    }

    /// How the rows of the first result lie, to a member that has columns `piece` in hand.
    pub(super) fn layout(&self, piece: &Range<usize>) -> Layout {
        self.frame.layout(self.result(0), piece)
    }

    /// An operand.
    pub(super) fn read<T>(&self, operand: ValueId) -> &'a [T] {
        // SAFETY: operands were written before a barrier or by this member, as promised when the turn was made.
        unsafe { self.frame.read(operand, self.member.index()) }
    }

    /// All of a result, for kernels that keep members apart themselves.
    pub(super) fn out<T>(&self, number: usize) -> Shared<'a, T> {
        self.frame.write(self.result(number), self.member.index())
    }

    /// This member's share of the first result: `items` of `size` entries.
    #[allow(clippy::mut_from_ref, reason = "a member takes each share once")]
    pub(super) fn own<T>(&self, items: Range<usize>, size: usize) -> &'a mut [T] {
        // SAFETY: the shares of members are disjoint, and each is taken once.
        unsafe { self.out(0).part(items.start * size..items.end * size) }
    }

    /// As [`Turn::own`], of result `number`, of which rows are shared out.
    #[allow(clippy::mut_from_ref, reason = "a member takes each share once")]
    pub(super) fn own_rows<T>(&self, number: usize, rows: Range<usize>) -> &'a mut [T] {
        let width = self.frame.width(self.result(number));
        // SAFETY: as in `own`.
        unsafe { self.out(number).part(rows.start * width..rows.end * width) }
    }

    /// All of the first result, for the one member that computes it alone, or for each where each has its own.
    #[allow(clippy::mut_from_ref, reason = "only one member gets it, once")]
    pub(super) fn alone<T>(&self) -> Option<&'a mut [T]> {
        let out = self.out(0);
        // SAFETY: all other members get nothing, or what is theirs.
        (self.is_private() || self.member.index() == 0).then(|| unsafe { out.part(0..out.len()) })
    }

    /// Pieces of this node that have been taken.
    pub(super) fn claims(&self) -> &'a Claims {
        &self.frame.claims[self.index]
    }

    /// This member's scratch.
    #[allow(clippy::mut_from_ref, reason = "a turn's code takes it once")]
    pub(super) fn scratch(&self) -> &'a mut MemberScratch {
        // SAFETY: a member has one turn at a time, whose code takes its scratch once.
        unsafe { self.frame.scratch(self.member) }
    }
}
