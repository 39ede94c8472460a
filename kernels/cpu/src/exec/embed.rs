//! Rows of a table by id, decoded from the file as they are needed.

use bantam_gguf::dequantize_row;

use crate::compile::Table;

/// Writes the row of each id, times `scale`. Ids are below the table's rows: the step was checked.
pub(crate) fn embed(table: &Table, ids: &[u32], scale: f32, out: &mut [f32]) {
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(table.width)) {
        let decoded = dequantize_row(table.data.ty, &table.data.bytes, *id as usize, out);
        assert!(decoded.is_ok(), "row {id} of {}: {decoded:?}", table.rows);
        if scale != 1.0 {
            out.iter_mut().for_each(|x| *x *= scale);
        }
    }
}
