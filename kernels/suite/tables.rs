//! Tables of integers, hashes that address tables, and products of runs.

use bantam_graph::{HashHead, NgramHash, Route, Scoring};

use crate::bench::{Bench, Sketch, VOCAB};

#[test]
fn integers_are_looked_up_and_name_experts() {
    let bench = Bench::new(|s| {
        let ids = s.ids.clone();
        let table = s.graph.tensor("chosen.below9", &[VOCAB, 3]);
        let chosen = s.graph.lookup("chosen", &ids, &table);
        let scores = s.floats("scores", 9);
        let route = Route { scores, used: 3, ids: Some(chosen), normalize: true, scale: 1.5, ..Route::default() };
        let (ids, weights) = s.graph.route("route", Route { scoring: Scoring::SqrtSoftplus, ..route });
        let names = s.graph.tensor("names", &[9, 4]);
        let named = s.graph.embed("named", &ids, &names, 1.0);
        s.graph.mul("y", &named, &weights)
    });
    bench.check(1e-6, |seen| {
        let (table, names) = (seen.weight("chosen.below9"), seen.weight("names"));
        let (tokens, scores) = (seen.rows("ids"), seen.rows("scores"));
        assert_eq!(seen.rows("chosen"), seen.rows("route.ids"));
        let row = |(token, outputs): (&Vec<f64>, &Vec<f64>)| {
            let ids: Vec<usize> = table[token[0] as usize * 3..][..3].iter().map(|id| *id as usize).collect();
            let score = |e: &usize| (1.0 + outputs[*e].exp()).ln().sqrt();
            let sum: f64 = ids.iter().map(score).sum();
            let weighted = |e: &usize| {
                let weight = score(e) / sum * 1.5;
                names[e * 4..e * 4 + 4].iter().map(|x| x * weight).collect::<Vec<_>>()
            };
            ids.iter().flat_map(weighted).collect()
        };
        tokens.iter().zip(&scores).map(row).collect()
    });
}

/// Integers that stand for the tokens before: any table of them will do.
fn places(s: &mut Sketch) -> Vec<String> {
    let ids = s.ids.clone();
    let mut place = |name: &str| {
        let table = s.graph.tensor(&format!("{name}.below5"), &[VOCAB, 1]);
        s.graph.lookup(name, &ids, &table)
    };
    vec![place("zero"), place("one"), place("two")]
}

#[test]
fn ngrams_are_hashed_up_to_the_boundary() {
    // Products that overflow 64 bits, an order of each length, and a boundary that a fifth of the tokens are.
    let multipliers = vec![0x9e37_79b9_7f4a_7c15, 3, u64::MAX - 58];
    let heads = vec![
        HashHead { order: 1, rows: 7, offset: 0 },
        HashHead { order: 2, rows: 11, offset: 7 },
        HashHead { order: 3, rows: 13, offset: 18 },
        HashHead { order: 3, rows: 5, offset: 2 },
    ];
    let hash = NgramHash { ids: Vec::new(), boundary: 4, multipliers: multipliers.clone(), heads: heads.clone() };
    let bench = Bench::new(|s| {
        let ids = places(s);
        let hashes = s.graph.ngram_hash("hashes", NgramHash { ids, ..hash });
        let table = s.graph.tensor("table", &[31, 6]);
        s.graph.embed("y", &hashes, &table, 1.0)
    });
    bench.check(0.0, |seen| {
        let table = seen.weight("table");
        let places = ["zero", "one", "two"].map(|name| seen.rows(name));
        let row = |i: usize| {
            let mut context = places.each_ref().map(|place| place[i][0] as u128);
            if context[1] == 4 {
                context[2] = 4;
            }
            let hash = |head: &HashHead| {
                let terms = context.iter().zip(&multipliers).map(|(id, m)| (id * u128::from(*m)) as u64);
                let mixed = terms.take(head.order).fold(0, |mixed, term| mixed ^ term);
                head.offset as usize + (mixed % u64::from(head.rows)) as usize
            };
            heads.iter().flat_map(|head| table[hash(head) * 6..][..6].to_vec()).collect()
        };
        (0..places[0].len()).map(row).collect()
    });
}

#[test]
fn products_of_runs() {
    for (width, groups) in [(160, 2), (36, 36), (51, 3), (100, 1)] {
        let bench = Bench::new(|s| {
            let (a, b) = (s.floats("a", width), s.floats("b", width));
            s.graph.dot("y", &a, &b, groups)
        });
        bench.check(1e-6, |seen| {
            let b = seen.rows("b");
            let row = |(a, b): (&Vec<f64>, &Vec<f64>)| {
                let run = width / groups;
                let product = |g: usize| (g * run..(g + 1) * run).map(|i| a[i] * b[i]).sum();
                (0..groups).map(product).collect()
            };
            seen.rows("a").iter().zip(&b).map(row).collect()
        });
    }
}
