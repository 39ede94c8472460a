//! Bounds on what a template's operations cost.
//!
//! The engine counts a template's steps and the text that it makes. What it takes to compare, hash or write out a value
//! that holds another one many times over, it counts afterwards or not at all. So a call is put before such operations
//! that has the values paid for first: a step for each value that would be met, and one for each 64 bytes of text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use super::engine;

/// Bytes of text that are a step.
const STEP_BYTES: usize = 64;
/// Deeper values cannot come from JSON, only from a template that nests them in a loop.
const MAX_DEPTH: usize = 200;

/// What a character costs that stands for itself, in bytes.
const CHARACTER_BYTES: usize = 32;

/// Filters that look at the outermost value only.
const SHALLOW_FILTERS: [&str; 13] =
    ["length", "count", "first", "last", "list", "default", "d", "items", "batch", "slice", "reverse", "safe", "attr"];
/// Tests that do.
const SHALLOW_TESTS: [&str; 17] = [
    "defined",
    "undefined",
    "none",
    "boolean",
    "odd",
    "even",
    "divisibleby",
    "number",
    "integer",
    "int",
    "float",
    "string",
    "sequence",
    "iterable",
    "mapping",
    "true",
    "false",
];

/// What is paid for before an operation. The names are no identifiers, so no template can call or replace them.
#[derive(Clone, Copy, Debug)]
enum Toll {
    /// All operands, with all that they hold.
    Whole,
    /// Of `value in container`: the value, and the container unless it is a map, where the value is looked up.
    Member,
    /// The text that is indexed or cut, and the whole of what it is indexed with.
    Part,
    /// The keys, of keys and values in turn.
    Keys,
    /// The lists that are joined, once more for each of their items: they are joined only when they are read.
    Lists,
    /// The text that is walked through, all characters of which are laid out.
    Loop,
    /// The arguments, and of the one whose method it is the whole if it is a list.
    Method,
}

impl Toll {
    const ALL: [Toll; 7] = [Toll::Whole, Toll::Member, Toll::Part, Toll::Keys, Toll::Lists, Toll::Loop, Toll::Method];

    fn name(self) -> &'static str {
        match self {
            Toll::Whole => "toll of the whole",
            Toll::Member => "toll of a member",
            Toll::Part => "toll of a part",
            Toll::Keys => "toll of keys",
            Toll::Lists => "toll of lists",
            Toll::Loop => "toll of a loop",
            Toll::Method => "toll of a method",
        }
    }

    fn pay(self, state: &State<'_, '_>, values: &[Value]) -> Result<(), Error> {
        match (self, values) {
            (Toll::Member, [value, container]) if container.kind() == ValueKind::Map => pay(state, value),
            (Toll::Part, [whole, by @ ..]) => {
                pay_text(state, whole)?;
                by.iter().try_for_each(|value| pay(state, value))
            }
            (Toll::Keys, values) => values.iter().step_by(2).try_for_each(|key| pay(state, key)),
            (Toll::Lists, values) => values.iter().filter(|value| value.as_object().is_some()).try_for_each(|list| {
                let items = list.len().unwrap_or_default();
                state.consume_fuel(items as u64)
            }),
            (Toll::Loop, values) => {
                let length = |value: &Value| value.as_str().map_or(0, str::len);
                pay_bytes(state, values.iter().map(length).sum::<usize>().saturating_mul(CHARACTER_BYTES))
            }
            (Toll::Method, [owner, arguments @ ..]) => {
                if matches!(owner.kind(), ValueKind::Seq | ValueKind::Iterable) {
                    pay(state, owner)?;
                }
                arguments.iter().try_for_each(|value| pay(state, value))
            }
            (_, values) => values.iter().try_for_each(|value| pay(state, value)),
        }
    }
}

/// Has the environment know what guarded code calls.
pub(super) fn install(environment: &mut Environment<'static>) {
    for toll in Toll::ALL {
        environment.add_global(toll.name(), Value::from_object(toll));
    }
    environment.set_formatter(write);
}

impl Object for Toll {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    /// Takes the operands and hands them back: the engine puts a list's values on its stack, the first one on top.
    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, operands: &[Value]) -> Result<Value, Error> {
        self.pay(state, operands)?;
        Ok(operands.iter().rev().cloned().collect())
    }
}

fn write(output: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.as_object().is_some() {
        pay(state, value)?;
    }
    minijinja::escape_formatter(output, state, value)
}

/// Has all that `value` holds paid for, each value as often as it would be met.
pub(super) fn pay(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let mut waiting = vec![(value.clone(), 0)];
    pay_text(state, value)?;
    while let Some((value, depth)) = waiting.pop() {
        let mut meet = |inner: Value| {
            state.consume_fuel(1)?;
            pay_text(state, &inner)?;
            if inner.as_object().is_some() {
                waiting.push((inner, depth + 1));
            }
            Ok::<(), Error>(())
        };
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply"));
        }
        let Some(object) = value.as_object() else { continue };
        if value.kind() == ValueKind::Map {
            for (key, field) in object.try_iter_pairs().into_iter().flatten() {
                meet(key)?;
                meet(field)?;
            }
        } else {
            object.try_iter().into_iter().flatten().try_for_each(meet)?;
        }
    }
    Ok(())
}

fn pay_text(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    value.as_str().map_or(Ok(()), |text| pay_bytes(state, text.len()))
}

/// Has this much text paid for.
pub(super) fn pay_bytes(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    match bytes / STEP_BYTES {
        0 => Ok(()),
        steps => state.consume_fuel(steps as u64),
    }
}

/// A template's code.
pub(super) struct Code<'s> {
    pub(super) main: Instructions<'s>,
    pub(super) blocks: BTreeMap<&'s str, Instructions<'s>>,
}

/// The code of a template, with its operations guarded.
pub(super) fn compile<'s>(source: &'s str, name: &'s str) -> Result<Code<'s>, Error> {
    let template = parse(source, name, engine::syntax())?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&template);
    let (main, blocks) = generator.finish();
    let blocks = blocks.iter().map(|(name, code)| Ok((*name, guarded(code)?))).collect::<Result<_, Error>>()?;
    Ok(Code { main: guarded(&main)?, blocks })
}

/// `plain` with calls before what has to be paid for.
fn guarded<'s>(plain: &Instructions<'s>) -> Result<Instructions<'s>, Error> {
    let all: Vec<&Instruction<'s>> = (0..).map_while(|index| plain.get(index)).collect();
    let targets: BTreeSet<u32> = all.iter().filter_map(|instruction| target(instruction)).collect();
    let mut guards = Vec::with_capacity(all.len());
    for (index, instruction) in (0..).zip(&all) {
        // Where a jump may end, what is on the stack need not come from the instruction before.
        let above = all.get((index as usize).wrapping_sub(1)).filter(|_| !targets.contains(&index));
        guards.push(guard(instruction, above.map_or(Plain::No, |above| plainness(above)))?);
    }
    let mut places = vec![0_u32];
    for guard in &guards {
        places.push(places.last().copied().unwrap_or_default() + if guard.is_some() { 3 } else { 1 });
    }
    let mut code = Instructions::new(plain.name(), plain.source());
    for (index, (instruction, guard)) in (0..).zip(all.into_iter().zip(guards)) {
        let mut add = |instruction: Instruction<'s>| match (plain.get_span(index), plain.get_line(index)) {
            (Some(span), _) => code.add_with_span(instruction, span),
            (None, Some(line)) => code.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX)),
            (None, None) => code.add(instruction),
        };
        if let Some((toll, operands)) = guard {
            add(Instruction::CallFunction(toll.name(), Some(operands)));
            add(Instruction::UnpackList(usize::from(operands)));
        }
        add(moved(instruction, |target| places.get(target as usize).copied().unwrap_or(target)));
    }
    Ok(code)
}

/// What has to be paid before an instruction, and for how many operands.
fn guard(instruction: &Instruction<'_>, plain_top: Plain) -> Result<Option<(Toll, u16)>, Error> {
    let spread = || Error::new(ErrorKind::SyntaxError, "filters, tests and methods take no spread arguments here");
    let counted = |toll, count: Option<u16>| count.map(|count| Some((toll, count))).ok_or_else(spread);
    match instruction {
        Instruction::Eq | Instruction::Ne | Instruction::Lt | Instruction::Lte | Instruction::Gt | Instruction::Gte
            if plain_top != Plain::No =>
        {
            Ok(None)
        }
        Instruction::Eq | Instruction::Ne | Instruction::Lt | Instruction::Lte | Instruction::Gt | Instruction::Gte => {
            Ok(Some((Toll::Whole, 2)))
        }
        Instruction::Add if plain_top == Plain::Scalar => Ok(None),
        Instruction::Add => Ok(Some((Toll::Lists, 2))),
        Instruction::PushLoop(_) => Ok(Some((Toll::Loop, 1))),
        Instruction::StringConcat | Instruction::CompareAndPreserve(_) => Ok(Some((Toll::Whole, 2))),
        Instruction::In if plain_top == Plain::List => Ok(None),
        Instruction::In => Ok(Some((Toll::Member, 2))),
        Instruction::GetItem => Ok(Some((Toll::Part, 2))),
        Instruction::Slice => Ok(Some((Toll::Part, 4))),
        Instruction::BuildMap(pairs) => match u16::try_from(pairs.saturating_mul(2)) {
            Ok(0) => Ok(None),
            Ok(operands) => Ok(Some((Toll::Keys, operands))),
            Err(_) => Err(Error::new(ErrorKind::SyntaxError, "a map has too many entries")),
        },
        Instruction::ApplyFilter(name, _, _) if SHALLOW_FILTERS.contains(name) => Ok(None),
        Instruction::PerformTest(name, _, _) if SHALLOW_TESTS.contains(name) => Ok(None),
        Instruction::ApplyFilter(_, count, _) | Instruction::PerformTest(_, count, _) => counted(Toll::Whole, *count),
        Instruction::CallMethod(_, count) => counted(Toll::Method, *count),
        _ => Ok(None),
    }
}

/// Whether the topmost operand is a constant that is cheap to compare with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    No,
    /// A text, number or the like.
    Scalar,
    /// A list or map of such.
    List,
}

fn plainness(instruction: &Instruction<'_>) -> Plain {
    let Instruction::LoadConst(value) = instruction else { return Plain::No };
    match value.as_object() {
        None => Plain::Scalar,
        Some(object) if object.try_iter().into_iter().flatten().all(|item| item.as_object().is_none()) => Plain::List,
        Some(_) => Plain::No,
    }
}

fn target(instruction: &Instruction<'_>) -> Option<u32> {
    match instruction {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(*target),
        _ => None,
    }
}

/// The instruction with its target put where that has moved.
fn moved<'s>(instruction: &Instruction<'s>, place: impl Fn(u32) -> u32) -> Instruction<'s> {
    match instruction {
        Instruction::Iterate(target) => Instruction::Iterate(place(*target)),
        Instruction::Jump(target) => Instruction::Jump(place(*target)),
        Instruction::JumpIfFalse(target) => Instruction::JumpIfFalse(place(*target)),
        Instruction::JumpIfFalseOrPop(target) => Instruction::JumpIfFalseOrPop(place(*target)),
        Instruction::JumpIfTrueOrPop(target) => Instruction::JumpIfTrueOrPop(place(*target)),
        Instruction::BuildMacro(name, target, flags) => Instruction::BuildMacro(name, place(*target), *flags),
        other => other.clone(),
    }
}
