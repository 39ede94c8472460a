//! Rows and the experts that were chosen for them.

use super::*;
use bantam_cuda::linear::{Assignment, ExpertProduct};

/// Choices of experts for rows.
struct Choices {
    experts: usize,
    share: usize,
    ids: Vec<u32>,
}

impl Choices {
    /// `used` different experts for each of `rows` rows; with `holes`, now and then none instead.
    fn new(numbers: &mut Numbers, experts: usize, rows: usize, used: usize, holes: bool) -> Self {
        let mut ids = Vec::new();
        for _ in 0..rows {
            let mut order: Vec<u32> = (0..experts as u32).collect();
            for i in 0..used {
                order.swap(i, i + (numbers.next() as usize) % (experts - i));
                ids.push(if holes && numbers.next().is_multiple_of(5) { u32::MAX } else { order[i] });
            }
        }
        Choices { experts, share: used, ids }
    }

    /// Products with the experts, as they come from the device; what is not computed stays at −7.
    fn multiply(
        &self,
        linear: &Linear,
        matrix: &Matrix,
        x: &[f32],
        share: usize,
        extras: [Option<Address>; 2],
    ) -> Vec<f32> {
        let device = linear.device();
        let [_, width, _] = matrix.shape();
        let operand = Operand::new(linear, matrix, x, false);
        let ids = Buffer::of_u32(device, &self.ids, "ids").unwrap();
        let out = Buffer::of_f32(device, &vec![-7.0; self.ids.len() * width], "out").unwrap();
        let mut assignment = Assignment::new(device, self.ids.len(), self.experts).unwrap();
        linear.assign(ids.address(), self.ids.len(), &mut assignment).unwrap();
        let product = ExpertProduct {
            matrix,
            input: operand.input(),
            share,
            ids: ids.address(),
            assignment: Some(&assignment),
            pairs: self.ids.len(),
            out: out.address(),
            factors: extras[0],
            bias: extras[1],
        };
        linear.multiply_experts(&product).unwrap();
        out.read_f32().unwrap()
    }
}

/// Whether few rows or many: each expert's rows give the bits of plain products.
fn meet_their_experts(ty: GgmlType, linear: &Linear, rows: usize, holes: bool) {
    let mut numbers = Numbers::new(rows as u64);
    let (experts, width, cols) = (7, 41, 2 * 256);
    let choices = Choices::new(&mut numbers, experts, rows, 3, holes);
    let weights = numbers.weights(ty, experts * width, cols);
    let matrix = linear.matrix(ty, [experts, width, cols], &weights, "experts").unwrap();
    let (factors, bias) = (numbers.floats(experts), numbers.floats(experts * width));
    let there = [&factors, &bias].map(|values| Buffer::of_f32(linear.device(), values, "extras").unwrap());
    let of_expert = |expert: usize| &weights[expert * weights.len() / experts..][..weights.len() / experts];
    // Rows that their experts share, as for gate and up; and a row for each pair, as for down.
    for (share, extras) in [(choices.share, [None, None]), (1, [Some(there[0].address()), Some(there[1].address())])] {
        let x = numbers.floats(choices.ids.len() / share * cols);
        let got = choices.multiply(linear, &matrix, &x, share, extras);
        for (pair, (got, id)) in got.chunks(width).zip(&choices.ids).enumerate() {
            if *id == u32::MAX {
                assert_eq!(got, vec![-7.0; width]);
                continue;
            }
            let expert = *id as usize;
            let mut expected = oracle::product(ty, of_expert(expert), &x[pair / share * cols..][..cols], cols, false);
            if extras[0].is_some() {
                expected.iter_mut().zip(&bias[expert * width..]).for_each(|(y, bias)| *y = *y * factors[expert] + bias);
            }
            assert_eq!(bits(got), bits(&expected), "{ty}, {rows} rows, pair {pair}");
        }
    }
}

#[test]
fn few_rows_meet_their_experts() {
    // 4 rows, 12 pairs for 7 experts: each pair for itself.
    assert!(!Linear::groups(12, 7));
    meet_their_experts(GgmlType::Q4_K, &TENSOR, 4, true);
    meet_their_experts(GgmlType::BF16, &TENSOR, 4, true);
}

#[test]
fn many_rows_meet_their_experts() {
    for rows in [5, 50, 130] {
        assert!(Linear::groups(3 * rows, 7));
        meet_their_experts(GgmlType::Q4_K, &TENSOR, rows, true);
        meet_their_experts(GgmlType::Q4_K, &PLAIN, rows, rows == 5);
    }
    meet_their_experts(GgmlType::BF16, &TENSOR, 30, true);
}

#[test]
fn an_expert_may_get_all_rows_and_others_none() {
    let mut numbers = Numbers::new(3);
    let (ty, width, cols) = (GgmlType::Q6_K, 33, 256);
    let choices = Choices { experts: 4, share: 1, ids: vec![2; 70] };
    let weights = numbers.weights(ty, 4 * width, cols);
    let matrix = TENSOR.matrix(ty, [4, width, cols], &weights, "experts").unwrap();
    let x = numbers.floats(70 * cols);
    let got = choices.multiply(&TENSOR, &matrix, &x, 1, [None, None]);
    let expected = oracle::product(ty, &weights[weights.len() / 2..][..weights.len() / 4], &x, cols, false);
    assert_eq!(bits(&got), bits(&expected));
}

#[test]
fn what_must_be_assigned_is_said() {
    let mut numbers = Numbers::new(4);
    let weights = numbers.weights(GgmlType::Q4_0, 2 * 32, 32);
    let matrix = TENSOR.matrix(GgmlType::Q4_0, [2, 32, 32], &weights, "experts").unwrap();
    let operand = Operand::new(&TENSOR, &matrix, &numbers.floats(9 * 32), false);
    let there = Buffer::new(TENSOR.device(), 4096, "ids and out").unwrap();
    let (ids, out) = (there.address(), there.address());
    let product = ExpertProduct {
        matrix: &matrix,
        input: operand.input(),
        share: 1,
        ids,
        assignment: None,
        pairs: 9,
        out,
        factors: None,
        bias: None,
    };
    let refused = TENSOR.multiply_experts(&product).unwrap_err().to_string();
    assert!(refused.contains("9 pairs must be assigned to 2 experts"), "{refused}");
}
