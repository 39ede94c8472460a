//! Weights on the device.

use std::sync::Arc;

use bantam_gguf::{GgmlType, dequantize};

use super::{
    Format, Linear,
    kernels::Kernels,
    layout::{STRIP, SUPERBLOCK, order},
};
use crate::{
    device::{Address, Argument, Buffer, DeviceError, Launch},
    source::Unit,
};

/// Why a matrix cannot be put on the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// The bytes do not fit the shape.
    #[error("`{what}`: {ty} weights of shape {shape:?} do not lie in {bytes} bytes")]
    Size {
        /// The weight's name.
        what: String,
        /// Its number format.
        ty: GgmlType,
        /// `[stack, out, in]`.
        shape: [usize; 3],
        /// Bytes given.
        bytes: usize,
    },
    /// The device has no room, or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Bytes of a file that are brought into the device's order at a time.
const PART: usize = 64 << 20;

/// A weight `[stack, out, in]` on the device: strips of 32 rows, the last one of each matrix filled up with zeros, as is the last
/// superblock of 256 columns. It takes the bytes that the file has, and those zeros. Integers and doubles, which no kernel
/// reads, become `F32`.
#[derive(Debug)]
pub struct Matrix {
    pub(super) ty: GgmlType,
    pub(super) stack: usize,
    pub(super) out: usize,
    pub(super) cols: usize,
    pub(super) superblocks: usize,
    pub(super) matrix_bytes: usize,
    pub(super) kernels: Arc<Kernels>,
    book: Option<Arc<Buffer>>,
    buffer: Buffer,
}

/// What the kernel that interleaves rows is told of them.
struct Layout {
    bytes: u32,
    file_bytes: u32,
    row_bytes: u32,
    superblocks: u32,
    order: Address,
}

impl Argument for Layout {
    fn write(&self, out: &mut Vec<u8>) {
        for number in [self.bytes, self.file_bytes, self.row_bytes, self.superblocks] {
            number.write(out);
        }
        self.order.write(out);
    }
}

impl Linear {
    /// Bytes that a matrix will take on the device.
    pub fn matrix_bytes(ty: GgmlType, [stack, out, cols]: [usize; 3]) -> usize {
        let ty = if order(ty).is_some() { ty } else { GgmlType::F32 };
        let row = order(ty).map_or(0, |order| order.len()) * cols.div_ceil(SUPERBLOCK);
        stack * out.next_multiple_of(STRIP) * row
    }

    /// Puts a weight of shape `[stack, out, in]` on the device. `bytes` are its rows, as in the file.
    ///
    /// # Errors
    /// Where the bytes do not fit the shape, and where the device has no room or failed.
    pub fn matrix(&self, ty: GgmlType, shape: [usize; 3], bytes: &[u8], what: &str) -> Result<Matrix, MatrixError> {
        let [stack, out, cols] = shape;
        let wrong = || MatrixError::Size { what: what.into(), ty, shape, bytes: bytes.len() };
        let row_bytes = ty.row_bytes(cols).ok_or_else(wrong)?;
        let rows = stack.checked_mul(out).ok_or_else(wrong)?;
        if rows.checked_mul(row_bytes) != Some(bytes.len()) {
            return Err(wrong());
        }
        let Some(order) = order(ty) else {
            let mut values = vec![0.0; rows * cols];
            dequantize(ty, bytes, &mut values).map_err(|_| wrong())?;
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            return self.matrix(GgmlType::F32, shape, &bytes, what);
        };
        let Format { kernels, book } = self.format(ty)?;
        let superblocks = cols.div_ceil(SUPERBLOCK);
        let matrix_bytes = out.next_multiple_of(STRIP) * superblocks * order.len();
        let buffer = Buffer::new(&self.device, stack * matrix_bytes, what)?;
        let matrix = Matrix { ty, stack, out, cols, superblocks, matrix_bytes, kernels, book, buffer };
        if !bytes.is_empty() {
            self.interleave(&matrix, &order, row_bytes, bytes, what)?;
        }
        Ok(matrix)
    }

    /// Uploads the rows part by part, and has the device bring them into its order.
    fn interleave(
        &self,
        matrix: &Matrix,
        order: &[u16],
        row_bytes: usize,
        bytes: &[u8],
        what: &str,
    ) -> Result<(), DeviceError> {
        let device = &self.device;
        let kernel = self.shared.interleave.get(device, &Unit::plain("weights.cu"), "interleave")?;
        let order_bytes: Vec<u8> = order.iter().flat_map(|place| place.to_ne_bytes()).collect();
        let order_there = Buffer::of(device, &order_bytes, "the order of a format's bytes")?;
        let layout = Layout {
            bytes: order.len() as u32,
            file_bytes: (SUPERBLOCK / matrix.ty.block_len() * matrix.ty.block_bytes()) as u32,
            row_bytes: row_bytes as u32,
            superblocks: matrix.superblocks as u32,
            order: order_there.address(),
        };
        // Matrices without a rest of a strip are one.
        let whole = matrix.out.is_multiple_of(STRIP);
        let run = if whole { matrix.stack * matrix.out } else { matrix.out };
        let part_rows = (PART / row_bytes.max(1)).clamp(1, 1 << 20).next_multiple_of(STRIP).min(run);
        let staging = Buffer::new(device, part_rows * row_bytes, &format!("copying `{what}`"))?;
        let strip_bytes = STRIP * matrix.superblocks * order.len();
        let words = (order.len() * STRIP / 4) as u32;
        for (index, rows) in bytes.chunks(run * row_bytes).enumerate() {
            let start = matrix.address() + (index * run.next_multiple_of(STRIP) / STRIP * strip_bytes) as u64;
            for (part, rows) in rows.chunks(part_rows * row_bytes).enumerate() {
                device.upload(staging.address(), rows)?;
                let count = rows.len() / row_bytes;
                let grid = [words.div_ceil(THREADS), matrix.superblocks as u32, count.div_ceil(STRIP) as u32];
                let launch = Launch::new(grid, THREADS)
                    .arg(&staging)
                    .arg(start + (part * part_rows / STRIP * strip_bytes) as u64)
                    .arg(count as u32)
                    .arg(&layout);
                device.launch(kernel, &launch)?;
            }
        }
        device.synchronize()
    }
}

/// Threads of a block that interleaves.
const THREADS: u32 = 256;

impl Matrix {
    /// The number format on the device.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// `[stack, out, in]`.
    pub fn shape(&self) -> [usize; 3] {
        [self.stack, self.out, self.cols]
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// Whether it meets activations as they are, not rounded ones.
    pub fn takes_floats(&self) -> bool {
        !self.ty.is_quantized()
    }

    pub(super) fn address(&self) -> Address {
        self.buffer.address()
    }

    /// Where the format's code book lies; zero if it has none.
    pub(super) fn book(&self) -> Address {
        self.book.as_ref().map_or(0, |book| book.address())
    }
}
