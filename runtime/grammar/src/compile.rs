//! Makes the plan of an answer from what a request allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bantam_family_api::CallSyntax;

use crate::calls::{self, Callable, Writer};
use crate::lark::Lark;
use crate::plan::{Meaning, Plan, Thought, Trigger, Zone};
use crate::program::{Program, Run};
use crate::watch::Watch;
use crate::{Grammar, GrammarError, Rules, ToolChoice, Vocabulary, crossing, response, schema};

pub(crate) fn compile(vocabulary: &Vocabulary, rules: &Rules) -> Result<Grammar, GrammarError> {
    let tools = callable(rules)?;
    let only_calls = matches!(rules.choice, ToolChoice::Required | ToolChoice::Named(_));
    let held = held(vocabulary, rules, &tools, only_calls, false)?;
    let settled = match &rules.header {
        Some(_) if held.is_some() => self::held(vocabulary, rules, &tools, only_calls, true)?,
        _ => held.clone(),
    };
    let triggers = triggers(vocabulary, rules, &tools, held.as_ref())?;
    let fits = Fits { vocabulary, triggers: &triggers, held: settled.as_ref() };
    let plan = Plan {
        thoughts: (0..rules.reasoning.len()).map(|number| fits.thought(rules, number)).collect(),
        starts_in: rules.starts_in_reasoning.filter(|&number| number < rules.reasoning.len()),
        budget: rules.reasoning_budget,
        // Where answers are held none is free.
        free: if held.is_some() { Zone::default() } else { fits.free(rules) },
        only_calls,
        call_watch: Watch::new(&marks(&triggers)),
        max_call_tokens: rules.max_call_tokens,
        vocabulary: vocabulary.clone(),
        held,
        settled,
        triggers,
    };
    Ok(Grammar(Arc::new(plan)))
}

/// The tools that may be called.
fn callable(rules: &Rules) -> Result<Vec<Callable>, GrammarError> {
    let tools = Callable::all(rules)?;
    let problem = match &rules.choice {
        ToolChoice::Auto | ToolChoice::None => return Ok(tools),
        ToolChoice::Named(name) if tools.is_empty() => format!("names {name:?}, which is none of the tools"),
        ToolChoice::Required if tools.is_empty() => "requires a call, and there are no tools".into(),
        _ if rules.calls.is_empty() => "requires a call, and this model was not taught to call tools".into(),
        _ => return Ok(tools),
    };
    Err(GrammarError::new("tool_choice", problem))
}

/// The program of answers that are held to a form, or to be calls; with the headers of their messages, if there are any.
fn held(
    vocabulary: &Vocabulary,
    rules: &Rules,
    tools: &[Callable],
    only_calls: bool,
    with_header: bool,
) -> Result<Option<Arc<Program>>, GrammarError> {
    let mut lark = Lark::new(vocabulary);
    let form = if only_calls { None } else { response::expression(&rules.response, &mut lark)? };
    let header = rules.header.as_ref().filter(|_| with_header);
    let form = form.map(|form| match header {
        Some((between, header)) => format!("{} {form}", lark.header(between, header, [header.answer.as_str()])),
        None => form,
    });
    if form.is_none() && !only_calls {
        return Ok(None);
    }
    let syntaxes = if tools.is_empty() { &[][..] } else { rules.calls.as_slice() };
    let syntaxes = if only_calls { syntaxes.get(..1).unwrap_or_default() } else { syntaxes };
    let mut options: Vec<String> = form.into_iter().collect();
    if !syntaxes.is_empty() {
        let mut writer = Writer::new(&mut lark);
        for syntax in syntaxes {
            options.push(writer.turn(syntax, tools, rules.parallel, header)?);
        }
    }
    let program = vocabulary.program(lark.finish(&options.join(" | ")));
    program.map(Some).map_err(|reason| match refused_tool(tools) {
        Some(error) => error,
        None if only_calls => GrammarError::new("tools", reason),
        None => response::refused(&rules.response, &reason),
    })
}

/// What begins calls. Syntaxes that begin alike are told apart by what follows. In a held answer calls are part of that.
fn triggers(
    vocabulary: &Vocabulary,
    rules: &Rules,
    tools: &[Callable],
    held: Option<&Arc<Program>>,
) -> Result<Vec<Trigger>, GrammarError> {
    let mut by_mark: BTreeMap<String, Vec<&CallSyntax>> = BTreeMap::new();
    for syntax in rules.calls.iter().filter(|_| !tools.is_empty()) {
        for mark in calls::triggers(vocabulary, syntax) {
            by_mark.entry(mark).or_default().push(syntax);
        }
    }
    let trigger = |(mark, syntaxes): (&String, &Vec<&CallSyntax>)| {
        Ok(Trigger {
            mark: mark.as_bytes().to_vec(),
            only_first: syntaxes.iter().all(|syntax| calls::opens_the_turn(syntax)),
            opening: vocabulary.spell(mark.as_bytes()),
            program: held.map_or_else(|| call(vocabulary, rules, tools, syntaxes), |held| Ok(Arc::clone(held)))?,
            is_last: !rules.parallel || syntaxes.iter().any(|syntax| calls::ends_the_turn(syntax)),
        })
    };
    by_mark.iter().map(trigger).collect()
}

/// The program of a call, or of a block of them, in one of these syntaxes.
fn call(
    vocabulary: &Vocabulary,
    rules: &Rules,
    tools: &[Callable],
    syntaxes: &[&CallSyntax],
) -> Result<Arc<Program>, GrammarError> {
    let mut lark = Lark::new(vocabulary);
    let mut writer = Writer::new(&mut lark);
    let options: Result<Vec<String>, GrammarError> =
        syntaxes.iter().map(|syntax| writer.one(syntax, tools, rules.parallel)).collect();
    let program = vocabulary.program(lark.finish(&options?.join(" | ")));
    program.map_err(|reason| refused_tool(tools).unwrap_or_else(|| GrammarError::new("tools", reason)))
}

/// The first tool whose parameters the compiler refuses alone.
fn refused_tool(tools: &[Callable]) -> Option<GrammarError> {
    let refused = |tool: &Callable| Some(schema::refused(&tool.parameters)?.in_field(&tool.field).of_tool(&tool.name));
    tools.iter().find_map(refused)
}

fn marks(triggers: &[Trigger]) -> Vec<&[u8]> {
    triggers.iter().map(|trigger| trigger.mark.as_slice()).collect()
}

/// Makes zones, in which what stands behind a mark fits what the mark begins.
struct Fits<'a> {
    vocabulary: &'a Vocabulary,
    triggers: &'a [Trigger],
    held: Option<&'a Arc<Program>>,
}

impl Fits<'_> {
    fn thought(&self, rules: &Rules, number: usize) -> Thought {
        let (open, close, ended_by_calls) = rules
            .reasoning
            .get(number)
            .map_or(("", "", false), |marks| (&marks.open, &marks.close, marks.ended_by_calls));
        let open = open.as_bytes().to_vec();
        let mut marks = vec![(close.as_bytes(), Meaning::Closes)];
        marks.extend(self.calls(ended_by_calls));
        Thought {
            first: self.vocabulary.spell(&open).first().copied(),
            open,
            zone: self.zone(&marks, self.held.is_some()),
        }
    }

    fn free(&self, rules: &Rules) -> Zone {
        let opens = rules.reasoning.iter().enumerate();
        let mut marks: Vec<_> = opens.map(|(number, marks)| (marks.open.as_bytes(), Meaning::Opens(number))).collect();
        marks.extend(self.calls(true));
        self.zone(&marks, false)
    }

    fn calls(&self, wanted: bool) -> impl Iterator<Item = (&[u8], Meaning)> {
        let calls = self.triggers.iter().enumerate().filter(move |_| wanted);
        calls.map(|(number, trigger)| (trigger.mark.as_slice(), Meaning::Calls(number)))
    }

    /// A zone that ends with these marks, and with the answer unless more is to come.
    fn zone(&self, marks: &[(&[u8], Meaning)], more_to_come: bool) -> Zone {
        let (texts, meanings): (Vec<&[u8]>, Vec<Meaning>) = marks.iter().copied().unzip();
        let watch = Watch::new(&texts);
        let usual = more_to_come.then(|| {
            let mut allowed = self.vocabulary.all();
            allowed.sub(&self.vocabulary.only_ends());
            allowed
        });
        let mut behind: Vec<Option<Behind>> = meanings.iter().map(|meaning| self.behind(*meaning)).collect();
        let fits = |mark: usize, text: &[u8]| {
            let behind = behind.get_mut(mark).and_then(Option::as_mut);
            behind.is_none_or(|behind| behind.fits(self.vocabulary, text))
        };
        let masks = crossing::masks(self.vocabulary, &watch, usual.as_ref(), fits);
        Zone::new(watch, meanings, usual, masks)
    }

    /// What must follow a mark. None: anything.
    fn behind(&self, meaning: Meaning) -> Option<Behind<'_>> {
        match (meaning, self.held) {
            (Meaning::Opens(_), _) | (Meaning::Closes, None) => None,
            (Meaning::Closes, Some(held)) => Some(Behind { run: held.start(), opening: &[], skips_space: true }),
            (Meaning::Calls(number), _) => {
                let trigger = self.triggers.get(number)?;
                Some(Behind { run: trigger.program.start(), opening: &trigger.opening, skips_space: false })
            }
        }
    }
}

/// A grammar that begins at a mark.
struct Behind<'a> {
    run: Run,
    /// The tokens of the mark, where the grammar has it too.
    opening: &'a [u32],
    skips_space: bool,
}

impl Behind<'_> {
    /// Whether this text may stand behind the mark in one token with it.
    fn fits(&mut self, vocabulary: &Vocabulary, text: &[u8]) -> bool {
        let text = if self.skips_space { text.trim_ascii_start() } else { text };
        text.is_empty() || self.run.fits(&[self.opening, &vocabulary.spell(text)].concat())
    }
}
