//! The chain against a naive one, and against statistics.

use proptest::prelude::*;

use super::{ParamError, Sampled, Sampler, SamplingOverrides, SamplingParams, resolve};

/// Keeps everything at temperature 1.
fn plain() -> SamplingParams {
    SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(7), ..SamplingParams::default() }
}

fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..plain() }
}

fn token(params: &SamplingParams, logits: &[f32]) -> u32 {
    Sampler::new(params.clone()).sample(logits, None).unwrap().token
}

/// Tokens of `count` draws from the same logits.
fn draws(params: &SamplingParams, logits: &[f32], count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(params.clone());
    (0..count)
        .map(|_| {
            let token = sampler.sample(logits, None).unwrap().token;
            sampler.accept(token);
            token
        })
        .collect()
}

/// Probabilities after the whole chain, straight from its definition.
fn naive_distribution(params: &SamplingParams, logits: &[f32], generated: &[u32]) -> Vec<f64> {
    let mut logits: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    for (token, bias) in &params.logit_bias {
        logits[*token as usize] += f64::from(*bias);
    }
    let recent = &generated[generated.len().saturating_sub(params.penalty_window)..];
    for (token, logit) in logits.iter_mut().enumerate() {
        let count = recent.iter().filter(|t| **t as usize == token).count();
        if count > 0 {
            let penalty = f64::from(params.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            *logit -= count as f64 * f64::from(params.frequency_penalty) + f64::from(params.presence_penalty);
        }
    }
    params.suppress.iter().for_each(|t| logits[*t as usize] = f64::NEG_INFINITY);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if params.top_k > 0 {
        order.truncate(params.top_k);
    }
    let best = logits[order[0]];
    let sum: f64 = order.iter().map(|&t| (logits[t] - best).exp()).sum();
    let mut reached = 0.0;
    order.retain(|&t| {
        let wanted = reached < f64::from(params.top_p) * sum;
        reached += (logits[t] - best).exp();
        wanted
    });
    order.retain(|&t| (logits[t] - best).exp() >= f64::from(params.min_p));
    let temperature = f64::from(params.temperature);
    let sum: f64 = order.iter().map(|&t| ((logits[t] - best) / temperature).exp()).sum();
    let mut probabilities = vec![0.0; logits.len()];
    order.iter().for_each(|&t| probabilities[t] = ((logits[t] - best) / temperature).exp() / sum);
    probabilities
}

/// Logits no two of which are so near that rounding could decide what is kept.
fn spread_logits() -> impl Strategy<Value = Vec<f32>> {
    (2..40_usize).prop_flat_map(|n| Just((0..n).map(|i| i as f32 * 0.37 - 4.0).collect::<Vec<f32>>()).prop_shuffle())
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let filters = (0..12_usize, 0.05..=1.0_f32, 0.0..=0.9_f32, 0.2..=3.0_f32);
    let penalties = (0.5..=2.0_f32, -2.0..=2.0_f32, -2.0..=2.0_f32, 0..8_usize);
    (filters, penalties, any::<u64>(), prop::collection::vec((0..2_u32, -3.0..3.0_f32), 0..2)).prop_map(
        |((top_k, top_p, min_p, temperature), (repetition, presence, frequency, window), seed, logit_bias)| {
            SamplingParams {
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty: repetition,
                presence_penalty: presence,
                frequency_penalty: frequency,
                penalty_window: window,
                seed: Some(seed),
                logit_bias,
                ..SamplingParams::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn only_what_the_naive_chain_keeps_is_sampled(
        logits in spread_logits(),
        params in params(),
        generated in prop::collection::vec(0..6_u32, 0..20),
    ) {
        let mut sampler = Sampler::new(params.clone());
        generated.iter().for_each(|&t| sampler.accept(t));
        let expected = naive_distribution(&params, &logits, &generated);
        let token = sampler.sample(&logits, None).unwrap().token;
        prop_assert!(expected[token as usize] > 0.0, "token {} of {:?}", token, expected);
    }

    #[test]
    fn top_1_is_greedy(logits in spread_logits(), params in params()) {
        let top_1 = SamplingParams { top_k: 1, ..params.clone() };
        let greedy = SamplingParams { temperature: 0.0, ..params };
        prop_assert_eq!(token(&top_1, &logits), token(&greedy, &logits));
    }

    #[test]
    fn filters_do_not_care_where_a_token_stands(logits in spread_logits(), params in params(), by in 0..40_usize) {
        let params = SamplingParams { logit_bias: Vec::new(), top_p: params.top_p.min(0.99), ..params };
        let by = by % logits.len();
        let mut rotated = logits.clone();
        rotated.rotate_left(by);
        let moved = token(&params, &rotated) as usize;
        prop_assert_eq!(token(&params, &logits) as usize, (moved + by) % logits.len());
    }

    #[test]
    fn a_sequence_goes_on_after_rewinding_or_resuming_as_before(
        logits in spread_logits(),
        params in params(),
        back in 0..30_usize,
    ) {
        let all = draws(&params, &logits, 30);
        let kept = all.len() - back;
        let mut rewound = Sampler::new(params.clone());
        all.iter().for_each(|&t| rewound.accept(t));
        rewound.rewind(kept).unwrap();
        let mut resumed = Sampler::new(params);
        all[..kept].iter().for_each(|&t| resumed.accept(t));
        for &token in &all[kept..] {
            for sampler in [&mut rewound, &mut resumed] {
                prop_assert_eq!(sampler.sample(&logits, None).unwrap().token, token);
                sampler.accept(token);
            }
        }
    }

    #[test]
    fn any_logits_give_an_allowed_token(
        logits in prop::collection::vec(
            prop_oneof![any::<f32>(), Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)], 1..100),
        params in params(),
        greedy in any::<bool>(),
        mask in prop::collection::vec(any::<u32>(), 0..4),
        suppress in prop::collection::vec(0..100_u32, 0..50),
    ) {
        let temperature = if greedy { 0.0 } else { params.temperature };
        let params = SamplingParams { temperature, suppress: suppress.clone(), logprobs: Some(3), ..params };
        let in_mask = |t: u32| mask.get(t as usize / 32).is_some_and(|word| word >> (t % 32) & 1 == 1);
        let allowed: Vec<u32> =
            (0..logits.len() as u32).filter(|t| in_mask(*t) && !suppress.contains(t)).collect();
        match Sampler::new(params).sample(&logits, Some(&mask)) {
            Ok(Sampled { token, logprobs, .. }) => {
                prop_assert!(allowed.contains(&token));
                let logprobs = logprobs.unwrap();
                prop_assert!(logprobs.sampled <= 0.0 && logprobs.top.iter().all(|(_, p)| *p <= 0.0));
            }
            Err(error) => {
                prop_assert!(allowed.is_empty());
                prop_assert_eq!(error.vocab, logits.len());
            }
        }
    }

    #[test]
    fn exp_is_exact_to_single_precision(x in -87.0..=0.0_f32) {
        let expected = f64::from(x).exp();
        prop_assert!((f64::from(super::select::exp(x)) - expected).abs() <= 3e-7 * expected);
    }

    #[test]
    fn partial_selection_is_a_sort(
        logits in prop::collection::vec((-50..50_i32).prop_map(|l| l as f32), 0..3000),
        count in 0..700_usize,
    ) {
        let mut found = Vec::new();
        super::select::top(&logits, count, &mut found);
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        order.truncate(count);
        prop_assert_eq!(found.iter().map(|c| c.token as usize).collect::<Vec<_>>(), order);
    }
}

/// Compares frequencies of draws with probabilities. Draws are fixed by the seed, so this either always holds or never.
fn assert_follows(params: &SamplingParams, logits: &[f32]) {
    const DRAWS: usize = 40_000;
    let expected = naive_distribution(params, logits, &[]);
    let mut seen = vec![0_usize; logits.len()];
    draws(params, logits, DRAWS).into_iter().for_each(|t| seen[t as usize] += 1);
    for (token, (p, seen)) in expected.iter().zip(seen).enumerate() {
        let (mean, deviation) = (p * DRAWS as f64, (p * (1.0 - p) * DRAWS as f64).sqrt());
        assert!((seen as f64 - mean).abs() <= 4.5 * deviation, "token {token}: {seen} draws, expected {mean:.0}");
    }
}

#[test]
fn draws_follow_the_distribution() {
    let logits = [1.0, -0.5, 2.0, 0.3, 1.7, -3.0, 0.0, 0.9];
    assert_follows(&plain(), &logits);
    assert_follows(&SamplingParams { temperature: 0.5, ..plain() }, &logits);
    assert_follows(&SamplingParams { temperature: 2.0, top_k: 5, ..plain() }, &logits);
    assert_follows(&SamplingParams { top_p: 0.8, ..plain() }, &logits);
    assert_follows(&SamplingParams { min_p: 0.2, top_p: 0.9, temperature: 1.5, ..plain() }, &logits);
    assert_follows(&SamplingParams { top_k: 6, top_p: 0.9, min_p: 0.1, ..plain() }, &logits);
    assert_follows(&SamplingParams { logit_bias: vec![(5, 4.0), (2, -1.0)], suppress: vec![4], ..plain() }, &logits);
    assert_follows(&SamplingParams { seed: Some(8), ..plain() }, &logits);
}

#[test]
fn seeds_and_indexes_give_independent_numbers() {
    // Means of products are 1/4 for independent numbers; of a number with itself, 1/3.
    let mean = |f: &dyn Fn(u64) -> f64| (0..100_000).map(f).sum::<f64>() / 100_000.0;
    use super::random::uniform;
    let near = |a: f64, b: f64| assert!((a - b).abs() < 0.004, "{a} is not {b}");
    near(mean(&|i| uniform(1, i)), 0.5);
    near(mean(&|seed| uniform(seed, 0)), 0.5);
    near(mean(&|i| uniform(1, i) * uniform(1, i + 1)), 0.25);
    near(mean(&|i| uniform(1, i) * uniform(2, i)), 0.25);
    near(mean(&|i| uniform(i, 1) * uniform(i + 1, 0)), 0.25);
    near(mean(&|i| uniform(i, i) * uniform(i, i)), 1.0 / 3.0);
}

#[test]
fn top_p_looks_as_far_as_it_must_in_a_flat_distribution() {
    let params = SamplingParams { top_p: 0.5, ..plain() };
    let logits = vec![0.0; 10_000];
    let seen = draws(&params, &logits, 20_000);
    assert_eq!(seen.iter().max().map(|most| most / 100), Some(49), "the 5000 lowest ids are half of the mass");
    let only = draws(&SamplingParams { top_p: 0.0, ..plain() }, &logits, 100);
    assert_eq!(only.iter().max(), Some(&0), "of nothing the likeliest is left");
}

#[test]
fn exp_ends_at_its_limits() {
    assert_eq!(super::select::exp(0.0), 1.0);
    assert_eq!(super::select::exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(super::select::exp(-f32::MAX), 0.0);
}

#[test]
fn greedy_takes_the_lowest_of_the_best() {
    assert_eq!(token(&greedy(), &[0.0, 3.0, 1.0, 3.0]), 1);
    assert_eq!(token(&greedy(), &[f32::NAN, 1.0, f32::INFINITY, f32::INFINITY]), 2);
    for params in [greedy(), plain(), SamplingParams::default()] {
        assert_eq!(token(&params, &[f32::NEG_INFINITY; 5]), 0);
        assert_eq!(token(&params, &[f32::NAN; 5]), 0);
        let suppressed = SamplingParams { suppress: vec![0, 1], ..params };
        assert_eq!(token(&suppressed, &[f32::NAN; 5]), 2);
    }
}

#[test]
fn penalties_see_only_the_window_of_generated_tokens() {
    let params = SamplingParams { presence_penalty: 2.0, penalty_window: 2, ..greedy() };
    let mut sampler = Sampler::new(params);
    let taken: Vec<u32> = (0..7)
        .map(|_| {
            let token = sampler.sample(&[1.0, 0.9, 0.8, -5.0], None).unwrap().token;
            sampler.accept(token);
            token
        })
        .collect();
    assert_eq!(taken, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn logprobs_are_those_of_the_untouched_softmax() {
    let logits = [1.0, 2.0, 3.0, f32::NAN];
    let params = SamplingParams { logprobs: Some(2), suppress: vec![2], logit_bias: vec![(0, 50.0)], ..greedy() };
    let sampled = Sampler::new(params).sample(&logits, None).unwrap();
    let total = (1.0_f32.exp() + 2.0_f32.exp() + 3.0_f32.exp()).ln();
    let logprobs = sampled.logprobs.unwrap();
    assert_eq!(sampled.token, 0);
    assert!((logprobs.sampled - (1.0 - total)).abs() < 1e-6);
    assert_eq!(logprobs.top.iter().map(|(t, _)| *t).collect::<Vec<_>>(), [2, 1]);
    assert!((logprobs.top[0].1 - (3.0 - total)).abs() < 1e-6);
    assert_eq!(Sampler::new(plain()).sample(&logits, None).unwrap().logprobs, None);
}

#[test]
fn a_mask_that_allows_nothing_is_an_error() {
    let error = Sampler::new(plain()).sample(&[0.0; 40], Some(&[0])).unwrap_err();
    assert!(error.to_string().starts_with("none of 40 tokens may be sampled"));
    let forced = Sampler::new(plain()).sample(&[0.0; 40], Some(&[0, 1 << 5])).unwrap();
    assert_eq!(forced.token, 37);
}

#[test]
fn a_seed_that_was_drawn_repeats_the_sequence() {
    let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32).collect();
    let mut first = Sampler::new(SamplingParams { seed: None, ..plain() });
    let mut second = Sampler::new(SamplingParams { seed: Some(first.seed()), ..plain() });
    for _ in 0..50 {
        let token = first.sample(&logits, None).unwrap().token;
        assert_eq!(second.sample(&logits, None).unwrap().token, token);
        first.accept(token);
        second.accept(token);
    }
    assert_eq!((first.generated(), second.generated()), (50, 50));
}

#[test]
fn the_request_wins_over_flags_over_the_model_over_the_builtin() {
    let request = SamplingOverrides { temperature: Some(0.1), suppress: Some(vec![9, 3]), ..Default::default() };
    let flags = SamplingOverrides { temperature: Some(0.2), top_k: Some(20), ..Default::default() };
    let model = SamplingOverrides {
        temperature: Some(0.3),
        top_k: Some(30),
        top_p: Some(0.3),
        suppress: Some(vec![3, 4]),
        ..Default::default()
    };
    let expected = SamplingParams {
        temperature: 0.1,
        top_k: 20,
        top_p: 0.3,
        suppress: vec![3, 4, 9],
        ..SamplingParams::default()
    };
    assert_eq!(resolve(&request, &flags, &model), Ok(expected));
    let nothing = SamplingOverrides::default();
    assert_eq!(resolve(&nothing, &nothing, &nothing), Ok(SamplingParams::default()));
}

#[test]
fn what_is_out_of_range_is_named() {
    let refused = |request: SamplingOverrides| -> ParamError {
        resolve(&request, &SamplingOverrides::default(), &SamplingOverrides::default()).unwrap_err()
    };
    let none = SamplingOverrides::default;
    let cases = [
        (SamplingOverrides { temperature: Some(-1.0), ..none() }, "temperature"),
        (SamplingOverrides { temperature: Some(f32::INFINITY), ..none() }, "temperature"),
        (SamplingOverrides { temperature: Some(f32::NAN), ..none() }, "temperature"),
        (SamplingOverrides { top_p: Some(-0.1), ..none() }, "top_p"),
        (SamplingOverrides { top_p: Some(1.1), ..none() }, "top_p"),
        (SamplingOverrides { min_p: Some(-0.1), ..none() }, "min_p"),
        (SamplingOverrides { repetition_penalty: Some(0.0), ..none() }, "repetition_penalty"),
        (SamplingOverrides { presence_penalty: Some(2.5), ..none() }, "presence_penalty"),
        (SamplingOverrides { frequency_penalty: Some(f32::NAN), ..none() }, "frequency_penalty"),
        (SamplingOverrides { logit_bias: Some(vec![(1, 1.0), (42, f32::NAN)]), ..none() }, "logit_bias[42]"),
        (SamplingOverrides { logprobs: Some(129), ..none() }, "logprobs"),
    ];
    for (request, field) in cases {
        assert_eq!(refused(request).field, field);
    }
    let error = refused(SamplingOverrides { top_p: Some(1.5), ..none() });
    assert_eq!(error.to_string(), "top_p is 1.5; it must be from 0 to 1");
}
