//! `samplers`: llama.cpp's list of the steps by which a token is chosen. A step that is not in it is not taken.

use bantam_runtime::sampling::SamplingOverrides;
use serde_json::Value;

use crate::fields::{Field, FieldError, Fields};

/// A step of the runtime's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Penalties,
    TopK,
    TopP,
    MinP,
    Temperature,
}

/// What the name of a step stands for.
#[derive(Clone, Copy, Debug)]
enum Named {
    Own(Step),
    /// Keeps what is likely enough to complete a text; see [`INFILL_MIN_P`].
    Infill,
    /// One that the chain lacks. Its own fields say how much it does, and they are refused unless that is nothing.
    Foreign,
}

/// The names of each step, the letter last by which a list that is one text names it.
const NAMES: [(&[&str], char, Named); 10] = [
    (&["penalties"], 'e', Named::Own(Step::Penalties)),
    (&["dry"], 'd', Named::Foreign),
    (&["top_n_sigma", "top-n-sigma"], 's', Named::Foreign),
    (&["top_k", "top-k"], 'k', Named::Own(Step::TopK)),
    (&["typ_p", "typ-p", "typical", "typical_p", "typical-p", "typ"], 'y', Named::Foreign),
    (&["top_p", "top-p", "nucleus"], 'p', Named::Own(Step::TopP)),
    (&["min_p", "min-p"], 'm', Named::Own(Step::MinP)),
    (&["xtc"], 'x', Named::Foreign),
    (&["infill"], 'i', Named::Infill),
    (&["temperature", "temp"], 't', Named::Own(Step::Temperature)),
];

/// What the step for completing texts becomes: llama.cpp's leaves what has a fifth of the probability, this what has a fifth
/// of the likeliest one's.
const INFILL_MIN_P: f32 = 0.2;

/// Takes what the request's list leaves out from `sampling`.
///
/// # Errors
/// Names that there are not, and an order in which tokens are not chosen here.
pub(super) fn apply(fields: &Fields<'_>, sampling: &mut SamplingOverrides) -> Result<(), FieldError> {
    let Some(field) = fields.get("samplers") else { return Ok(()) };
    let Some(named) = named(&field)? else { return Ok(()) };
    let mut taken: Vec<Step> = Vec::new();
    let mut infill = false;
    for (at, step) in named {
        match step {
            Named::Own(step) if taken.last().is_some_and(|before| *before >= step) => {
                return Err(at.error(
                    "is out of order: tokens are chosen by penalties, top_k, top_p, min_p and temperature in this order",
                ));
            }
            Named::Own(step) => taken.push(step),
            Named::Infill => infill = true,
            Named::Foreign => {}
        }
    }
    leave_out(&taken, sampling);
    if infill {
        sampling.min_p = Some(sampling.min_p.unwrap_or_default().max(INFILL_MIN_P));
    }
    Ok(())
}

fn leave_out(taken: &[Step], sampling: &mut SamplingOverrides) {
    let out = |step| !taken.contains(&step);
    if out(Step::Penalties) {
        sampling.repetition_penalty = Some(1.0);
        (sampling.presence_penalty, sampling.frequency_penalty) = (Some(0.0), Some(0.0));
    }
    if out(Step::TopK) {
        sampling.top_k = Some(0);
    }
    if out(Step::TopP) {
        sampling.top_p = Some(1.0);
    }
    if out(Step::MinP) {
        sampling.min_p = Some(0.0);
    }
    if out(Step::Temperature) {
        sampling.temperature = Some(1.0);
    }
}

/// The steps, each with where it is named; none for an empty text, by which some clients mean the usual ones.
fn named<'a>(field: &Field<'a>) -> Result<Option<Vec<(Field<'a>, Named)>>, FieldError> {
    let by_name = |name: &str| NAMES.iter().find(|(names, ..)| names.contains(&name)).map(|(.., named)| *named);
    let by_letter = |c: char| NAMES.iter().find(|(_, letter, _)| *letter == c).map(|(.., named)| *named);
    match field.value() {
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => {
            let names: Option<Vec<Named>> = match text.contains([';', '_', '-']) {
                true => text.split(';').map(|name| by_name(name.trim())).collect(),
                false => text.chars().map(by_letter).collect::<Option<_>>().or_else(|| Some(vec![by_name(text)?])),
            };
            let names = names.ok_or_else(|| field.error("names a step that is not known; give an array of names"))?;
            Ok(Some(names.into_iter().map(|named| (field.clone(), named)).collect()))
        }
        Value::Array(_) => {
            let read = |item: Field<'a>| {
                let named = by_name(item.text()?).ok_or_else(|| item.error("is not the name of a known step"))?;
                Ok((item, named))
            };
            field.items()?.into_iter().map(read).collect::<Result<_, _>>().map(Some)
        }
        _ => Err(field.expected("an array of names, or a text")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(samplers: &Value) -> Result<SamplingOverrides, String> {
        let body = json!({ "samplers": samplers });
        let mut sampling = SamplingOverrides { temperature: Some(0.5), top_k: Some(7), ..SamplingOverrides::default() };
        apply(&Field::body(&body).object().unwrap(), &mut sampling).map_err(|e| e.to_string())?;
        Ok(sampling)
    }

    #[test]
    fn what_is_left_out_is_off() {
        let all = json!(["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]);
        for unchanged in [all, json!("edskypmxt"), json!(""), json!(null), json!("penalties;top_k;top_p;min_p;temp")] {
            let sampling = applied(&unchanged).unwrap();
            let told = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.repetition_penalty);
            assert_eq!(told, (Some(0.5), Some(7), None, None), "{unchanged}");
        }
        let sampling = applied(&json!(["top_k", "temperature"])).unwrap();
        assert_eq!((sampling.top_k, sampling.temperature), (Some(7), Some(0.5)));
        assert_eq!((sampling.top_p, sampling.min_p, sampling.repetition_penalty), (Some(1.0), Some(0.0), Some(1.0)));
        let sampling = applied(&json!(["top_k", "top_p", "infill"])).unwrap();
        assert_eq!((sampling.temperature, sampling.min_p), (Some(1.0), Some(INFILL_MIN_P)));
        assert_eq!(applied(&json!([])).unwrap().top_k, Some(0));
    }

    #[test]
    fn unknown_steps_and_other_orders_are_named() {
        let cases = [
            (json!(["top_k", "magic"]), "`samplers[1]` is not the name of a known step"),
            (json!(["top_k", 4]), "`samplers[1]` must be a string, found an integer"),
            (json!(["temperature", "top_k"]), "`samplers[1]` is out of order"),
            (json!(["top_k", "top_k"]), "`samplers[1]` is out of order"),
            (json!("tk"), "`samplers` is out of order"),
            (json!("k?"), "`samplers` names a step that is not known"),
            (json!({}), "`samplers` must be an array of names, or a text, found an object"),
        ];
        for (samplers, problem) in cases {
            let told = applied(&samplers).unwrap_err();
            assert!(told.starts_with(problem), "{told}");
        }
    }
}
