//! Kernels of rows, on the emulated device, against plain loops.

use std::sync::Arc;

use bantam_cuda::{Buffer, Device, Launch, source::Unit};
use bantam_cuda_emulated::Emulated;

#[test]
fn norms() {
    let device: Arc<dyn Device> = Arc::new(Emulated::new());
    let kernel = device.kernel(&Unit::plain("rows.cu"), "norm").unwrap();
    let (rows, width) = (3, 70);
    let x: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.37).sin()).collect();
    let weight: Vec<f32> = (0..width).map(|i| 1.0 + i as f32 * 0.01).collect();
    let (x_there, weight_there) =
        (Buffer::of_f32(&device, &x, "x").unwrap(), Buffer::of_f32(&device, &weight, "w").unwrap());
    let out = Buffer::new(&device, x.len() * 4, "out").unwrap();
    let launch = Launch::new([rows as u32, 1, 1], 64)
        .arg(&x_there)
        .arg(&out)
        .arg(&weight_there)
        .arg(width as u32)
        .arg(width as u32)
        .arg(1_u32)
        .arg(1e-6_f32);
    device.launch(kernel, &launch).unwrap();
    for (row, got) in x.chunks(width).zip(out.read_f32().unwrap().chunks(width)) {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / width as f32;
        for ((x, w), got) in row.iter().zip(&weight).zip(got) {
            assert!((x / (mean + 1e-6).sqrt() * w - got).abs() < 1e-5);
        }
    }
}
