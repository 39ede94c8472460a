//! Addresses of a card that get their memory later (the driver's virtual memory management), so that state grows in place.

use std::collections::HashMap;

use cudarc::driver::{
    result::{self, DriverError},
    sys,
};

use crate::device::Address;

/// Addresses that were reserved, by the first.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    by_address: HashMap<Address, Reserved>,
}

#[derive(Debug)]
struct Reserved {
    /// Bytes of addresses.
    bytes: usize,
    /// The pieces of memory behind them, from the first byte on: bytes of each.
    pieces: Vec<usize>,
}

impl Reserved {
    fn backed(&self) -> usize {
        self.pieces.iter().sum()
    }
}

/// What memory of a device is asked for as.
fn properties(device: sys::CUdevice) -> sys::CUmemAllocationProp {
    let plain = sys::CUmemAllocationProp_st__bindgen_ty_1 {
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    };
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: plain,
    }
}

fn location(device: sys::CUdevice) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// Whether a device can do this: not where its driver shares it out to virtual machines, for example.
#[allow(unsafe_code, reason = "asks the driver")]
pub(super) fn is_supported(device: sys::CUdevice) -> bool {
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    // SAFETY: the device exists.
    unsafe { result::device::get_attribute(device, attribute) }.is_ok_and(|value| value != 0)
}

/// Bytes that memory comes in.
#[allow(unsafe_code, reason = "asks the driver")]
fn granularity(device: sys::CUdevice) -> Result<usize, DriverError> {
    let mut bytes = 0;
    let recommended = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    // SAFETY: both pointers are to values of this function.
    unsafe { sys::cuMemGetAllocationGranularity(&raw mut bytes, &properties(device), recommended) }.result()?;
    Ok(bytes.max(1))
}

impl Reservations {
    /// Takes addresses for so many bytes.
    #[allow(unsafe_code, reason = "speaks to the driver")]
    pub(super) fn reserve(&mut self, device: sys::CUdevice, bytes: usize) -> Result<Address, DriverError> {
        let bytes = bytes.checked_next_multiple_of(granularity(device)?).ok_or_else(too_much)?;
        let mut address = 0;
        // SAFETY: the pointer is to a value of this function; nothing is asked of where the addresses begin.
        unsafe { sys::cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0) }.result()?;
        self.by_address.insert(address, Reserved { bytes, pieces: Vec::new() });
        Ok(address)
    }

    /// Sees to it that there is memory behind the first `bytes` bytes. False if the addresses are not of this kind.
    #[allow(unsafe_code, reason = "speaks to the driver")]
    pub(super) fn back(&mut self, device: sys::CUdevice, address: Address, bytes: usize) -> Result<bool, DriverError> {
        let Some(reserved) = self.by_address.get_mut(&address) else { return Ok(false) };
        let backed = reserved.backed();
        if bytes <= backed {
            return Ok(true);
        }
        let more = (bytes - backed).checked_next_multiple_of(granularity(device)?).ok_or_else(too_much)?;
        if more > reserved.bytes - backed {
            return Err(too_much());
        }
        let (mut handle, at) = (0, address + backed as u64);
        let access = sys::CUmemAccessDesc {
            location: location(device),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the addresses are of this reservation and have no memory yet. The handle is not needed once the memory is
        // mapped, which keeps it; where mapping fails, releasing it frees the memory.
        unsafe {
            sys::cuMemCreate(&raw mut handle, more, &properties(device), 0).result()?;
            let mapped = sys::cuMemMap(at, more, 0, handle, 0).result();
            let released = sys::cuMemRelease(handle).result();
            mapped.and(released)?;
            if let Err(error) = sys::cuMemSetAccess(at, more, &access, 1).result() {
                let _ = sys::cuMemUnmap(at, more);
                return Err(error);
            }
        }
        reserved.pieces.push(more);
        Ok(true)
    }

    /// Gives addresses and memory back, which nothing uses any more. False if they are not of this kind.
    #[allow(unsafe_code, reason = "speaks to the driver")]
    pub(super) fn free(&mut self, address: Address) -> bool {
        let Some(reserved) = self.by_address.remove(&address) else { return false };
        let mut at = address;
        // SAFETY: the addresses came from `reserve`, the pieces from `back`, and whoever had them has dropped them.
        unsafe {
            for piece in &reserved.pieces {
                let _ = sys::cuMemUnmap(at, *piece);
                at += *piece as u64;
            }
            let _ = sys::cuMemAddressFree(address, reserved.bytes);
        }
        true
    }
}

fn too_much() -> DriverError {
    DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}
